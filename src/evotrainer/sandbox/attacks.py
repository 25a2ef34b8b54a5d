"""Attacks on the machine, as data: `evotrainer doctor --attack` and the tests run them, on top of the probes of every
opening.

Each prints BREACH when it got what it must not have. `$folder` (with a file `secret`), `$port`, `$token`, `$victim` and
`$mounts` are targets made for the attack and open to everybody: only the sandbox stands before them. Every attack
bounds itself, so that running it unprotected does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evotrainer.sandbox.attack_targets import ProbeResult, attack_targets, judge
from evotrainer.sandbox.model import CaseResult, Limits, Status, Tier
from evotrainer.sandbox.probes import SandboxProbe
from evotrainer.sandbox.shell import EpisodeShell

TIGHT = Limits(cpu_s=0.4, memory_mb=256, idle_s=1.0, processes=16)
ANY: tuple[Status, ...] = ("ok", "error", "timeout", "memory", "output", "killed")
LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def attack(name: str, source: str, tier: Tier = "C", *, shell: bool = True, twice: bool = False) -> SandboxProbe:
    return SandboxProbe(name, tier, "", source, TIGHT, ANY, twice=twice, shell=shell)


def reached(code: str) -> str:
    """A source that says BREACH when `code` ends without an OSError."""
    body = "\n".join("    " + line for line in code.strip().splitlines())
    return (
        f"import os, socket\ntry:\n{body}\n    print('BREACH')\nexcept OSError as error:\n"
        "    print('refused:', error)\n"
    )


def exec_of(code: str) -> str:
    """A source that says BREACH when `code` turned a child into /bin/true."""
    return (
        f"import os\nif (pid := os.fork()) == 0:\n  try:\n    {code}\n  finally:\n    os._exit(77)\n"
        "if os.waitpid(pid, 0)[1] == 0: print('BREACH')\n"
    )


def called(number: dict[str, int], arguments: str = "0, 0, 0, 0, 0, 0") -> str:
    """A source that says BREACH when a system call is not refused with EPERM."""
    return (
        f"{LIBC}import platform\nnumber = {number}[platform.machine()]\n"
        f"if libc.syscall(number, {arguments}) >= 0 or ctypes.get_errno() != 1: print('BREACH', ctypes.get_errno())\n"
    )


def left(places: str, make: str = "open(path, 'x').close()") -> str:
    """A source that looks for what its first run left in `places` (an expression), and leaves it."""
    return (
        f"import os\nplaces = [*{places}]\nfor path in places:\n    if os.path.lexists(path): print('BREACH', path)\n"
        f"for path in places:\n    try: {make}\n    except OSError: pass\n"
    )


# Sources look before they leave: the first run finds nothing and leaves, the second says BREACH where it is there. The
# paths on every mount come from `$mounts`, as a list by hand would miss the mount that somebody adds.
_SOURCES: tuple[tuple[str, str, Tier, bool], ...] = (
    ("leaves a file in the working folder", left("('left', '/w/left')"), "C", True),
    (
        "leaves a file in the folders for temporary files",
        left("('/tmp/l$token', '/dev/shm/l$token', '/var/tmp/l$token')"),
        "C",
        True,
    ),
    ("leaves a file in /usr/local", left("('/usr/local/left', '/usr/local/lib/left')"), "C", True),
    ("leaves a file in /usr/share", left("('/usr/share/left',)"), "C", True),
    ("leaves a file in /usr/src", left("('/usr/src/left',)"), "C", True),
    ("leaves a file in /dev", left("('/dev/left',)"), "C", True),
    ("leaves a file at the root", left("('/left', '/etc/left', '/opt/left')"), "C", True),
    ("leaves a file on any mount", left("[f'{m}/left' for m in $mounts]"), "C", True),
    ("leaves a folder on any mount", left("[f'{m}/kept' for m in $mounts]", "os.mkdir(path)"), "C", True),
    (
        "leaves a link on any mount",
        left("[f'{m}/linked' for m in $mounts]", "os.symlink('answer', path)"),
        "C",
        True,
    ),
    ("leaves a pipe on any mount", left("[f'{m}/pipe' for m in $mounts]", "os.mkfifo(path)"), "C", True),
    (
        "leaves a file in any folder",
        "import os\nfor top, folders, _ in os.walk('/'):\n    if top.startswith('/proc'): folders.clear()\n"
        "    if top == '/w': folders.clear()\n"
        "    try: open(top + '/left$token', 'w').close(); print('BREACH' if top[:2] != '/w' else '', top)\n"
        "    except OSError: pass\n",
        "B",
        True,
    ),
    # no byte is written: the time of a file that all programs share is a message all the same
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
    # a descriptor that every program inherits from the same parent is one file: its time, size and flags outlive a run
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
    # a library looks into this folder by itself: what was left there is found without being searched for
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
        # objects of the kernel that have no file: to empty all folders does not remove them
        "leaves shared memory",
        LIBC + "if libc.shmget($port, 64, 0o666) >= 0: print('BREACH')\nlibc.shmget($port, 64, 0o1666)\n",
        "C",
        True,
    ),
    (
        "leaves a queue of messages",
        LIBC + "if libc.msgget($port, 0o666) >= 0: print('BREACH')\nlibc.msgget($port, 0o1666)\n",
        "C",
        True,
    ),
    (
        "leaves a semaphore",
        LIBC + "if libc.semget($port, 1, 0o666) >= 0: print('BREACH')\nlibc.semget($port, 1, 0o1666)\n",
        "C",
        True,
    ),
    (
        "leaves a named queue",
        LIBC + "if libc.mq_open(b'/left$token', 0) >= 0: print('BREACH')\n"
        "libc.mq_open(b'/left$token', 0o100 | 2, 0o666, None)\n",
        "C",
        True,
    ),
    (
        "leaves a named semaphore",
        LIBC + "libc.sem_open.restype = ctypes.c_void_p\nif libc.sem_open(b'/left$token', 0): print('BREACH')\n"
        "libc.sem_open(b'/left$token', 0o100, 0o666, 1)\n",
        "C",
        True,
    ),
    (
        "leaves a key with its user",
        LIBC + "import platform\nadd, ask = {'x86_64': (248, 250), 'aarch64': (217, 219)}[platform.machine()]\n"
        "if libc.syscall(ask, 10, -4, b'user', b'l$token', 0) >= 0: print('BREACH')\n"
        "libc.syscall(add, b'user', b'l$token', b'answer', 6, -4)\n",
        "C",
        True,
    ),
    # forked twice and in a session of its own: a signal to the program's group does not reach it
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
LEFTOVER_ATTACKS = tuple(attack(name, source, tier, shell=shell, twice=True) for name, source, tier, shell in _SOURCES)
"""Attacks on the next program, or on the next episode of a shell: run twice, the second run looks for what the first
left."""
"""Attacks on the next program, or the next episode of a shell."""


# each attack asks for several times what it is given, and is ended within a second
LIMITS = Limits(cpu_s=0.4, memory_mb=64, output_kb=256, idle_s=1.0, processes=12, file_mb=8)
_ENDED: tuple[Status, ...] = ("error", "timeout", "memory", "output", "killed")


def _attack(name: str, source: str, tier: Tier = "C", expected: tuple[Status, ...] = _ENDED) -> SandboxProbe:
    return SandboxProbe(name, tier, "", source, LIMITS, expected)


# children that nobody waits for never show in their parent's CPU time: a limit that reads only that misses them
_UNWAITED = "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"

RESOURCE_ATTACKS: tuple[SandboxProbe, ...] = (
    _attack("loops", "while True: pass", "D", ("timeout",)),
    # a limit by an exception inside the program is one that the program can catch
    _attack(
        "swallows its timeouts",
        "import time\nend = time.process_time() + 2\nwhile time.process_time() < end:\n    try:\n"
        "        while time.process_time() < end: pass\n    except BaseException: pass\nprint('BREACH')",
        "D",
    ),
    # one long operation in C: Python's signal handlers wait for its end, so the limit has to come from outside
    _attack(
        "computes without letting timers in",
        "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\n"
        "if len(str(pow(7, 1 << 23).bit_length())): print('BREACH')",
        "D",
    ),
    _attack("matches without end", "import re\nre.match('(a+)+b', 'a' * 40)\nprint('BREACH')", "D", ("timeout",)),
    _attack("sleeps", "import time\ntime.sleep(2.5)\nprint('BREACH')", "D", ("timeout",)),
    _attack(
        "stops itself",
        "import os, signal, time\nif os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()\nprint('BREACH')",
        "D",
    ),
    _attack(
        "waits for its own lock",
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\nprint('BREACH')",
        "D",
        ("timeout",),
    ),
    _attack(
        "burns time in children that nobody waits for",
        _UNWAITED + "end = time.monotonic() + 2\nfor _ in range(6):\n    if os.fork() == 0:\n"
        "        while time.monotonic() < end: pass\n        os._exit(0)\ntime.sleep(2)\nprint('BREACH')",
    ),
    # tier A alone: each child is gone before anyone samples it, only a control group adds up what they used
    _attack(
        "burns time in one short child after another",
        _UNWAITED + "end = time.monotonic() + 2\nwhile time.monotonic() < end:\n    if os.fork() == 0:\n"
        "        while time.process_time() < 0.05: pass\n        os._exit(0)\n    time.sleep(0.03)\nprint('BREACH')",
        "A",
    ),
    _attack(
        "burns time in grandchildren",
        _UNWAITED + "if os.fork() == 0:\n    for _ in range(4):\n        try: os.fork()\n        except OSError: pass\n"
        "    end = time.monotonic() + 2\n    while time.monotonic() < end: pass\n    os._exit(0)\ntime.sleep(2)\n"
        "print('BREACH')",
    ),
    _attack(
        "burns time in threads",
        "import hashlib, threading\nblock = bytes(1 << 20)\ndef burn():\n"
        "    for _ in range(500): hashlib.sha256(block).digest()\n"
        "work = [threading.Thread(target=burn) for _ in range(4)]\nfor t in work: t.start()\n"
        "for t in work: t.join()\nprint('BREACH')",
        "D",
        ("timeout", "killed"),
    ),
    _attack("takes memory", "block = bytearray(200 << 20)\nprint('BREACH')", "D", ("memory",)),
    _attack("takes memory bit by bit", "kept = []\nwhile True: kept.append(bytearray(1 << 16))", "D", ("memory",)),
    _attack(
        "takes memory in many processes",
        "import os, time\nends = []\nfor _ in range(8):\n    r, w = os.pipe()\n    if os.fork() == 0:\n"
        "        block = bytearray(50 << 20)\n        for j in range(0, len(block), 4096): block[j] = 1\n"
        "        os.write(w, b'x')\n        time.sleep(2)\n        os._exit(0)\n    os.close(w)\n    ends.append(r)\n"
        "if all(os.read(r, 1) == b'x' for r in ends): print('BREACH')",
        "A",
        ("ok", *_ENDED),
    ),
    _attack(
        "takes memory in files without a name",
        "import os\nkept = []\nblock = bytes(1 << 20)\nfor _ in range(50):\n    fd = os.memfd_create('x')\n"
        "    for j in range(8): os.pwrite(fd, block, j << 20)\n    kept.append(fd)\nprint('BREACH')",
        "A",
    ),
    # memory of the kernel, held for a process and counted as nobody's: to end well is allowed, to harm others is not
    _attack(
        "takes memory in pipes",
        "import fcntl, os\nfor _ in range(28):\n    r, w = os.pipe()\n    os.set_blocking(w, False)\n"
        "    fcntl.fcntl(w, 1031, 1 << 20)\n    os.write(w, bytes(1 << 20))\nprint('held')",
        "D",
        ("ok", *_ENDED),
    ),
    _attack(
        "takes memory in sockets",
        "import socket\nkept = []\nfor _ in range(28):\n    a, b = socket.socketpair()\n    a.setblocking(False)\n"
        "    a.setsockopt(1, 7, 1 << 30)\n    try:\n        while True: a.send(bytes(1 << 16))\n"
        "    except OSError: kept.append((a, b))\nprint('held')",
        "D",
        ("ok", *_ENDED),
    ),
    _attack(
        "takes memory and disk at once",
        "import os\nfor i in range(7): open(f'f{i}', 'wb').write(bytes(1 << 20))\nblock = bytearray(50 << 20)\n"
        "kept = []\nfor _ in range(40):\n    fd = os.memfd_create('x')\n"
        "    for j in range(8): os.pwrite(fd, bytes(1 << 20), j << 20)\n    kept.append(fd)\nprint('BREACH')",
        "A",
    ),
    _attack(
        "bombs with processes",
        "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        time.sleep(2)\n        os._exit(0)\n"
        "print('BREACH')",
    ),
    _attack(
        "bombs with forks of forks",
        "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)",
    ),
    _attack(
        "bombs with threads",
        "import threading, time\n"
        "for _ in range(60): threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\nprint('BREACH')",
    ),
    _attack("kills all it can", "import os\nos.kill(-1, 9)\nos.kill(0, 9)\nprint('alive')", "B", ("ok", *_ENDED)),
    _attack("fills the disk", "for i in range(20): open(f'big{i}', 'wb').write(bytes(2 << 20))\nprint('BREACH')", "C"),
    _attack("uses up inodes", "import os\nfor i in range(3000): open(f's{i}', 'w').close()\nprint('BREACH')", "C"),
    _attack(
        "makes one file with holes", "import os\nos.truncate(os.open('big', 0o102), 1 << 40)\nprint('BREACH')", "C"
    ),
    _attack(
        "prints without end", "import os\nwhile True: os.write(1, b'x' * 65536)", "D", ("output", "killed", "error")
    ),
    _attack("answers without end", "import os\nwhile True: os.write(4, b'x' * 65536)", "D"),
    _attack("answers nothing and leaves", "import os\nos.close(4)\nos._exit(0)", "D", ("error",)),
    _attack(
        "sends descriptors to the parent",
        "import array, os, socket\nend = socket.socket(fileno=4)\nfor _ in range(200):\n"
        "    end.sendmsg([b'x'], [(1, 1, array.array('i', [0, 1, 2]))])\nprint('sent')",
        "D",
    ),
    _attack("recurses without end", "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(): f()\nf()", "D"),
    _attack(
        "calls C without end",
        "import functools\nf = int\nfor _ in range(200000): f = functools.partial(f)\nf()\ndel f\nprint('held')",
        "D",
        ("ok", *_ENDED),
    ),
    _attack("takes every descriptor", "import os\nkept = []\nwhile True: kept.append(os.dup(0))", "D"),
)
"""Attacks on time, memory, processes and disk. Such a program ends with a status of its own (never `sandbox`), within
its CPU time, and the next program does not notice."""


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
    an episode each, and two for an attack that looks for what it left."""
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
