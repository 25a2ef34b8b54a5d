"""Starting process 1 of an episode shell: an unprivileged user below bubblewrap, in a control group of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evotrainer.errors import SandboxError
from evotrainer.sandbox.cgroups import SlotGroup, make_group
from evotrainer.sandbox.interpreter import Interpreter, choose_interpreter
from evotrainer.sandbox.launch import (
    as_inside,
    child_pid,
    complaint,
    end,
    find_bubblewrap,
    hand_over,
    pick_uid,
    remedy,
    sources,
    spawn,
    system_binds,
)
from evotrainer.sandbox.seccomp import build_command_filter

_MODULES = ("inside.kernel", "shell_files", "shell_inside")
_HIDDEN = ("/usr/local", "/usr/src", "/usr/share")
_SHOWN = ("/usr/share/git-core", "/usr/share/zoneinfo", "/usr/share/perl")
_OVERHEAD_MB = 96
_BUFFER = 1 << 20
"""Bytes of the control socket's buffer: the largest message fits."""
_GONE_S = 5.0
"""Seconds that process 1 may take to be gone after its socket closed."""
_EXTRA_PROCESSES = 4
"""Process 1 of the shell and of the command, and what they need while a command starts."""
_BOOTSTRAP = """
import sys, types
def load(name, source):
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    return module
import fcntl, json, os, socket
control = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10))
config = json.loads(control.recv(1 << 20))
for name, source in config.pop("modules"):
    last = load(name, source)
last.main(config, control)
"""


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """What an episode may use. CPU time of a command is given with the command."""

    memory_mb: int = 512
    """Address space of one process, and (with a control group) memory of all of them, files apart."""
    disk_mb: int = 64
    """Size of the episode's files."""
    inodes: int = 20_000
    """Files and folders."""
    processes: int = 32
    """Processes and threads at once."""
    output_kb: int = 256
    """Standard output, and standard error, of one command; the rest is dropped."""
    idle_s: float = 10.0
    """Seconds in which nothing of a command ran or waited for a processor."""
    loopback: bool = False
    """May open sockets. They reach nothing but the episode's own network namespace."""
    locks: bool = False
    """May take advisory locks and watch files. On the system's files, which all shells see, both are a channel to
    commands that run in another shell at the same moment."""


