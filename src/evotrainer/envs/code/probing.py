"""Programs of attempts, probed: which ones, with which tests, and within which CPU budget (docs/probes.md)."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from evotrainer.envs.base import Task
from evotrainer.records.frozen import Frozen
from evotrainer.records.probes import ProgramProbes, nothing_ran, spent_by

if TYPE_CHECKING:
    from evotrainer.program_probes import ProbedProgram, VisibleTest
    from evotrainer.sandbox import Sandbox

SHARE = 8
BLOCK = 16
"""Programs that are probed before the budget is looked at again."""


class ProbeOptions(Frozen):
    """Keys of `[environment]` about probes."""

    probes: Literal["sample", "all", "off"] = "sample"
    """Programs that are also probed (docs/probes.md): one search attempt in eight; all: every attempt, and the reward
    component `no_probe_fact`; off: none."""
    probe_cpu_s: float = Field(600.0, ge=0)
    """CPU-seconds that the probes of a run may take in all; then they stop, and the rollouts say so."""


class Prober:
    """Probes attempts. `ledger`: a file that all processes of a run add their CPU-seconds to; None: this process alone
    counts."""

    def __init__(self, options: ProbeOptions) -> None:
        self.options = options
        self.ledger: Path | None = None
        self.used = 0.0

    def is_sampled(self, task: Task, program: str) -> bool:
        """Is this attempt probed? By a hash, so that the same one is at every evaluation and on every machine."""
        if self.options.probes != "sample":
            return self.options.probes == "all"
        key = f"{task.id}\x1f{program}".encode("utf-8", "surrogatepass")
        return task.split == "search" and hashlib.blake2b(key, digest_size=8).digest()[0] % SHARE == 0

    def probe(self, programs: Sequence[ProbedProgram], sandbox: Callable[[], Sandbox]) -> list[ProgramProbes]:
        """A record a program; those for which the budget does not last say so."""
        from evotrainer.program_probes import probe_programs

        out: list[ProgramProbes] = []
        most = self.options.probe_cpu_s
        while len(out) < len(programs) and (spent_by(self.ledger) if self.ledger else self.used) < most:
            done = probe_programs(sandbox(), programs[len(out) : len(out) + BLOCK])
            out += done
            self._spend(sum(r.cpu_s for r in {id(r): r for r in done}.values()))
        why = f"probes used up environment.probe_cpu_s={most:g}"
        return [*out, *[nothing_ran(why)] * (len(programs) - len(out))]

    def _spend(self, cpu_s: float) -> None:
        self.used += cpu_s
        if self.ledger is not None:
            # one short write at the end of the file: processes side by side do not mix theirs
            fd = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(fd, f"{cpu_s:.6f}\n".encode())
            finally:
                os.close(fd)


def probed_program(task: Task, program: str) -> ProbedProgram:
    """The program with the visible tests of its task, and the task's own solution."""
    from evotrainer.envs.code.answers import assemble
    from evotrainer.program_probes import ProbedProgram, VisibleTest

    data, form = task.data, str(task.data["form"])
    entry = str(data.get("entry_point", "solve"))
    shown = data.get("visible", ())
    if form == "check":
        tests = [t for source, _ in shown for t in _of_assertions(str(source), entry)]
    elif form == "stdin":
        tests = [VisibleTest(x, y) for x, y in shown]
    else:
        tests = [VisibleTest(list(x) if form == "call" else [x], y) for x, y in shown]
    gold = str(data.get("gold") or "")
    reference = assemble(task, gold) if gold else ""
    return ProbedProgram(program, "stdin" if form == "stdin" else "call", tuple(tests), entry, reference)


def _of_assertions(source: str, entry: str) -> list[VisibleTest]:
    from evotrainer.program_probes import VisibleTest
    from evotrainer.records.asserts import asserted

    out = []
    for name, given, wanted in asserted(source):
        try:
            if name in (entry, "candidate"):
                out.append(VisibleTest(list(ast.literal_eval(f"({given},)")), ast.literal_eval(wanted)))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return out
