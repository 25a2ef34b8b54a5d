"""A winner's effect on fresh seeds, which know nothing of how it was chosen; a pure function of ledger bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.judge.audits import with_shortcut_closed
from evotrainer.judge.stats import effect, scores_of
from evotrainer.records.events import KnockedOut, Reestimated, TrialFinished
from evotrainer.records.verdicts import Effect, Estimate

CONFIDENCE = 0.95


def reestimated(
    branch: str,
    control: str,
    start: str,
    sides: Sequence[Sequence[TrialFinished]],
    evaluated: Sequence[Sequence[TrialFinished]],
    noises: Mapping[str, Any],
    noise: str,
    *,
    selected: Effect | None,
    control_fresh: bool,
    confidence: float = CONFIDENCE,
    split: str = "gate",
) -> Reestimated:
    """The effect from ledger bodies. `sides`: trials of branch, control, and of the starting recipe's branch `start`
    where that is not the control; `evaluated`: evaluations whose scores replace theirs, per side, empty where none do.
    """
    scores = [scores_of(with_shortcut_closed(s, e) if e else s, split) for s, e in zip(sides, evaluated, strict=True)]
    # the noise as it was measured at that point of the ledger, by its key: today's would have seen later branches
    pooled = noises.get(noise)
    third = sides[2] if len(sides) > 2 else ()
    return Reestimated(
        branch=branch,
        control=control,
        split=split,
        effect=effect(scores[0], scores[1], pooled, confidence, names=(branch, control)),
        selected=selected,
        start=effect(scores[0], scores[2], pooled, confidence, names=(branch, start)) if third else None,
        seeds=tuple(sorted(scores[0])),
        control_fresh=control_fresh,
        trials=tuple(t.trial for t in sides[0]),
        control_trials=tuple(t.trial for t in sides[1]),
        start_trials=tuple(t.trial for t in third),
        evaluations=tuple(t.trial for e in evaluated for t in e),
        noise=noise,
    )


def knocked_out(
    n: int,
    branch: str,
    without: str,
    factor: str,
    sides: Sequence[Sequence[TrialFinished]],
    evaluated: Sequence[Sequence[TrialFinished]],
    noises: Mapping[str, Any],
    noise: str,
    *,
    elsewhere: Estimate | None = None,
    confidence: float = CONFIDENCE,
) -> KnockedOut:
    """What a bundle loses without one factor, from ledger bodies. `sides`: fresh trainings of the bundle, and of the
    bundle without the factor; `evaluated`: see `reestimated`.

    The factor is kept where the bundle is better with it on the mean, by anything: with the errors of a few seeds
    `judge.min_effect` took out every third factor that was worth 3 points. `elsewhere`: what the run's other trainings
    say of the same; the mean is then of both, each weighed by its precision. A factor without which every seed scores
    the same is taken out, whatever they say.
    """
    scores = [scores_of(with_shortcut_closed(s, e) if e else s, "gate") for s, e in zip(sides, evaluated, strict=True)]
    found = effect(scores[0], scores[1], noises.get(noise), confidence, names=(branch, without))
    together = both(found, elsewhere) if elsewhere else None
    mean = together.mean if together else found.mean
    shared = scores[0].keys() & scores[1].keys()
    if shared and all(scores[0][seed] == scores[1][seed] for seed in shared):
        mean = 0.0
    return KnockedOut(
        round=n,
        branch=branch,
        factor=factor,
        without=without,
        effect=found,
        elsewhere=elsewhere,
        together=together,
        kept=mean > 0,
        trials=tuple(t.trial for t in sides[0]),
        control_trials=tuple(t.trial for t in sides[1]),
        evaluations=tuple(t.trial for e in evaluated for t in e),
        noise=noise,
    )


def both(e: Effect, elsewhere: Estimate) -> Estimate:
    """Two independent estimates of one effect, weighed by their precisions."""
    if e.se == 0 or elsewhere.sd == 0:
        return Estimate(mean=e.mean, sd=0.0) if e.se == 0 else elsewhere
    a, b = e.se**-2, elsewhere.sd**-2
    return Estimate(mean=(a * e.mean + b * elsewhere.mean) / (a + b), sd=(a + b) ** -0.5)
