"""Small attacks that a sandbox tries on itself when it opens: the tier is what they prove, not what was configured.

Each probe is a program that prints BREACH when it got what it must not have; it would succeed without protection and is
bounded by itself, so that running it in a weak tier does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from evotrainer.sandbox.model import Limits, Status, Tier


@dataclass(frozen=True, slots=True)
class SandboxProbe:
    """One attack: what it shows, from which tier on it must fail, its source and how its end is judged."""

    name: str
    tier: Tier
    """The weakest tier that promises protection against it."""
    about: str
    source: str
    limits: Limits = field(default_factory=lambda: Limits(cpu_s=1.0, memory_mb=96, idle_s=2.0, file_mb=4, processes=8))
    expected: tuple[Status, ...] = ("ok",)
    """Statuses under which the attack counts as fended off, if BREACH was not printed."""
    twice: bool = False
    """The second run looks for what the first one left."""
    shell: bool = False
    """Episode shells promise protection against it too."""


# every opening of a sandbox pays for these probes: a limit of a tenth of a second is reached as surely as a large one
_SMALL = Limits(cpu_s=0.1, memory_mb=64, output_kb=16, idle_s=2.0, file_mb=4)

PROBES: tuple[SandboxProbe, ...] = (
    SandboxProbe("cpu", "D", "an endless loop is ended by its CPU time", "while True: pass", _SMALL, ("timeout",)),
    SandboxProbe(
        "memory",
        "D",
        "one process cannot take more memory than its limit",
        "b = bytearray(160 << 20)\nprint('BREACH', len(b))",
        _SMALL,
        ("memory",),
    ),
    SandboxProbe(
        "output", "D", "output without end is cut", "while True: print('x' * 4096)", Limits(output_kb=16), ("output",)
    ),
    # three ways out, because different things close them: a network namespace all three, a filter of calls by their
    # kind; an abstract socket has no file whose rights could stop it
    SandboxProbe(
        "network",
        "C",
        "no TCP, UDP or abstract socket of the host can be reached",
        """
import socket
def connect(family, kind, address):
    try:
        end = socket.socket(family, kind)
        end.settimeout(1)
        end.connect(address)
        end.send(b"x")
        print("BREACH", address)
    except OSError as error:
        print("ok", error)
connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", $port))
connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", $port))
connect(socket.AF_UNIX, socket.SOCK_STREAM, "\\x00$token")
""",
    ),
    # opened to append: the secret is as it was, also where nothing keeps the attack from it
    SandboxProbe(
        "files_write",
        "C",
        "no file outside the private folder can be made or changed",
        """
for path in ("${folder}/made-by-attack", "${folder}/secret"):
    try:
        open(path, "a").close(); print("BREACH", path)
    except OSError as error:
        print("ok", error)
