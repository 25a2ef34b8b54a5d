"""Code of recipes, run in the sandbox in batches: written reward components over rollouts' evidence, and hooks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evotrainer.errors import SandboxError, TimeOverError
from evotrainer.records.text import clean, cut
from evotrainer.records.untrusted_values import CallResults, in_words, received
from evotrainer.records.written import CLOSED, ENTRY, MODULES, is_value
from evotrainer.sandbox.model import Call, CaseResult, Limits, Program

if TYPE_CHECKING:
    from evotrainer.sandbox.sandbox import Sandbox


class RewardRunner:
    """Calls a source's `reward` once per rollout, or a function of a hook, each call in a fresh namespace.
    Calls that are handed over together share a process, which ends with them; each has modules of its own. The
    sandbox is opened when it is first needed, and stays open until `close`."""

    BLOCK = 64
    """Calls handed over at once."""
    CPU_S, HOOK_CPU_S = 0.25, 1.0
    """CPU-seconds per rollout, and per call of a hook."""
    OUTPUT_KB, HOOK_OUTPUT_KB = 16, 1024
    """Size of an answer."""

    HURRIED = 4
    """The same where there is an end to the time: what is begun before it is waited for."""

    def __init__(self, accept_tier_e: bool = False, until: float | None = None) -> None:
        self.accept_tier_e = accept_tier_e
        self.until = until
        """Time of `time.monotonic` from which on nothing more is run: TimeOverError; None: none."""
        self.cpu_s = 0.0
        """Of all functions that ran."""
        self._box: Sandbox | None = None

    def __call__(self, source: str, evidence: Sequence[dict[str, Any]]) -> CallResults:
        """A value per rollout, None where the function does not apply, and where it fails: it pays nothing there.

        SandboxError: the machine's fault.
        """
        limits = Limits(cpu_s=self.CPU_S, memory_mb=512, output_kb=self.OUTPUT_KB, timeouts=self.BLOCK)
        answers = self.called(source, [Call(ENTRY, (e,)) for e in evidence], limits, "written reward component")
        values: list[Any] = []
        for i, v in enumerate(answers.values):
            if i not in answers.failed and not is_value(v):
                answers.failed[i] = f"it returned {in_words(v)}, no number from 0 to 1 or None"
            values.append(None if i in answers.failed or v is None else float(v))
        return CallResults(values, answers.failed, answers.cpu_s)

    def call(self, source: str, entry: str, arguments: Sequence[tuple[Any, ...]]) -> CallResults:
        """What a hook's function answers to each call; its caller says what is wrong with an answer.

        SandboxError: the machine's fault.
        """
        limits = Limits(cpu_s=self.HOOK_CPU_S, memory_mb=512, output_kb=self.HOOK_OUTPUT_KB)
        return self.called(source, [Call(entry, args) for args in arguments], limits, "hook")

    def open(self) -> None:
        """Opens the sandbox, where it is not."""
        from evotrainer.sandbox import Sandbox

        if self._box is None:
            self._box = Sandbox.open(accept_tier_e=self.accept_tier_e)

    def called(self, source: str, calls: Sequence[Call], limits: Limits, what: str) -> CallResults:
        """What written code answers, of any kind: the one place where it arrives."""
        self.open()
        values: list[Any] = []
        failed: dict[int, str] = {}
        before = self.cpu_s
        each = self.BLOCK if self.until is None else self.HURRIED
        for i in range(0, len(calls), each):
            if self.until is not None and time.monotonic() >= self.until:
                raise TimeOverError(f"the time was over after {i} of {len(calls)} calls of a {what}")
            for case in self._run(source, calls[i : i + each], limits):
                error_text = cut(clean(": ".join(case.error)), 160) if case.error else ""
                if case.status == "sandbox":
                    raise SandboxError(f"the sandbox broke while a {what} ran ({error_text}); try again")
                if not case.ok:
                    failed[len(values)] = f"{case.status}{f' ({error_text})' if error_text else ''}"
                values.append(received(case.value) if case.ok else None)
        return CallResults(values, failed, self.cpu_s - before)

    def _run(self, source: str, block: Sequence[Call], limits: Limits) -> Sequence[CaseResult]:
        """A case per call; those that are too much to be handed over together go one by one."""
        assert self._box is not None
        try:
            (result,) = self._box.run([Program(source, calls=tuple(block), limits=limits, pure=(MODULES, CLOSED))])
        except ValueError as e:
            if len(block) == 1:
                return [CaseResult("error", error=("ValueError", f"what it is shown cannot be handed over: {e}"))]
            return [case for one in block for case in self._run(source, [one], limits)]
        self.cpu_s += result.cpu_s
        return result.cases

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
            self._box = None
