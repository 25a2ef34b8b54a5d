"""Attacks on the machine, as data: `evotrainer doctor --attack` and the tests run them,
beside the probes of every opening.

Each prints BREACH when it got what it must not have. `$folder` (with a file `secret`), `$port`, `$token`, `$victim` and
`$mounts` are targets made for the attack and open to everybody: only the sandbox stands before them. Every attack
bounds itself, so that running it unprotected does no harm. Those of RESIDUES run twice, and the second run looks for
what the first one left.
"""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.sandbox.model import CaseResult, Limits, Status, Tier
from evotrainer.sandbox.probes import Held, Probe, judge, scene
from evotrainer.sandbox.shell import EpisodeShell

TIGHT = Limits(cpu_s=0.4, memory_mb=256, idle_s=1.0, processes=16)
_ANY: tuple[Status, ...] = ("ok", "error", "timeout", "memory", "output", "killed")
_LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def _attack(name: str, source: str, tier: Tier = "C", *, shell: bool = True, twice: bool = False) -> Probe:
    return Probe(name, tier, "", source, TIGHT, _ANY, twice=twice, shell=shell)


def _reached(code: str) -> str:
    """A source that says BREACH when `code` ends without an OSError."""
    body = "\n".join("    " + line for line in code.strip().splitlines())
    return (
        f"import os, socket\ntry:\n{body}\n    print('BREACH')\nexcept OSError as error:\n"
        "    print('refused:', error)\n"
    )


def _exec(code: str) -> str:
    """A source that says BREACH when `code` turned a child into /bin/true."""
    return (
        f"import os\nif (pid := os.fork()) == 0:\n  try:\n    {code}\n  finally:\n    os._exit(77)\n"
        "if os.waitpid(pid, 0)[1] == 0: print('BREACH')\n"
    )


def _called(number: dict[str, int], arguments: str = "0, 0, 0, 0, 0, 0") -> str:
    """A source that says BREACH when a system call is not refused with EPERM."""
    return (
        f"{_LIBC}import platform\nnumber = {number}[platform.machine()]\n"
        f"if libc.syscall(number, {arguments}) >= 0 or ctypes.get_errno() != 1: print('BREACH', ctypes.get_errno())\n"
    )


def _left(places: str, make: str = "open(path, 'x').close()") -> str:
    """A source that looks for what its first run left in `places` (an expression), and leaves it."""
    return (
        f"import os\nplaces = [*{places}]\nfor path in places:\n    if os.path.lexists(path): print('BREACH', path)\n"
        f"for path in places:\n    try: {make}\n    except OSError: pass\n"
    )


