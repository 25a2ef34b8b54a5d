"""The statistical agent: one linear model over all trainings, bundles of changes tried on one seed, proof afterwards.

Search: each round trains recipes that differ from the champion in up to `changes` factors, one seed each. Every
training informs every factor (projections/pooled.py). What to train next is drawn from the posterior (Thompson 1933,
as in contextual bandits); the search ends where one more training is not expected to be worth its cost (knowledge
gradient, Frazier, Powell and Dayanik 2009). Proposal: the bundle that is best by posterior mean. Priors come from the
catalogue, from how stored rollouts rate rewards, and from skills; what a backtest contradicts is not tried.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from evotrainer.agents.base import Tools
from evotrainer.agents.belief import informed
from evotrainer.agents.bundles import Arm, Search, fits, knowledge_gradients, recipe_of
from evotrainer.agents.changes import repeated
from evotrainer.agents.forecasting import promotion_chances
from evotrainer.agents.moves import CandidateMove
from evotrainer.agents.one_factor import OneFactorAgent, Options
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.projections.pooled import UNKNOWN_SD, Prior, TrainingScore, fit, levels
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import ConsideredChange, Forecast, Intervention, Prediction
from evotrainer.records.recipe import BUNDLE
from evotrainer.records.search import ProbePlan, SearchPlan

ARMS = 24
"""Changes that a search looks at: those of the best mean plus one standard deviation."""
REDRAWS = 20
"""Draws after which a recipe that was trained already is taken for another seed."""
INVALID_GAIN = -0.05
"""What a search training with a validity finding counts as, score units below the champion."""


class PooledOptions(Options):
    """What a task file may set under `run.agent_options`."""

    worth: float = Field(0.001, ge=0)
    """Expected gain, score units, below which one more search training is not worth its cost."""
    sure: float = Field(0.7, gt=0.5, lt=1)
    """Probability of helping from which a change joins the proposed bundle."""


class PooledAgent:
    """Deterministic given (seed, round) and what the briefing and the tools say.

    Where a run has no search trainings (`run.probes = 0`, or one begun by an earlier version) it answers as the
    one-factor agent does.
    """

    name = "statistical"

    def __init__(self, seed: int, options: PooledOptions | None = None) -> None:
        self.seed = seed
        self.options = options or PooledOptions()
        self.single = OneFactorAgent(seed, self.options, self.name)

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        """The next search trainings, or why there are no more."""
        s = self._open(briefing, tools)
        told = {
            "effects": s.model.effects(),
            "noise_sd": round(s.model.noise_sd, 6),
            "trainings": s.model.trainings,
        }
        bundles = list(s.bundles())
        if briefing.probes_left <= 0:
            return SearchPlan(stop="the round's search trainings are used up", **told)
        if not bundles:
            return SearchPlan(stop="every change has been tried, does not apply, or is closed", **told)
        worth = float(knowledge_gradients(s, bundles).max())
        if worth < self.options.worth:
            return SearchPlan(stop=f"one more training is expected to gain {100 * worth:.2f} points", **told)
        rng = np.random.default_rng([self.seed, briefing.round, len(briefing.probes)])
        wanted = min(briefing.probes_left, int(briefing.notes.get("workers", "1")))
        chosen: list[tuple[Arm, ...]] = []
        known = {p.recipe.hash for p in briefing.probes}
        for _ in range(wanted):
            bundle = self._draw(s, rng, known)
            chosen.append(bundle)
            known.add(recipe_of(briefing.champion.recipe, bundle).hash)
        return SearchPlan(probes=tuple(self._plan(s, b) for b in chosen), **told)

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """The bundle that is best by posterior mean, or the advice to stop."""
        if not briefing.probes:
            return self.single.propose(briefing, tools)
        s = self._open(briefing, tools)
        best = self._best(s)
        if not best:
            return Proposal(
                agent=self.name,
                interventions=(),
                reasoning=self._reasoning(s, []),
                stop=f"after {s.model.trainings} trainings nothing helps with a probability of {self.options.sure:.0%}",
                considered=self._considered(s, []),
            )
        offers = [best]  # its parts are measured by knock-outs
        forecasts = [s.gain(b) for b in offers]
        chances = promotion_chances(forecasts, briefing.promotion_threshold, briefing.branches_wanted)
        return Proposal(
            agent=self.name,
            interventions=tuple(
                self._intervention(s, b, Forecast(mean=m, sd=sd, promote=p))
                for b, (m, sd), p in zip(offers, forecasts, chances, strict=True)
            ),
            reasoning=self._reasoning(s, best),
            considered=self._considered(s, best),
        )

    # -- what there is to choose from ----------------------------------------------------------------------------------

    def _open(self, briefing: Briefing, tools: Tools) -> Search:
        """Candidates with their priors, and the model after all trainings of the run."""
        sit = situation(briefing, tools, self.options.rollouts)
        pool = [c for c in candidate_pool(briefing, sit, self.options.max_cost) if self._allowed(c, briefing)]
        pool = [informed(c, briefing.skills, briefing.champion.recipe)[0] for c in pool]
        pool.sort(key=lambda c: (-(c.mean + c.sd), c.name))
        kept = []
        for c in pool:
            iv = c.intervention(sit, self.options.min_effect, briefing.champion.branch)
            if tools.backtest(iv).verdict != "contradicts":
                kept.append(c)
            if len(kept) >= ARMS:
                break
        start = next((b.recipe for b in briefing.branches if b.parent is None), briefing.champion.recipe)
        home = levels(start, briefing.champion.recipe)
        arms = []
        for c in kept:
            there = levels(start, c.child)
            arms.append(Arm(c, there - home, home - there))
        # a composite change brings several levels, which share its prior
        shares = [(a, one, max(1, len(a.gains))) for a in arms for one in sorted(a.gains)]
        # the catalogue is sure of idle moves for an agent that has three trainings for each; one training more is cheap
        # here, and on surfaces a prior of 1 point ended half of the searches before the 24th of 60 trainings (LOG.md)
        priors = {one: Prior(a.candidate.mean / k, max(a.candidate.sd, UNKNOWN_SD) / k**0.5) for a, one, k in shares}
        seen = [TrainingScore(b.recipe, x) for b in briefing.branches for x in b.scores]
        floor = float(np.mean(briefing.champion.scores)) + INVALID_GAIN if briefing.champion.scores else 0.0
        for p in briefing.probes:
            if p.score is not None:
                seen.append(TrainingScore(p.recipe, min(p.score, floor) if p.invalid else p.score))
            elif p.failed:
                seen.append(TrainingScore(p.recipe, floor))
        return Search(briefing, sit, start, arms, fit(start, seen, priors, [x for a in arms for x in a.gains]))

    def _allowed(self, c: CandidateMove, briefing: Briefing) -> bool:
        """False where this value was tried as a branch and nothing changed since."""
        cites = repeated(briefing, c.factor, c.child.factors().get(c.factor))
        return cites is None or bool(cites[1])

    # -- choosing ------------------------------------------------------------------------------------------------------

    def _draw(self, s: Search, rng: np.random.Generator, known: set[str]) -> tuple[Arm, ...]:
        """The best bundle by one draw of all effects; drawn again where its recipe was trained already."""
        bundle: tuple[Arm, ...] = ()
        for _ in range(REDRAWS):
            drawn = rng.multivariate_normal(s.model.mean, s.model.cov, method="cholesky")
            bundle = self._take(s, {a.candidate.name: self._under(s, a, drawn) for a in s.arms}, least=0.0)
            if not bundle:  # nothing helps by this draw: the least harmful change still teaches something
                usable = [a for a in s.arms if not s.closed((a,))]
                bundle = (max(usable, key=lambda a: (self._under(s, a, drawn), a.candidate.name)),)
            if recipe_of(s.briefing.champion.recipe, bundle).hash not in known:
                break
        return bundle

    def _under(self, s: Search, a: Arm, effects: np.ndarray) -> float:
        """Gain of one change over the champion if these were the effects."""
        return float((s.model.row(s.of((a,))) - s.model.row(s.home)) @ effects)

    def _take(self, s: Search, gain: dict[str, float], least: float) -> tuple[Arm, ...]:
        """Greedily the changes of the largest gain, one per factor, at most `changes`, within the cost."""
        out: tuple[Arm, ...] = ()
        for a in sorted(s.arms, key=lambda a: (-gain[a.candidate.name], a.candidate.name)):
            if len(out) == s.briefing.changes or gain[a.candidate.name] <= least:
                break
            more = (*out, a)
            cost = float(np.prod([x.candidate.cost for x in more]))
            dear = cost > self.options.max_cost and not s.briefing.feedback
            if fits(s.briefing.champion.recipe, more) and not dear and not s.closed(more):
                out = more
        return out

    def _best(self, s: Search) -> list[Arm]:
        """By posterior mean, of the changes that help with probability `sure`; one that does not add is left out."""
        from scipy.special import ndtr

        sure: dict[str, float] = {}
        for a in s.arms:
            mean, sd = s.gain((a,))
            helps = mean > 0 and float(ndtr(mean / max(sd, 1e-9))) >= self.options.sure
            sure[a.candidate.name] = mean if helps and self._tried(s, a) else 0.0
        best = list(self._take(s, sure, least=0.0))
        while len(best) > 1 and (worst := self._needless(s, best)) is not None:
            best.remove(worst)
        return best

    def _tried(self, s: Search, a: Arm) -> bool:
        """Was the change in force in a training? What nobody tried is not proposed on its prior alone."""
        return any(s.model.counts.get(x) for x in a.gains) or not a.gains

    def _needless(self, s: Search, bundle: list[Arm]) -> Arm | None:
        """A change without which the bundle is expected to do as well: pairs may say so."""
        whole = s.gain(bundle)[0]
        rest = {a.candidate.name: s.gain([b for b in bundle if b is not a])[0] for a in bundle}
        worst = max(bundle, key=lambda a: (rest[a.candidate.name], a.candidate.name))
        return worst if rest[worst.candidate.name] >= whole else None

    # -- what is said ------------------------------------------------------------------------------------------------

    def _plan(self, s: Search, bundle: tuple[Arm, ...]) -> ProbePlan:
        mean, sd = s.gain(bundle)
        ordered = sorted(bundle, key=lambda a: a.candidate.factor)
        return ProbePlan(
            changes={a.candidate.factor: a.candidate.variant.value for a in ordered},
            moves=tuple(a.candidate.name for a in ordered),
            gain=round(mean, 6),
            sd=round(sd, 6),
        )

    def _intervention(self, s: Search, bundle: Sequence[Arm], forecast: Forecast) -> Intervention:
        """A single change as the catalogue words it, or the bundle with what each part is for."""
        champion = s.briefing.champion.branch
        if len(bundle) == 1:
            return bundle[0].candidate.intervention(s.situation, self.options.min_effect, champion, forecast=forecast)
        parts = sorted((a.candidate for a in bundle), key=lambda c: c.factor)
        recipe = s.briefing.champion.recipe
        size = max(self.options.min_effect, round(forecast.mean / 2, 4))
        return Intervention(
            factor=BUNDLE,
            old={c.factor: recipe.value(c.factor) for c in parts},
            new={c.factor: c.variant.value for c in parts},
            hypothesis=(
                f"if {', '.join(c.factor for c in parts)} change together, accuracy goes up by at least {size:g}, "
                "because " + "; ".join(f"{c.factor}: {c.variant.why or c.move.why}" for c in parts)
            ),
            prediction=Prediction(metric="accuracy", direction="up", size=size),
            success_criterion=(
                f"the judge's lower bound of the gate score over {champion} is above 0 and its mean at least "
                f"{self.options.min_effect:g}; without any one of the changes it loses on fresh seeds"
            ),
            rollback=f"keep {champion}",
            bottleneck=next((c.bottleneck for c in parts if c.bottleneck), ""),
            move=" + ".join(c.name for c in parts),
            forecast=forecast,
        )

    def _considered(self, s: Search, best: Sequence[Arm]) -> tuple[ConsideredChange, ...]:
        from scipy.special import ndtr

        taken = {a.candidate.name for a in best}
        out = []
        for a in s.arms:
            mean, sd = s.gain((a,))
            out.append(
                ConsideredChange(
                    factor=a.candidate.factor,
                    new=a.candidate.variant.value,
                    move=a.candidate.name,
                    mean=mean,
                    sd=sd,
                    chance=float(ndtr((mean - self.options.min_effect) / max(sd, 1e-9))),
                    fate="proposed" if a.candidate.name in taken else "set aside",
                    reason="" if a.candidate.name in taken else "others are better by the model of all trainings",
                )
            )
        return tuple(sorted(out, key=lambda c: (c.fate != "proposed", -c.mean, c.move)))

    def _reasoning(self, s: Search, best: Sequence[Arm]) -> str:
        worst = sorted(s.situation.symptoms.items(), key=lambda kv: (-kv[1], kv[0]))[:4]
        lines = ["Diagnosis: " + (", ".join(f"{k} {v:.2f}" for k, v in worst) or "nothing stands out") + "."]
        lines.append(
            f"{s.model.trainings} trainings, {100 * s.model.noise_sd:.1f} points of noise each; effects on search:"
        )
        for e in s.model.effects()[:8]:
            lines.append(
                f"- {e.factor} = {e.value}: {100 * e.mean:+.1f} +/- {100 * e.sd:.1f} points, in {e.trainings} trainings"
            )
        if best:
            mean, sd = s.gain(best)
            names = ", ".join(a.candidate.name for a in best)
            lines.append(f"Proposed: {names}; expected {100 * mean:+.1f} +/- {100 * sd:.1f} points over the champion.")
        return "\n".join(lines)
