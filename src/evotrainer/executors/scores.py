"""What a trial's attempts come to: scores of a split, or too many of them lost."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from evotrainer.errors import FaultsError, TrainerError
from evotrainer.records.events import SplitScore
from evotrainer.records.frozen import explain
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import cut

if TYPE_CHECKING:
    from evotrainer.records.rollout import Rollout

    Groups = Sequence[Sequence[Rollout]]


def unrecordable(e: Exception) -> Exception:
    """What a trial made and no record takes, in our words; its traceback goes to the log. Other errors as they are."""
    if not isinstance(e, ValidationError):
        return e
    traceback.print_exception(e)
    return TrainerError(f"what the trial made cannot be recorded: {cut(explain(e), 300)}")


def on_guard(r: Rollout, guard: str) -> Rollout:
    """A rollout in a guard's environment under names of its own: its tasks may be called as those of the run are."""
    from dataclasses import replace

    from evotrainer.records.rollout import rollout_id

    task = f"{guard}/{r.task}"
    key = r.group.removeprefix(f"{r.policy}/").replace(r.task, task, 1)
    own = rollout_id(r.run, r.branch, r.seed, r.step, key, r.k)
    return replace(r, id=own, task=task, group=f"{r.policy}/{key}", split="guard")


def check_faults(trial: str, split: str, groups: Groups) -> None:
    """FaultsError where more than half of one step's or evaluation's attempts were lost;
    none of them is stored then."""
    lost = [r for g in groups for r in g if r.error_kind is not None]
    attempts = sum(map(len, groups))
    if 2 * len(lost) > attempts:
        message = (
            "" if SealedSplits.covers(split) else f": {cut(' '.join((lost[0].error or 'no message').split()), 300)}"
        )
        raise FaultsError(
            f"{len(lost)} of {attempts} attempts of {trial} on {split} were lost to infrastructure faults; "
            f"the first: {lost[0].error_kind}{message}"
        )


def split_score(
    groups: Groups,
    split: str,
    step: int,
    attempts: int,
    proxy: str = "",
    greedy: Groups = (),
    temperature: float | None = None,
) -> SplitScore:
    """Per-task share of correct attempts, a group a task; rollouts lost to infrastructure faults are in no mean, None
    without any.

    `greedy`: the second reading's groups; `temperature`: the first one's.
    """
    per_task: dict[str, float] = {}
    paid: dict[str, float] = {}
    components: dict[str, list[float]] = {}
    errors = 0
    for group in groups:
        graded = [r for r in group if r.error_kind is None and r.outcome != "unknown"]
        errors += len(group) - len(graded)
        if not graded:
            continue
        per_task[graded[0].task] = sum(float(r.outcome == "correct") for r in graded) / len(graded)
        values = [x for r in graded if (x := r.components.get(proxy)) is not None]
        if values:
            paid[graded[0].task] = sum(values) / len(values)
        for r in graded:
            for k, v in r.components.items():
                if v is not None:
                    components.setdefault(k, []).append(v)
    sure = (r for g in greedy for r in g if r.error_kind is None and r.outcome != "unknown")
    second = {r.task: float(r.outcome == "correct") for r in sure}
    return SplitScore(
        split=split,
        step=step,
        score=sum(per_task.values()) / len(per_task) if per_task else None,
        attempts=attempts,
        per_task=per_task,
        components={k: sum(v) / len(v) for k, v in components.items()},
        errors=errors,
        proxy_per_task=paid,
        temperature=temperature,
        greedy=sum(second.values()) / len(second) if second else None,
        greedy_per_task=second,
    )
