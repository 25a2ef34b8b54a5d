"""Results of admission: a verdict per task, their report, and a cache of verdicts by content."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.records.regular_file import read_object
from evotrainer.sandbox.interpreter import cache_root


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """The verdict on one task. `reasons`: why it was refused; empty when it is admitted."""

    task: str
    admitted: bool
    reasons: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    """Names of the attempts, in order: fix, nothing, cheats."""
    kept: bool = False
    """Read from an earlier run."""
    across: int = 0
    """Ids that are graded across the boundary (`guarding.py`),"""
    decided: int = 0
    """those of them in which objects of the code under test decide something,"""
    inside: int = 0
    """and those that are graded in its process."""


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    """Verdicts in the order of the tasks; `str()` renders it."""

    verdicts: tuple[AdmissionVerdict, ...]
    world: str

    @property
    def admitted(self) -> frozenset[str]:
        """Ids of admitted tasks."""
        return frozenset(v.task for v in self.verdicts if v.admitted)

    @property
    def refused(self) -> tuple[AdmissionVerdict, ...]:
        return tuple(v for v in self.verdicts if not v.admitted)

    def __str__(self) -> str:
        kept = sum(v.kept for v in self.verdicts)
        tried = next((v.tried for v in self.verdicts if v.admitted), ())
        lines = [
            f"admission ({self.world}): {len(self.admitted)} of {len(self.verdicts)} tasks, {kept} from earlier runs"
        ]
        if tried:
            lines.append(f"  tried on each: {', '.join(tried)}")
        if across := sum(v.across for v in self.verdicts):
            lines.append(
                f"  tests graded across the boundary: {across} ({sum(v.decided for v in self.verdicts)} where "
                f"objects of the code under test decide); in its process: {sum(v.inside for v in self.verdicts)}"
            )
        for v in self.refused:
            lines += [f"  refused {v.task}", *(f"    {reason}" for reason in v.reasons)]
        return "\n".join(lines)


class Cache:
    """Verdicts by hash in one folder, a JSON file each."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_root() / "admission"

    def get(self, key: str) -> dict[str, Any] | None:
        """None where there is none, or a broken one."""
        found = read_object(self.folder / f"{key}.json")
        return found if isinstance(found.get("reasons"), list) else None

    def put(self, key: str, verdict: AdmissionVerdict, extra: Mapping[str, Any] | None = None) -> None:
        """Kept, with what a domain wants to keep with it, where the folder can be written;
        a folder that cannot be written is no error."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            fd, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(fd, "w") as file:
                found = {"task": verdict.task, "reasons": verdict.reasons, "tried": verdict.tried}
                json.dump(found | dict(extra or {}), file)
            os.replace(name, self.folder / f"{key}.json")
