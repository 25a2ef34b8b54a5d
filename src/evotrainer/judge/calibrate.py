"""How good is a run's own gate? From its measured variance components by simulation, and from its repeated trainings.

Simulation sends trials drawn from the measured components through the very `judge` of a run, whole runs at a time. Real
comparisons (`real_comparisons.py`) split the trainings of one recipe into two sides that differ in nothing but the
seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from evotrainer.judge.components import MeasuredComponents
from evotrainer.judge.inputs import JudgeConfig
from evotrainer.judge.real_comparisons import RealComparisons
from evotrainer.judge.simulate import Population, Rate, Share, false_promotions, power, run_looks
from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Verdict

TARGET_ERROR, TARGET_POWER = 0.05, 0.8


class GateShape(Frozen):
    """What a run of the task file looks like to its gate."""

    rounds: int
    branches: int
    seeds: int
    config: JudgeConfig

    @property
    def looks(self) -> int:
        return max(1, self.rounds * self.branches)

    @property
    def how(self) -> dict[str, Any]:
        """As `run_looks` takes it."""
        n = self.seeds
        return {"config": self.config, "noise_seeds": n, "per_round": self.branches, "seeds": n}


class PowerRow(Frozen):
    """Chance to promote the one branch with a true effect: in the first round, and as the run's last branch."""

    effect: float
    first: Share
    last: Share


class JudgeOption(Frozen):
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
        # other attempts change only the gate evaluation's part; without its price the sum would be a guess
        if self.training is None or (attempts_factor != 1 and self.gate_evaluation is None):
            return None
        return trainings * (self.training + (attempts_factor - 1) * (self.gate_evaluation or 0.0))


class Calibration(Frozen):
    """Everything `evotrainer calibrate` says."""

    measured: MeasuredComponents
    shape: GateShape
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
    options: tuple[JudgeOption, ...]
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
                f"false promotions {self.false_promotions_moving.value:.1%} where useless branches move single tasks, "
                f"{100 * (self.false_promotions_moving.value - TARGET_ERROR):.1f} points above 5%"
            )
        if self.real.comparisons < 20:
            out.append(
                f"{self.real.comparisons} real A/A comparisons, fewer than 20; "
                "add runs of the same task with other seeds: --also RUN"
            )
        # `effects` holds `worthwhile` unrounded, so the row exists
        row = next(r for r in self.power if abs(r.effect - self.worthwhile) < 1e-9)
        for where, share in (("in the first round", row.first), ("as the last branch", row.last)):
            if share.value < TARGET_POWER:
                out.append(
                    f"power {share.value:.0%} at {100 * self.worthwhile:+.1f} points {where}, "
                    f"{100 * (TARGET_POWER - share.value):.0f} points below 80%"
                )
        return out


