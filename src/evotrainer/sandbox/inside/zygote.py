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

import fcntl
import gc
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from evotrainer.sandbox.inside import kernel

LIMITS = struct.Struct("<QIIQIQ")
"""memory bytes, CPU-seconds, processes, bytes of a file, MB of the working folder, bytes of the request"""
ENDED = struct.Struct("<idd")
"""exit code (negative: signal), CPU-seconds with waited-for children, peak resident MB"""
PROGRESS = struct.Struct("<dd?")
"""CPU-seconds of all its processes as far as they were seen, seconds running or runnable of the first (-1: unknown),
are there others than the first"""
REQUEST_FD = 3
CHANNEL_FD = 4
WORK = b"/w"
OPEN_FILES = 64
FIRST_OWN_FD = 10

Serve = Callable[[int, int, int], None]


class Zygote:
    """State of one zygote: what it may use (`config`), and the child it is waiting for."""

    def __init__(self, control: socket.socket, config: dict[str, Any], serve: Serve) -> None:
        self.control = control
        self.serve = serve
        self.namespaces: bool = config["namespaces"]
        self.flags = (kernel.CLONE_NEWPID | kernel.CLONE_NEWNS) if self.namespaces else 0
        self.filter = bytes.fromhex(config["seccomp"])
        self.work: str = config["work"]
        self.neighbours: int = config["neighbours"]
        self.proc = self._open_proc()

    def _open_proc(self) -> int:
        """A descriptor on /proc; below bubblewrap /proc is then taken away, so no child ever has one."""
        try:
            found = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return -1
        proc = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN_FD)
        os.close(found)
        if self.namespaces:
            kernel.unmount(b"/proc")
        return proc

    def prepare(self) -> None:
        """Everything that need not be done once per child."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        if self.namespaces:
            kernel.make_mounts_private()
            kernel.make_mounts_read_only(self.proc)
            kernel.drop_bounding_set()
        else:
            # without a process namespace orphans would go to the machine's init, and out of our sight
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.set_common_limits(OPEN_FILES)
        # RLIMIT_AS counts the whole address space, that of the interpreter included
        self.base = self._address_space()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        # inherited by every child. Without namespaces the zygote needs calls that the filter refuses: each child
        # installs it
        if self.filter and self.namespaces:
            kernel.install_filter(self.filter)
        # frozen objects are left alone by the collector: it would write to their pages, which children share with us
        gc.collect()
        gc.freeze()

    def _address_space(self) -> int:
        """Bytes that every child starts with: its memory limit counts from there."""
        if self.proc < 0:
            return 64 << 20
        statm = os.open("self/statm", os.O_RDONLY, dir_fd=self.proc)
        try:
            return int(os.read(statm, 100).split()[0]) * resource.getpagesize()
        finally:
            os.close(statm)

    def run(self) -> None:
        """Serve until the parent closes the control socket or dies."""
        self.control.send(b"R")
        while True:
            message, fds, _, _ = socket.recv_fds(self.control, 256, 2)
            if not message:
                return
            if message[:1] != b"r":
                continue  # about a child that has just ended
            # the lowest free numbers: anything else means that a descriptor leaked
            if fds != [REQUEST_FD, CHANNEL_FD]:
                raise OSError(f"unexpected descriptors {fds}")
            self._run_one(LIMITS.unpack(message[1:]))

    def _run_one(self, limits: tuple[int, ...]) -> None:
        pid = kernel.clone(self.flags)
        if pid == 0:
            self._child(limits)
        os.close(REQUEST_FD)
        os.close(CHANNEL_FD)
        self._wait(pid)

    def _wait(self, pid: int) -> None:
        ended = os.pidfd_open(pid)
        control = self.control.fileno()
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(control, select.POLLIN)
        others: dict[int, float] = {}
        while True:
            ready = [fd for fd, _ in poller.poll()]
            if ended in ready:
                break
            message = self.control.recv(256)
            if message == b"?":
                # the largest seen of each: a process that ended takes its time along unless its parent waited for it
                for other in self._descendants() - {pid}:
                    others[other] = max(others.get(other, 0.0), kernel.cpu_seconds(other))
                cpu = kernel.cpu_seconds(pid) + sum(others.values())
                progress = PROGRESS.pack(cpu, kernel.active_seconds(self.proc, pid), bool(others))
                self.control.send(b"c" + progress)
                continue
            os.kill(pid, signal.SIGKILL)
            if not message:
                poller.unregister(control)
        os.close(ended)
        if not self.namespaces:
            # before wait4, while the group's number cannot have been given to another process
            self._kill_group(pid)
        _, status, usage = os.wait4(pid, 0)
        if not self.namespaces:
            self._kill_strays()
        code = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime
        self.control.send(b"x" + ENDED.pack(code, cpu, usage.ru_maxrss / 1024))

    @staticmethod
    def _kill_group(pid: int) -> None:
        """Without a process namespace: what stayed in the child's process group."""
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _kill_strays(self) -> None:
        """Without a process namespace: orphans come to us (subreaper), also those that left the group. Gives up after
        a second: what forks faster than that outlives its program, in these tiers."""
        for _ in range(1000):
            try:
                if os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                return
            for stray in self._descendants():
                os.kill(stray, signal.SIGKILL)
            time.sleep(0.001)

    def _descendants(self) -> set[int]:
        """Every process below this one; orphans come to us (subreaper, or process 1 of a namespace)."""
        below: dict[int, list[int]] = {}
        for name in os.listdir(self.proc):
            if name.isdigit():
                try:
                    stat = os.open(f"{name}/stat", os.O_RDONLY, dir_fd=self.proc)
                except OSError:
                    continue
                try:
                    parent = int(os.read(stat, 4096).rpartition(b")")[2].split()[1])
                    below.setdefault(parent, []).append(int(name))
                except (OSError, IndexError, ValueError):
                    continue
                finally:
                    os.close(stat)
        found: set[int] = set()
        todo = below.get(os.getpid(), [])
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += below.get(pid, [])
        return found

    def _child(self, limits: tuple[int, ...]) -> None:
        """Confine this process, then serve one request; never returns."""
        try:
            self._confine(limits)
            os.write(CHANNEL_FD, b"R")  # from here on every fault is the program's own
        except BaseException as error:
            try:
                os.write(CHANNEL_FD, f"E{type(error).__name__}: {error}".encode())
            finally:
                os._exit(99)
        try:
            self.serve(REQUEST_FD, limits[-1], CHANNEL_FD)
        except BaseException:
            os._exit(98)
        os._exit(0)

    def _confine(self, limits: tuple[int, ...]) -> None:
        memory, cpu, processes, file_bytes, work_mb, _ = limits
        null = os.open(
            "/dev/null", os.O_RDWR
        )  # flags of an open file are shared by all who have it: each child has its own
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        kernel.volunteer_for_oom(self.proc)
        if self.namespaces:
            # a mount of the child's own namespace: it is gone with the child, with all that was written
            kernel.mount_tmpfs(WORK, b"mode=0777,nr_inodes=1000,size=%dm" % work_mb)
            os.chdir(WORK)
        else:
            os.setpgid(0, 0)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.chdir(self.work)
        os.closerange(CHANNEL_FD + 1, OPEN_FILES)
        kernel.set_limits(self.base + memory, cpu, self.neighbours + processes, file_bytes)
        if self.namespaces:
            kernel.drop_capabilities()
        elif self.filter:
            kernel.install_filter(self.filter)


def _arrange_descriptors() -> int:
    """0 to 2 null, 3 and 4 free for the next request, the rest above.
    Returns where the control socket (0 before) is."""
    control = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN_FD)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return control


def main(config: dict[str, Any], serve: Serve, warm_up: Callable[[int], None]) -> None:
    """Entry point of the bootstrap: standard input is the control socket."""
    control = socket.socket(fileno=_arrange_descriptors())
    null = os.open("/dev/null", os.O_RDWR)
    warm_up(null)
    os.close(null)
    zygote = Zygote(control, config, serve)
    zygote.prepare()
    zygote.run()
