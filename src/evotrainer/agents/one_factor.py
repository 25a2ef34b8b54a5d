"""The one-factor agent: every training of a round differs from the champion in one factor; no model, no network.

Each round: read the diagnosis, list every valid single-factor change with a prior of its gain (catalogue, and stored
rollouts for reward moves), update by the run's verdicts, draw one gain per change from its posterior and rank by gain
per compute (Thompson sampling), backtest the best, drop what the replay contradicts, and propose a varied few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from evotrainer.agents.base import Tools
from evotrainer.agents.belief import MoveOutcome, informed, observations, posterior
from evotrainer.agents.changes import earlier_attempt
from evotrainer.agents.forecasting import promotion_chances, proof_of
from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.frozen import Frozen
from evotrainer.records.interventions import Backtest, ConsideredChange, Forecast, Intervention
from evotrainer.records.skills import SkillUse

BACKTEST_WORTH = {"supports": 0.02, "silent": 0.0, "contradicts": 0.0}
"""What a backtest adds to the drawn gain, score units; a contradiction drops the change altogether."""
CONSIDERED = 30
"""At most this many changes are recorded as considered, unless more were replayed."""


class Options(Frozen):
    """What a task file may set under `run.agent_options`."""

    min_effect: float = Field(0.01, ge=0)
    """Gains below this are not worth a branch, score units."""
    ceiling: float = Field(0.97, gt=0, le=1)
    """Search score above which no worthwhile gain is left."""
    spare: int = Field(2, ge=0)
    """Proposals beyond the number of branches, in case the loop refuses one."""
    max_backtests: int = Field(24, ge=1)
    rollouts: int = Field(3000, ge=0)
    """Stored rollouts to read."""
    max_cost: float = Field(1.45, gt=0)
    """Most compute of a proposed branch, as a multiple of the champion's: a recipe must win by itself, not by more
    steps or samples."""
    stop_chance: float = Field(0.1, ge=0, le=1)
    """Least probability of exceeding `min_effect` at which a change is tried;
    the agent advises to stop where none is."""


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate with its posterior, the gain drawn from it, and its backtest."""

    candidate: CandidateMove
    mean: float
    sd: float
    drawn: float
    backtest: Backtest | None = None
    uses: tuple[SkillUse, ...] = ()
    """Skills that moved its prior."""
    cites: tuple[str, str] = ("", "")
    """(earlier branch, assumption changed since), where the same change was tried before."""

    @property
    def value(self) -> float:
        """Drawn gain per unit of compute; a loss is not divided, or an expensive one would look smaller."""
        worth = BACKTEST_WORTH[self.backtest.verdict] if self.backtest else 0.0
        gain = self.drawn + worth
        return gain / self.candidate.cost if gain > 0 else gain * self.candidate.cost


