"""The statistical agent: one linear model over all trainings, single changes tried on one seed, proof afterwards.

Search: each round trains recipes that differ from the champion in one factor, one seed each. Every training informs
every factor (projections/pooled.py). What to train next is drawn from the posterior (Thompson 1933, as in contextual
bandits); the search ends where further trainings are not expected to be worth their cost (knowledge gradient, Frazier
and Powell 2010). Proposal: the change that is best by posterior mean. Priors come from the catalogue, from how stored
rollouts rate rewards, and from skills; what a backtest contradicts is not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from evotrainer.agents.base import Tools
from evotrainer.agents.belief import informed
from evotrainer.agents.changes import earlier_attempt
from evotrainer.agents.forecasting import promotion_chances, proof_of
from evotrainer.agents.moves import CandidateMove, Situation, in_words
from evotrainer.agents.one_factor import OneFactorAgent, Options
from evotrainer.agents.pool import affordable, candidate_pool, situation, start_of
from evotrainer.agents.single_changes import (
    Arm,
    Search,
    arms_for,
    knowledge_gradients,
    unconfirmed,
    unscreened,
)
from evotrainer.projections.pooled import Prior, TrainingScore, dearer, fit, level
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import ConsideredChange, Forecast
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import ProbePlan, ProbeRecord, SearchChoice, SearchPlan
from evotrainer.records.text import counted

ARMS = 64
"""Changes that a search looks at: those of the best mean plus one standard deviation."""
REDRAWS = 20
"""Draws after which a recipe that was trained already is taken for another seed."""
INVALID_GAIN = -0.05
"""What a search training with a validity finding counts as, score units below the champion."""


class PooledOptions(Options):
    """What a task file may set under `run.agent_options`."""

    worth: float = Field(0.0005, ge=0)
    """Expected gain, score units, below which one more search training is not worth its cost."""
    screen: int = Field(14, ge=0)
    """Search trainings of a round that change another factor each, before any are drawn from the model."""
    confirm: int = Field(8, ge=0)
    """Search trainings that then train the best of these factors again, at the same or other values, where one
    training's noise hides what they gain."""
    prior_sd: float = Field(0.05, gt=0)
    """Prior standard deviation of a change, score units, at least: the catalogue is sure of idle moves for an agent
    that has three trainings for each, and what made the difference in three domains was worth 6 to 29 points."""
    sure: float = Field(0.65, ge=0.5, lt=1)
    """Probability of helping from which a change is proposed."""


