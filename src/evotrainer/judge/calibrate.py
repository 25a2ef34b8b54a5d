"""How good is a run's own gate? From its measured variance components by simulation, and from its repeated trainings.

Simulation sends trials drawn from the measured components through the very `judge` of a run, whole runs at a time. Real
comparisons split the trainings of one recipe into two sides that differ in nothing but the seed and judge one against
the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from pydantic import Field

from evotrainer.errors import ConfigError
from evotrainer.judge.gates import JudgeConfig, judge, seeds_wanted
from evotrainer.judge.simulate import Population, Rate, false_promotions, power, run_looks
from evotrainer.judge.spending import next_look
from evotrainer.judge.stats import measure_noise, scores_of, table
from evotrainer.records.events import NoiseMeasured, TrialFinished
from evotrainer.records.recipe import Frozen

TARGET_ERROR, TARGET_POWER = 0.05, 0.8
SPLITS_MOST = 60
"""At most so many splits of one recipe's trainings are judged, each in both directions."""
TASK_BRANCH_SD = 0.05
"""How differently a change acts on different tasks, where no branch of the run was judged."""


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


class Measured(Frozen):
    """Variance components as a run measured them, score units."""

    tasks: int
    attempts: int
    seed_sd: float
    """Between trainings of one recipe, beyond the attempts' own sampling."""
    seed_sd_high: float
    """Upper end of its two-sided 95% interval (chi-square on the trials' spread)."""
    df: float
    """Degrees of freedom it was measured with."""
    trial_sd: float
    """Between trainings, sampling included."""
    task_branch_sd: float
    task_branch_measured: bool
    difficulties: tuple[float, ...]
    """Chance of success per task: the start's mean over seeds, drawn to the middle by half an attempt."""

    def population(self, **changes: float) -> Population:
        """The simulated run's task set and trainer; `changes` override fields."""
        p = Population(
            tasks=self.tasks,
            attempts=self.attempts,
            seed_sd=self.seed_sd,
            task_branch_sd=self.task_branch_sd,
            measured=self.difficulties,
        )
        from dataclasses import replace

        return replace(p, **changes)  # type: ignore[arg-type]


def measured(start: Sequence[TrialFinished], noise: NoiseMeasured | None, v_task: Sequence[float]) -> Measured:
    """Components of a run: `start` trials of the starting recipe on gate, the pooled `noise`, the verdicts' `v_task`.

    ConfigError where the starting recipe has fewer than two scored trials.
    """
    from scipy.special import chdtri

    scores = scores_of(start, "gate")
    if len(scores) < 2:
        raise ConfigError(f"calibrate: {len(scores)} scored trial(s) of the starting recipe; two or more are needed")
    own = noise or measure_noise("b0", scores)
    common = sorted(set.intersection(*(set(x) for x in scores.values())))
    y_ST = table(scores, common)
    attempts = max(s.attempts for t in start for s in t.scores if s.split == "gate")
    df, v_trial = own.numbers["df"], own.numbers["v_trial"]
    if attempts > 1:
        sampling = float((y_ST * (1 - y_ST)).mean()) / (attempts - 1) / len(common)
    else:  # a single attempt says nothing of its own chance, its repetitions under other seeds do
        p_T = y_ST.mean(axis=0)
        sampling = float((p_T * (1 - p_T)).mean()) * len(y_ST) / max(1, len(y_ST) - 1) / len(common)
    n = attempts * len(y_ST)
    high = v_trial * df / float(chdtri(df, 0.975))
    positive = [v for v in v_task if v > 0]
    return Measured(
        tasks=len(common),
        attempts=attempts,
        seed_sd=max(0.0, v_trial - sampling) ** 0.5,
        seed_sd_high=max(0.0, high - sampling) ** 0.5,
        df=df,
        trial_sd=v_trial**0.5,
        task_branch_sd=float(np.median(positive)) ** 0.5 if positive else TASK_BRANCH_SD,
        task_branch_measured=bool(positive),
        difficulties=tuple(float(p) for p in (y_ST.mean(axis=0) * n + 0.5) / (n + 1)),
    )


# -- real repeated trainings ----------------------------------------------------------------------------------------


class RealComparisons(Frozen):
    """A/A comparisons of real trainings: the same recipe on both sides, other seeds."""

    comparisons: int
    independent: int
    """Comparisons that share no training with another one: what the number is worth at least."""
    promoted: Share
    """At the level of a run's first look of one branch."""
    promoted_plain: Share
    """At 5% each, nothing spent: what a single comparison would err."""
    harmful: int
    """Whole interval below 0 at the first look's level."""
    groups: dict[str, int]
    """Recipe's branch -> its trainings."""
    left_out: dict[str, int] = {}
    """Branches with too few trainings for two sides, and how many they have."""


