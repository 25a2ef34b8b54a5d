"""Simulated trials from variance components, to calibrate the judge itself: false promotions and power.

The simulated trials are ledger bodies and go through the very `judge` that a run uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.judge.alpha_spending import next_looks
from evotrainer.judge.decide import judge
from evotrainer.judge.inputs import JudgeConfig, JudgeInput
from evotrainer.judge.planned_seeds import seeds_for
from evotrainer.judge.stats import measure_noise, scores_of
from evotrainer.records import keys
from evotrainer.records.events import NoiseMeasured, SplitScore, TrialFinished
from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Population:
    """A task set and a trainer, as their variance components; score units."""

    tasks: int = 300
    attempts: int = 4
    alpha: float = 0.6
    """Task difficulty is Beta(alpha, beta): U-shaped below 1, as solved and unsolved tasks pile up."""
    beta: float = 0.6
    seed_sd: float = 0.02
    """Between trainings of one recipe, in the mean score, beyond the attempts' sampling."""
    task_branch_sd: float = 0.05
    """How differently a real change acts on different tasks."""
    measured: tuple[float, ...] = ()
    """Chances of success per task to draw from, in place of the Beta distribution."""

    def difficulties(self, rng: np.random.Generator) -> Any:
        """Chance of success of the start recipe on each task."""
        if self.measured:
            return rng.choice(np.array(self.measured), self.tasks)
        return rng.beta(self.alpha, self.beta, self.tasks)

    def spread(self, rng: np.random.Generator) -> Any:
        """A branch's own move of each task, zero on average, shape (T,)."""
        return self.task_branch_sd * rng.standard_normal(self.tasks)

    def trials(
        self,
        branch: str,
        p_T: Any,
        seeds: Sequence[int],
        rng: np.random.Generator,
        *,
        effect: float = 0.0,
        seed_sd: float | None = None,
        spread_T: Any = None,
    ) -> list[TrialFinished]:
        """Complete trials whose mean score moves by `effect`; most where tasks are neither solved nor hopeless.

        `spread_T`: how else the branch moves each task, drawn by `spread` once for all its trials.
        """
        # the slope of a logistic in its own output: a shift on the logit scale moves p by shift * p(1 - p) to first
        # order
        weight_T = p_T * (1 - p_T)
        # mean 1, so that `effect` is the move of the mean score; the chance of a task that is always or never solved
        # cannot move
        weight_T = weight_T / max(weight_T.mean(), 1e-9)
        spread_T = np.zeros(self.tasks) if spread_T is None else spread_T
        sd = self.seed_sd if seed_sd is None else seed_sd
        out = []
        for seed in seeds:
            # one shift for all tasks of a training: seeds differ as whole policies, which averaging over tasks does not
            # remove
            shift = effect + sd * rng.standard_normal()
            # clipping at 0 and 1 would give tasks at the ends an effect on average: their own move is damped instead
            p = np.clip(p_T + shift * weight_T + spread_T * np.minimum(1.0, weight_T), 0, 1)
            # attempts are drawn last, so their sampling noise comes on top of the seed's, as in a real evaluation
            share = rng.binomial(self.attempts, p) / self.attempts
            out.append(trial(branch, seed, {f"t{i}": float(x) for i, x in enumerate(share)}, self.attempts))
        return out


def trial(branch: str, seed: int, per_task: dict[str, float], attempts: int, **changes: Any) -> TrialFinished:
    """A complete trial with the given gate scores; `changes` override fields of its body."""
    score = SplitScore(
        split="gate",
        step=30,
        score=sum(per_task.values()) / max(1, len(per_task)),
        attempts=attempts,
        per_task=per_task,
    )
    body = TrialFinished(
        trial=keys.training(branch, seed),
        branch=branch,
        seed=seed,
        status="complete",
        cpu_s=0.0,
        wall_s=0.0,
        steps=30,
        scores=(score,),
    )
    return body.model_copy(update=changes)


def run_looks(
    population: Population,
    effects: Sequence[float],
    rng: np.random.Generator,
    *,
    config: JudgeConfig | None = None,
    noise_seeds: int = 3,
    per_round: int = 3,
    branch_sds: Sequence[float] | None = None,
    top_up: bool = True,
    seeds: int = 0,
    moving: bool = False,
    planned: bool = True,
) -> list[Verdict]:
    """One run: A/A trials of the control, then rounds of branches, one per entry of `effects`, best first.

    Every branch begins with `seeds` trials (0: `config.min_seeds`), and where it does better than the control with as
    many as a worthwhile effect asks for (`planned_seeds`). Branches that need more seeds get them in their round, and
    so does the control; each further look spends as the first did. The control stays the same, also after a
    promotion, so that every look tests the effect that was planted; a run gives a round that promoted no more seeds, so
    it takes no more looks than are taken here. `moving`: branches without an effect move single tasks all the same.
    `planned`: False leaves the seeds before the first look out.
    """
    config = config or JudgeConfig()
    seeds = seeds or config.min_seeds
    run = _SimulatedRun(population, effects, rng, config, noise_seeds, branch_sds, moving)
    for start in range(1, len(effects) + 1, per_round):
        names = [f"b{i}" for i in range(start, min(start + per_round, len(effects) + 1))]
        for name in names:
            run.grow(name, seeds)
        if planned and top_up and config.worthwhile is not None:
            run.plan(names, seeds)
        wanted = run.decide(names)
        while wanted and top_up:
            for name, n in wanted.items():
                run.grow(name, n)
                # the control of every look: compared with fewer seeds than the branch, the difference would keep the
                # control's noise
                run.grow("b0", n)
            wanted = run.decide(list(wanted))
    return run.verdicts


