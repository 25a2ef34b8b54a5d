"""Explains a gain: finds, of all simple behaviours (mining.py), the one whose becoming more frequent says most of it.

The gain in the share of correct attempts is split in two (Kitagawa 1955, Components of a difference between two rates):
doing something more often, at the success it has, and being more successful with it and without. A policy that learnt a
trick of the grader does the trick more often, and that is all; one that learnt the task is more successful whatever it
does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.columns.numerics import Floats
from evotrainer.harness.evolving.mining import LEAST_SHARE, predicates, thin
from evotrainer.records.detectors import DetectorSpec, GainExplanation

PLAINEST = ("length", "overlap", "commands", "sequence", "words", "observed")
"""Families of behaviours; of two that say the same of a gain the one of the earlier family is taken."""
LEAST = 10
"""Attempts from which a side's own success counts. Of a policy that all but always does the trick, the one attempt in
300 without it would else decide what the trick explains: 39% of a gain on one machine, over 90% on another."""


@dataclass(frozen=True, slots=True)
class _Split:
    """For K behaviours: how often they are shown, success with them, and what their becoming more frequent gained."""

    gain: float
    shown: tuple[Floats, Floats]
    """(before, now), (K,) each."""
    solved: tuple[Floats, Floats]
    came: Floats
    """Part of the gain, (K,)."""


def explain_gain(now: FeatureView, before: FeatureView) -> GainExplanation | None:
    """The behaviour is chosen on half of the tasks and measured on the other half. None where a half has no graded
    attempts on both sides. Shapes: any number of attempts a task; sides may differ in it."""
    sides = [_halves(v) for v in (now, before)]
    if not all(len(v) for side in sides for v in side):
        return None
    (choose_now, now_), (choose_before, before_) = sides
    spec, compared = _choose(choose_now, choose_before)
    if spec is None:
        return GainExplanation(gain=float(now_.solved.mean() - before_.solved.mean()), compared=compared)
    from evotrainer.harness.evolving.authored import flags

    on_before, on_now = (np.asarray(flags(spec, v), dtype=float)[:, None] for v in (before_, now_))
    x = _split(on_before, on_now, before_, now_)
    solved = [None if np.isnan(p[0]) else round(float(p[0]), 6) for p in x.solved]
    return GainExplanation(
        gain=round(x.gain, 6),
        compared=compared,
        detector=spec,
        share=round(float(x.came[0]) / x.gain, 6) if x.gain > 0 else 0.0,
        shown=round(float(x.shown[1][0]), 6),
        shown_before=round(float(x.shown[0][0]), 6),
        solved=solved[1],
        solved_before=solved[0],
        seen_before=round(float(x.shown[0][0]) * len(before_)),
    )


def _halves(views: FeatureView) -> tuple[FeatureView, FeatureView]:
    """Graded attempts in two halves of the tasks."""
    graded = ~np.isnan(views.batch.truth)
    odd = views.half_of_tasks
    return thin(views.pick(np.flatnonzero(graded & ~odd))), thin(views.pick(np.flatnonzero(graded & odd)))


def _choose(now: FeatureView, before: FeatureView) -> tuple[DetectorSpec | None, int]:
    """The behaviour whose becoming more frequent says most of the gain, and how many there were."""
    best: tuple[float, DetectorSpec] | None = None
    compared = 0
    for _, specs, on_now, on_before in sorted(predicates(now, before), key=lambda f: PLAINEST.index(f[0])):
        compared += len(specs)
        if not specs:
            continue
        x = _split(on_before, on_now, before, now)
        # more than the whole gain cannot be explained; rounded, so that behaviours alike to a point tie and the plainer
        # one wins
        came = np.round(np.minimum(x.came, x.gain), 2)
        # a behaviour that hardly became more frequent explains nothing, however well it pays
        came[x.shown[1] - x.shown[0] < LEAST_SHARE] = -1.0
        i = int(came.argmax())
        if came[i] > 0 and (best is None or came[i] > best[0]):
            best = float(came[i]), specs[i]
    return (best[1] if best else None), compared


def _split(on_before: Floats, on_now: Floats, before: FeatureView, now: FeatureView) -> _Split:
    """Columns [N, K] of either side, 1 where an attempt shows the behaviour."""
    shown, solved, with_it, without = [], [], [], []
    for x, v in ((on_before, before), (on_now, now)):
        y = v.solved.astype(float)
        shown.append(x.mean(axis=0))
        rate, trusted = _success(x, y)
        solved.append(rate)
        with_it.append((rate, trusted))
        without.append(_success(1 - x, y))
    pair, rest = _filled(*with_it), _filled(*without)
    # Kitagawa's composition part: the change in frequency times the mean advantage of showing it, of both sides
    came = (shown[1] - shown[0]) * ((pair[0] + pair[1]) - (rest[0] + rest[1])) / 2
    gain = float(now.solved.mean() - before.solved.mean())
    return _Split(gain, (shown[0], shown[1]), (solved[0], solved[1]), came)


_Rate = tuple[Floats, np.ndarray]
"""Share of correct attempts, and whether there were enough of them, (K,) each."""


def _success(x: Floats, y: Floats) -> _Rate:
    """Success of the attempts [N] that `x` [N, K] marks; NaN where it marks none."""
    count = x.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x * y[:, None]).sum(axis=0) / count, count >= LEAST


def _filled(before: _Rate, now: _Rate) -> tuple[Floats, Floats]:
    """A side where next to nobody shows it, or next to everybody, says nothing of the success there: the other side's
    is taken, and its own where that has no more to say."""
    (a, enough_a), (b, enough_b) = before, now
    own_a, own_b = np.nan_to_num(a), np.nan_to_num(b)
    return np.where(~enough_a & enough_b, own_b, own_a), np.where(~enough_b & enough_a, own_a, own_b)
