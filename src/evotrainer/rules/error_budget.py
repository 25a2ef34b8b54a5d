"""The error budget of a run: what is left to it of that of its gate tasks, which runs may share."""

from __future__ import annotations

from evotrainer.config.task import TaskFile
from evotrainer.projections.state import RunState
from evotrainer.records.events import TaskSet
from evotrainer.records.looks import share_of


def share(state: RunState) -> float:
    """Share of `judge.alpha` that a run may spend: all of it on tasks of its own, and where nothing is counted."""
    gate = _gate(state)
    return share_of(gate.run) if gate and gate.run else 1.0


def alpha(task: TaskFile, state: RunState) -> float:
    """One-sided probability of any false promotion in a run, as its first event has it."""
    gate = _gate(state)
    return task.judge.alpha if gate is None or gate.alpha is None else gate.alpha


def counted(state: RunState) -> bool:
    """False where earlier runs may have looked at the gate tasks and nobody counted."""
    gate = _gate(state)
    return gate is None or gate.counted


def _gate(state: RunState) -> TaskSet | None:
    return state.opened.draw.of("gate") if state.opened else None
