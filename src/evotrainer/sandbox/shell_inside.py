"""Process 1 of an episode shell: keeps the episode's files, runs one command at a time, and reports how it ended.

Runs inside bubblewrap, loaded from text. Every command has a process namespace of its own, which ends with it.

    parent -> here   {"op": "run", ...} with 3 or 4 descriptors (input, output, errors, another)
                     {"op": "write" | "read" | "tree" | "reset", ...} with 0 or 1 descriptor
                     b"k"                                        kill the command
    here -> parent   {"ok": ...} or {"error": message}; b"R" once, when ready
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any

from evotrainer.sandbox import shell_files as files
from evotrainer.sandbox.inside import kernel

OPEN_FILES = 256
_POLL_MS = 50
_TICK = os.sysconf("SC_CLK_TCK")
NO_COMMAND, NOT_EXECUTABLE = 127, 126


class Init:
    """State of process 1: its control socket, its configuration, a descriptor on /proc."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.config = config
        self.filter = bytes.fromhex(config["filter"])
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # kept as a descriptor for ourselves: commands find no /proc, which would show them each other and us
        kernel.unmount(b"/proc")
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.make_mounts_private()
        kernel.make_mounts_read_only(self.proc)
        kernel.drop_bounding_set()
        kernel.set_common_limits(OPEN_FILES)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        os.umask(0o022)
        self.mounted = False
        self.reset()

    def reset(self) -> int:
        """An empty working folder; what was there is gone. No command is running now."""
        os.chdir("/")
        if self.mounted:
            kernel.unmount(files.ROOT.encode())
        options = f"mode=0755,nr_inodes={self.config['inodes']},size={self.config['disk_mb']}m"
        kernel.mount_tmpfs(files.ROOT.encode(), options.encode())
        self.mounted = True
        for name in ("repo", "home", "tmp"):
            os.mkdir(f"{files.ROOT}/{name}")
        return 0

    def serve(self) -> None:
        """Until the parent closes the control socket or dies."""
        self.control.send(b"R")
        while True:
            message, fds, _, _ = socket.recv_fds(self.control, 1 << 20, 4)
            if not message:
                return
            if message == b"k":
                continue  # about a command that has just ended
            try:
                answer: dict[str, Any] = {"ok": self._answer(json.loads(message), fds)}
            except Exception as error:  # whatever a policy's files bring about is an answer, not our end
                answer = {"error": _explain(error)}
            finally:
                for fd in fds:
                    try:
                        os.close(fd)
                    except OSError as error:
                        if error.errno != errno.EBADF:
                            raise
            self.control.send(json.dumps(answer).encode())

    def _answer(self, m: dict[str, Any], fds: list[int]) -> Any:
        op = m["op"]
        if op == "run":
            return self._run(m, fds)
        if op == "write":
            return files.write(json.loads(files.pread(fds[1], m["head"], 0)) if m.get("head") else m["entries"], fds[0])
        if op == "read":
            return files.read(m["path"], m["limit"], fds[0])
        if op == "tree":
            return files.tree(m["path"], m["skip"], m["limit"], m["most"], m["contents"], fds[0])
        if op == "reset":
            return self.reset()
        raise ValueError(f"unknown operation {op!r}")

    def _run(self, m: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        pid = kernel.clone(kernel.CLONE_NEWPID)
        if pid == 0:
            try:
                self._first(m, fds)
            finally:
                os._exit(NOT_EXECUTABLE)
        for fd in fds:
            os.close(fd)
        fds.clear()
        return self._wait(pid, m)

    def _first(self, m: dict[str, Any], fds: list[int]) -> None:
        """Process 1 of the command's namespace: confines itself, starts the program, buries orphans, ends with it."""
        kernel.volunteer_for_oom(self.proc)
        for i, fd in enumerate(fds):
            os.dup2(fd, i)
        os.closerange(len(fds), OPEN_FILES)
        os.setsid()
        # RLIMIT_CPU is per process and whole seconds: a backstop only, what decides is the sum in `_wait`
        seconds = int(m["cpu_s"]) + 2
        megabytes = self.config["memory_mb"] << 20
        kernel.set_limits(megabytes, seconds, self.config["processes"] + 2, self.config["disk_mb"] << 20)
        kernel.drop_capabilities()
        if self.filter:
            kernel.install_filter(self.filter)
        # process 1 of a namespace ignores signals it has no handler for: the command itself must not be it
        child = os.fork()
        if child == 0:
            _execute(m)
        # or pipes would stay open here after the command closed its own ends
        os.closerange(0, len(fds))
        while True:
            pid, status = os.wait()
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                # as a shell reports signals: 128 + n
                os._exit(code if code >= 0 else 128 - code)

    def _wait(self, pid: int, m: dict[str, Any]) -> dict[str, Any]:
        ended = os.pidfd_open(pid)
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(self.control.fileno(), select.POLLIN)
        begin = moved = time.monotonic()
        active, why, most = 0.0, "", 0.0
        while True:
            ready = [fd for fd, _ in poller.poll(_POLL_MS)]
            if ended in ready:
                break
            if ready:
                if not self.control.recv(16):
                    os._exit(0)  # the parent is gone; the kernel ends everything below us
                why = why or "killed"
            now = time.monotonic()
            cpu, ran = self._used()
            most = max(most, cpu)  # what is killed unwaited for is in nobody's account afterwards
            # less than before: a process ended and took its account along, which is movement as well
            if ran > active + 1e-3 or ran < active:
                active, moved = ran, now
            if cpu >= m["cpu_s"]:
                why = why or "cpu"
            elif now - moved > m["idle_s"] and ran >= 0:
                why = why or "idle"
            elif now - begin > m["wall_s"]:
                why = why or "wall"
            if why:
                os.kill(pid, signal.SIGKILL)
        os.close(ended)
        _, status, usage = os.wait4(pid, 0)
        # what was waited for against what was seen alive: neither holds all of it, the larger is nearer
        cpu_s = max(most, usage.ru_utime + usage.ru_stime)
        if not why and cpu_s >= m["cpu_s"]:
            why = "cpu"
        code = os.waitstatus_to_exitcode(status)
        return {"exit": code if code >= 0 else 128 - code, "cpu_s": cpu_s, "why": why}

    def _used(self) -> tuple[float, float]:
        """CPU-seconds of every process but us, with those they waited for; and seconds running or runnable."""
        cpu, active, me = 0, 0.0, str(os.getpid())
        for name in os.listdir(self.proc):
            if not name.isdigit() or name == me:
                continue
            try:
                fd = os.open(f"{name}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
            except OSError:
                continue
            try:
                # behind the last bracket: a process's name is its own choice and may hold blanks and brackets
                words = os.read(fd, 4096).rpartition(b")")[2].split()
                # utime, stime, cutime, cstime in clock ticks
                cpu += sum(map(int, words[11:15]))
            except (OSError, IndexError, ValueError):
                continue
            finally:
                os.close(fd)
            active += max(0.0, kernel.active_seconds(self.proc, int(name)))
        return cpu / _TICK, active


def _execute(m: dict[str, Any]) -> None:
    """Become the program; never returns."""
    code = NOT_EXECUTABLE
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(os.path.join(files.ROOT, m["cwd"]))
        os.execvpe(m["argv"][0], m["argv"], m["env"])
    except FileNotFoundError:
        os.write(2, f"{m['argv'][0]}: command not found\n".encode("utf-8", "replace"))
        code = NO_COMMAND
    except OSError as error:
        os.write(2, f"{m['argv'][0]}: {error.strerror}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _explain(error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or type(error).__name__}"
    return str(error)[:500] or type(error).__name__


def main(config: dict[str, Any], control: socket.socket) -> None:
    """Entry point of the bootstrap."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):  # errors stay where the parent reads our last words; commands have descriptors of their own
        os.dup2(null, fd)
    os.close(null)
    Init(control, config).serve()
