"""One slot: a zygote with its user, its control group, and at most one child at a time."""

from __future__ import annotations

import math
import os
import signal
import socket
from dataclasses import dataclass

from evotrainer.errors import SandboxError
from evotrainer.sandbox.cgroups import SlotGroup, make_group
from evotrainer.sandbox.interpreter import Interpreter
from evotrainer.sandbox.launch import ENDED, LIMITS, PROGRESS, Mechanism, StartedZygote, launch, pick_uid
from evotrainer.sandbox.model import Limits

_OVERHEAD = 96 << 20
"""Bytes of the slot's group beyond one program's limit: the zygote, page tables, the request."""
_GROUP_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How the kernel says a child ended."""

    code: int
    cpu_s: float
    memory_mb: float
    out_of_memory: bool
    """The control group's limit was hit while it ran."""


@dataclass(frozen=True, slots=True)
class Progress:
    """CPU-seconds so far, and seconds running or runnable (negative: this kernel does not tell)."""

    cpu_s: float
    active_s: float
    uncounted: bool
    """It has processes whose CPU time is known only as far as they were seen: no control group counts it."""


class SlotDiedError(Exception):
    """The zygote is gone; the slot must be restarted."""


class SandboxSlot:
    """Starts on construction; `run` a request, read `control` until `ChildExit`, then run the next."""

    def __init__(self, mechanism: Mechanism, interpreter: Interpreter, group_mb: int = 512) -> None:
        self.mechanism = mechanism
        self.interpreter = interpreter
        self.uid = pick_uid()
        self.group: SlotGroup | None = (
            make_group((group_mb << 20) + _OVERHEAD, _GROUP_PROCESSES) if mechanism.cgroup else None
        )
        self.zygote: StartedZygote | None = None
        self.restarts = -1
        self._kills = 0
        self._spent: float | None = None
        """CPU-seconds of the group when the present program started; None where no group counts them."""
        try:
            self.restart()
        except BaseException:
            self.close()
            raise

    def restart(self) -> None:
        """A new zygote in the same group, as the same user."""
        if self.zygote:
            self.zygote.stop()
            self.zygote = None
        self.restarts += 1
        self.zygote = launch(self.mechanism, self.interpreter, self.uid)
        if self.group:
            try:
                self.group.add(self.zygote.pid)
            except OSError:
                self.group.remove()
                self.group = None

    @property
    def control(self) -> socket.socket:
        """Readable when the zygote has something to say."""
        if self.zygote is None:
            raise SlotDiedError
        return self.zygote.control

    def run(self, request: bytes, limits: Limits, cases: int) -> socket.socket:
        """Start a child on `request`; its answers arrive on the returned socket."""
        self._spent = self._account()
        # called for its effect: kills that happened before this program must not be laid to its charge
        self.out_of_memory()
        memory = limits.memory_mb << 20
        files = limits.file_mb << 20
        if self.group:
            self.group.fit_memory(memory + files + _OVERHEAD)
        # a backstop of the kernel for all cases together, in whole seconds; the timer inside counts each case
        cpu = math.ceil(limits.cpu_s * cases) + 2
        message = b"r" + LIMITS.pack(memory, cpu, limits.processes + 1, files, limits.file_mb, len(request))
        body = os.memfd_create("request")
        ours, theirs = socket.socketpair()
        try:
            view = memoryview(request)
            while view:
                view = view[os.write(body, view) :]
            socket.send_fds(self.control, [message], [body, theirs.fileno()])
        except OSError as error:
            ours.close()
            raise SlotDiedError from error
        finally:
            os.close(body)
            theirs.close()
        ours.setblocking(False)
        return ours

    def _send(self, message: bytes) -> None:
        try:
            self.control.send(message)
        except OSError as error:
            raise SlotDiedError from error

    def _account(self) -> float | None:
        """CPU-seconds of all programs so far, unwaited children included; None where no group counts them."""
        return self.group.cpu_s(besides=self.zygote.pid) if self.group and self.zygote else None

    def _program_cpu(self) -> float | None:
        now = self._account()
        return None if now is None or self._spent is None else now - self._spent

    def out_of_memory(self) -> bool:
        """Did the kernel kill something here for want of memory since this was last asked?"""
        kills = self.group.kills() if self.group else 0
        hit, self._kills = kills > self._kills, kills
        return hit

    def query(self) -> None:
        """Ask for `Progress`."""
        self._send(b"?")

    def kill(self) -> None:
        """End the child; `ChildExit` follows."""
        self._send(b"k")

    def listen(self) -> ChildExit | Progress | None:
        """The next control message; None when it means nothing (an answer that came too late)."""
        try:
            message = self.control.recv(256)
        except OSError as error:
            raise SlotDiedError from error
        if not message:
            raise SlotDiedError
        if message[:1] == b"c":
            return self._progress(*PROGRESS.unpack(message[1:]))
        if message[:1] == b"x":
            code, cpu_s, memory_mb = ENDED.unpack(message[1:])
            hit = code == -signal.SIGKILL and self.out_of_memory()
            return ChildExit(code, max(cpu_s, self._program_cpu() or 0.0), memory_mb, hit)
        return None

    def _progress(self, cpu_s: float, active_s: float, others: bool) -> Progress:
        """What the group counts, where there is one: children that nobody waits for are in no other account."""
        counted = self._program_cpu()
        if counted is None:
            return Progress(cpu_s, active_s, others)
        if active_s >= 0:
            active_s += max(0.0, counted - cpu_s)
        return Progress(max(cpu_s, counted), active_s, False)

    def close(self) -> None:
        """Stop the zygote and remove the group."""
        if self.zygote:
            self.zygote.stop()
            self.zygote = None
        if self.group:
            self.group.remove()
            self.group = None


def start_slot(mechanism: Mechanism, interpreter: Interpreter, group_mb: int = 512) -> SandboxSlot:
    """A slot, or SandboxError."""
    try:
        return SandboxSlot(mechanism, interpreter, group_mb)
    except OSError as error:
        raise SandboxError(f"the sandbox did not start: {error}; run `evotrainer doctor`") from error