""",
    ),
    # PTRACE_ATTACH stops the victim: it is let go at once, or the probes after this one would find it half dead
    SandboxProbe(
        "ptrace",
        "C",
        "no other process can be traced",
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, $victim, None, None) == 0:
    print("BREACH"); libc.ptrace(17, $victim, None, None)
""",
    ),
    SandboxProbe(
        "grader_memory",
        "C",
        "the memory of the process that grades cannot be read",
        """
for path in ("/proc/$grader/mem", "/proc/$grader/environ"):
    try: open(path, "rb").close(); print("BREACH", path)
    except OSError as error: print("ok", error)
""",
    ),
    SandboxProbe(
        "signals",
        "C",
        "no other process can be signalled",
        """
import os
try:
    os.kill($victim, 15); print("BREACH")
except OSError as error:
    print("ok", error)
""",
    ),
    SandboxProbe(
        "processes",
        "C",
        "a fork bomb ends at the process limit",
        """
import os, time
made = 0
try:
    while made < 60:
        if os.fork() == 0:
            time.sleep(0.5); os._exit(0)
        made += 1
except OSError as error:
    print("ok", error)
if made > 30: print("BREACH", made)
""",
    ),
    # the program that could say BREACH is gone by the time it matters: `attack_targets` counts what is left of it
    SandboxProbe(
        "daemon",
        "C",
        "nothing outlives the program (judged from outside)",
        """
import os, time
try:
    if os.fork() == 0:
        try: os.setsid()
        except OSError: pass
        if os.fork() == 0: time.sleep(3)
        os._exit(0)
except OSError as error:
    print("ok", error)
""",
    ),
    # every mount, not a list of well-known folders: new ones come with other machines, and one that can be written is
    # enough; times of files are tried too, since a bit that survives is a message
    SandboxProbe(
        "persistence",
        "C",
        "a later program finds nothing of an earlier one, on any mount or inherited descriptor",
        """
import os, stat
places = ("left", "/tmp/left${token}", "/dev/shm/left${token}", *[m + "/left${token}" for m in $mounts])
for path in places:
    if os.path.lexists(path): print("BREACH", path)
for path in places:
    for make in (lambda: open(path, "w").close(), lambda: os.mkdir(path)):
        try: make()
        except OSError: pass
for place in (*$mounts, *range(64)):
    if place == "/w": continue
    try:
        found = os.stat(place)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0: continue
        if stat.S_ISSOCK(found.st_mode) or stat.S_ISFIFO(found.st_mode): continue
        os.utime(place)
        print("BREACH: changed", place)
    except OSError: pass
""",
        twice=True,
    ),
    SandboxProbe(
        "locks",
        "C",
        "files of the system cannot be locked, which others could notice",
        """
import fcntl, os
for path in (os.__file__, "/dev/null"):
    for lock in (lambda f: fcntl.flock(f, 2 | 4), lambda f: fcntl.lockf(f, 1 | 4)):
        try:
            with open(path) as file: lock(file)
            print("BREACH", path)
        except OSError as error: print("ok", error)
""",
    ),
    SandboxProbe(
        "execute",
        "C",
        "no other program can be started",
        """
import os
try:
    os.posix_spawn("/usr/bin/true", ["true"], {}); print("BREACH")
except OSError as error:
    print("ok", error)
""",
    ),
    # calls that the kernel answers with another error where nothing filters: only EPERM (1) shows that the list did it
    SandboxProbe(
        "seccomp",
        "C",
        "system calls off the list are refused",
        """
import ctypes, platform
numbers = {"x86_64": (250, 321, 425, 323, 272, 298), "aarch64": (219, 280, 425, 282, 97, 241)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
for number in numbers:
    ctypes.set_errno(0)
    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != 1: print("BREACH", number, ctypes.get_errno())
if libc.prctl(21, 0, 0, 0, 0) != 2: print("BREACH: no filter")
""",
    ),
    SandboxProbe(
        "capabilities",
        "C",
        "no capability, and no way to get one",
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
if libc.capget(header, data) != 0 or any(data): print("BREACH", list(data))
if libc.prctl(39, 0, 0, 0, 0) != 1: print("BREACH: new privileges allowed")
""",
    ),
    # descriptor 4 is the line on which answers go; any other came from the parent by mistake
    SandboxProbe(
        "descriptors",
        "C",
        "nothing of the parent is inherited",
        """
import os, stat
for fd in range(3, 256):
    try: found = os.fstat(fd)
    except OSError: continue
    own = stat.S_ISREG(found.st_mode) and found.st_nlink == 0  # the memory files of this program's input and output
    if fd != 4 and not own: print("BREACH", fd)
""",
    ),
    SandboxProbe(
        "files_read",
        "B",
        "the host's files cannot be read",
        """
import os
for path in ("${folder}/secret", "/etc/passwd", "/proc/mounts"):
    try: print("BREACH", path, len(open(path).read()))
    except OSError as error: print("ok", error)
""",
    ),
    SandboxProbe(
        "proc",
        "B",
        "no other process can be seen",
        """
import os
seen = [p for p in (os.listdir("/proc") if os.path.isdir("/proc") else []) if p.isdigit()]
if seen or os.getppid() != 0: print("BREACH", len(seen), os.getppid())
""",
    ),
    SandboxProbe(
        "namespaces",
        "B",
        "no namespace can be made, no file system mounted",
        """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x20000, 0x40000000):
    if libc.unshare(flag) == 0: print("BREACH unshare", hex(flag))
if libc.mount(b"tmpfs", b"/w", b"tmpfs", 6, None) == 0: print("BREACH mount")
if os.getpid() != 1: print("BREACH: shares a process namespace")
""",
    ),
    # each child stays below a process's own limit, and writes its pages, since memory that is only asked for is not
    # counted: what stops four of them is a limit on all together
    SandboxProbe(
        "memory_total",
        "A",
        "several processes together stay below the slot's memory",
        """
import os, time
ends = []
for i in range(4):
    r, w = os.pipe()
    if os.fork() == 0:
        b = bytearray(40 << 20)
        for j in range(0, len(b), 4096): b[j] = 1
        os.write(w, b"x")
        time.sleep(0.3)
        os._exit(0)
    os.close(w)
    ends.append(r)
if all(os.read(r, 1) == b"x" for r in ends): print("BREACH: 160 MB at once")
""",
        expected=("ok", "memory", "error", "killed"),
    ),
)