def calibrate(
    parts: MeasuredComponents,
    shape: GateShape,
    real: RealComparisons,
    *,
    runs: int = 200,
    seed: int = 0,
    costs: Costs | None = None,
    correlation: float | None = None,
) -> Calibration:
    """Simulate whole runs and the power table; deterministic for a seed."""
    config = shape.config
    # no power exists below `min_effect`: the judge refuses such a mean at any number of seeds
    worthwhile = max(config.worthwhile or config.min_effect, config.min_effect)
    costs = costs or Costs()
    # multiples around the worthwhile effect, so that the power curve crosses 80% inside the table and not at its edge
    effects = sorted({round(worthwhile * k, 4) for k in (0.4, 0.7, 1.4, 2.0)} | {worthwhile})
    simulated = _Simulated(shape, runs, seed)
    rows = tuple(simulated.power(parts.population(), e) for e in effects)
    options = tuple(
        _option(parts, s, a, worthwhile, max(20, runs // 2), seed, costs) for s, a in _options(shape, parts)
    )
    good = [i for i, o in enumerate(options) if o.reaches]
    return Calibration(
        measured=parts,
        shape=shape,
        worthwhile=worthwhile,
        false_promotions=simulated.wrong(parts.population()),
        false_promotions_high=simulated.wrong(parts.population(seed_sd=parts.seed_sd_high)),
        false_promotions_moving=simulated.wrong(parts.population(), moving=True),
        real=real,
        power=rows,
        effect_at_power=_crossing([(r.effect, r.first.value) for r in rows]),
        options=options,
        # without known costs trainings stand in for them; the factor 1e6 ranks such an option behind every priced one
        recommended=min(good, key=lambda i: (options[i].cpu_s or options[i].trainings * 1e6, i), default=None),
        seed_correlation=correlation,
        costs=costs,
    )


@dataclass(frozen=True)
class _Simulated:
    """Whole runs of one shape, `runs` of them from `seed` on."""

    shape: GateShape
    runs: int
    seed: int

    def wrong(self, p: Population, *, moving: bool = False) -> Share:
        """Runs with at least one false promotion."""
        how = {**self.shape.how, "moving": moving}
        return Share.of(false_promotions(p, looks=self.shape.looks, runs=self.runs, seed=self.seed, **how))

    def power(self, p: Population, effect: float) -> PowerRow:
        """Runs that promote the only branch with an effect: one of the first round, or the last one."""
        # the last branch of the first round shares alpha with its whole round, as each of them does
        first = min(self.shape.branches, self.shape.looks)
        return PowerRow(
            effect=effect, first=self._found(p, effect, first), last=self._found(p, effect, self.shape.looks)
        )

    def _found(self, p: Population, effect: float, look: int) -> Share:
        return Share.of(power(p, effect, look=look, runs=self.runs, seed=self.seed, **self.shape.how))


def _options(shape: GateShape, parts: MeasuredComponents) -> list[tuple[GateShape, int]]:
    """The run as it is, then more seeds on demand, more seeds from the start, more attempts."""

    def seeds(least: int, most: int) -> GateShape:
        config = shape.config.model_copy(update={"max_seeds": max(least, most)})
        return shape.model_copy(update={"seeds": least, "config": config})

    n, most, a = shape.seeds, max(shape.seeds, shape.config.max_seeds), parts.attempts
    # a handful of corners, not a grid: every option costs 2 * runs simulated runs
    found = [(seeds(n, most), a), (seeds(n, most), 2 * a), (seeds(n, 12), a), (seeds(n, 12), 2 * a)]
    found += [(seeds(n + 2, max(most, 12)), a), (seeds(n, 20), a), (seeds(n + 5, 20), 2 * a)]
    # options may coincide (a task file that allows 12 seeds already); first occurrence kept, so that 0 is the run as it
    # is
    return [x for i, x in enumerate(found) if x not in found[:i]]


def _option(
    parts: MeasuredComponents, shape: GateShape, attempts: int, effect: float, runs: int, seed: int, costs: Costs
) -> JudgeOption:
    """Power and mean cost of one way to judge."""
    p = replace(parts.population(), attempts=attempts)
    hits = [0, 0]
    trainings = 0.0
    for k, look in enumerate((min(shape.branches, shape.looks), shape.looks)):
        for i in range(runs):
            # common random numbers: options start from the same draws (tasks, A/A trials), so they differ less by luck
            rng = np.random.default_rng([seed, look, i])
            # the one real effect sits at the judged look; all other branches are noise that spends alpha before it
            planted = [0.0] * shape.looks
            planted[look - 1] = effect
            verdicts = run_looks(p, planted, rng, **shape.how)
            hits[k] += any(v.kind == "promote" and v.branch == f"b{look}" for v in verdicts)
            trainings += _trainings(verdicts, shape)
    first, last = (Share.of(Rate(h, runs)) for h in hits)
    mean = trainings / (2 * runs)
    return JudgeOption(
        seeds=shape.seeds,
        max_seeds=shape.config.max_seeds,
        attempts=attempts,
        power_first=first,
        power_last=last,
        trainings=mean,
        cpu_s=costs.run(mean, attempts / parts.attempts),
        reaches=first.value >= TARGET_POWER and last.value >= TARGET_POWER,
    )


def _trainings(verdicts: Sequence[object], shape: GateShape) -> int:
    """Trainings of a simulated run: every branch's seeds at its last look, and the control's."""
    seeds: dict[str, int] = {}
    asked = shape.seeds
    for v in verdicts:
        assert isinstance(v, Verdict)
        gate = next(g for g in v.gates if g.gate == "seeds")
        # later looks at a branch overwrite earlier ones: the last one counts all its seeds
        seeds[v.branch] = int(gate.numbers["branch"])
        # the control is shared by all branches, so it is trained once, up to the most seeds that any of them needed
        asked = max(asked, int(gate.numbers["control"]), v.seeds_wanted or 0)
    return sum(seeds.values()) + asked


def _crossing(points: Sequence[tuple[float, float]], target: float = TARGET_POWER) -> float | None:
    """First effect at which power reaches the target, linear between simulated ones; from 0 below the smallest."""
    before = (0.0, 0.0)
    for x, y in points:
        if y >= target:
            # the floor keeps a flat stretch (equal power at two effects) from dividing by 0
            return before[0] + (x - before[0]) * (target - before[1]) / max(y - before[1], 1e-9)
        before = (x, y)
    return None
