"""Which tasks a run is judged on, and what it may spend on them, in a line."""

from __future__ import annotations

from evotrainer.records.events import RunOpened
from evotrainer.records.looks import share_of


def describe(opened: RunOpened | None) -> str:
    """From the first event; empty before it."""
    if opened is None:
        return ""
    found = opened.draw
    if found.mode == "fresh":
        return f"gate and cert drawn for this run alone (seed committed to {found.commitment[:16]})"
    gate = found.of("gate")
    if gate is not None and gate.alpha is not None:
        return budget_line(gate.run, gate.alpha)
    return "" if found.counted else "earlier runs on these gate tasks are not counted in its alpha"


def budget_line(number: int, alpha: float) -> str:
    """What the `number`-th run on a set may spend."""
    return (
        f"run number {number} on these gate tasks on this machine: its alpha is {alpha:.2g}, "
        f"of the {alpha / share_of(number):g} that all runs on them share"
    )
