"""Written reward components, run in the sandbox over rollouts' evidence, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evotrainer.errors import SandboxError
from evotrainer.records.text import clean
from evotrainer.records.written import ENTRY, Answers, is_value
from evotrainer.sandbox.model import CaseResult

if TYPE_CHECKING:
    from evotrainer.sandbox.sandbox import Sandbox


class RewardRunner:
    """Calls a source's `reward` once per rollout, each call in a fresh namespace: what one call leaves behind no other
    finds. The sandbox is opened when it is first needed, and stays open until `close`."""

    BLOCK = 64
    """Rollouts handed over at once."""
    CPU_S = 0.25
    """CPU-seconds per rollout."""

    def __init__(self, accept_tier_e: bool = False) -> None:
        self.accept_tier_e = accept_tier_e
        self.cpu_s = 0.0
        """Of all functions that ran."""
        self._box: Sandbox | None = None

    def __call__(self, source: str, evidence: Sequence[dict[str, Any]]) -> Answers:
        """A value per rollout, None where the function does not apply, and where it fails: it pays nothing there.

        SandboxError: the machine's fault.
        """
        from evotrainer.sandbox import Sandbox

        if self._box is None:
            self._box = Sandbox.open(accept_tier_e=self.accept_tier_e)
        values: list[float | None] = []
        failed: dict[int, str] = {}
        before = self.cpu_s
        for i in range(0, len(evidence), self.BLOCK):
            block = evidence[i : i + self.BLOCK]
            for case in self._run(source, block):
                said = clean(": ".join(case.error))[:160] if case.error else ""
                if case.status == "sandbox":
                    raise SandboxError(f"the sandbox broke while a written reward component ran ({said}); try again")
                if not case.ok:
                    failed[len(values)] = f"{case.status}{f' ({said})' if said else ''}"
                elif not is_value(case.value):
                    failed[len(values)] = f"it returned {clean(repr(case.value))[:60]}, no number from 0 to 1 or None"
                bad = len(values) in failed or case.value is None
                values.append(None if bad else float(case.value))
        return Answers(values, failed, self.cpu_s - before)

    def _run(self, source: str, block: Sequence[dict[str, Any]]) -> Sequence[CaseResult]:
        """A case per rollout; those that are too much to be handed over together go one by one."""
        from evotrainer.sandbox import Call, Limits, Program

        assert self._box is not None
        limits = Limits(cpu_s=self.CPU_S, memory_mb=512, output_kb=16, timeouts=self.BLOCK)
        calls = tuple(Call(ENTRY, (e,)) for e in block)
        try:
            (result,) = self._box.run([Program(source=source, calls=calls, limits=limits)])
        except ValueError as e:
            if len(block) == 1:
                return [CaseResult("error", error=("ValueError", f"the rollout cannot be handed over: {e}"))]
            return [case for one in block for case in self._run(source, [one])]
        self.cpu_s += result.cpu_s
        return result.cases

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
            self._box = None
