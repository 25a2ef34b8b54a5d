"""`evotrainer audit --run`: which rollouts' programs are run, and what came of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from evotrainer.errors import SandboxError
from evotrainer.harness.code_reading.probe_facts import probed
from evotrainer.harness.columns.traits import Traits
from evotrainer.records.output import Progress
from evotrainer.sandbox import Sandbox
from evotrainer.studies.audit.probing import probe_rollouts
from evotrainer.studies.audit.units import Opened

MOST = 2000
"""Rollouts of an audit whose programs are run, chosen by a hash: the same ones at every audit."""
TIERS = "ABC"
"""Sandboxes that keep foreign programs from the network, other processes and the files of others."""


@dataclass(frozen=True, slots=True)
class ProgramsRun:
    """Of one source: rollouts that were tried, those whose program ran, with certain facts, and nominated ones."""

    tried: int
    of: int
    ran: int
    facts: int
    nominated: int
    not_run: Mapping[str, int] = field(default_factory=dict)
    """Why the others could not be run -> how many; the commonest reasons first."""
    cpu_s: float = 0.0


class ProgramRunner:
    """Runs programs of an audit's sources; the sandbox is opened for the first program. `kept`: folder of earlier
    records."""

    def __init__(self, kept: Path | None, most: int = MOST) -> None:
        self.kept, self.left = kept, most
        self._box: Sandbox | None = None

    def sandbox(self) -> Sandbox:
        """SandboxError where this machine has none that confines foreign programs."""
        if self._box is None:
            box = Sandbox.open()
            if box.tier not in TIERS:
                box.close()
                raise SandboxError(
                    f"--run: this machine's sandbox is tier {box.tier}, and foreign programs need A, B or C; install "
                    "bubblewrap (`evotrainer doctor` says what is missing), or audit without --run"
                )
            self._box = box
        return self._box

    def probe(self, whole: Opened, traits: Traits, say: Progress) -> tuple[Traits, ProgramsRun]:
        """The traits with what the probes saw; `whole` shows the facts from now on."""
        rows = np.sort(np.unique(traits.keys["id"], return_index=True)[1]) if traits.n else np.zeros(0, np.int64)
        rows = rows[traits.fault.code[rows] < 0]
        many = len(rows)
        if many > self.left:
            keys = zip(whole.column("id", rows.tolist()), whole.column("task", rows.tolist()), strict=True)
            order = [hashlib.blake2b(f"{i}\x1f{t}".encode(errors="replace")).digest() for i, t in keys]
            rows = np.sort(rows[np.argsort(np.array(order))[: self.left]])
        self.left -= len(rows)
        some = rows.tolist()
        records = probe_rollouts(whole.rollouts(some), self.sandbox, self.kept, say)
        column = np.array(traits.columns["probed"], dtype=np.float64)
        for i, record in zip(some, records, strict=True):
            if record.ran:
                whole.probes[i] = record.plain()
                column[i] = probed({"probes": whole.probes[i]})
        why = Counter(next(iter(r.not_run.values()), "") for r in records if not r.ran)
        ran = ProgramsRun(
            tried=len(some),
            of=many,
            ran=sum(bool(r.ran) for r in records),
            facts=sum(bool(r.certain) for r in records),
            nominated=sum(bool(r.facts) and not r.certain for r in records),
            not_run=dict(why.most_common()),
            cpu_s=sum(r.cpu_s for r in {id(r): r for r in records}.values()),
        )
        return replace(traits, columns={**traits.columns, "probed": column}), ran

    def close(self) -> None:
        """Stop the sandbox."""
        if self._box is not None:
            self._box.close()
            self._box = None