class PooledAgent:
    """Deterministic given (seed, round) and what the briefing and the tools say.

    Where a run has no search trainings (`run.probes = 0`) it answers as the
    one-factor agent does.
    """

    most_changes = 1

    name = "statistical"

    def __init__(self, seed: int, options: PooledOptions | None = None) -> None:
        self.seed = seed
        self.options = options or PooledOptions()
        self.single = OneFactorAgent(seed, self.options, self.name)
        self._verdicts: dict[tuple[int, str, str, str], str] = {}
        self._known: tuple[tuple[Any, ...], Situation, list[Arm]] | None = None

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The next search trainings, or why there are no more."""
        return self._next(self._open(briefing, tools))

    def _next(self, s: Search) -> SearchPlan:
        briefing = s.briefing
        best, trained = self._best(s), self._best_trained(s)
        told = {
            "effects": s.model.effects(),
            "noise_sd": round(s.model.noise_sd, 6),
            "trainings": s.model.trainings,
            "choice": self._choice(briefing, trained),
            "expects": max(0.0, round(s.gain(best)[0], 6)),
        }
        if briefing.probes_left <= 0:
            return SearchPlan(stop="the round's search trainings are used up", **told)
        if not s.usable:
            return SearchPlan(stop="every change has been tried, does not apply, or is closed", **told)
        worth = float(knowledge_gradients(s, [None, *s.usable], briefing.probes_left).max())
        if worth < self.options.worth and not self._alone(s, set()):
            return SearchPlan(stop=f"further trainings are expected to gain {100 * worth:.2f} points each", **told)
        rng = np.random.default_rng([self.seed, briefing.round, len(briefing.probes)])
        wanted = min(briefing.probes_left, int(briefing.notes.get("workers", "1")))
        return SearchPlan(probes=tuple(self._drawn(s, rng, wanted)), **told)

    def _drawn(self, s: Search, rng: np.random.Generator, wanted: int) -> Iterator[ProbePlan]:
        """As many search trainings, each by a draw of its own."""
        known = {p.recipe.hash for p in s.briefing.probes}
        batch: list[str] = []
        for _ in range(wanted):
            arm = self._draw(s, rng, known, batch)
            if arm:
                known.add(arm.candidate.child.hash)
            batch.append(arm.candidate.factor if arm else "")
            yield plan_of(s, arm)

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """The change that is best by posterior mean, or the advice to stop."""
        if not briefing.probes:
            return self.single.propose(briefing, tools)
        s = self._open(briefing, tools)
        best = self._best(s)
        if best is None:
            judged = self._best(s, again=True)
            but = f" but what was judged as {branch_judged_with(s, judged)}" if judged else ""
            return Proposal(
                agent=self.name,
                interventions=(),
                reasoning=reasoning(s, None),
                stop=f"after {s.model.trainings} trainings nothing more{but} helps with a probability of "
                f"{self.options.sure:.0%}",
                considered=self._considered(s, None),
            )
        mean, sd = s.gain(best)
        # without the priors: they are wide so that much is tried, and what is best by them is overrated
        alone = fit(s.start, trainings_of(briefing), {}).gain(s.of(best), s.home)
        (chance,) = promotion_chances([alone], [proof_of(briefing, mean)], briefing.branches_wanted)
        forecast = Forecast(mean=mean, sd=sd, promote=chance)
        change = best.candidate.intervention(
            s.situation, self.options.min_effect, briefing.champion.branch, forecast=forecast
        )
        return Proposal(
            agent=self.name,
            interventions=(change,),
            reasoning=reasoning(s, best),
            considered=self._considered(s, best),
        )

    # -- what there is to choose from ----------------------------------------------------------------------------------

    def _open(self, briefing: Briefing, tools: Tools) -> Search:
        """Candidates with their priors, and the model after all trainings of the run."""
        start = start_of(briefing).recipe
        sit, known = self._on_offer(briefing, tools, start)
        paid = {c.name for c in affordable([a.candidate for a in known], briefing)}
        arms = [a for a in known if a.candidate.name in paid]
        # a composite change brings several levels, which share its prior
        shares = [(a, one, max(1, len(a.gains))) for a in arms for one in sorted(a.gains)]
        least = self.options.prior_sd
        priors = {one: Prior(a.candidate.mean / k, max(a.candidate.sd, least) / k**0.5) for a, one, k in shares}
        model = fit(start, trainings_of(briefing), priors, [x for a in arms for x in a.gains])
        return Search(briefing, sit, start, arms, model, self.options.max_cost)

    def _on_offer(self, briefing: Briefing, tools: Tools, start: Recipe) -> tuple[Situation, list[Arm]]:
        """What there is to choose from whatever budget is left: it stays so while the champion does, so that it is put
        together once, not for every search training."""
        b = briefing
        at = (b.round, b.champion.branch, len(b.branches), b.feedback, b.health, b.skills)
        if self._known is None or self._known[0] != at:
            sit = situation(briefing, tools, self.options.rollouts)
            kept = self._offered(briefing.model_copy(update={"budget_left": {}}), sit, tools)
            self._known = at, sit, arms_for(start, briefing.champion.recipe, kept)
        return self._known[1:]

    def _offered(self, briefing: Briefing, sit: Situation, tools: Tools) -> list[CandidateMove]:
        """The changes that a search looks at: of the best priors, what no backtest contradicts."""
        found = candidate_pool(briefing, tools, sit, self.options.max_cost)
        pool = [c for c in found if allowed(c, briefing)]
        pool = [informed(c, briefing.skills, briefing.champion.recipe)[0] for c in pool]
        pool.sort(key=lambda c: (-(c.mean + c.sd), c.name))
        kept = []
        for c in pool:
            iv = c.intervention(sit, self.options.min_effect, briefing.champion.branch)
            at = (briefing.round, briefing.champion.branch, iv.factor, level(iv.factor, iv.new)[1])
            if at not in self._verdicts:  # the champion's stored rollouts say the same all round long
                self._verdicts[at] = tools.backtest(iv).verdict
            if self._verdicts[at] != "contradicts":
                kept.append(c)
            if len(kept) >= ARMS:
                break
        return kept

    # -- choosing ------------------------------------------------------------------------------------------------------

    def _best(self, s: Search, again: bool = False) -> Arm | None:
        """The best by posterior mean of the changes that were tried, help with probability `sure` and were not judged
        yet; `again`: or were."""
        found = []
        for a in filter(s.tried, s.usable):
            mean, sd = s.gain(a)
            if mean > 0 and chance_of_gain(mean, sd) >= self.options.sure and (again or not branch_judged_with(s, a)):
                found.append((mean, a.candidate.name, a))
        return max(found, key=lambda x: x[:2])[2] if found else None

    def _best_trained(self, s: Search) -> ProbeRecord | None:
        """The search training of this champion that is best by the model, not by its score: of many single scores the
        highest is mostly lucky. None where the champion is better."""
        best, found = s.worth(None, s.model.mean), None
        for p in s.mine:
            arm = s.arm_of(p.changes) if p.score is not None and not p.invalid else None
            if arm is not None and (worth := s.worth(arm, s.model.mean)) > best:
                best, found = worth, p
        return found

    def _choice(self, briefing: Briefing, trained: ProbeRecord | None) -> SearchChoice:
        """What the search would settle on, with the score of its training."""
        if trained:
            return SearchChoice(changes=dict(trained.changes), score=trained.score)
        scores = briefing.champion.scores
        return SearchChoice(changes={}, score=float(np.mean(scores)) if scores else None)

    def _draw(self, s: Search, rng: np.random.Generator, known: set[str], batch: Sequence[str] = ()) -> Arm | None:
        """The best by one draw of all effects, drawn again where its recipe was trained already; None: the champion.
        `batch`: factors of the trainings that are asked for at once."""
        arms: list[Arm | None] = [*self._alone(s, known, batch)]
        if arms:
            effects = s.model.draw(rng)
            return max(arms, key=lambda a: s.worth(a, effects))
        best = None
        for _ in range(REDRAWS):
            effects = s.model.draw(rng)
            best = max([None, *s.usable], key=lambda a: s.worth(a, effects))
            if best is None or best.candidate.child.hash not in known:
                break
        return best

    def _alone(self, s: Search, known: set[str], batch: Sequence[str] = ()) -> list[Arm]:
        """The changes that are to be trained before any are drawn from all; none once that is done."""
        options = self.options
        first = unscreened(s, known, options.screen, batch)
        return first or (unconfirmed(s, options.confirm, batch) if options.screen else [])

    # -- what is said ------------------------------------------------------------------------------------------------

    def _considered(self, s: Search, best: Arm | None) -> tuple[ConsideredChange, ...]:
        out = []
        for a in s.arms:
            mean, sd = s.gain(a)
            out.append(
                ConsideredChange(
                    factor=a.candidate.factor,
                    new=a.candidate.variant.value,
                    move=a.candidate.name,
                    mean=mean,
                    sd=sd,
                    chance=chance_of_gain(mean - self.options.min_effect, sd),
                    fate="proposed" if a is best else "set aside",
                    reason="" if a is best else "others are better by the model of all trainings",
                )
            )
        return tuple(sorted(out, key=lambda c: (c.fate != "proposed", -c.mean, c.move)))


def chance_of_gain(mean: float, sd: float) -> float:
    """Probability that a normal gain is above 0."""
    from scipy.special import ndtr

    return float(ndtr(mean / max(sd, 1e-9)))


def reasoning(s: Search, best: Arm | None) -> str:
    """Diagnosis, the model's effects, and what is proposed, in lines."""
    worst = sorted(s.situation.symptoms.items(), key=lambda kv: (-kv[1], kv[0]))[:4]
    lines = ["Diagnosis: " + (", ".join(f"{k} (severity {v:.2f})" for k, v in worst) or "nothing stands out") + "."]
    trainings = counted(s.model.trainings, "training")
    lines.append(f"{trainings}, {100 * s.model.noise_sd:.1f} points of noise each; effects on search:")
    for e in s.model.effects()[:8]:
        what = f"{e.factor} = {in_words(e.value)}"
        lines.append(
            f"- {what}: {100 * e.mean:+.1f} +/- {100 * e.sd:.1f} points, in {counted(e.trainings, 'training')}"
        )
    if best:
        mean, sd = s.gain(best)
        gain_text = f"{100 * mean:+.1f} +/- {100 * sd:.1f} points over the champion"
        lines.append(f"Proposed: {best.candidate.name}; expected {gain_text}.")
    return "\n".join(lines)