ESCAPES: tuple[Probe, ...] = (
    _attack("connects by TCP", _reached("socket.create_connection(('127.0.0.1', $port), timeout=2)")),
    _attack(
        "sends a datagram",
        _reached("end = socket.socket(2, 2)\nend.connect(('127.0.0.1', $port))\nend.send(b'x')"),
        shell=False,
    ),
    _attack("talks to an abstract socket", _reached("socket.socket(socket.AF_UNIX).connect('\\x00$token')")),
    _attack("opens a netlink socket", _reached("socket.socket(16, 3, 0).bind((0, 0))")),
    _attack("opens a socket of the kernel's ciphers", _reached("socket.socket(38, 5, 0)")),
    _attack("reads a secret file", _reached("if open('$folder/secret').read() != 'the secret': raise OSError"), "B"),
    _attack(
        "reads a secret through a symbolic link",
        _reached("os.symlink('$folder/secret', 'link')\nif open('link').read() != 'the secret': raise OSError"),
    ),
    _attack(
        "reads a secret through a hard link",
        _reached("os.link('$folder/secret', 'hard')\nif open('hard').read() != 'the secret': raise OSError"),
    ),
    _attack(
        "reads a secret by a way up",
        _reached("if open('../' * 40 + '$folder/secret').read() != 'the secret': raise OSError"),
        "B",
    ),
    _attack("lists the host's users", _reached("if 'root:' not in open('/etc/passwd').read(): raise OSError"), "B"),
    _attack("reads the host's name", _reached("if not open('/etc/hostname').read(): raise OSError"), "B"),
    _attack("reads the kernel's settings", _reached("open('/proc/sys/kernel/osrelease').read()"), "B"),
    _attack("reads the machine's devices", _reached("if not os.listdir('/sys/class'): raise OSError"), "B"),
    _attack("makes a file outside", _reached("open('$folder/made-by-attack', 'w').write('x')")),
    _attack("makes a folder outside", _reached("os.mkdir('$folder/made-by-attack')")),
    _attack("overwrites a file outside", _reached("open('$folder/secret', 'r+').write('the secret')")),
    _attack("cuts a file outside", _reached("os.truncate('$folder/secret', 10)")),
    _attack(
        "renames a file outside",
        _reached("os.rename('$folder/secret', '$folder/s')\nos.rename('$folder/s', '$folder/secret')"),
    ),
    _attack("touches a file outside", _reached("os.utime('$folder/secret')")),
    _attack("locks a file of the host", _reached("import fcntl\nfcntl.flock(open('$folder/secret'), 2 | 4)"), "B"),
    _attack("locks a file of the system", _reached("import fcntl\nfcntl.flock(open(os.__file__), 2 | 4)")),
    _attack("locks a range of a file of the system", _reached("import fcntl\nfcntl.lockf(open(os.__file__), 1 | 4)")),
    _attack("locks a device", _reached("import fcntl\nfcntl.flock(open('/dev/null'), 2 | 4)")),
    _attack(
        "watches a file of the system",
        _LIBC + "fd = libc.inotify_init1(0)\n"
        "if fd >= 0 and libc.inotify_add_watch(fd, b'/usr/lib', 1) >= 0: print('BREACH')\n",
    ),
    _attack("kills a process", _reached("os.kill($victim, 9)")),
    _attack("stops a process", _reached("os.kill($victim, 19)")),
    _attack("asks whether a process is there", _reached("os.kill($victim, 0)")),
    _attack("lowers a process's priority", _reached("os.setpriority(0, $victim, 19)")),
    _attack("moves a process to one core", _reached("os.sched_setaffinity($victim, {0})")),
    _attack("limits a process", _reached("import resource\nresource.prlimit($victim, resource.RLIMIT_CORE, (0, 0))")),
    _attack(
        "holds a process by a descriptor",
        _reached("import signal\nsignal.pidfd_send_signal(os.pidfd_open($victim), 0)"),
    ),
    _attack("traces a process", _LIBC + "if libc.ptrace(0x4206, $victim, 0, 0) == 0: print('BREACH')\n"),
    _attack(
        "reads a process's environment",
        _reached("if not open('/proc/$victim/environ', 'rb').read(): raise OSError"),
        "B",
    ),
    _attack(
        "reads a process's command line",
        _reached("if not open('/proc/$victim/cmdline', 'rb').read(): raise OSError"),
        "B",
    ),
    _attack(
        "reads a process's memory",
        f"""{_LIBC}
start = int(open("/proc/$victim/maps").read().split("-")[0], 16)
local = ctypes.create_string_buffer(4)
here = (ctypes.c_size_t * 2)(ctypes.addressof(local), 4)
there = (ctypes.c_size_t * 2)(start, 4)
if libc.process_vm_readv($victim, here, 1, there, 1, 0) == 4: print("BREACH")
""",
    ),
    _attack(
        "counts the machine's processes",
        _reached("if len([p for p in os.listdir('/proc') if p.isdigit()]) < 4: raise OSError"),
        "B",
    ),
    _attack(
        "starts a shell", _reached("os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], {}), 0)"), shell=False
    ),
    _attack("becomes another program", _exec("os.execv('/bin/true', ['true'])"), shell=False),
    _attack(
        "starts a program out of memory",
        _exec(
            "fd = os.memfd_create('true')\n    os.write(fd, open('/bin/true', 'rb').read())\n"
            "    os.execve(fd, ['true'], {})"
        ),
        shell=False,
    ),
    _attack("makes a user namespace", _LIBC + "if libc.unshare(0x10000000) == 0: print('BREACH')\n"),
    _attack(
        "makes a user namespace with clone",
        _LIBC
        + "import os, platform\npid = libc.syscall({'x86_64': 56, 'aarch64': 220}[platform.machine()], 0x10000011, "
        "0, 0, 0, 0)\nif pid == 0: os._exit(0)\nif pid > 0: print('BREACH')\n",
    ),
    _attack("starts a kernel ring", _called({"x86_64": 425, "aarch64": 425}, "1, ctypes.create_string_buffer(200)")),
    _attack("keeps a key in the kernel", _called({"x86_64": 250, "aarch64": 219}, "1, b'kept'")),
    _attack("asks for a key", _called({"x86_64": 249, "aarch64": 218}, "b'user', b'no', 0, 0")),
    _attack("handles page faults itself", _called({"x86_64": 323, "aarch64": 282}, "0x80001")),
    _attack("loads a filter of its own", _called({"x86_64": 317, "aarch64": 277}, "2, 0, 0")),
    _attack("rules itself by Landlock", _called({"x86_64": 444, "aarch64": 444}, "0, 0, 1")),
    _attack("changes its personality", _called({"x86_64": 135, "aarch64": 92}, "0x0040000")),
    _attack("keeps memory that the kernel cannot see", _called({"x86_64": 447, "aarch64": 447}, "0")),
    _attack("counts the processor's events", _called({"x86_64": 298, "aarch64": 241})),
    _attack("calls by the numbers of 32 bits", _called({"x86_64": 0x40000000 + 39, "aarch64": 0x40000000 + 172})),
    _attack(
        "calls by the way of 32 bits",
        """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd80c3"))  # getpid through int 0x80
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
if call() > 0: print("BREACH")
""",
    ),
    _attack(
        "types into the terminal",
        _reached("import fcntl\nfcntl.ioctl(os.open('/dev/ptmx', 2), 0x80045430, bytes(4))"),
        "B",
    ),
    _attack(
        "kills the sandbox",
        "import os\nboss = os.getppid()\nos.kill(boss, 0)\nif boss > 0: print('BREACH')\n",
        shell=False,
    ),
)
"""Attacks on what lies outside."""

