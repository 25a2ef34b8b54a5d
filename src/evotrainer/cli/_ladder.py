"""The way from the starting recipe to a branch, change by change, each with the measurements that it rests on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.projections.branches import Branch
    from evotrainer.records.events import Reestimated
    from evotrainer.records.interventions import Intervention
    from evotrainer.verify import Record


def tell_change(record: Record, branch: str, iv: Intervention) -> None:
    """Print what a branch changes, why, and the code and texts that it wrote."""
    from evotrainer.projections.branches import went_on
    from evotrainer.views.text import change

    print(f"  changed    {change(iv.factor, iv.old, iv.new)}")
    if text := went_on(record.state.branches, record.state.branches[branch].recipe):
        print(f"  start      {text}")
    print(f"  hypothesis {iv.hypothesis}")
    _sources(record, branch)


def _sources(record: Record, branch: str) -> None:
    """Print the code and the texts around tasks that a branch wrote: what differs from those before."""
    from evotrainer.records.scaffold import slots_of
    from evotrainer.records.text import clean
    from evotrainer.views.text import written_anew

    b = record.state.branches[branch]
    parent = record.state.branches.get(b.parent or "")
    slots = slots_of(record.state.environment)
    for what, name, lines in written_anew(parent.recipe if parent else None, b.recipe, slots):
        print(f"  {what:<10} {name}")
        for line in lines:
            print(f"    | {clean(line, 200)}")


def ladder(record: Record, branch: str) -> list[str]:
    """Print it where several changes led to the branch, one after the other: one alone is the branch itself, which is
    told above. Return what does not follow from the ledger."""
    state = record.state
    path = [*reversed(state.ancestors(branch)), branch]
    if several := len(path) > 2:
        print(f"  the way from {path[0]}, one measured step at a time")
    wrong: list[str] = []
    for parent, name in pairwise(path):
        b = state.branches[name]
        if several:
            print(f"    {parent} -> {name}  {_change(b)}: {_measured(record, b)}")
        if name != branch:  # what the branch itself rests on is printed and computed again above
            wrong += _again(record, name)
    return wrong


def _change(b: Branch) -> str:
    from evotrainer.views.text import change

    if b.intervention is None:
        return "a start of its own"
    return change(b.intervention.factor, b.intervention.old, b.intervention.new)


def _measured(record: Record, b: Branch) -> str:
    """The effect on fresh seeds where there is one, else as selected, and against what."""
    fresh: Reestimated | None = next((e.body for e in record.of("reestimated") if e.body.branch == b.branch), None)
    if fresh is not None:
        return f"{fresh.effect.points} against {fresh.control} on fresh seeds"
    if b.verdict is None or b.verdict.effect is None:
        return "not measured"
    kind = "not promoted" if b.verdict.kind == "promote" and b.version is None else b.verdict.kind
    return f"{b.verdict.effect.points} against {b.verdict.control} as selected ({kind})"


def _again(record: Record, branch: str) -> list[str]:
    """What differs where the verdict on an earlier step is given again."""
    from evotrainer.verify import when_readable
    from evotrainer.verify.verdicts import rejudge, verdict_on

    if record.state.branches[branch].verdict is None:
        return []
    event = verdict_on(record, branch)
    return [f"{branch}: {d}" for d in when_readable(record, event.id, lambda: rejudge(record, event).differences)]
