"""Two sides compared once, outside of a run: one word, by the judge's own gates and interval.

Several trainings a side: the judge's effect, seeds as clusters, so that the word speaks of the recipes. One training a
side: what trainings of one recipe differ by is unknown; tasks are the only sample, and the word speaks of these two
policies' outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evotrainer.judge import checks, planned_seeds, stats
from evotrainer.judge.inputs import JudgeConfig
from evotrainer.judge.stats import Scores
from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.text import counted, decimal_places
from evotrainer.records.verdicts import Effect, GateResult

Word = Literal["better", "no worse", "undecided", "worse"]
MOST_SEEDS = 20
"""Trainings a side beyond which no number is named that would decide."""
LEAST_TASKS = 5
"""Tasks below which no word is said: Student's t of two or three 0/1 scores errs in 6% and 2%."""


@dataclass(frozen=True, slots=True)
class LogSide:
    """One side: its trainings as ledger bodies, and what the harness found in their rollouts."""

    name: str
    trials: Sequence[TrialFinished]
    findings: Sequence[Finding] = ()
    paths: Sequence[str] = ()
    """Of its trainings, as the user gave them; empty: they have none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The word on side A against side B."""

    word: Word
    reason: str
    effect: Effect
    """A minus B; each bound errs with probability alpha."""
    least: float | None
    """Difference that this comparison finds with probability 80%, score units; None where nothing varied."""
    seeds_wanted: int | None
    """Trainings a side that would decide were the difference to stay; None: decided, none known, or one a side."""
    gates: tuple[GateResult, ...]

    @property
    def of_recipes(self) -> bool:
        """Does the word speak of what was trained, and not of two policies' outputs alone?"""
        return self.effect.noise_floor > 0 or self.effect.seeds > 1


def contrast(a: Scores, b: Scores, confidence: float) -> Effect:
    """A minus B with a two-sided interval: over trainings and tasks, or over tasks alone with one training a side."""
    pair = len(a) + len(b) == 2
    e = stats.over_tasks(a, b, confidence) if pair else stats.effect(a, b, confidence=confidence)
    if e.se > 1e-9 or not e.mean:
        return e
    # n tasks that differ alike show no spread. Clopper and Pearson (1934) at n of n: this share does at least, and the
    # rest may as far the other way, so that the interval leaves out 0 where a sign test would
    share = ((1 - confidence) / 2) ** (1 / e.tasks)
    near = e.mean * (2 * share - 1)
    return e.model_copy(update={"se": 0.0, "low": min(near, e.mean), "high": max(near, e.mean)})


def least_tasks(alpha: float) -> int:
    """Tasks below which no word is said: with fewer, even tasks that all agree are no proof (sign test)."""
    return max(LEAST_TASKS, math.ceil(-math.log2(alpha)))


def versus(
    a: LogSide,
    b: LogSide,
    *,
    split: str = "gate",
    alpha: float = 0.025,
    margin: float | None = None,
    common: bool = False,
    show: str = "",
    shares: bool = True,
) -> Comparison:
    """The word on A against B. `alpha`: probability of a false "better" (and of a false "worse").

    `margin`, score units: "no worse" is said where a loss of so much is excluded. `common`: tasks that only some
    trainings scored are left out, however many. `show`: the command that shows A's rollouts. `shares`: scores lie in
    [0, 1] and are told in points. ConfigError where the sides share no two scored tasks.
    """
    scores = stats.scores_of(a.trials, split), stats.scores_of(b.trials, split)
    effect = contrast(*scores, 1 - 2 * alpha)
    least = planned_seeds.least_seen(effect)
    config = JudgeConfig()
    gates = [
        _errors((a, b), split, config.max_error_share),
        _coverage(a, b, split, 0.0 if common else config.min_task_share),
        checks.identical(a.trials, b.trials, split),
        checks.validity(a.name, a.findings, b.findings, {}, read=show),
    ]
    word, reason = _word(effect, margin, shares, alpha)
    stopping = [g for g in gates if g.gate in ("errors", "coverage") and not g.passed]
    if word in ("better", "no worse") and gates[-1].passed is not True:
        stopping.append(gates[-1])
    if stopping:
        word, reason = "undecided", f"{'; '.join(g.message for g in stopping)}; the score alone: {reason}"
    wanted = None
    if (
        word == "undecided"
        and not stopping
        and effect.tasks >= least_tasks(alpha)
        and len(scores[0]) + len(scores[1]) > 2
    ):
        parts = stats.components(*scores)
        wanted = stats.seeds_needed(replace(parts, mean=abs(parts.mean)), alpha, MOST_SEEDS)
    return Comparison(word, reason, effect, least, wanted, tuple(gates))


