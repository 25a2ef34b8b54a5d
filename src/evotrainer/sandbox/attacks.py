"""Attacks on the machine, as data: `evotrainer doctor --attack` and the tests run them,
on top of the probes of every opening.

Each prints BREACH when it got what it must not have. `$folder` (with a file `secret`), `$port`, `$token`, `$victim` and
`$mounts` are targets made for the attack and open to everybody: only the sandbox stands before them. Every attack
bounds itself, so that running it unprotected does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evotrainer.sandbox.attack_sources import LIBC, attack, called, exec_of, reached
from evotrainer.sandbox.attack_targets import ProbeResult, attack_targets, judge
from evotrainer.sandbox.leftover_attacks import LEFTOVER_ATTACKS
from evotrainer.sandbox.model import CaseResult
from evotrainer.sandbox.probes import SandboxProbe
from evotrainer.sandbox.shell import EpisodeShell

# Tier B marks what only a file system and a process table of one's own close: in tier C the host's readable files and
# /proc are seen. `shell=False`: what an episode shell has to allow, such as starting programs.
ESCAPES: tuple[SandboxProbe, ...] = (
    attack("connects by TCP", reached("socket.create_connection(('127.0.0.1', $port), timeout=2)")),
    attack(
        "sends a datagram",
        reached("end = socket.socket(2, 2)\nend.connect(('127.0.0.1', $port))\nend.send(b'x')"),
        shell=False,
    ),
    attack("talks to an abstract socket", reached("socket.socket(socket.AF_UNIX).connect('\\x00$token')")),
    attack("opens a netlink socket", reached("socket.socket(16, 3, 0).bind((0, 0))")),
    attack("opens a socket of the kernel's ciphers", reached("socket.socket(38, 5, 0)")),
    # they compare what they read: a sandbox may show an empty file of the same name, and that is no breach
    attack("reads a secret file", reached("if open('$folder/secret').read() != 'the secret': raise OSError"), "B"),
    attack(
        "reads a secret through a symbolic link",
        reached("os.symlink('$folder/secret', 'link')\nif open('link').read() != 'the secret': raise OSError"),
    ),
    attack(
        "reads a secret through a hard link",
        reached("os.link('$folder/secret', 'hard')\nif open('hard').read() != 'the secret': raise OSError"),
    ),
    attack(
        "reads a secret by a way up",
        reached("if open('../' * 40 + '$folder/secret').read() != 'the secret': raise OSError"),
        "B",
    ),
    attack("lists the host's users", reached("if 'root:' not in open('/etc/passwd').read(): raise OSError"), "B"),
    attack("reads the host's name", reached("if not open('/etc/hostname').read(): raise OSError"), "B"),
    attack("reads the kernel's settings", reached("open('/proc/sys/kernel/osrelease').read()"), "B"),
    attack("reads the machine's devices", reached("if not os.listdir('/sys/class'): raise OSError"), "B"),
    attack("makes a file outside", reached("open('$folder/made-by-attack', 'w').write('x')")),
    attack("makes a folder outside", reached("os.mkdir('$folder/made-by-attack')")),
    attack("overwrites a file outside", reached("open('$folder/secret', 'r+').write('the secret')")),
    attack("cuts a file outside", reached("os.truncate('$folder/secret', 10)")),
    attack(
        "renames a file outside",
        reached("os.rename('$folder/secret', '$folder/s')\nos.rename('$folder/s', '$folder/secret')"),
    ),
    attack("touches a file outside", reached("os.utime('$folder/secret')")),
    attack("locks a file of the host", reached("import fcntl\nfcntl.flock(open('$folder/secret'), 2 | 4)"), "B"),
    attack("locks a file of the system", reached("import fcntl\nfcntl.flock(open(os.__file__), 2 | 4)")),
    attack("locks a range of a file of the system", reached("import fcntl\nfcntl.lockf(open(os.__file__), 1 | 4)")),
    attack("locks a device", reached("import fcntl\nfcntl.flock(open('/dev/null'), 2 | 4)")),
    attack(
        "watches a file of the system",
        LIBC + "fd = libc.inotify_init1(0)\n"
        "if fd >= 0 and libc.inotify_add_watch(fd, b'/usr/lib', 1) >= 0: print('BREACH')\n",
    ),
    attack("kills a process", reached("os.kill($victim, 9)")),
    attack("stops a process", reached("os.kill($victim, 19)")),
    # signal 0 harms nothing, and tells one program which others run beside it
    attack("asks whether a process is there", reached("os.kill($victim, 0)")),
    attack("lowers a process's priority", reached("os.setpriority(0, $victim, 19)")),
    attack("moves a process to one core", reached("os.sched_setaffinity($victim, {0})")),
    attack("limits a process", reached("import resource\nresource.prlimit($victim, resource.RLIMIT_CORE, (0, 0))")),
    attack(
        "holds a process by a descriptor",
        reached("import signal\nsignal.pidfd_send_signal(os.pidfd_open($victim), 0)"),
    ),
    attack("traces a process", LIBC + "if libc.ptrace(0x4206, $victim, 0, 0) == 0: print('BREACH')\n"),
    attack(
        "reads a process's environment",
        reached("if not open('/proc/$victim/environ', 'rb').read(): raise OSError"),
        "B",
    ),
    attack(
        "reads a process's command line",
        reached("if not open('/proc/$victim/cmdline', 'rb').read(): raise OSError"),
        "B",
    ),
    attack(
        "reads a process's memory",
        f"""{LIBC}
