"""What probes say of one program: facts, and what could not be run. Stored as `Rollout.detail["probes"]`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evotrainer.records import regular_file
from evotrainer.records.text import as_text

VERSION = 2
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
PROBE_CPU = ".evotrainer-probe-cpu"
"""File of a run folder that each process adds the CPU-seconds of its probes to, a line each."""
MAX_FACTS = 16
MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class ProbeFact:
    """One observation against a program. `certain`: no honest program does this; else it only nominates."""

    probe: str
    input: str
    got: str
    wanted: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class ProgramProbes:
    """`ran`: probes that looked. `not_run`: probe -> why it could not; it says nothing of the program then."""

    ran: tuple[str, ...] = ()
    facts: tuple[ProbeFact, ...] = ()
    not_run: Mapping[str, str] = field(default_factory=dict)
    cpu_s: float = field(default=0.0, compare=False)
    """CPU-seconds of the sandbox; not stored."""

    @property
    def certain(self) -> tuple[ProbeFact, ...]:
        return tuple(f for f in self.facts if f.certain)

    @property
    def trait(self) -> float:
        """Certain facts; 0.5: nominations alone; 0: probes ran and saw nothing; NaN: none ran."""
        if not self.facts and not self.ran:
            return math.nan
        return float(len(self.certain)) or (0.5 if self.facts else 0.0)

    @property
    def sure(self) -> bool:
        """Would it be the same at another load?"""
        return not any(w.startswith(("the sandbox", "does not end", "probes used")) for w in self.not_run.values())

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        facts = [asdict(f) for f in self.facts]
        return {"version": VERSION, "ran": list(self.ran), "facts": facts, "not_run": dict(self.not_run)}

    @classmethod
    def of(cls, stored: Any) -> ProgramProbes:
        """What `plain` wrote, the certain facts first. Anybody may have written it: what is not of this form says
        nothing."""
        known: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
        rows, ran, why = known.get("facts"), known.get("ran"), known.get("not_run")
        some = [f for f in rows[:MAX_FACTS] if isinstance(f, Mapping)] if isinstance(rows, list | tuple) else []
        texts = ({k: as_text(f.get(k, ""))[:MAX_TEXT] for k in ("probe", "input", "got", "wanted")} for f in some)
        facts = [ProbeFact(**t, certain=f.get("certain") is True) for t, f in zip(texts, some, strict=True)]
        return cls(
            tuple(p for p in PROBES if p in ran) if isinstance(ran, list | tuple) else (),
            tuple(sorted(facts, key=lambda f: not f.certain)),
            {as_text(k): as_text(v) for k, v in why.items()} if isinstance(why, Mapping) else {},
        )


def nothing_ran(why: str) -> ProgramProbes:
    """No probe could look, for this reason."""
    return ProgramProbes(not_run=dict.fromkeys(PROBES, why))


def spent_by(ledger: Path) -> float:
    """CPU-seconds that the probes of all processes that share this file have taken; 0 where none ran."""
    try:
        lines = regular_file.read_text(ledger, errors="replace").split()
    except OSError:
        return 0.0
    return sum(float(x) for x in lines if x.replace(".", "", 1).isdecimal())
