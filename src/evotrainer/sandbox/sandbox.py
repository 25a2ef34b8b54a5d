"""The sandbox: untrusted Python in, outputs out. See docs/sandbox.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from evotrainer.errors import SandboxError
from evotrainer.records.closing import Closing
from evotrainer.sandbox.attack_targets import AttackedSandbox, ProbeResult, proven_tier, try_probes
from evotrainer.sandbox.interpreter import choose_interpreter
from evotrainer.sandbox.jobs import CheckJob, RunJob
from evotrainer.sandbox.launch import Mechanism, pick_uid
from evotrainer.sandbox.model import TIERS, Check, CheckResult, Program, RunResult, Tier
from evotrainer.sandbox.pool import Lane, run_jobs
from evotrainer.sandbox.probes import PROBES, SandboxProbe
from evotrainer.sandbox.report import TierReport
from evotrainer.sandbox.slot import SandboxSlot, start_slot

_MECHANISMS: dict[Tier, Mechanism] = {
    "A": Mechanism(namespaces=True, seccomp=True, cgroup=True),
    "B": Mechanism(namespaces=True, seccomp=True, cgroup=False),
    "C": Mechanism(namespaces=False, seccomp=True, cgroup=True),
    "D": Mechanism(namespaces=False, seccomp=False, cgroup=True),
    "E": Mechanism(namespaces=False, seccomp=False, cgroup=False),
}
_NO_GROUP = "no control group with memory and pids for this user: memory of several processes together is not limited"
_SQUEEZED_MB = 64


class Sandbox(Closing):
    """A running sandbox; make one with `Sandbox.open`. Not for several threads at once."""

    def __init__(self, mechanism: Mechanism, workers: int = 1) -> None:
        if workers < 1:
            raise SandboxError(f"a sandbox needs at least one worker, not {workers}; pass workers=1")
        interpreter = choose_interpreter(pick_uid())
        self._interpreter = interpreter.executable
        self._mechanism = mechanism
        self._lanes = [Lane(lambda: self._open_slot()) for _ in range(workers)]
        self._open_one = lambda: start_slot(self._mechanism, interpreter)
        self.report = TierReport("E", (), (), self._interpreter, -1)
        """Tier, probes and notes."""
        self._first = self._lanes[0].slot(0)
        if mechanism.cgroup and self._first.group is None:
            self._mechanism = replace(mechanism, cgroup=False)

    def _open_slot(self) -> SandboxSlot:
        slot = self._open_one()
        # the probes ran with a group: a further slot without one would not have the tier that was proven
        if self._mechanism.cgroup and slot.group is None and hasattr(self, "_first"):
            slot.close()
            raise SandboxError("a further slot got no control group; close other sandboxes or open with tier='B'")
        return slot

    @classmethod
    def open(cls, accept_tier_e: bool = False, tier: Tier | None = None, workers: int = 1) -> Sandbox:
        """Start the strongest sandbox this machine offers (or at most `tier`), and let it prove its tier.

        `workers` programs run at once. SandboxError when only tier E is left and `accept_tier_e` is not given.
        """
        notes: list[str] = []
        best: Sandbox | None = None
        # B is A without a control group, and is found by trying A
        for level in (tier,) if tier else ("A", "C", "D"):
            try:
                found = cls(_MECHANISMS[level], workers)
            except SandboxError as error:
                notes.append(f"tier {level} is not available: {error}")
                continue
            # what counts is what the probes show: a kernel may accept a mechanism and not enforce it
            found._prove(tier or "A", notes)
            if best is not None and TIERS.index(best.tier) <= TIERS.index(found.tier):
                found.close()
            else:
                if best is not None:
                    best.close()
                best = found
            if found.tier in ("A", "B"):
                break
        if best is None or (best.tier == "E" and not accept_tier_e):
            reasons = "; ".join([*notes, *(best.report.broken() if best else ())])
            if best is not None:
                best.close()
            raise SandboxError(f"no sandbox better than tier E ({reasons}); install bubblewrap or accept tier E")
        return best

    @property
    def tier(self) -> Tier:
        """What was proven, "A" (everything) to "E" (nothing)."""
        return self.report.tier

    def _prove(self, at_most: Tier, notes: list[str]) -> None:
        held = tuple(self.attack(PROBES))
        # TIERS runs from strong to weak: the larger index is the weaker promise
        proven = max(proven_tier(held), at_most, key=TIERS.index)
        if self._first.group is None and at_most == "A":
            notes.append(_NO_GROUP)
        self.report = TierReport(proven, held, tuple(notes), self._interpreter, self._attacked().uid)

    def _attacked(self) -> AttackedSandbox:
        slot = self._lanes[0].slot(0)
        if slot.zygote is None:
            raise SandboxError("the sandbox is closed; open a new one")
        return AttackedSandbox(
            lambda program: self.run([program])[0].cases[0],
            slot.zygote.uid,
            slot.zygote.pid,
            self.strays,
            lambda: _squeezed(slot),
        )

    def attack(self, probes: Sequence[SandboxProbe]) -> Iterator[ProbeResult]:
        """Try attacks on this sandbox, as it does itself when it opens;
        see `evotrainer.sandbox.attacks` for more of them."""
        return try_probes(self._attacked(), probes)

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

    def strays(self) -> int:
        """Processes of finished programs that are still there: none, in any tier."""
        slots = [slot for lane in self._lanes for slot in lane.slots]
        return sum(slot.zygote.strays() for slot in slots if slot.zygote)

    def close(self) -> None:
        """Stop every zygote; a closed sandbox starts new ones when it is used again."""
        for lane in self._lanes:
            lane.abandon()


@contextlib.contextmanager
def _squeezed(slot: SandboxSlot) -> Iterator[None]:
    """The slot's group with room for the probe only."""
    group = slot.group
    if group is None:
        yield
        return
    before = group.limit
    group.set_memory(_SQUEEZED_MB << 20)
    group.squeezed = True
    try:
        yield
    finally:
        group.squeezed = False
        group.set_memory(before)