start = int(open("/proc/$victim/maps").read().split("-")[0], 16)
local = ctypes.create_string_buffer(4)
here = (ctypes.c_size_t * 2)(ctypes.addressof(local), 4)
there = (ctypes.c_size_t * 2)(start, 4)
if libc.process_vm_readv($victim, here, 1, there, 1, 0) == 4: print("BREACH")
""",
    ),
    attack(
        "counts the machine's processes",
        reached("if len([p for p in os.listdir('/proc') if p.isdigit()]) < 4: raise OSError"),
        "B",
    ),
    attack(
        "starts a shell", reached("os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], {}), 0)"), shell=False
    ),
    attack("becomes another program", exec_of("os.execv('/bin/true', ['true'])"), shell=False),
    # a file without a name: a rule on paths that may be executed does not see it
    attack(
        "starts a program out of memory",
        exec_of(
            "fd = os.memfd_create('true')\n    os.write(fd, open('/bin/true', 'rb').read())\n"
            "    os.execve(fd, ['true'], {})"
        ),
        shell=False,
    ),
    attack("makes a user namespace", LIBC + "if libc.unshare(0x10000000) == 0: print('BREACH')\n"),
    attack(
        "makes a user namespace with clone",
        LIBC
        + "import os, platform\npid = libc.syscall({'x86_64': 56, 'aarch64': 220}[platform.machine()], 0x10000011, "
        "0, 0, 0, 0)\nif pid == 0: os._exit(0)\nif pid > 0: print('BREACH')\n",
    ),
    attack("starts a kernel ring", called({"x86_64": 425, "aarch64": 425}, "1, ctypes.create_string_buffer(200)")),
    attack("keeps a key in the kernel", called({"x86_64": 250, "aarch64": 219}, "1, b'kept'")),
    attack("asks for a key", called({"x86_64": 249, "aarch64": 218}, "b'user', b'no', 0, 0")),
    attack("handles page faults itself", called({"x86_64": 323, "aarch64": 282}, "0x80001")),
    attack("loads a filter of its own", called({"x86_64": 317, "aarch64": 277}, "2, 0, 0")),
    attack("rules itself by Landlock", called({"x86_64": 444, "aarch64": 444}, "0, 0, 1")),
    attack("changes its personality", called({"x86_64": 135, "aarch64": 92}, "0x0040000")),
    attack("keeps memory that the kernel cannot see", called({"x86_64": 447, "aarch64": 447}, "0")),
    attack("counts the processor's events", called({"x86_64": 298, "aarch64": 241})),
    # the same calls under other numbers: a list of refused numbers would miss them, a list of allowed ones does not
    attack("calls by the numbers of 32 bits", called({"x86_64": 0x40000000 + 39, "aarch64": 0x40000000 + 172})),
    attack(
        "calls by the way of 32 bits",
        """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd80c3"))  # getpid through int 0x80
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
if call() > 0: print("BREACH")
""",
    ),
    attack(
        "types into the terminal",
        reached("import fcntl\nfcntl.ioctl(os.open('/dev/ptmx', 2), 0x80045430, bytes(4))"),
        "B",
    ),
    attack(
        "kills the sandbox",
        "import os\nboss = os.getppid()\nos.kill(boss, 0)\nif boss > 0: print('BREACH')\n",
        shell=False,
    ),
)
"""Attacks on what lies outside."""

LOCKING = frozenset(
    {
        "locks a file of the system",
        "locks a range of a file of the system",
        "locks a device",
        "watches a file of the system",
    }
)
"""What a shell with `ShellLimits.locks` lets its commands do, by request."""


def attack_shell(
    shell: EpisodeShell, probes: Sequence[SandboxProbe] = (*ESCAPES, *LEFTOVER_ATTACKS)
) -> Iterator[ProbeResult]:
    """Every attack that a shell with these limits promises protection against;
    an episode each, and two for a residue."""
    for probe in probes:
        if probe.shell and not (shell.limits.locks and probe.name in LOCKING):
            with attack_targets(shell.uid, shell.pid) as targets:
                command = [shell.python, "-c", targets.source(probe)]
                # the episode is reset before each run: what is found then has survived the reset
                for _ in range(1 + probe.twice):
                    shell.reset()
                    ran = shell.run(command, cpu_s=5.0)
                held = judge(probe, CaseResult("ok", ran.text))
                yield ProbeResult(probe.name, held.held and not targets.breached(""), probe.tier, "", held.detail)
