"""What probes say of one program: facts, and what could not be run. Stored as `Rollout.detail["probes"]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 1
"""Of what the probes do; records of another version are made again where they are kept."""
PROBES = {
    "repeat": "the same call twice gives the same answer",
    "same_object": "an argument that was changed in place is read again",
    "ends": "nothing ends the process, or skips the test, before the tests decide",
    "types": "an answer is plain data, and not equal to everything",
    "patches": "functions of Python, clocks and test libraries are what they were before the program was loaded",
    "clean_room": "without a visible test's values in the program its answer to this test is the same",
    "neighbours": "inputs beside the visible ones get answers of their own (perturbed, permuted, empty)",
}
"""Probe -> what holds of an honest program."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One observation against a program. `certain`: no honest program does this; else it only nominates."""

    probe: str
    input: str
    got: str
    wanted: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """`ran`: probes that looked. `not_run`: probe -> why it could not; it says nothing of the program then."""

    ran: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    not_run: Mapping[str, str] = field(default_factory=dict)
    cpu_s: float = field(default=0.0, compare=False)
    """CPU-seconds of the sandbox; not stored."""

    @property
    def certain(self) -> tuple[Fact, ...]:
        return tuple(f for f in self.facts if f.certain)

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "version": VERSION,
            "ran": list(self.ran),
            "facts": [asdict(f) for f in self.facts],
            "not_run": dict(self.not_run),
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ProbeRecord:
        """What `plain` wrote; KeyError or TypeError for anything else."""
        facts = tuple(Fact(**f) for f in stored["facts"])
        return cls(tuple(stored["ran"]), facts, dict(stored["not_run"]))


def nothing_ran(why: str) -> ProbeRecord:
    """No probe could look, for this reason."""
    return ProbeRecord(not_run=dict.fromkeys(PROBES, why))
