"""A branch's facts, and the way to it from the starting recipe, change by change, with the measurements it rests on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.projections.facts import FactList
    from evotrainer.verify import Record


def print_ladder(record: Record, own: FactList, branch: str) -> None:
    """Print the facts of a branch, its gates, and the code and texts that it wrote."""
    from evotrainer.projections.text import of_run, one_line, rewritten
    from evotrainer.records.scaffold import slots_of
    from evotrainer.records.text import clean

    b = record.state.branches[branch]
    for f in own:
        if f.kind != "status":
            label = f.label.upper() if f.severity else f.label
            print(f"  {label:<10} {one_line(of_run(f.text, record.folder), 1200)}")
    for g in b.verdict.gates if b.verdict else ():
        mark = {True: "pass", False: "FAIL", None: "open"}[g.passed]
        print(f"  [{mark}] {g.gate}: {of_run(g.message, record.folder)}")
    parent = record.state.branches.get(b.parent or "")
    for what, name, lines in rewritten(parent.recipe if parent else None, b.recipe, slots_of(record.state.environment)):
        print(f"  {what:<10} {name}")
        for line in lines:
            print(f"    | {clean(line, 200)}")


def ladder(record: Record, facts: FactList, branch: str) -> list[str]:
    """Print the way where several changes led to the branch, one after the other; of one alone the branch tells.
    Return what does not follow from the ledger."""
    from evotrainer.verify import when_readable
    from evotrainer.verify.verdicts import judged, verdict_on

    state = record.state
    path = [*reversed(state.ancestors(branch)), branch]
    if several := len(path) > 2:
        print(f"  the way from {path[0]}, one measured step at a time")
    wrong: list[str] = []
    for parent, name in pairwise(path):
        b, own = state.branches[name], facts.of(name)
        if several:
            shown = own.text("effect") or own.text("measured") or "not measured"
            print(f"    {parent} -> {name}  {own.text('changes')}: {shown.partition(';')[0]} ({own.text('status')})")
        if name != branch and b.verdict:  # what the branch itself rests on is computed again by its caller
            event = verdict_on(record, name)
            again = when_readable(record, event.id, lambda e=event: [p.message for p in judged(record, e)])  # type: ignore[misc]
            wrong += [f"{name}: {d}" for d in again]
    return wrong
