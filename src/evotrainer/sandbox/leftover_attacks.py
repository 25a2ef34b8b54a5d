"""Attacks on the next program, or on the next episode of a shell: run twice,
the second run looks for what the first left."""

from __future__ import annotations

from evotrainer.sandbox.attack_sources import LIBC, attack, left
from evotrainer.sandbox.model import Tier

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
"""Attacks on the next program, or the next episode of a shell."""
