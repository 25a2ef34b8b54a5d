"""A winner's effect on fresh seeds, which know nothing of how it was chosen; a pure function of ledger bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evotrainer.judge.audits import with_shortcut_closed
from evotrainer.judge.stats import effect, scores_of
from evotrainer.records.events import KnockedOut, NoiseMeasured, Reestimated, TrialFinished
from evotrainer.records.verdicts import Effect, Estimate

Sides = Sequence[Sequence[TrialFinished]]


def _scores(sides: Sides, evaluated: Sides) -> list[dict[int, dict[str, float]]]:
    """Gate scores of each side's trials; those of its evaluations where it has any."""
    return [scores_of(with_shortcut_closed(s, e) if e else s, "gate") for s, e in zip(sides, evaluated, strict=True)]


def reestimated(
    names: Sequence[str],
    sides: Sides,
    evaluated: Sides,
    noises: Mapping[str, NoiseMeasured],
    *,
    selected: Effect | None,
    control_fresh: bool,
) -> Reestimated:
    """The effect from ledger bodies. `names`, `sides`: branch, control and, where that is not the control, the starting
    recipe's branch, each with its trials; `evaluated`: evaluations whose scores replace theirs, per side, empty where
    none do; `noises`: by the keys of their events, the last one counts.
    """
    scores, noise = _scores(sides, evaluated), list(noises)[-1]
    found = [
        effect(scores[0], x, noises[noise], names=(names[0], n)) for n, x in zip(names[1:], scores[1:], strict=True)
    ]
    return Reestimated(
        branch=names[0],
        control=names[1],
        split="gate",
        effect=found[0],
        selected=selected,
        start=found[1] if len(found) > 1 else None,
        seeds=tuple(sorted(scores[0])),
        control_fresh=control_fresh,
        trials=tuple(t.trial for t in sides[0]),
        control_trials=tuple(t.trial for t in sides[1]),
        start_trials=tuple(t.trial for side in sides[2:] for t in side),
        evaluations=tuple(t.trial for e in evaluated for t in e),
        noise=noise,
    )


def knocked_out(
    n: int,
    branch: str,
    without: str,
    factor: str,
    sides: Sides,
    evaluated: Sides,
    noises: Mapping[str, NoiseMeasured],
    elsewhere: Estimate | None = None,
) -> KnockedOut:
    """What a bundle loses without one factor, from ledger bodies. `sides`: fresh trainings of the bundle, and of the
    bundle without the factor; `evaluated`, `noises`: see `reestimated`.

    The factor is kept where the bundle is better with it on the mean, by anything: with the errors of a few seeds
    `judge.min_effect` took out every third factor that was worth 3 points. `elsewhere`: what the run's other trainings
    say of the same; the mean is then of both, each weighed by its precision. A factor without which every seed scores
    the same is taken out, whatever they say.
    """
    scores, noise = _scores(sides, evaluated), list(noises)[-1]
    found = effect(scores[0], scores[1], noises[noise], names=(branch, without))
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
