"""The statistical agent: one linear model over all trainings, bundles of changes tried on one seed, proof afterwards.

Search: each round trains recipes that differ from the champion in up to `changes` factors, one seed each. Every
training informs every factor (projections/pooled.py). What to train next is drawn from the posterior (Thompson 1933,
as in contextual bandits); the search ends where further trainings are not expected to be worth their cost (knowledge
gradient, Frazier and Powell 2010). Proposal: the bundle that is best by posterior mean. Priors come from the
catalogue, from how stored rollouts rate rewards, and from skills; what a backtest contradicts is not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from evotrainer.agents.base import Tools
from evotrainer.agents.belief import informed
from evotrainer.agents.bundles import Arm, Bundle, Search, arms_for, knowledge_gradients, recipe_of
from evotrainer.agents.changes import repeated
from evotrainer.agents.choice import best_bundle, judged_already, reasoning
from evotrainer.agents.forecasting import promotion_chances, proof_of
from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.agents.one_factor import OneFactorAgent, Options
from evotrainer.agents.pool import affordable, candidate_pool, situation, start_of
from evotrainer.agents.single_changes import unconfirmed, unscreened
from evotrainer.projections.pooled import Prior, TrainingScore, dearer, fit, level
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import ConsideredChange, Forecast, Intervention, Prediction
from evotrainer.records.recipe import BUNDLE, Recipe
from evotrainer.records.search import ProbePlan, SearchChoice, SearchPlan

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
    """Search trainings of a round that change one factor alone, each another one, before bundles are tried."""
    confirm: int = Field(8, ge=0)
    """Search trainings that then train the best of these factors alone again, at the same or other values, where one
    training's noise hides what they gain."""
    prior_sd: float = Field(0.05, gt=0)
    """Prior standard deviation of a change, score units, at least: the catalogue is sure of idle moves for an agent
    that has three trainings for each, and what made the difference in three domains was worth 6 to 29 points."""
    sure: float = Field(0.65, ge=0.5, lt=1)
    """Probability of helping from which a change joins the proposed bundle: its knock-out decides whether it stays."""


