"""One slot: a zygote with its user, its control group, and at most one child at a time."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
from dataclasses import dataclass

from evotrainer.errors import SandboxError
from evotrainer.sandbox.cgroups import SlotGroup, make_group
from evotrainer.sandbox.interpreter import Interpreter
from evotrainer.sandbox.launch import ENDED, LIMITS, PROGRESS, Launched, Mechanism, launch, pick_uid
from evotrainer.sandbox.model import Limits

_OVERHEAD = 96 << 20
"""Bytes of the slot's group beyond one program's limit: the zygote, page tables, the request."""
_GROUP_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class Ended:
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


class SlotDiedError(Exception):
    """The zygote is gone; the slot must be restarted."""


class Slot:
    """Starts on construction; `run` a request, read `control` until `Ended`, then run the next."""

    def __init__(self, mechanism: Mechanism, interpreter: Interpreter, group_mb: int = 512) -> None:
        self.mechanism = mechanism
        self.interpreter = interpreter
        self.uid = pick_uid()
        self.group: SlotGroup | None = (
            make_group((group_mb << 20) + _OVERHEAD, _GROUP_PROCESSES) if mechanism.cgroup else None
        )
        self.zygote: Launched | None = None
        self.restarts = -1
        self._kills = 0
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
        memory = limits.memory_mb << 20
        if self.group:
            with contextlib.suppress(OSError):
                self.group.raise_memory(memory + _OVERHEAD)
        cpu = math.ceil(limits.cpu_s * cases) + 2
        files = limits.file_mb << 20
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

    def query(self) -> None:
        """Ask for `Progress`."""
        self._send(b"?")

    def kill(self) -> None:
        """End the child; `Ended` follows."""
        self._send(b"k")

    def listen(self) -> Ended | Progress | None:
        """The next control message; None when it means nothing (an answer that came too late)."""
        try:
            message = self.control.recv(256)
        except OSError as error:
            raise SlotDiedError from error
        if not message:
            raise SlotDiedError
        if message[:1] == b"c":
            return Progress(*PROGRESS.unpack(message[1:]))
        if message[:1] == b"x":
            code, cpu_s, memory_mb = ENDED.unpack(message[1:])
            return Ended(code, cpu_s, memory_mb, self._hit_memory(code))
        return None

    def _hit_memory(self, code: int) -> bool:
        if code >= 0 or self.group is None:
            return False
        kills = self.group.kills()
        hit, self._kills = kills > self._kills, kills
        # The kernel kills with SIGKILL; another signal beside a late count is an earlier program's memory, not this one's.
        return hit and code == -signal.SIGKILL

    def close(self) -> None:
        """Stop the zygote and remove the group."""
        if self.zygote:
            self.zygote.stop()
            self.zygote = None
        if self.group:
            self.group.remove()
            self.group = None


def start_slot(mechanism: Mechanism, interpreter: Interpreter, group_mb: int = 512) -> Slot:
    """A slot, or SandboxError."""
    try:
        return Slot(mechanism, interpreter, group_mb)
    except OSError as error:
        raise SandboxError(f"the sandbox did not start: {error}; run `evotrainer doctor`") from error