@dataclass(slots=True)
class StartedShell:
    """A running process 1: the control socket, the process to wait for, its user and its control group."""

    control: socket.socket
    process: subprocess.Popen[bytes]
    pid: int
    """Of process 1, as we see it."""
    uid: int
    group: SlotGroup | None
    python: str
    """The interpreter's path as commands see it."""

    def out_of_memory(self) -> bool:
        """Did the kernel kill process 1 for want of memory? Commands go first,
        so that only files and their names can do that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GONE_S)  # its socket closes a moment before it is gone
        return self.process.poll() is not None and self.group is not None and self.group.kills() > 0

    def cpu_s(self) -> float | None:
        """CPU-seconds of all commands so far, unwaited children included; None where no control group counts them."""
        return self.group.cpu_s(besides=self.pid) if self.group else None

    def last_words(self) -> str:
        """Why it went."""
        return complaint(self.process)

    def stop(self) -> None:
        """Close, kill, reap; every process of the episode ends with process 1."""
        end(self.control, self.process)
        if self.group:
            self.group.remove()


@lru_cache(maxsize=1)
def _modules() -> list[tuple[str, str]]:
    return sources(_MODULES)


@lru_cache(maxsize=4)
def _interpreter(as_root: bool) -> Interpreter:
    return choose_interpreter(pick_uid() if as_root else None)


def _command(
    bwrap: str, interpreter: Interpreter, info: int, users: int, binds: Sequence[tuple[str, str]]
) -> list[str]:
    """Everything unshared, the system's programs, no /proc, one writable folder.

    Process 1 mounts that folder and makes all else read-only.
    """
    inside = as_inside(interpreter)
    args = [bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    args += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    args += ["--setenv", "PYTHONHASHSEED", "0", "--setenv", "LC_ALL", "C.UTF-8"]
    if inside.prefix:
        args += ["--setenv", "LD_LIBRARY_PATH", f"{inside.prefix}/lib"]
    args += system_binds()
    for folder in ("/bin", "/sbin"):
        args += (
            ["--symlink", f"usr{folder}", folder] if Path(folder).is_symlink() else ["--ro-bind-try", folder, folder]
        )
    for folder in _HIDDEN:
        if Path(folder).is_dir():
            args += ["--tmpfs", folder]
    for folder in _SHOWN:
        args += ["--ro-bind-try", folder, folder]
    if interpreter.prefix and inside.prefix:
        args += ["--ro-bind", interpreter.prefix, inside.prefix]
    for source, target in binds:
        args += ["--ro-bind", source, target]
    args += ["--proc", "/proc", "--dir", "/dev", "--dir", "/w", "--symlink", "/w/tmp", "/tmp"]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        args += ["--dev-bind", device, device]
    args += ["--symlink", "/w/tmp", "/dev/shm", "--file", str(users), "/etc/passwd"]
    return [*args, "--chdir", "/", "--info-fd", str(info), "--"]


def _users_file(uid: int) -> int:
    """A one-line /etc/passwd: programs that ask for their user's name get an answer."""
    fd = os.memfd_create("passwd")
    os.write(fd, f"agent:x:{uid}:{uid}::/w/home:/bin/sh\n".encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def start(limits: ShellLimits, binds: Sequence[tuple[str, str]] = ()) -> StartedShell:
    """A shell's process 1, confined and ready. SandboxError with cause and remedy; there is no weaker form of it.

    `binds`: (folder here, place inside below /opt), shown read-only.
    """
    bwrap = find_bubblewrap()
    if bwrap is None:
        raise SandboxError(
            "episode shells need bubblewrap (bwrap), which is not installed; install the package 'bubblewrap', "
            'or use world = "memory", which needs none'
        )
    for _, target in binds:
        if not target.startswith("/opt/"):
            raise SandboxError(f"a folder can be shown below /opt only, not at {target}")
    if not (bpf := build_command_filter(limits.loopback, limits.locks)):
        raise SandboxError("episode shells need a system call filter, which exists for x86_64 and aarch64 only")
    uid = pick_uid()
    interpreter = _interpreter(uid is not None)
    try:
        process, ours, pid = _start_process(bwrap, interpreter, uid, binds)
    except OSError as error:
        raise SandboxError(f"the episode shell did not start: {error}; run `evotrainer doctor`") from error
    inside = as_inside(interpreter)
    started = StartedShell(ours, process, pid, os.geteuid() if uid is None else uid, None, inside.executable)
    _hand_over(started, limits, bpf)
    started.group = make_group(
        # files lie in a tmpfs, so they are memory, too
        (limits.memory_mb + limits.disk_mb + _OVERHEAD_MB) << 20,
        limits.processes + _EXTRA_PROCESSES,
    )
    if started.group:
        try:
            started.group.add(pid)
        except OSError:
            started.group.remove()
            started.group = None
    return started


def _start_process(
    bwrap: str, interpreter: Interpreter, uid: int | None, binds: Sequence[tuple[str, str]]
) -> tuple[subprocess.Popen[bytes], socket.socket, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    info_read, info_write = os.pipe()
    users = _users_file(os.geteuid() if uid is None else uid)
    command = _command(bwrap, interpreter, info_write, users, binds)
    command += [as_inside(interpreter).executable, "-s", "-S", "-P", "-B", "-c", _BOOTSTRAP]
    try:
        process = spawn(command, theirs, uid, (info_write, users), {"LC_ALL": "C.UTF-8"})
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(info_write)
        os.close(users)
    pid = child_pid(info_read)
    os.close(info_read)
    return process, ours, pid


def _hand_over(started: StartedShell, limits: ShellLimits, bpf: bytes) -> None:
    config = {
        "modules": _modules(),
        "filter": bpf.hex(),
        "disk_mb": limits.disk_mb,
        "inodes": limits.inodes,
        "memory_mb": limits.memory_mb,
        "processes": limits.processes,
    }
    if not hand_over(started.control, config, _BUFFER):
        reason = started.last_words()
        started.stop()
        raise SandboxError(f"the episode shell did not start: {reason}{remedy(reason)}")