_RESIDUES: tuple[tuple[str, str, Tier, bool], ...] = (
    ("leaves a file in the working folder", _left("('left', '/w/left')"), "C", True),
    (
        "leaves a file in the folders for temporary files",
        _left("('/tmp/l$token', '/dev/shm/l$token', '/var/tmp/l$token')"),
        "C",
        True,
    ),
    ("leaves a file in /usr/local", _left("('/usr/local/left', '/usr/local/lib/left')"), "C", True),
    ("leaves a file in /usr/share", _left("('/usr/share/left',)"), "C", True),
    ("leaves a file in /usr/src", _left("('/usr/src/left',)"), "C", True),
    ("leaves a file in /dev", _left("('/dev/left',)"), "C", True),
    ("leaves a file at the root", _left("('/left', '/etc/left', '/opt/left')"), "C", True),
    ("leaves a file on any mount", _left("[f'{m}/left' for m in $mounts]"), "C", True),
    ("leaves a folder on any mount", _left("[f'{m}/kept' for m in $mounts]", "os.mkdir(path)"), "C", True),
    (
        "leaves a link on any mount",
        _left("[f'{m}/linked' for m in $mounts]", "os.symlink('answer', path)"),
        "C",
        True,
    ),
    ("leaves a pipe on any mount", _left("[f'{m}/pipe' for m in $mounts]", "os.mkfifo(path)"), "C", True),
    (
        "leaves a file in any folder",
        "import os\nfor top, folders, _ in os.walk('/'):\n    if top.startswith('/proc'): folders.clear()\n"
        "    if top == '/w': folders.clear()\n"
        "    try: open(top + '/left$token', 'w').close(); print('BREACH' if top[:2] != '/w' else '', top)\n"
        "    except OSError: pass\n",
        "B",
        True,
    ),
    (
        "leaves the time of a device file",
        "import os\nfor path in ('/dev/null', '/dev/zero', '/dev/urandom'):\n"
        "    try: os.utime(path); print('BREACH', path)\n    except OSError: pass\n",
        "C",
        True,
    ),
    (
        "leaves the time of a mount",
        "import os\nfor path in $mounts:\n    if path == '/w': continue\n"
        "    try: os.utime(path); print('BREACH', path)\n    except OSError: pass\n",
        "C",
        True,
    ),
    (
        "leaves rights on a mount",
        "import os\nfor path in $mounts:\n    if path == '/w': continue\n"
        "    try: os.chmod(path, 0o777); print('BREACH', path)\n    except OSError: pass\n",
        "C",
        True,
    ),
    (
        "leaves something in an inherited descriptor",
        "import os, stat\nfor fd in range(64):\n    try: found = os.fstat(fd)\n    except OSError: continue\n"
        "    own = stat.S_ISREG(found.st_mode) and found.st_nlink == 0\n"
        "    if own or stat.S_ISSOCK(found.st_mode) or stat.S_ISFIFO(found.st_mode): continue\n"
        "    try: os.utime(fd); print('BREACH', fd)\n    except OSError: pass\n"
        "    try: os.ftruncate(fd, 7); print('BREACH', fd)\n    except OSError: pass\n",
        "C",
        True,
    ),
    (
        "leaves a flag on an inherited descriptor",
        "import fcntl, os\nthere = {}\nfor fd in range(64):\n"
        "    try: there[fd] = fcntl.fcntl(fd, fcntl.F_GETFL)\n    except OSError: pass\n"
        "for fd, flags in there.items():\n    if flags & os.O_NONBLOCK: print('BREACH', fd)\n"
        "    try: fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)\n    except OSError: pass\n",
        "C",
        True,
    ),
    (
        "forges a time zone",
        "import os\nfrom datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
        "try: ZoneInfo('Left/Behind'); print('BREACH')\nexcept Exception: pass\n"
        "try:\n    os.makedirs('/usr/share/zoneinfo/Left', exist_ok=True)\n"
        "    head = b'TZif' + bytes(16) + (0).to_bytes(4, 'big') * 3 + b'\\0\\0\\0\\0' + b'\\0\\0\\0\\1' + "
        "b'\\0\\0\\0\\1'\n    open('/usr/share/zoneinfo/Left/Behind', 'wb').write(head + bytes(6) + b'\\0')\n"
        "except OSError: pass\n",
        "C",
        True,
    ),
    (
        "leaves a module for the next import",
        "import os, site, sys\ntry:\n    import left_$token\n    print('BREACH')\nexcept ImportError: pass\n"
        "for path in [*sys.path, '/usr/local/lib/python3/dist-packages', '/usr/share/python', "
        "site.getusersitepackages()]:\n    try: os.makedirs(path, exist_ok=True); open(path + '/left_$token.py', "
        "'w').close(); print('BREACH' if path[:2] != '/w' and path else '', path)\n    except OSError: pass\n",
        "C",
        False,
    ),
    (
        "leaves shared memory",
        _LIBC + "if libc.shmget($port, 64, 0o666) >= 0: print('BREACH')\nlibc.shmget($port, 64, 0o1666)\n",
        "C",
        True,
    ),
    (
        "leaves a queue of messages",
        _LIBC + "if libc.msgget($port, 0o666) >= 0: print('BREACH')\nlibc.msgget($port, 0o1666)\n",
        "C",
        True,
    ),
    (
        "leaves a semaphore",
        _LIBC + "if libc.semget($port, 1, 0o666) >= 0: print('BREACH')\nlibc.semget($port, 1, 0o1666)\n",
        "C",
        True,
    ),
    (
        "leaves a named queue",
        _LIBC + "if libc.mq_open(b'/left$token', 0) >= 0: print('BREACH')\n"
        "libc.mq_open(b'/left$token', 0o100 | 2, 0o666, None)\n",
        "C",
        True,
    ),
    (
        "leaves a named semaphore",
        _LIBC + "libc.sem_open.restype = ctypes.c_void_p\nif libc.sem_open(b'/left$token', 0): print('BREACH')\n"
        "libc.sem_open(b'/left$token', 0o100, 0o666, 1)\n",
        "C",
        True,
    ),
    (
        "leaves a key with its user",
        _LIBC + "import platform\nadd, ask = {'x86_64': (248, 250), 'aarch64': (217, 219)}[platform.machine()]\n"
        "if libc.syscall(ask, 10, -4, b'user', b'l$token', 0) >= 0: print('BREACH')\n"
        "libc.syscall(add, b'user', b'l$token', b'answer', 6, -4)\n",
        "C",
        True,
    ),
    (
        "leaves a listener behind",
        "import os, socket, time\ntry: socket.socket(1).connect('\\0left$token'); print('BREACH')\n"
        "except OSError: pass\ntry:\n    end = socket.socket(1); end.bind('\\0left$token'); end.listen()\n"
        "    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(3)\n        os._exit(0)\n"
        "except OSError: pass\n",
        "C",
        True,
    ),
    (
        "leaves a process that holds a lock",
        "import fcntl, os, time\nfile = open(os.__file__)\ntry: fcntl.flock(file, 1 | 4)\n"
        "except BlockingIOError: print('BREACH')\nexcept OSError: pass\nfile.close()\ntry:\n    if os.fork() == 0:\n"
        "        os.setsid()\n        if os.fork() == 0:\n"
        "            kept = open(os.__file__); fcntl.flock(kept, 2 | 4); time.sleep(3)\n        os._exit(0)\n"
        "except OSError: pass\ntime.sleep(0.2)\n",
        "C",
        True,
    ),
    (
        "fills a mount for the next one",
        "import os\nfor place in $mounts:\n    if place == '/w': continue\n    try:\n"
        "        for i in range(4): open(f'{place}/fill{i}', 'wb').write(bytes(1 << 20)); print('BREACH', place)\n"
        "    except OSError: pass\n",
        "C",
        True,
    ),
)
RESIDUES = tuple(_attack(name, source, tier, shell=shell, twice=True) for name, source, tier, shell in _RESIDUES)
"""Attacks on the next program, or the next episode of a shell."""


LOCKING = frozenset(
    {
        "locks a file of the system",
        "locks a range of a file of the system",
        "locks a device",
        "watches a file of the system",
    }
)
"""What a shell with `ShellLimits.locks` lets its commands do, by request."""


def attack_shell(shell: EpisodeShell) -> Iterator[Held]:
    """Every attack that a shell with these limits promises protection against;
    an episode each, and two for a residue."""
    for probe in (*ESCAPES, *RESIDUES):
        if probe.shell and not (shell.limits.locks and probe.name in LOCKING):
            with scene(shell.uid, shell.pid) as targets:
                command = [shell.python, "-c", targets.source(probe)]
                for _ in range(1 + probe.twice):
                    shell.reset()
                    ran = shell.run(command, cpu_s=5.0)
                held = judge(probe, CaseResult("ok", ran.text))
                yield Held(probe.name, held.held and not targets.breached(""), probe.tier, "", held.detail)
