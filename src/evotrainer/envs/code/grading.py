"""Batch grading: every program of a batch in the sandbox at once, each distinct (program, inputs) only once.

RL groups repeat programs a lot, within a batch and from step to step, so graded programs are kept in a bounded LRU.
Results of a broken sandbox are never kept (it has tried twice itself), nor those that another load might change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evotrainer.envs.components import UNSURE, ResultCache

if TYPE_CHECKING:
    from evotrainer.sandbox import CaseResult, Limits, Sandbox

ERROR_CHARS = 120


@dataclass(frozen=True, slots=True)
class ProgramJob:
    """One program and its inputs. `form`: stdin texts; function: argument of `solve`; call: all arguments of the entry
    point; check: trusted test sources."""

    form: str
    source: str
    inputs: tuple[Any, ...]
    entry_point: str = "solve"
    names: tuple[str, ...] = ()
    """Further functions of the program that test code calls."""

    @property
    def key(self) -> bytes:
        text = json.dumps([self.form, self.entry_point, self.names, self.source, self.inputs])
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class InputResult:
    """How one input ended: `got` is the text printed or the value returned, None where there is none."""

    status: str
    got: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GradedProgram:
    """One `InputResult` per input, or the sandbox's fault."""

    runs: tuple[InputResult, ...]
    fault: str | None = None

    @property
    def sure(self) -> bool:
        """The same program would end the same way again."""
        return self.fault is None and not any(r.status in UNSURE for r in self.runs)


def _ran(case: CaseResult) -> InputResult:
    error = None
    if case.status != "ok":
        error = ": ".join(case.error)[:ERROR_CHARS] if case.error else case.status
    return InputResult(case.status, case.stdout if case.stdout is not None else case.value, error)


class ProgramGrader:
    """Runs jobs in a sandbox that is opened when first needed."""

    def __init__(self, open_sandbox: Callable[[], Sandbox], limits: Limits, keep: int = 8192) -> None:
        self._open = open_sandbox
        self._sandbox: Sandbox | None = None
        self._limits = limits
        self.known = ResultCache[GradedProgram](keep)
        self.ran = 0
        """Programs really run so far."""

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = self._open()
        return self._sandbox

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def grade(self, jobs: Sequence[ProgramJob]) -> list[GradedProgram]:
        """One result per job, in order."""
        keys = [j.key for j in jobs]
        found: dict[bytes, GradedProgram] = {}
        todo: dict[bytes, ProgramJob] = {}
        for key, job in zip(keys, jobs, strict=True):
            if (known := self.known.get(key)) is not None:
                found[key] = known
            else:
                todo.setdefault(key, job)
        for key, result in zip(todo, self._run(list(todo.values())), strict=True):
            found[key] = result
            if result.sure:
                self.known.put(key, result)
        return [found[k] for k in keys]

    def _run(self, jobs: Sequence[ProgramJob]) -> list[GradedProgram]:
        self.ran += len(jobs)
        out: list[GradedProgram | None] = [None] * len(jobs)
        checks = [i for i, j in enumerate(jobs) if j.form == "check"]
        others = [i for i, j in enumerate(jobs) if j.form != "check"]
        for i, r in zip(others, self._run_programs([jobs[i] for i in others]), strict=True):
            out[i] = r
        for i, r in zip(checks, self._run_checks([jobs[i] for i in checks]), strict=True):
            out[i] = r
        return [r for r in out if r is not None]

    def _run_programs(self, jobs: Sequence[ProgramJob]) -> list[GradedProgram]:
        from evotrainer.sandbox import Call, Program

        if not jobs:
            return []
        programs = [
            Program(j.source, stdins=j.inputs, limits=self._limits)
            if j.form == "stdin"
            else Program(
                j.source,
                calls=[Call(j.entry_point, x if j.form == "call" else (x,)) for x in j.inputs],
                limits=self._limits,
            )
            for j in jobs
        ]
        return [
            GradedProgram((), _fault(r.cases)) if r.faulty else GradedProgram(tuple(_ran(c) for c in r.cases))
            for r in self.sandbox.run(programs)
        ]

    def _run_checks(self, jobs: Sequence[ProgramJob]) -> list[GradedProgram]:
        from evotrainer.sandbox import Check

        if not jobs:
            return []
        flat = [Check(j.source, j.entry_point, test, self._limits, j.names) for j in jobs for test in j.inputs]
        results = iter(self.sandbox.run_checks(flat))
        out = []
        for j in jobs:
            mine = [next(results) for _ in j.inputs]
            fault = next((r for r in mine if r.status == "sandbox"), None)
            if fault is not None:
                out.append(GradedProgram((), ": ".join(fault.error) if fault.error else "sandbox fault"))
                continue
            notes = [": ".join(r.error)[:ERROR_CHARS] if r.error else None for r in mine]
            out.append(
                GradedProgram(tuple(InputResult(r.status, None, note) for r, note in zip(mine, notes, strict=True)))
            )
        return out


def _fault(cases: Sequence[CaseResult]) -> str:
    broken = next(c for c in cases if c.status == "sandbox")
    return ": ".join(broken.error) if broken.error else "sandbox fault"
