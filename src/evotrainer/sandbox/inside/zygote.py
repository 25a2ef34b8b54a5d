"""The zygote: forks one confined child per program and reports how it ended.

It never reads a request's or an answer's bytes: the parent passes a memory file (request) and a socket (answers) as
descriptors, so a child inherits nothing of earlier programs. Control messages, one per packet:

    parent -> zygote   b"r" + LIMITS, with 2 descriptors   run a program
                       b"?"                                how far is it?
                       b"k"                                kill it
    zygote -> parent   b"R"                                ready
                       b"x" + ENDED                        it ended
                       b"c" + PROGRESS                     answer to b"?"
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

from evotrainer.sandbox.inside import kernel

LIMITS = struct.Struct("<QIIQII")
"""memory bytes, CPU-seconds, processes, bytes of a file, open files, bytes of the working folder (in MB)"""
ENDED = struct.Struct("<idd")
"""exit code (negative: signal), CPU-seconds with waited-for children, peak resident MB"""
PROGRESS = struct.Struct("<dd")
"""CPU-seconds, seconds running or runnable (-1: unknown)"""
REQUEST_FD = 3
CHANNEL_FD = 4
WORK = b"/w"

Serve = Callable[[int, int], None]


class Zygote:
    """State of one zygote: what it may use (`config`), and the child it is waiting for."""

    def __init__(self, control: socket.socket, config: dict[str, Any], serve: Serve) -> None:
        self.control = control
        self.serve = serve
        self.namespaces: bool = config["namespaces"]
        self.flags = (kernel.CLONE_NEWPID | kernel.CLONE_NEWNS) if self.namespaces else 0
        bpf = bytes.fromhex(config["seccomp"])
        self.filter = kernel.SeccompFilter(bpf) if bpf else None
        self.work: str = config["work"]
        self.null = os.open("/dev/null", os.O_RDWR)
        self.proc = self._open_proc()

    def _open_proc(self) -> int:
        """A descriptor on /proc; below bubblewrap /proc is then taken away, so no child ever has one."""
        try:
            proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return -1
        if self.namespaces:
            kernel.unmount(b"/proc")
        return proc

    def prepare(self) -> None:
        """Everything that need not be done once per child."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        if self.namespaces:
            kernel.make_mounts_private()
            kernel.drop_bounding_set()
        gc.collect()
        gc.freeze()

    def run(self) -> None:
        """Serve until the parent closes the control socket or dies."""
        self.control.send(b"R")
        while True:
            message, fds, _, _ = socket.recv_fds(self.control, 256, 2)
            if not message:
                return
            if message[:1] == b"r" and len(fds) == 2:
                self._run_one(LIMITS.unpack(message[1:]), fds[0], fds[1])

    def _run_one(self, limits: tuple[int, ...], request: int, channel: int) -> None:
        pid = kernel.clone(self.flags)
        if pid == 0:
            self._child(limits, request, channel)
        os.close(request)
        os.close(channel)
        self._wait(pid)

    def _wait(self, pid: int) -> None:
        ended = os.pidfd_open(pid)
        control = self.control.fileno()
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(control, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll()]
            if ended in ready:
                break
            message = self.control.recv(256)
            if message == b"?":
                progress = PROGRESS.pack(kernel.cpu_seconds(pid), kernel.active_seconds(self.proc, pid))
                self.control.send(b"c" + progress)
                continue
            os.kill(pid, signal.SIGKILL)
            if not message:
                poller.unregister(control)
        os.close(ended)
        if not self.namespaces:
            self._kill_strays(pid)
        _, status, usage = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime
        self.control.send(b"x" + ENDED.pack(code, cpu, usage.ru_maxrss / 1024))

    @staticmethod
    def _kill_strays(pid: int) -> None:
        """Without a process namespace: what stayed in the child's process group (a daemon can still get away)."""
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _child(self, limits: tuple[int, ...], request: int, channel: int) -> None:
        """Confine this process, then serve one request; never returns."""
        try:
            self._arrange_descriptors(request, channel)
            self._confine(limits)
            os.write(CHANNEL_FD, b"R")  # from here on every fault is the program's own
        except BaseException as error:
            try:
                os.write(CHANNEL_FD, f"E{type(error).__name__}: {error}".encode())
            finally:
                os._exit(99)
        try:
            self.serve(REQUEST_FD, CHANNEL_FD)
        except BaseException:
            os._exit(98)
        os._exit(0)

    def _arrange_descriptors(self, request: int, channel: int) -> None:
        """0 to 2 null, 3 request, 4 channel, 5 /proc (closed later), nothing else."""
        spare = (os.dup(request), os.dup(channel), os.dup(self.proc) if self.proc >= 0 else -1)
        for fd in (0, 1, 2):
            os.dup2(self.null, fd)
        os.dup2(spare[0], REQUEST_FD)
        os.dup2(spare[1], CHANNEL_FD)
        if spare[2] >= 0:
            os.dup2(spare[2], 5)
        os.closerange(6 if spare[2] >= 0 else 5, 64)

    def _confine(self, limits: tuple[int, ...]) -> None:
        memory, cpu, processes, file_bytes, files, work_mb = limits
        if self.namespaces:
            kernel.mount_tmpfs(WORK, b"mode=0777,nr_inodes=1000,size=%dm" % work_mb)
            os.chdir(WORK)
            self._volunteer_for_oom()
        else:
            os.setpgid(0, 0)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.chdir(self.work)
        os.closerange(5, 8)
        kernel.set_limits(memory, cpu, processes, file_bytes, files)
        if self.namespaces:
            kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if self.filter:
            self.filter.install()

    @staticmethod
    def _volunteer_for_oom() -> None:
        """When the slot's memory runs out the child must go, never the zygote: that would look like our fault."""
        try:
            fd = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=5)
        except OSError:
            return
        try:
            os.write(fd, b"1000")
        finally:
            os.close(fd)


def main(config: dict[str, Any], serve: Serve) -> None:
    """Entry point of the bootstrap: standard input is the control socket."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    zygote = Zygote(control, config, serve)
    zygote.prepare()
    zygote.run()
