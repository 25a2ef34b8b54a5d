"""A winner's effect on fresh seeds, which know nothing of how it was chosen; a pure function of ledger bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evotrainer.judge.audits import with_shortcut_closed
from evotrainer.judge.stats import effect, scores_of
from evotrainer.records.events import NoiseMeasured, Reestimated, TrialFinished
from evotrainer.records.verdicts import Effect

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