class OneFactorAgent:
    """Deterministic given (seed, round) and what the briefing and the tools say."""

    most_changes = 1

    def __init__(self, seed: int, options: Options | None = None, name: str = "one_factor") -> None:
        self.name = name
        self.seed = seed
        self.options = options or Options()

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """The round's proposal, or the advice to stop."""
        s = situation(briefing, tools, self.options.rollouts)
        if s.score is not None and s.score >= self.options.ceiling:
            return self._stop(f"search score {s.score:.1%} is at the ceiling of {self.options.ceiling:.0%}")
        ranked = self.rank(briefing, tools, s)
        if not ranked:
            return self._stop("every change of the catalogue has been tried, does not apply or costs more than is left")
        if not briefing.feedback and max(self.chance(r) for r in ranked) < self.options.stop_chance:
            return self._stop(
                f"saturated: no untried change gains {100 * self.options.min_effect:.1f} points with a probability "
                f"of {self.options.stop_chance:.0%} or more"
            )
        kept, vetoed = self._replay(ranked, s, briefing, tools)
        if not kept:
            return self._stop("the backtests contradict every change that was worth a try", vetoed)
        chosen = self._choose(kept, briefing)
        return Proposal(
            agent=self.name,
            interventions=self._interventions(chosen, s, briefing),
            reasoning=_reasoning(briefing, s, chosen, vetoed),
            considered=self._considered(ranked, chosen, kept, vetoed),
        )

    def _interventions(
        self, chosen: Sequence[RankedCandidate], s: Situation, briefing: Briefing
    ) -> tuple[Intervention, ...]:
        """The proposed interventions, each with its forecast, the skills behind it and what it reopens."""
        proofs = [proof_of(briefing, r.mean) for r in chosen]
        chances = promotion_chances([(r.mean, r.sd) for r in chosen], proofs, briefing.branches_wanted)
        return tuple(
            r.candidate.intervention(
                s,
                self.options.min_effect,
                briefing.champion.branch,
                forecast=Forecast(mean=r.mean, sd=r.sd, promote=p),
                skills=r.uses,
                reopens=r.cites[0],
                changed=r.cites[1],
            )
            for r, p in zip(chosen, chances, strict=True)
        )

    def _considered(
        self,
        ranked: Sequence[RankedCandidate],
        chosen: Sequence[RankedCandidate],
        kept: Sequence[RankedCandidate],
        vetoed: Sequence[RankedCandidate],
    ) -> tuple[ConsideredChange, ...]:
        """The changes looked at most closely: all that were replayed, and of the rest the best."""
        replayed = {r.candidate.name: r for r in (*kept, *vetoed)}
        taken = {r.candidate.name for r in chosen}
        rest = [r for r in ranked if r.candidate.name not in replayed][: max(0, CONSIDERED - len(replayed))]
        out = []
        for r in [*chosen, *(x for x in kept if x.candidate.name not in taken), *vetoed, *rest]:
            name = r.candidate.name
            contradicted = r.backtest is not None and r.backtest.verdict == "contradicts"
            fate = "proposed" if name in taken else "vetoed" if contradicted else "set aside"
            reason = r.backtest.reason if r.backtest and contradicted else ""
            if fate == "set aside":
                poor = self.chance(r) < self.options.stop_chance
                reason = (
                    f"too small a chance of {100 * self.options.min_effect:g} points" if poor else "others drew better"
                )
            out.append(
                ConsideredChange(
                    factor=r.candidate.factor,
                    new=r.candidate.variant.value,
                    move=name,
                    mean=r.mean,
                    sd=r.sd,
                    chance=self.chance(r),
                    fate=fate,
                    reason=reason,
                )
            )
        return tuple(out)

    def rank(self, briefing: Briefing, tools: Tools, s: Situation) -> list[RankedCandidate]:
        """Every candidate with its posterior and one draw from it, best value first."""
        pool = candidate_pool(briefing, tools, s, self.options.max_cost)
        past = observations(briefing.branches)
        revision = briefing.notes.get("revision", "0")
        rng = np.random.default_rng([self.seed, briefing.round, int(revision) if revision.isdigit() else 0])
        ranked = [self._draw(c, past, briefing, rng) for c in pool]
        return sorted((r for r in ranked if r is not None), key=lambda r: (-r.value, r.candidate.name))

    def _draw(
        self, c: CandidateMove, past: Sequence[MoveOutcome], briefing: Briefing, rng: np.random.Generator
    ) -> RankedCandidate | None:
        """Prior, skills, verdicts, and one draw; None where it was tried before and nothing changed since."""
        noise = float(rng.standard_normal())
        cites = earlier_attempt(briefing, c.factor, c.child.value(c.factor))
        if cites is not None and not cites[1]:
            return None
        c, uses = informed(c, briefing.skills, briefing.champion.recipe)
        mean, sd = posterior(c, past, briefing.champion.branch)
        return RankedCandidate(c, mean, sd, mean + sd * noise, uses=uses, cites=cites or ("", ""))

    def chance(self, r: RankedCandidate) -> float:
        """Probability that the change gains more than `min_effect`."""
        from scipy.special import ndtr

        return float(ndtr((r.mean - self.options.min_effect) / r.sd))

    def _replay(
        self, ranked: Sequence[RankedCandidate], s: Situation, briefing: Briefing, tools: Tools
    ) -> tuple[list[RankedCandidate], list[RankedCandidate]]:
        """(kept, vetoed): backtest from the best value down, until enough varied candidates are kept."""
        kept: list[RankedCandidate] = []
        vetoed: list[RankedCandidate] = []
        least = 0.0 if briefing.feedback else self.options.stop_chance  # what a human asks for is tried
        for r in [r for r in ranked if self.chance(r) >= least][: self.options.max_backtests]:
            iv = r.candidate.intervention(s, self.options.min_effect, briefing.champion.branch)
            tested = replace(r, backtest=tools.backtest(iv))
            contradicted = tested.backtest is not None and tested.backtest.verdict == "contradicts"
            (vetoed if contradicted else kept).append(tested)
            if len({k.candidate.factor for k in kept}) >= 2 * briefing.branches_wanted + self.options.spare:
                break
        return sorted(kept, key=lambda r: (-r.value, r.candidate.name)), vetoed

    def _choose(self, kept: Sequence[RankedCandidate], briefing: Briefing) -> list[RankedCandidate]:
        """Best first, each factor once before any factor twice."""
        first = {r.candidate.factor: r for r in reversed(kept)}
        order = sorted(kept, key=lambda r: first[r.candidate.factor] is not r)
        return order[: briefing.branches_wanted + self.options.spare]

    def _stop(self, why: str, vetoed: Sequence[RankedCandidate] = ()) -> Proposal:
        lines = [f"- vetoed: {r.candidate.name}: {r.backtest.reason}" for r in vetoed if r.backtest]
        return Proposal(agent=self.name, interventions=(), reasoning="\n".join(lines), stop=why)


def _reasoning(
    briefing: Briefing, s: Situation, chosen: Sequence[RankedCandidate], vetoed: Sequence[RankedCandidate]
) -> str:
    """Why these were proposed, as lines for a human."""
    worst = sorted(s.symptoms.items(), key=lambda kv: (-kv[1], kv[0]))[:4]
    lines = ["Diagnosis: " + (", ".join(f"{k} (severity {v:.2f})" for k, v in worst) or "nothing stands out") + "."]
    if s.evidence:
        fit = s.evidence.fit(s.recipe.rewards)
        lines.append(f"The present reward's alignment with the outcome is {fit.aligned:.2f} on stored rollouts.")
    for r in chosen:
        replay = f"; backtest {r.backtest.verdict}: {r.backtest.reason}" if r.backtest else ""
        lines.append(
            f"- {r.candidate.name}: expected {100 * r.mean:+.1f} +/- {100 * r.sd:.1f} points at "
            f"{r.candidate.cost:g}x cost{replay}"
        )
        if r.cites[0]:
            lines.append(f"  tried before as {r.cites[0]}; {r.cites[1]} changed since")
        lines += [
            f"  skill {u.skill} ({100 * u.mean:+.1f} +/- {100 * u.sd:.1f}"
            + (f"; {', '.join(u.doubts)}" if u.doubts else "")
            + f") moved its prior from {100 * u.before_mean:+.1f} +/- {100 * u.before_sd:.1f} to "
            f"{100 * u.after_mean:+.1f} +/- {100 * u.after_sd:.1f}"
            for u in r.uses
        ]
    lines += [f"- vetoed: {r.candidate.name}: {r.backtest.reason}" for r in vetoed if r.backtest]
    return "\n".join(lines)