class _SimulatedRun:
    """Trials of the control and of planted branches, with the verdicts and the pooled noise so far."""

    def __init__(
        self,
        population: Population,
        effects: Sequence[float],
        rng: np.random.Generator,
        config: JudgeConfig,
        noise_seeds: int,
        branch_sds: Sequence[float] | None,
        moving: bool,
    ) -> None:
        self.population, self.rng, self.config = population, rng, config
        self.p_T = population.difficulties(rng)
        # the A/A trials are the control's first seeds at the same time, as in a run
        self.trials = {"b0": population.trials("b0", self.p_T, range(1, noise_seeds + 1), rng)}
        self.noise: NoiseMeasured = measure_noise("b0", scores_of(self.trials["b0"], config.split))
        self.verdicts: list[Verdict] = []
        self.planted = {f"b{i}": e for i, e in enumerate(effects, 1)}
        self.sds = dict(zip(self.planted, branch_sds, strict=True)) if branch_sds else {}
        # drawn once per branch: how a change moves single tasks is a property of the branch, not of a seed
        self.spreads = {name: population.spread(rng) for name, e in self.planted.items() if e or moving}

    def grow(self, name: str, seeds: int) -> None:
        """Give a branch as many trials as `seeds`, those it has included."""
        have = self.trials.get(name, [])
        self.trials[name] = have + self.population.trials(
            name,
            self.p_T,
            range(len(have) + 1, seeds + 1),
            self.rng,
            effect=self.planted.get(name, 0.0),
            seed_sd=self.sds.get(name),
            spread_T=self.spreads.get(name),
        )

    def plan(self, names: Sequence[str], first: int) -> None:
        """Give branches, and the control, the seeds that their first look wants. A run asks the search split who does
        better; here the gate split is asked, by which such a choice could mislead most."""
        config, alpha = self.config, next_looks(self.verdicts, self.config.alpha, len(names))[0].alpha
        self.widen(names)
        least = mean_score(self.trials["b0"]) + config.min_effect
        ahead = [n for n in names if mean_score(self.trials[n]) >= least]
        hoped = max(config.worthwhile or 0.0, config.min_effect)
        n = seeds_for(hoped, self.noise, self.verdicts, alpha, first, config.max_seeds)
        for name in [*ahead, "b0"] if ahead else []:
            self.grow(name, n)

    def widen(self, names: Sequence[str]) -> None:
        """Join the spread of the control and of these branches to the noise, as it is now."""
        for name in dict.fromkeys(["b0", *names]):
            self.noise = measure_noise(name, scores_of(self.trials[name], self.config.split), earlier=self.noise)

    def decide(self, names: Sequence[str]) -> dict[str, int]:
        """Judge branches against the control, best first; those that ask for more seeds, and for how many."""
        # the noise is measured with the branches of this round included, before any of them is judged
        self.widen(names)
        looks = next_looks(self.verdicts, self.config.alpha, len(names))
        found = [
            judge(JudgeInput(name, "b0", self.trials[name], self.trials["b0"], self.noise, self.config), look)
            # best first, as the loop judges; `next_looks` gives equal levels, so this order cannot be exploited
            for name, look in zip(sorted(names, key=lambda n: -mean_score(self.trials[n])), looks, strict=True)
        ]
        self.verdicts.extend(found)
        wanted = {v.branch: v.seeds_wanted for v in found}
        return {name: n for name, n in wanted.items() if n is not None}


def mean_score(trials: Sequence[TrialFinished]) -> float:
    """Mean of the trials' gate scores."""
    return sum(t.scores[0].score or 0.0 for t in trials) / len(trials)


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of simulated runs, with its exact (Clopper-Pearson) 95% interval."""

    hits: int
    runs: int

    @property
    def value(self) -> float:
        """The share itself."""
        return self.hits / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95% interval of the share."""
        from scipy.special import betaincinv

        k, n = self.hits, self.runs
        # Clopper and Pearson (1934): quantiles of Beta(k, n - k + 1) and Beta(k + 1, n - k); 0 and n hits have only one
        low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, 0.025))
        high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 0.975))
        return low, high


class Share(Frozen):
    """A share with its exact (Clopper-Pearson) 95% interval."""

    hits: int
    runs: int
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, rate: Rate) -> Share:
        low, high = rate.interval
        return cls(hits=rate.hits, runs=rate.runs, value=rate.value, low=low, high=high)


def false_promotions(population: Population, *, looks: int = 8, runs: int = 200, seed: int = 0, **how: Any) -> Rate:
    """Share of whole A/A runs (`looks` branches that change nothing real) with at least one promotion.

    `how`: as `run_looks` takes it; `moving` branches make some tasks easier and others harder, with no effect on
    average.
    """
    hits = 0
    for i in range(runs):
        # a generator of its own per run: a run's result does not depend on how many runs were simulated before it
        verdicts = run_looks(population, [0.0] * looks, np.random.default_rng([seed, i]), **how)
        hits += any(v.kind == "promote" for v in verdicts)
    return Rate(hits, runs)


def power(population: Population, effect: float, *, look: int = 1, runs: int = 200, seed: int = 0, **how: Any) -> Rate:
    """Share of runs in which the last of `look` branches, the only one with an effect, is promoted; `how`: as
    `run_looks` takes it."""
    hits = 0
    for i in range(runs):
        rng = np.random.default_rng([seed, look, i])
        verdicts = run_looks(population, [0.0] * (look - 1) + [effect], rng, **how)
        hits += any(v.kind == "promote" and v.branch == f"b{look}" for v in verdicts)
    return Rate(hits, runs)