def _errors(sides: Sequence[LogSide], split: str, most: float) -> GateResult:
    """The judge's gate, in words for logs: what has no score was lost there, whatever the cause."""
    each = [
        (checks.errors([t], split, most), path, side.name, sum(s.errors for s in t.scores if s.split == split))
        for side in sides
        for t, path in zip(side.trials, side.paths or [t.trial for t in side.trials], strict=True)
    ]
    gate, path, name, lost = max(each, key=lambda x: x[0].numbers["worst_share"])
    share = gate.numbers["worst_share"]
    told = f"at most {share:.1%} of a training's attempts without a score"
    if not gate.passed:
        told = (
            f"{counted(lost, 'attempt')} of {path} (side {name}) without a score ({share:.1%}, {most:.0%} at most); "
            "score them, or choose another score with --score"
        )
    return gate.model_copy(update={"message": told})


def _coverage(a: LogSide, b: LogSide, split: str, least: float) -> GateResult:
    """The judge's gate, with the remedy of those who compare logs."""
    gate = checks.coverage(a.trials, b.trials, split, least)
    told = gate.message.partition(";")[0]
    if not gate.passed:
        told += f", below {least:.0%}; evaluate both on the same tasks, or decide on these alone with --common-tasks"
    return gate.model_copy(update={"message": told})


def _word(e: Effect, margin: float | None, shares: bool, alpha: float) -> tuple[Word, str]:
    told = told_effect(e, shares)
    if e.tasks < (least := least_tasks(alpha)):
        return "undecided", f"{told} over {e.tasks} tasks: {least} at least are needed at --alpha {alpha:g}"
    # the judge's own rule of a promotion, less the gain that a run asks for
    if e.low > 0 and e.mean > e.noise_floor:
        return "better", f"{told}, the whole interval is above 0"
    if margin is not None and e.low > -margin:
        less = ", though less is shown" if e.high < 0 else ""
        return "no worse", f"{told} excludes a loss of {told_size(margin, shares)}{less}"
    if e.high < 0 and -e.mean > e.noise_floor:
        return "worse", f"{told}, the whole interval is below 0"
    if e.se == 0 and e.mean == 0:
        return "undecided", "every task has the same score on both sides: no difference was seen"
    wide = "" if margin is None else f"; it does not exclude a loss of {told_size(margin, shares)}"
    if not e.low <= 0 <= e.high:
        floor = told_size(e.noise_floor, shares)
        return "undecided", f"{told} leaves out 0, but trainings of one recipe may differ by {floor} here{wide}"
    return "undecided", f"{told} holds 0{wide}"


def told_effect(e: Effect, shares: bool) -> str:
    """`+4.2 points [+1.9, +6.5]`, or in the score's own unit."""
    if shares:
        n = decimal_places((e.low, 0), (e.high, 0))
        return f"{100 * e.mean:+.{n}f} points [{100 * e.low:+.{n}f}, {100 * e.high:+.{n}f}]"
    return f"{e.mean:+.4g} [{e.low:+.4g}, {e.high:+.4g}]"


def told_size(x: float, shares: bool) -> str:
    """A difference without its sign."""
    return f"{100 * x:.{decimal_places((x, 0))}f} points" if shares else f"{x:.4g}"
