"""Evaluations that stand in for trials' own scores, where those were made under other environment knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.errors import IntegrityError
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.records.names import joined


def name_under(shortcuts: Shortcuts, trial: str, knobs: Mapping[str, Any]) -> str:
    """The trial that evaluates another one's policy under these environment knobs."""
    closed = shortcuts.closed_names(knobs)
    how = f"closed-{joined(closed, [c.name for c in shortcuts.capabilities])}" if closed else "open"
    return keys.under(trial, how)


def evaluations_under(
    state: RunState, trials: Sequence[TrialFinished], knobs: Mapping[str, Any]
) -> list[TrialFinished]:
    """Of each trial its evaluation under these knobs; none where all trials were evaluated so themselves.

    IntegrityError where one has not finished, or is of another policy or under other knobs than its name says.
    """
    if all(state.shortcuts.same(t.env_knobs, knobs) for t in trials):
        return []
    out = []
    for t in trials:
        name = name_under(state.shortcuts, t.trial, knobs)
        known = state.trials.get(name)
        if known is None or known.finished is None:
            raise IntegrityError(f"{name} has not finished; `evotrainer resume` evaluates it")
        done = known.finished
        mine, its = ((x.branch, x.seed, x.policy_sha256) for x in (t, done))
        if its != mine or not state.shortcuts.same(done.env_knobs, knobs):
            of = f"{done.branch}, seed {done.seed}, policy {done.policy_sha256[:12]}"
            under = f"under {done.env_knobs or 'no knobs'}"
            raise IntegrityError(f"{name} is an evaluation of {of}, {under}, not what its name says")
        out.append(done)
    return out
