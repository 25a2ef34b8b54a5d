"""Messages to process 1 of an episode's machine, and its answers."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from evotrainer.errors import SandboxError
from evotrainer.sandbox.shell_data import ShellFileError
from evotrainer.sandbox.shell_launch import StartedShell

MAX_PACKET = 180_000
"""A packet has to fit a socket buffer."""
LOOK_S = 0.1
"""Seconds of silence until a command's CPU time is looked at."""


class ShellChannel:
    """The control socket of a started machine, until it is closed or broken."""

    def __init__(self, started: StartedShell, output_kb: int) -> None:
        self.started: StartedShell | None = started
        self.output_kb = output_kb
        """Kept of each stream of a command."""

    def close(self) -> None:
        """End the machine and everything in it."""
        if self.started:
            self.started.stop()
            self.started = None

    @property
    def control(self) -> socket.socket:
        """SandboxError where the shell is closed."""
        if self.started is None:
            raise SandboxError("the episode shell is closed; open a new one")
        return self.started.control

    def cpu_s(self) -> float:
        """CPU-seconds that the control group counted so far; 0 where there is none."""
        return (self.started.cpu_s() if self.started else None) or 0.0

    def broken(self, what: str) -> SandboxError:
        """The error to raise, with the machine's last words; it is closed."""
        reason = self.started.last_words() if self.started else ""
        self.close()
        return SandboxError(f"{what} ({reason}); the episode is lost, run it again")

    def send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """A message with descriptors. ShellFileError where it is too long."""
        control = self.control
        packet = json.dumps(message).encode()
        if len(packet) > MAX_PACKET:
            raise ShellFileError("a path or an argument is too long")
        try:
            socket.send_fds(control, [packet], list(fds))
        except OSError as error:
            raise self.broken(f"the episode shell is gone: {error}") from error

    def receive(self) -> dict[str, Any]:
        """The next answer. ShellFileError where the episode's files took all memory."""
        try:
            answer = self.control.recv(1 << 16)
        except OSError as error:
            raise self.broken(f"the episode shell does not answer: {error}") from error
        if not answer:
            # process 1 dies only after all commands are gone: the files themselves filled the memory, which is the
            # policy's doing
            if self.started and self.started.out_of_memory():
                self.close()
                raise ShellFileError("the episode's files take more memory than it may use; its shell is gone")
            raise self.broken("the episode shell ended")
        result: dict[str, Any] = json.loads(answer)
        return result

    def ask(self, message: dict[str, Any], fds: Sequence[int]) -> Any:
        """What is answered. ShellFileError where it is an error."""
        self.send(message, fds)
        answer = self.receive()
        if "error" in answer:
            raise ShellFileError(f"{answer['error']}")
        return answer["ok"]

    def collect(
        self, pipes: tuple[int, int], patience: float, cpu_s: float
    ) -> tuple[tuple[bytes, bytes], bool, dict[str, Any]]:
        """Read both pipes to their ends (what is over the limit is dropped) and the answer.

        Process 1 sees the CPU time of living processes, the control group that of all:
        over `cpu_s` the command is killed.
        """
        control = self.control
        # the group counts all commands so far: the limit is relative to now
        enough, killed = self.cpu_s() + cpu_s, False
        limit, kept, dropped = self.output_kb << 10, {fd: bytearray() for fd in pipes}, False
        open_fds: set[int] = {*pipes, control.fileno()}
        answer: dict[str, Any] | None = None
        poller = select.poll()
        for fd in open_fds:
            poller.register(fd, select.POLLIN)
        deadline, look = time.monotonic() + patience, 0.0
        while open_fds:
            now = time.monotonic()
            wait = 0.0 if answer is not None else max(0.0, min(deadline - now, LOOK_S))
            ready = poller.poll(wait * 1000)
            if answer is not None and not ready:
                break  # its processes are gone: what still holds a pipe open writes nothing
            if not ready and now >= deadline:
                raise self.broken("the episode shell does not answer")
            if now >= look and not killed and answer is None:
                look = now + LOOK_S
                if self.cpu_s() >= enough:
                    killed = True
                    control.send(b"k")
            for fd, _ in ready:
                if fd == control.fileno():
                    answer = self.receive()
                    poller.unregister(fd)
                    open_fds.discard(fd)
                    continue
                piece = os.read(fd, 1 << 16)
                # read on past the limit: a full pipe would block the command, and turn much output into a timeout
                room = limit - len(kept[fd])
                dropped |= len(piece) > room
                kept[fd] += piece[:room]
                if not piece:
                    poller.unregister(fd)
                    open_fds.discard(fd)
        assert answer is not None
        return (bytes(kept[pipes[0]]), bytes(kept[pipes[1]])), dropped, answer
