"""What a trial's attempts come to: scores of a split, or too many of them lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evotrainer.errors import FaultsError
from evotrainer.records.events import SplitScore

if TYPE_CHECKING:
    from evotrainer.records.rollout import Rollout


def check_faults(trial: str, split: str, rollouts: Sequence[Rollout]) -> None:
    """FaultsError where more than half of one step's or evaluation's attempts were lost;
    none of them is stored then."""
    lost = [r for r in rollouts if r.error_kind is not None]
    if 2 * len(lost) > len(rollouts):
        raise FaultsError(
            f"{len(lost)} of {len(rollouts)} attempts of {trial} on {split} were lost to infrastructure faults; "
            f"the first: {lost[0].error_kind}: {' '.join((lost[0].error or 'no message').split())[:300]}"
        )


def split_score(
    rollouts: Sequence[Rollout],
    split: str,
    step: int,
    attempts: int,
    proxy: str = "",
    greedy: Sequence[Rollout] = (),
    temperature: float | None = None,
) -> SplitScore:
    """Per-task share of correct attempts; rollouts lost to infrastructure faults are in no mean, None without any.

    `greedy`: the second reading's rollouts; `temperature`: the first one's.
    """
    per: dict[str, list[float]] = {}
    comps: dict[str, list[float]] = {}
    paid: dict[str, list[float]] = {}
    errors = 0
    for r in rollouts:
        if r.error_kind is not None or r.outcome == "unknown":
            errors += 1
            continue
        per.setdefault(r.task, []).append(float(r.outcome == "correct"))
        for k, v in r.components.items():
            if v is not None:
                comps.setdefault(k, []).append(v)
        if (x := r.components.get(proxy)) is not None:
            paid.setdefault(r.task, []).append(x)
    per_task = {t: sum(v) / len(v) for t, v in per.items()}
    second = {r.task: float(r.outcome == "correct") for r in greedy if r.error_kind is None and r.outcome != "unknown"}
    return SplitScore(
        split=split,
        step=step,
        score=sum(per_task.values()) / len(per_task) if per_task else None,
        attempts=attempts,
        per_task=per_task,
        components={k: sum(v) / len(v) for k, v in comps.items()},
        errors=errors,
        proxy_per_task={t: sum(v) / len(v) for t, v in paid.items()},
        temperature=temperature,
        greedy=sum(second.values()) / len(second) if second else None,
        greedy_per_task=second,
    )
