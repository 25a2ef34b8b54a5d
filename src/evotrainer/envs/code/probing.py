"""Programs of attempts, probed: which ones, with which tests, and what is stored of it (docs/probes.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from evotrainer.envs.base import Task
from evotrainer.envs.code.answers import assemble
from evotrainer.program_probes import ProbedProgram, ProbeRecord, VisibleTest, asserted, probe_programs

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox

Probes = Literal["sample", "all", "off"]
"""sample: one search attempt in SHARE; all: every attempt, which training may then pay for (`no_probe_fact`)."""
SHARE = 8


def is_sampled(task: Task, program: str, probes: Probes) -> bool:
    """Is this attempt probed? By a hash, so that the same one is at every evaluation and on every machine."""
    if probes != "sample":
        return probes == "all"
    said = f"{task.id}\x1f{program}".encode("utf-8", "surrogatepass")
    return task.split == "search" and hashlib.blake2b(said, digest_size=8).digest()[0] % SHARE == 0


def probed_program(task: Task, program: str, beside: Sequence[Any]) -> ProbedProgram:
    """The program with the visible tests of its task; `beside`: inputs without an expected output."""
    data, form = task.data, str(task.data["form"])
    entry = str(data.get("entry_point", "solve"))
    shown = data.get("visible", ())
    if form == "check":
        every = [found for source, _ in shown for found in asserted(str(source))]
        tests = [t for name, t in every if name in (entry, "candidate")]
    elif form == "stdin":
        tests = [VisibleTest(x, y) for x, y in shown]
    else:
        tests = [VisibleTest(list(x) if form == "call" else [x], y) for x, y in shown]
    gold = str(data.get("gold") or "")
    reference = assemble(task, gold) if gold else ""
    inputs = tuple(x if form == "stdin" else [x] for x in beside)
    return ProbedProgram(program, "stdin" if form == "stdin" else "call", tuple(tests), entry, inputs, reference)


def probe_all(programs: Sequence[ProbedProgram], sandbox: Sandbox) -> list[ProbeRecord]:
    """A record a program; equal ones are run once."""
    distinct = {repr(p): p for p in programs}
    found = dict(zip(distinct, probe_programs(sandbox, list(distinct.values())), strict=True))
    return [found[repr(p)] for p in programs]


def is_sure(record: ProbeRecord | None) -> bool:
    """Would it be the same at another load?"""
    return record is None or not any(w.startswith(("the sandbox", "does not end")) for w in record.not_run.values())
