"""Attacks on time, memory, processes and disk, as data. Whatever such a program does is its own doing: it ends with a
status of its own (never `sandbox`), within its CPU time, and the next program does not notice.
"""

from __future__ import annotations

from evotrainer.sandbox.model import Limits, Status, Tier
from evotrainer.sandbox.probes import SandboxProbe

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
