"""How programs of attacks are written: each says BREACH when it got what it must not have."""

from __future__ import annotations

from evotrainer.sandbox.model import Limits, Status, Tier
from evotrainer.sandbox.probes import SandboxProbe

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
