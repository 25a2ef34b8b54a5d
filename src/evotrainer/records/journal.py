"""Durable execution: a step that was recorded is never run again, its recorded result is returned instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from evotrainer.errors import IntegrityError
from evotrainer.records.faults import fault_point
from evotrainer.records.ledger import Ledger
from evotrainer.records.recipe import Frozen

T = TypeVar("T", bound=Frozen)


class Journal:
    """Runs the steps of a round over a ledger; a resumed run walks the same steps and skips what is recorded."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def step(self, id: str, kind: str, run: Callable[[], T]) -> T:
        """The recorded body of `id`, or the result of `run()`, recorded and then returned as it was recorded.

        `run` may be repeated if the process dies between its effect and the record: its effects must be idempotent.
        Fault points: `start:<id>` before `run`, `before:<id>` between effect and record, `after:<id>` once durable.
        Raises IntegrityError where `id` is recorded with another kind, and what `run` raises (nothing is recorded).
        """
        event = self.ledger.get(id)
        if event is None:
            fault_point(f"start:{id}")
            event = self.ledger.append(kind, id, run())
        elif event.kind != kind:
            raise IntegrityError(
                f"event {id!r} is recorded as {event.kind!r}, asked for {kind!r}; "
                "resume with the evotrainer that started the run"
            )
        return event.body  # type: ignore[return-value]

    def done(self, id: str) -> bool:
        """Whether this step is recorded."""
        return self.ledger.get(id) is not None