def real_comparisons(
    groups: Mapping[str, Sequence[TrialFinished]], config: JudgeConfig, *, seed: int = 0, most: int = SPLITS_MOST
) -> RealComparisons:
    """Judge every split of each recipe's trainings into two sides of `min_seeds`, or of half of them where there are
    fewer (at least two), each side against the other.

    All splits where there are at most `most`, else `most` drawn at random. Splits of one recipe share trainings, and
    the two directions of a split are mirror images: `independent` counts disjoint ones. Noise is pooled over the other
    recipes, so that no side speaks for itself twice.
    """
    rng = np.random.default_rng(seed)
    hits = plain = harmful = total = independent = 0
    used: dict[str, int] = {}
    left: dict[str, int] = {}
    first = next_look((), config.alpha)
    plain_look = first.model_copy(update={"alpha": config.alpha})
    scored = {
        name: {t.seed: t for t in ts if t.status == "complete" and scores_of([t], config.split)}
        for name, ts in groups.items()
    }
    for name, trials in scored.items():
        size = min(config.min_seeds, len(trials) // 2)
        if size < 2:
            left[name] = len(trials)
            continue
        noise: NoiseMeasured | None = None
        for other, ts in scored.items():
            if other != name and len(ts) > 1:
                noise = measure_noise(other, scores_of(list(ts.values()), config.split), earlier=noise)
        splits = _splits(sorted(trials), size, most, rng)
        used[name] = len(trials)
        independent += len(trials) // (2 * size)
        own = config.model_copy(update={"min_seeds": size})
        for a, b in (pair for s in splits for pair in (s, s[::-1])):
            left_side, right_side = ([trials[i] for i in x] for x in (a, b))
            v = judge("branch", "control", left_side, right_side, noise, first, own)
            w = judge("branch", "control", left_side, right_side, noise, plain_look, own)
            total += 1
            hits += v.kind == "promote"
            plain += w.kind == "promote"
            harmful += v.effect is not None and v.effect.high < 0
    return RealComparisons(
        comparisons=total,
        independent=independent,
        promoted=Share.of(Rate(hits, total)) if total else Share(hits=0, runs=0, value=0.0, low=0.0, high=1.0),
        promoted_plain=Share.of(Rate(plain, total)) if total else Share(hits=0, runs=0, value=0.0, low=0.0, high=1.0),
        harmful=harmful,
        groups=used,
        left_out=left,
    )


Split = tuple[tuple[int, ...], tuple[int, ...]]


def _splits(seeds: Sequence[int], size: int, most: int, rng: np.random.Generator) -> list[Split]:
    """Unordered pairs of disjoint subsets of `size` seeds: all, or `most` of them."""
    every: list[Split] = []
    for a in combinations(seeds, size):
        rest = [s for s in seeds if s not in a and s > a[0]]  # the side with the smallest seed comes first
        every += [(a, b) for b in combinations(rest, size)]
        if len(every) > 20_000:
            break
    if len(every) <= most:
        return every
    chosen = sorted(rng.choice(len(every), most, replace=False))
    return [every[i] for i in chosen]


# -- simulated runs ---------------------------------------------------------------------------------------------------


class Shape(Frozen):
    """What a run of the task file looks like to its gate."""

    rounds: int
    branches: int
    seeds: int
    config: JudgeConfig

    @property
    def looks(self) -> int:
        return max(1, self.rounds * self.branches)


class PowerRow(Frozen):
    """Chance to promote the one branch with a true effect: in the first round, and as the run's last branch."""

    effect: float
    first: Share
    last: Share


class Option(Frozen):
    """A way to judge, its power at the worthwhile effect and what a run costs on average."""

    seeds: int
    max_seeds: int
    attempts: int
    power_first: Share
    power_last: Share
    trainings: float
    """Trainings per run on average, with the A/A trials, without certification."""
    cpu_s: float | None
    """CPU-seconds of such a run; None where the run's costs do not tell."""
    reaches: bool
    """Power of at least 0.8 in the first round and for the last branch (point estimates)."""


class Costs(Frozen):
    """CPU-seconds as the run's trials had them."""

    training: float | None = None
    """One training with its search and gate evaluation."""
    gate_evaluation: float | None = None
    """The gate evaluation's share of it, from trials that only evaluate; None where there are none."""

    def run(self, trainings: float, attempts_factor: float) -> float | None:
        """So many trainings whose gate is read with so many times the attempts; None where that is not known."""
        if self.training is None or (attempts_factor != 1 and self.gate_evaluation is None):
            return None
        return trainings * (self.training + (attempts_factor - 1) * (self.gate_evaluation or 0.0))


class Calibration(Frozen):
    """Everything `evotrainer calibrate` says."""

    measured: Measured
    shape: Shape
    worthwhile: float
    false_promotions: Share
    """Simulated whole runs of branches that change nothing, with the measured components."""
    false_promotions_high: Share
    """The same, with trainings as far apart as the measurement allows (`seed_sd_high`)."""
    false_promotions_moving: Share
    """The same of branches that make some tasks easier and others harder, with no effect on average."""
    real: RealComparisons
    power: tuple[PowerRow, ...]
    effect_at_power: float | None
    """Effect found with power 0.8 in the first round, interpolated; None: beyond the largest simulated."""
    options: tuple[Option, ...]
    recommended: int | None = Field(None)
    """Index of the cheapest option that reaches the power."""
    seed_correlation: float | None = None
    """Between branch and control of the same seed number, over the run's branches; None where too few."""
    costs: Costs = Costs()

    @property
    def problems(self) -> list[str]:
        """What misses the targets, and by how much."""
        out = []
        if self.false_promotions.value > TARGET_ERROR:
            out.append(
                f"false promotions {self.false_promotions.value:.1%} of whole runs, "
                f"{100 * (self.false_promotions.value - TARGET_ERROR):.1f} points above 5%"
            )
        if self.false_promotions_moving.value > TARGET_ERROR:
            out.append(
                f"false promotions {self.false_promotions_moving.value:.1%} where useless branches move single tasks"
            )
        if self.real.comparisons < 20:
            out.append(
                f"{self.real.comparisons} real A/A comparisons, fewer than 20; "
                "run more trials of the starting recipe: --trials N"
            )
        row = next(r for r in self.power if abs(r.effect - self.worthwhile) < 1e-9)
        for where, share in (("in the first round", row.first), ("as the last branch", row.last)):
            if share.value < TARGET_POWER:
                out.append(
                    f"power {share.value:.0%} at {100 * self.worthwhile:+.1f} points {where}, "
                    f"{100 * (TARGET_POWER - share.value):.0f} points below 80%"
                )
        return out


def calibrate(
    parts: Measured,
    shape: Shape,
    real: RealComparisons,
    *,
    runs: int = 200,
    seed: int = 0,
    costs: Costs | None = None,
    correlation: float | None = None,
) -> Calibration:
    """Simulate whole runs and the power table; deterministic for a seed."""
    config = shape.config
    worthwhile = max(config.worthwhile or config.min_effect, config.min_effect)
    costs = costs or Costs()

    def wrong(p: Population, *, moving: bool = False) -> Share:
        rate = false_promotions(
            p,
            moving=moving,
            looks=shape.looks,
            runs=runs,
            seed=seed,
            config=config,
            noise_seeds=shape.seeds,
            per_round=shape.branches,
            seeds=shape.seeds,
        )
        return Share.of(rate)

    def found(effect: float, look: int, s: Shape = shape, p: Population | None = None, n: int = runs) -> Share:
        rate = power(
            p or parts.population(),
            effect,
            look=look,
            runs=n,
            seed=seed,
            config=s.config,
            noise_seeds=s.seeds,
            per_round=s.branches,
            seeds=s.seeds,
        )
        return Share.of(rate)

    effects = sorted({round(worthwhile * k, 4) for k in (0.4, 0.7, 1.4, 2.0)} | {worthwhile})
    rows = tuple(
        PowerRow(effect=e, first=found(e, min(shape.branches, shape.looks)), last=found(e, shape.looks))
        for e in effects
    )
    options = tuple(
        _option(parts, s, a, worthwhile, max(20, runs // 2), seed, costs) for s, a in _options(shape, parts)
    )
    good = [i for i, o in enumerate(options) if o.reaches]
    return Calibration(
        measured=parts,
        shape=shape,
        worthwhile=worthwhile,
        false_promotions=wrong(parts.population()),
        false_promotions_high=wrong(parts.population(seed_sd=parts.seed_sd_high)),
        false_promotions_moving=wrong(parts.population(), moving=True),
        real=real,
        power=rows,
        effect_at_power=_crossing([(r.effect, r.first.value) for r in rows]),
        options=options,
        recommended=min(good, key=lambda i: (options[i].cpu_s or options[i].trainings * 1e6, i), default=None),
        seed_correlation=correlation,
        costs=costs,
    )


def _options(shape: Shape, parts: Measured) -> list[tuple[Shape, int]]:
    """The run as it is, then more seeds on demand, more seeds from the start, more attempts."""

    def seeds(least: int, most: int) -> Shape:
        config = shape.config.model_copy(update={"max_seeds": max(least, most)})
        return shape.model_copy(update={"seeds": least, "config": config})

    n, most, a = shape.seeds, max(shape.seeds, shape.config.max_seeds), parts.attempts
    found = [(seeds(n, most), a), (seeds(n, most), 2 * a), (seeds(n, 12), a), (seeds(n, 12), 2 * a)]
    found += [(seeds(n + 2, max(most, 12)), a), (seeds(n, 20), a), (seeds(n + 5, 20), 2 * a)]
    return [x for i, x in enumerate(found) if x not in found[:i]]


def _option(parts: Measured, shape: Shape, attempts: int, effect: float, runs: int, seed: int, costs: Costs) -> Option:
    """Power and mean cost of one way to judge."""
    from dataclasses import replace

    p = replace(parts.population(), attempts=attempts)
    hits = [0, 0]
    trainings = 0.0
    for k, look in enumerate((min(shape.branches, shape.looks), shape.looks)):
        for i in range(runs):
            rng = np.random.default_rng([seed, look, i])
            planted = [0.0] * shape.looks
            planted[look - 1] = effect
            verdicts = run_looks(
                p,
                planted,
                rng,
                config=shape.config,
                noise_seeds=shape.seeds,
                per_round=shape.branches,
                seeds=shape.seeds,
            )
            hits[k] += any(v.kind == "promote" and v.branch == f"b{look}" for v in verdicts)
            trainings += _trainings(verdicts, shape)
    first, last = (Share.of(Rate(h, runs)) for h in hits)
    mean = trainings / (2 * runs)
    return Option(
        seeds=shape.seeds,
        max_seeds=shape.config.max_seeds,
        attempts=attempts,
        power_first=first,
        power_last=last,
        trainings=mean,
        cpu_s=costs.run(mean, attempts / parts.attempts),
        reaches=first.value >= TARGET_POWER and last.value >= TARGET_POWER,
    )


def _trainings(verdicts: Sequence[object], shape: Shape) -> int:
    """Trainings of a simulated run: every branch's seeds at its last look, and the control's."""
    from evotrainer.records.evidence import Verdict

    seeds: dict[str, int] = {}
    asked = shape.seeds
    for v in verdicts:
        assert isinstance(v, Verdict)
        gate = next(g for g in v.gates if g.gate == "seeds")
        seeds[v.branch] = int(gate.numbers["branch"])
        asked = max(asked, int(gate.numbers["control"]), seeds_wanted(v) or 0)
    return sum(seeds.values()) + asked


def _crossing(points: Sequence[tuple[float, float]], target: float = TARGET_POWER) -> float | None:
    """First effect at which power reaches the target, linear between simulated ones; from 0 below the smallest."""
    before = (0.0, 0.0)
    for x, y in points:
        if y >= target:
            return before[0] + (x - before[0]) * (target - before[1]) / max(y - before[1], 1e-9)
        before = (x, y)
    return None


def seed_correlation(pairs: Sequence[tuple[Sequence[TrialFinished], Sequence[TrialFinished]]]) -> float | None:
    """Correlation of branch and control means at the same seed number, pooled over (branch, control) pairs.

    Each side's own mean is taken out. None with fewer than 6 degrees of freedom.
    """
    sxy = sxx = syy = 0.0
    df = 0
    for branch, control in pairs:
        b, c = scores_of(branch, "gate"), scores_of(control, "gate")
        shared = sorted(b.keys() & c.keys())
        if len(shared) < 2:
            continue
        x, y = (np.array([np.mean(list(s[i].values())) for i in shared]) for s in (b, c))
        x, y = x - x.mean(), y - y.mean()
        sxy, sxx, syy, df = sxy + float(x @ y), sxx + float(x @ x), syy + float(y @ y), df + len(shared) - 1
    return sxy / (sxx * syy) ** 0.5 if df >= 6 and sxx > 0 and syy > 0 else None