class PooledAgent:
    """Deterministic given (seed, round) and what the briefing and the tools say.

    Where a run has no search trainings (`run.probes = 0`) it answers as the
    one-factor agent does.
    """

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
        departs, bundle = self._incumbent(s, s.model.mean)
        best = self._best(s)
        told = {
            "effects": s.model.effects(),
            "noise_sd": round(s.model.noise_sd, 6),
            "trainings": s.model.trainings,
            "choice": self._choice(briefing, departs),
            "proposes": max(1, len(best)),
            "expects": max(0.0, round(s.gain(best)[0], 6)),
        }
        if briefing.probes_left <= 0:
            return SearchPlan(stop="the round's search trainings are used up", **told)
        near = [b for b in s.next_to(bundle) if s.usable(b)]
        if not near:
            return SearchPlan(stop="every change has been tried, does not apply, or is closed", **told)
        worth = float(knowledge_gradients(s, [bundle, *near], briefing.probes_left).max())
        if worth < self.options.worth and not self._alone(s, set()):
            return SearchPlan(stop=f"further trainings are expected to gain {100 * worth:.2f} points each", **told)
        rng = np.random.default_rng([self.seed, briefing.round, len(briefing.probes)])
        wanted = min(briefing.probes_left, int(briefing.notes.get("workers", "1")))
        return SearchPlan(probes=tuple(self._drawn(s, rng, wanted)), **told)

    def _drawn(self, s: Search, rng: np.random.Generator, wanted: int) -> Iterator[ProbePlan]:
        """As many search trainings, each by a draw of its own."""
        known = {p.recipe.hash for p in s.briefing.probes}
        alone: list[str] = []
        for _ in range(wanted):
            departs, bundle = self._draw(s, rng, known, alone)
            known.add(recipe_of(s.briefing.champion.recipe, bundle).hash)
            alone.append(bundle[0].candidate.factor if len(bundle) == 1 else "")
            yield plan_of(s, bundle, departs)

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
                reasoning=reasoning(s, []),
                stop=f"after {s.model.trainings} trainings nothing more{self._judged(s)} helps with a probability of "
                f"{self.options.sure:.0%}",
                considered=self._considered(s, []),
            )
        mean, sd = s.gain(best)
        # without the priors: they are wide so that much is tried, and what is best by them is overrated
        alone = fit(s.start, trainings_of(briefing), {}).gain(s.of(best), s.home)
        (chance,) = promotion_chances([alone], [proof_of(briefing, mean, len(best))], briefing.branches_wanted)
        return Proposal(
            agent=self.name,  # the bundle's parts are measured by knock-outs
            interventions=(self._intervention(s, best, Forecast(mean=mean, sd=sd, promote=chance)),),
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
        pool = [c for c in candidate_pool(briefing, sit, self.options.max_cost) if allowed(c, briefing)]
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

    def _incumbent(self, s: Search, effects: np.ndarray) -> tuple[str, Bundle]:
        """(search training, its changes) that is best if these are the effects; the champion where none is better.

        The model decides, not the score: of many single scores the highest is mostly lucky.
        """
        best, departs, bundle = s.worth((), effects), "", Bundle()
        for p in s.briefing.probes:
            mine = p.incumbent == s.briefing.champion.branch and p.score is not None and not p.invalid
            arms = s.arms_of(p.changes) if mine else None
            if arms is not None and s.usable(arms) and (worth := s.worth(arms, effects)) > best:
                best, departs, bundle = worth, p.probe, arms
        return departs, bundle

    def _choice(self, briefing: Briefing, departs: str) -> SearchChoice:
        """The incumbent, with the score of its training."""
        for p in briefing.probes:
            if p.probe == departs:
                return SearchChoice(changes=dict(p.changes), score=p.score)
        scores = briefing.champion.scores
        return SearchChoice(changes={}, score=float(np.mean(scores)) if scores else None)

    def _draw(
        self, s: Search, rng: np.random.Generator, known: set[str], batch: Sequence[str] = ()
    ) -> tuple[str, Bundle]:
        """The best by one draw of all effects, at most `changes` from what is best by it of all that was trained; drawn
        again where its recipe was trained already. `batch`: of each training asked for at once, the factor that it
        changes alone."""
        departs, near = "", Bundle()
        if alone := self._alone(s, known, batch):
            effects = s.model.draw(rng)
            return "", max(alone, key=lambda b: s.worth(b, effects))
        for _ in range(REDRAWS):
            effects = s.model.draw(rng)
            departs, bundle = self._incumbent(s, effects)
            near = s.climb(effects, bundle, s.briefing.changes)
            if recipe_of(s.briefing.champion.recipe, near).hash not in known:
                break
        return departs, near

    def _alone(self, s: Search, known: set[str], batch: Sequence[str] = ()) -> list[Bundle]:
        """The single changes that are to be trained before any are tried together; none once that is done."""
        options = self.options
        first = unscreened(s, known, options.screen, batch)
        return first or (unconfirmed(s, options.confirm, batch) if options.screen else [])

    def _best(self, s: Search) -> list[Arm]:
        return best_bundle(s, self._incumbent(s, s.model.mean)[1], self.options.sure)

    def _judged(self, s: Search) -> str:
        """Which branch stands for what was found, and was judged."""
        return judged_already(s, self._incumbent(s, s.model.mean)[1], self.options.sure)

    # -- what is said ------------------------------------------------------------------------------------------------

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
                f"{self.options.min_effect:g}; a change without which it loses nothing is taken out"
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


def plan_of(s: Search, bundle: Bundle, departs: str) -> ProbePlan:
    """A search training as it is asked for: its changes, and what the model expects of them."""
    mean, sd = s.gain(bundle)
    ordered = sorted(bundle, key=lambda a: a.candidate.factor)
    return ProbePlan(
        changes={a.candidate.factor: a.candidate.variant.value for a in ordered},
        moves=tuple(a.candidate.name for a in ordered),
        departs=departs,
        gain=round(mean, 6),
        sd=round(sd, 6),
    )


def allowed(c: CandidateMove, briefing: Briefing) -> bool:
    """False where this value was tried as a branch and nothing changed since."""
    cites = repeated(briefing, c.factor, c.child.factors().get(c.factor))
    return cites is None or bool(cites[1])
