"""What a reviewer found after our own corpus held.
Each shown to work on what is started without the defence, then fended off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from evotrainer.sandbox import Limits, Program, Sandbox, shell_launch
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import EpisodeShell, ShellLimits
from evotrainer.sandbox.shell_data import ShellFileError

from .conftest import cut

pytestmark = pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed")
LIMITS = Limits(cpu_s=3, memory_mb=256, idle_s=3, file_mb=8)
SMALL = ShellLimits(memory_mb=128, disk_mb=16, inodes=6_000, processes=12, output_kb=64, idle_s=5)
LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
KEPT = """
import os, socket
kept = [os.memfd_create("x") for _ in range(20)]
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [a.fileno(), b.fileno(), *kept])
print("in flight")
"""
FUTEX = (
    LIBC
    + """
import mmap
page = mmap.mmap(os.open("/usr/bin/env", os.O_RDONLY), 4096, prot=mmap.PROT_READ)
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, 4096, 1, 1, os.open("/usr/bin/env", os.O_RDONLY), 0)
woken = libc.syscall(202, ctypes.c_void_p(place), 1, 1, None, None, 0)
print("refused" if woken < 0 else "BREACH")
"""
)
FLAGS = "import fcntl\nbefore = fcntl.fcntl(2, 3)\nfcntl.fcntl(2, 4, 0o2000 | 0o4000)\nprint(before)\n"
COOKIE = (
    "import socket\na, b = socket.socketpair()\ntry: print('BREACH', a.getsockopt(1, 57, 8))\n"
    "except OSError: print('refused')\n"
)
CALLS = {
    "what is in flight outlives its program": KEPT,
    "wakes who waits on a page of the system": FUTEX,
    "a counter of the kernel tells of others": COOKIE,
    "memory of the machine": LIBC
    + "print('refused' if libc.sysinfo(ctypes.create_string_buffer(256)) < 0 else 'BREACH')",
    "empties the shared cache": LIBC
    + "print('refused' if libc.posix_fadvise(os.open('/usr/bin/env', os.O_RDONLY), 0, 0, 4) else 'BREACH')",
}


@pytest.fixture(scope="module")
def shell() -> Iterator[EpisodeShell]:
    with EpisodeShell.open(limits=SMALL) as opened:
        yield opened


def said(box: Sandbox, source: str) -> str:
    case = box.run([Program(source, stdins=("",), limits=LIMITS)])[0].cases[0]
    return f"{case.stdout or ''}{case.error or ''}"


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_carry_something_to_others_are_refused(box: Sandbox, bare: Sandbox, name: str) -> None:
    free, held = said(bare, CALLS[name]), said(box, CALLS[name])
    assert "in flight" in free or "BREACH" in free, free
    assert "in flight" not in held and "BREACH" not in held and ("refused" in held or "not permitted" in held), held


def test_flags_of_an_inherited_file_do_not_stay(box: Sandbox) -> None:
    first, second = said(box, FLAGS), said(box, FLAGS)
    assert first == second


def test_a_shell_without_sockets_puts_nothing_in_flight(shell: EpisodeShell) -> None:
    assert shell.run([shell.python, "-c", KEPT]).exit != 0
    with EpisodeShell.open(limits=ShellLimits(loopback=True)) as other:
        assert other.run([other.python, "-c", KEPT]).text == "in flight\n"


def test_who_holds_a_pipe_after_the_end_does_not_hold_us(shell: EpisodeShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe sent to oneself through a socket stays open after the last process; here the test holds it for good."""
    held: list[int] = []
    pipe = os.pipe

    def holding() -> tuple[int, int]:
        ends = pipe()
        held.append(os.dup(ends[1]))
        return ends

    monkeypatch.setattr(os, "pipe", holding)
    try:
        ran = shell.run([shell.python, "-c", "print('said')"], cpu_s=5)
        assert len(held) == 2 and (ran.text, ran.exit) == ("said\n", 0)
    finally:
        for fd in held:
            os.close(fd)


def test_a_trickle_of_output_does_not_hide_time_burnt() -> None:
    source = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.monotonic() + 6
if os.fork() == 0:
    while time.monotonic() < end: os.write(1, b"x"); time.sleep(0.02)
    os._exit(0)
while time.monotonic() < end:
    if os.fork() == 0:
        until = time.monotonic() + 0.02
        while time.monotonic() < until: pass
        os._exit(0)
    time.sleep(0.021)
"""
    with EpisodeShell.open() as roomy:
        if roomy.tier != "A":
            pytest.skip("no control group here to count it")
        ran = roomy.run([roomy.python, "-c", source], cpu_s=0.4)
    assert ran.why == "cpu" and ran.cpu_s < 1.5, ran


NAMES = """
import os
folder = b"/w/repo/zz"
os.mkdir(folder)
for _ in range(14):
    folder += b"/" + b"\\xff" * 255
    os.mkdir(folder)
os.chdir(folder)
try:
    for i in range(5000): os.close(os.open(b"%06d" % i + b"\\xff" * 240, os.O_CREAT | os.O_WRONLY))
except OSError: pass
"""


def test_names_without_end_are_the_episodes_doing(shell: EpisodeShell) -> None:
    shell.reset()
    shell.run([shell.python, "-c", NAMES], cpu_s=10)
    with pytest.raises(ShellFileError, match="names of more than 8 MB"):
        shell.tree()
    assert shell.run(["echo", "alive"]).text == "alive\n"
    shell.reset()
    with cut(shell_launch, "names.take(path)"), EpisodeShell.open(limits=SMALL) as naive:
        naive.run([naive.python, "-c", NAMES], cpu_s=10)
        try:
            told = sum(len(os.fsencode(e.path)) for e in naive.tree())
        except ShellFileError as error:
            told, gone = 16 << 20, str(error)
            assert "more memory than it may use" in gone and naive.closed, "its own doing, not a fault"
    assert told > 8 << 20, "without the bound they are told, or end the shell"


def test_a_path_of_any_length_is_an_answer(shell: EpisodeShell) -> None:
    shell.reset({"repo/a": "x"})
    for path in ("../" * 25_000 + "x", "repo/" + "a" * 150_000, "repo/" + "b/" * 40_000):
        with pytest.raises(ShellFileError):
            shell.read(path)
    assert shell.read("repo/a") == b"x"


def test_writing_one_file_writes_no_other(shell: EpisodeShell) -> None:
    shell.reset({"repo/a": "one"})
    shell.run(["ln", "a", "b"])
    shell.write({"repo/a": "first", "repo/b": "second"})
    assert (shell.read("repo/a"), shell.read("repo/b")) == (b"first", b"second")


def test_a_program_that_dies_with_every_case_has_no_more_time(box: Sandbox) -> None:
    source = "import os, time\ntime.sleep(0.7)\nos._exit(1)"
    ran = box.run([Program(source, stdins=("",) * 8, limits=Limits(idle_s=1, wall_s=2))])[0]
    assert {c.status for c in ran.cases} <= {"error", "timeout"}
    assert ran.cases[-1].status == "timeout", "8 cases of 0.7 s are 5.6 s: the limit is the program's, not a case's"
