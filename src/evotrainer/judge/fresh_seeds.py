"""A winner's effect on fresh seeds, which know nothing of how it was chosen; a pure function of ledger bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.judge.audits import with_shortcut_closed
from evotrainer.judge.stats import effect, scores_of
from evotrainer.records.events import Reestimated, TrialFinished
from evotrainer.records.verdicts import Effect

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
