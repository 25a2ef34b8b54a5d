"""The few Linux calls the zygote needs, through ctypes. Errors are OSError with the call's name."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import signal
import struct
import time

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_CLONE_NR = {"x86_64": 56, "aarch64": 220}
_CAPABILITY_VERSION_3 = 0x20080522
_SIGCHLD = int(signal.SIGCHLD)
_PLAIN = MS_NOSUID | MS_NODEV

libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None)  # keeps the GIL
_python.syscall.restype = ctypes.c_long


# Looked up once: a lookup in the child would resolve the symbol and build the wrapper again for every program.
_mount = libc.mount
_mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_capset = libc.capset
_capset.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
_clone = _python.syscall
_clone.argtypes = (ctypes.c_long, ctypes.c_ulong, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)
_clone_number = _CLONE_NR.get(platform.machine(), -1)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def clone(flags: int) -> int:
    """fork() into new namespaces; 0 in the child. Plain os.fork when no flag is given."""
    if not flags:
        return os.fork()
    # No PyOS_*Fork hooks: the zygote has one thread, so there is no lock to repair, and the hooks would touch pages of
    # every module that registered one (and reseed `random`: children are deterministic without).
    pid: int = _clone(_clone_number, flags | _SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        raise OSError("clone with new namespaces was refused")
    return pid


def mount_tmpfs(path: bytes, options: bytes) -> None:
    """A fresh private tmpfs over `path`."""
    if _mount(b"tmpfs", path, b"tmpfs", _PLAIN, options) < 0:
        _check(-1, "mount tmpfs")


def make_mounts_private() -> None:
    """Mounts made here are not propagated to the outside."""
    _check(_mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount private")


_KEPT = {b"nosuid": MS_NOSUID, b"nodev": MS_NODEV, b"noexec": MS_NOEXEC, b"noatime": 1 << 10, b"nodiratime": 1 << 11}
_KEPT |= {b"relatime": 1 << 21, b"nosymfollow": 1 << 8}
"""Flags that a mount brings from outside: our user namespace may not take them away, so a remount repeats them."""


def _writable_mounts(proc: int) -> dict[bytes, int]:
    """Mount point -> its flags, of every mount that is not read-only itself
    (the last one where several are stacked)."""
    fd = os.open("self/mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    with open(fd, "rb") as lines:
        found: dict[bytes, int] = {}
        for line in lines:
            point, options = line.split()[4:6]
            # blanks and tabs of a path are octal escapes in mountinfo
            point = re.sub(rb"\\(\d{3})", lambda m: bytes([int(m[1], 8)]), point)
            words = options.split(b",")
            # mounts stack: the last line of a mount point is what is seen there
            found.pop(point, None)
            if b"ro" not in words:
                found[point] = sum(_KEPT.get(word, 0) for word in words)
    return found


def make_mounts_read_only(proc: int) -> None:
    """Every mount, device files included: what a program can change outlives it nowhere.

    `proc`: a descriptor on /proc. OSError when one stays writable.
    """
    for point, flags in _writable_mounts(proc).items():
        again = MS_REMOUNT | MS_BIND | MS_RDONLY | flags
        _check(_mount(None, point, None, again, None), f"remount {point.decode()} read-only")
    if left := _writable_mounts(proc):
        raise OSError(f"still writable: {b' '.join(left).decode()}")


def unmount(path: bytes) -> None:
    """Lazy unmount: descriptors opened below stay usable."""
    _check(libc.umount2(path, MNT_DETACH), "umount")


def prctl(option: int, value: int = 0) -> None:
    """prctl(option, value, 0, 0, 0)."""
    _check(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def drop_bounding_set() -> None:
    """No execve may ever give a capability back; ends at the first number the kernel does not know."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            return


_HEADER = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = bytes(24)


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets."""
    if _capset(_HEADER, _NO_CAPABILITIES) < 0:
        _check(-1, "capset")


class _Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install_filter(bpf: bytes) -> None:
    """Install a seccomp filter for this process and all its children, for good; needs no_new_privs."""
    buffer = ctypes.create_string_buffer(bpf, len(bpf))
    # 8 bytes an instruction (struct sock_filter)
    program = _Program(len(bpf) // 8, ctypes.addressof(buffer))
    # 2: SECCOMP_MODE_FILTER
    _check(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), 0, 0), "seccomp")


def set_common_limits(files: int) -> None:
    """Limits that are the same for every child; the zygote lives with them too."""
    for kind, value in (
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def set_limits(memory: int, cpu: int, processes: int, file_bytes: int) -> None:
    """Hard limits of one child: bytes of address space, CPU-seconds, processes and threads, bytes of a file."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def volunteer_for_oom(proc: int) -> None:
    """When memory runs out this process goes first, and with it its namespace, never the one that started it.

    Only a dumpable process may open its own file; what started us is not, and neither are we afterwards.
    """
    prctl(PR_SET_DUMPABLE, 1)
    try:
        fd = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(fd, b"1000")
        finally:
            os.close(fd)
    except OSError:  # no /proc here: the kernel chooses by size
        pass
    prctl(PR_SET_DUMPABLE, 0)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, by its CPU clock (CPUCLOCK_SCHED)."""
    try:
        # as clock_getcpuclockid(3) makes the id
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def active_seconds(proc: int, pid: int) -> float:
    """Seconds its threads ran or waited for a processor (schedstat): what does not grow is asleep. -1 where unknown."""
    total = 0
    try:
        tasks = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return -1.0
    try:
        for task in os.listdir(tasks):
            stat = os.open(f"{task}/schedstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=tasks)
            try:
                # nanoseconds on a processor, and waiting for one: a busy machine must not look like sleep
                ran, waited = os.read(stat, 100).split()[:2]
            finally:
                os.close(stat)
            total += int(ran) + int(waited)
    except (OSError, ValueError):
        return -1.0
    finally:
        os.close(tasks)
    return total / 1e9
