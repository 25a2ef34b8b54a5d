"""What a check of a run reads, and what it reports: shared by `verify` and `why`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import EncryptedError, EvoTrainerError
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.differences import differences
from evotrainer.records.events import RunOpened, TrialFinished
from evotrainer.records.frozen import Frozen

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not hold. `area`: ledger, lineage, policy, rollouts, head, or the kind of an event."""

    area: str
    message: str


@dataclass(frozen=True)
class Record:
    """What a check reads: the run folder and all events, whose chain holds."""

    folder: Path
    events: list[Event]
    checked: Counter[str] = field(default_factory=Counter)
    """What was compared, for the report."""
    locked: list[str] = field(default_factory=list)
    """Events that rest on what is encrypted until the run closes, so that they could not be computed again."""
    _walked: list[Any] = field(default_factory=lambda: [0, RunState()], repr=False)
    """Number of events in the state that `state_before` last gave, and that state."""

    @cached_property
    def state(self) -> RunState:
        """After all events."""
        return RunState.of(self.events)

    def state_before(self, event: Event) -> RunState:
        """After all events before this one: what the loop knew when it recorded it. Read it before the next call."""
        seq, state = self._walked
        if seq >= event.seq:
            seq, state = 0, RunState()
        for e in self.events[seq : event.seq - 1]:
            state.apply(e)
        self._walked[:] = [event.seq - 1, state]
        return state

    @property
    def task(self) -> TaskFile:
        """The run's task file. ConfigError where it is missing or damaged."""
        path = self.folder / "task.toml"
        return _task(self.folder, path.stat().st_mtime_ns if path.is_file() else 0)

    @property
    def opened(self) -> RunOpened:
        """The event the run began with."""
        body: RunOpened = self.of("run")[0].body
        return body

    @cached_property
    def rollouts(self) -> RolloutReader:
        """Its stored rollouts."""
        return RolloutReader(self.folder)

    @cached_property
    def finished(self) -> dict[str, TrialFinished]:
        """Trial -> its result."""
        return {e.body.trial: e.body for e in self.events if isinstance(e.body, TrialFinished)}

    def of(self, kind: str) -> list[Event]:
        """All events of one kind, oldest first."""
        return [e for e in self.events if e.kind == kind]

    def before(self, event: Event, kind: str = "") -> list[Event]:
        """Events recorded before this one, of one kind where it is given."""
        return [e for e in self.events[: event.seq - 1] if not kind or e.kind == kind]


EventCheck = Callable[[Record, Event], Iterator[Problem]]
"""Yields what does not hold of one event."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, and every problem found; no problem: the run is as it was recorded."""

    folder: Path
    problems: tuple[Problem, ...]
    checked: dict[str, int]
    """events, branches, trials, policies, parts, rollouts, ..."""
    head: str = ""
    """Hash of the last event: noted elsewhere, it proves later that no event was cut off the end."""
    notes: tuple[str, ...] = ()
    """What could not be checked, and what changed outside the run folder."""
    chain_only: tuple[str, ...] = ()
    """Kinds of event that only the chain protects."""
    unchecked: tuple[str, ...] = ()
    """Kinds of event that no check knows."""
    locked: tuple[str, ...] = ()
    """Events that rest on what is encrypted until the run closes: not computed again."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def joined(self, area: str, problem: str = "", note: str = "") -> VerifyReport:
        """The same with what another check found."""
        problems = (*self.problems, Problem(area, problem)) if problem else self.problems
        return replace(self, problems=problems, notes=(*self.notes, note) if note else self.notes)


@lru_cache(maxsize=4)
def _task(folder: Path, mtime_ns: int) -> TaskFile:
    from evotrainer.config.load import load_run_task

    return load_run_task(folder)


def check_list(area: str, event: Event, what: str, stored: Sequence[Any], due: Sequence[Any]) -> Iterator[Problem]:
    """Problem where a list in the ledger does not hold exactly what it should."""
    if sorted(stored) != sorted(due):
        left = [x for x in due if x not in stored]
        more = [x for x in stored if x not in due]
        how = f"{left[0]} is missing" if left else f"{more[0]} is none of them" if more else "one is listed twice"
        yield Problem(area, f"{event.id}: its {what} are not those of the record: {how}")


def combined(*checks: EventCheck) -> EventCheck:
    """One check of several."""

    def check(record: Record, event: Event) -> Iterator[Problem]:
        for c in checks:
            yield from c(record, event)

    return check


def when_readable(record: Record, what: str, compute: Callable[[], Sequence[str]]) -> list[str]:
    """What a computation finds different; nothing, and `what` is noted, while it rests on what is encrypted."""
    try:
        return list(compute())
    except EncryptedError:
        record.locked.append(what)
        return []


AGAIN = ": it cannot be computed again: "


def merge_same_cause(problems: Sequence[Problem]) -> list[Problem]:
    """Problems, those of one cause that keeps several events from being computed again as one."""
    causes = Counter(c for p in problems if (c := p.message.partition(AGAIN)[2]))
    out: list[Problem] = []
    for p in problems:
        n = causes.pop(cause, 0) if (cause := p.message.partition(AGAIN)[2]) else 1
        if n:
            out.append(p if n == 1 else replace(p, message=f"{p.message} (and {n - 1} further events cannot)"))
    return out


def guarded(kind: str, check: EventCheck) -> EventCheck:
    """A check whose own failure over damaged bodies is a problem of the event, not a traceback."""

    def safe(record: Record, event: Event) -> Iterator[Problem]:
        try:
            yield from check(record, event)
        except EncryptedError:
            record.locked.append(event.id)
        except EvoTrainerError as e:
            yield Problem(kind, f"{event.id}{AGAIN}{e}")
        except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError, StopIteration) as e:
            yield Problem(kind, f"{event.id}{AGAIN}{type(e).__name__} {e}")

    return safe


def recomputed(event: Event, fresh: Frozen, what: str = "") -> Iterator[Problem]:
    """What an event's body does not have as it comes out again. `what`: of the event, for the message."""
    for d in differences(event.body.model_dump(mode="json"), fresh.model_dump(mode="json")):
        yield Problem(event.kind, f"{event.id}{what}: {d}")


def six_decimals(name: str, old: float, new: float) -> list[str]:
    """What differs between numbers that are recorded with six decimals."""
    return [] if abs(old - new) <= 2e-6 * max(1.0, abs(old)) else [f"{name}: {old:g} in the ledger, {new:g} recomputed"]