def branch_judged_with(s: Search, arm: Arm) -> str:
    """The branch that was judged with the recipe of this change; empty: none."""
    mine = arm.candidate.child.hash
    return next((b.branch for b in s.briefing.branches if b.recipe.hash == mine and b.verdict is not None), "")


def trainings_of(briefing: Briefing) -> list[TrainingScore]:
    """All trainings of the run with their search scores."""
    base = start_of(briefing)
    seen = [TrainingScore(b.recipe, x, dearer(b, base)) for b in briefing.branches for x in b.scores]
    floor = float(np.mean(briefing.champion.scores)) + INVALID_GAIN if briefing.champion.scores else 0.0
    for p in briefing.probes:
        if p.score is not None:
            score = min(p.score, floor) if p.invalid else p.score
            seen.append(TrainingScore(p.recipe, score, dearer(p, base)))
        elif p.failed:
            seen.append(TrainingScore(p.recipe, floor))
    return seen


def plan_of(s: Search, arm: Arm | None) -> ProbePlan:
    """A search training as it is asked for: its change, and what the model expects of it; None: the champion's recipe
    under another seed."""
    mean, sd = s.gain(arm)
    made = {arm.candidate.factor: arm.candidate.variant.value} if arm else {}
    moves = (arm.candidate.name,) if arm else ()
    return ProbePlan(changes=made, moves=moves, gain=round(mean, 6), sd=round(sd, 6))


def allowed(c: CandidateMove, briefing: Briefing) -> bool:
    """False where this value was tried as a branch and nothing changed since."""
    cites = earlier_attempt(briefing, c.factor, c.child.factors().get(c.factor))
    return cites is None or bool(cites[1])
