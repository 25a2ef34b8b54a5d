"""Inputs and results of the sandbox. Expected outputs never go in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "error", "timeout", "memory", "output", "killed", "sandbox"]
"""ok: ran to its end. error: raised, or ended without an answer. timeout: CPU time (or asleep). memory, output: over
the limit. killed: died of a signal. sandbox: our fault, says nothing about the program."""
Tier = Literal["A", "B", "C", "D", "E"]
TIERS: tuple[Tier, ...] = ("A", "B", "C", "D", "E")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. CPU time decides a timeout; the wall clock only ends what sleeps."""

    cpu_s: float = 2.0
    """CPU-seconds per case."""
    memory_mb: int = 512
    """Address space of the program above the bare interpreter's."""
    output_kb: int = 1024
    """Standard output, or the value, of one case."""
    processes: int = 16
    """Processes and threads at once."""
    file_mb: int = 16
    """Size of one file, and of the private working folder."""
    idle_s: float = 5.0
    """Seconds in which the program neither ran nor waited for a processor: asleep, blocked, deadlocked."""
    wall_s: float = 600.0
    """Backstop for everything else, per program."""
    timeouts: int = 1
    """Cases that may time out before the remaining ones are skipped (they count as timeouts)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function the program defines; arguments of the types in `sandbox/values.py`."""

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """One source and its inputs: standard input texts (the source runs as a script), or calls."""

    source: str
    stdins: Sequence[str] = ()
    calls: Sequence[Call] = ()
    limits: Limits = field(default_factory=Limits)
    pure: tuple[Collection[str], Collection[str]] | None = None
    """Calls of the same answer everywhere: (modules to import, built-in names not to find), and no clock or other
    module. None: the whole standard library."""

    def __post_init__(self) -> None:
        if self.stdins and self.calls:
            raise ValueError("a program has stdins or calls, not both; make two programs")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case ended. `stdout` for stdin cases, `value` for calls; None when there is none."""

    status: Status
    stdout: str | None = None
    value: Any = None
    error: tuple[str, str] | None = None
    """Type and message of the exception, or a note on the status."""
    cpu_s: float = 0.0

    @property
    def ok(self) -> bool:
        """It ran to its end; says nothing about the answer."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class RunResult:
    """One result per case, in order, and what the whole program used."""

    cases: tuple[CaseResult, ...]
    cpu_s: float = 0.0
    """CPU-seconds of the child, start-up included, as the kernel measured them."""
    memory_mb: float = 0.0
    """Peak resident memory of the child."""

    @property
    def faulty(self) -> bool:
        """The sandbox broke: no verdict may be drawn."""
        return any(case.status == "sandbox" for case in self.cases)


@dataclass(frozen=True, slots=True)
class Check:
    """A candidate and trusted test code (asserts, or a `check(candidate)` function), run in separate processes."""

    source: str
    entry_point: str
    """Function of the candidate that the tests call."""
    test: str
    limits: Limits = field(default_factory=Limits)
    """Of the candidate, over all calls together; the tests have the same."""
    names: Sequence[str] = ()
    """Further functions of the candidate that the tests call."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`status` ok: the test code ran to its end without an exception."""

    status: Status
    error: tuple[str, str] | None = None
    cpu_s: float = 0.0
    """Candidate and tests together."""

    @property
    def passed(self) -> bool:
        """The tests accepted the candidate."""
        return self.status == "ok"
