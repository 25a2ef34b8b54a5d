"""The sandbox: untrusted Python in, outputs out. See docs/sandbox.md."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from evotrainer.sandbox.interpreter import choose_interpreter
from evotrainer.sandbox.jobs import CheckJob, RunJob
from evotrainer.sandbox.launch import Mechanism, pick_uid
from evotrainer.sandbox.model import Check, CheckResult, Limits, Program, RunResult, Tier
from evotrainer.sandbox.pool import Lane, run_jobs
from evotrainer.sandbox.slot import start_slot


class Sandbox:
    """A running sandbox; use `Sandbox.open`. Not for several threads at once."""

    def __init__(self, mechanism: Mechanism, workers: int = 1) -> None:
        self.tier: Tier = "A"
        self.mechanism = mechanism
        interpreter = choose_interpreter(pick_uid())
        self._lanes = [Lane(lambda: start_slot(mechanism, interpreter)) for _ in range(workers)]

    @classmethod
    def open(cls, accept_tier_e: bool = False, tier: Tier | None = None, workers: int = 1) -> Sandbox:
        """Start."""
        return cls(Mechanism(True, True, True), workers)

    def run(self, programs: Sequence[Program]) -> list[RunResult]:
        """Run every program; results in order. A broken sandbox shows as `RunResult.faulty`, never as an error case."""
        jobs = [RunJob(program) for program in programs]
        run_jobs(self._lanes, jobs)
        return [job.result() for job in jobs]

    def run_checks(self, checks: Sequence[Check]) -> list[CheckResult]:
        """Check every candidate with its test code; results in order."""
        jobs = [CheckJob(check) for check in checks]
        run_jobs(self._lanes, jobs)
        return [job.result() for job in jobs]

    def run_check(self, source: str, entry_point: str, test: str, limits: Limits | None = None) -> CheckResult:
        """One candidate against test code: asserts that call `entry_point`, or a `check(candidate)` function."""
        return self.run_checks([Check(source, entry_point, test, limits or Limits())])[0]

    def close(self) -> None:
        """Stop every zygote."""
        for lane in self._lanes:
            for slot in lane.slots:
                slot.close()
            lane.slots.clear()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
