"""Nothing gets out, nothing stays. Every attack is also run where nothing guards, and must work there:
the corpus can fail.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from dataclasses import replace

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox import CaseResult, Limits, Program, Sandbox, shell_launch
from evotrainer.sandbox.attack_targets import attack_targets, mounts_of
from evotrainer.sandbox.attacks import ESCAPES, LEFTOVER_ATTACKS, LIMITS, RESOURCE_ATTACKS, attack_shell
from evotrainer.sandbox.cgroups import make_group
from evotrainer.sandbox.interpreter import choose_interpreter
from evotrainer.sandbox.model import TIERS, Tier
from evotrainer.sandbox.probes import SandboxProbe
from evotrainer.sandbox.shell import EpisodeShell, ShellLimits
from tests.thinned import thinned

from .conftest import READ_ONLY, bubblewrap_works, cut

WIDE = Limits(cpu_s=30, memory_mb=8192, idle_s=60, processes=2000, file_mb=64)
QUICK = Limits(cpu_s=2.0, memory_mb=256, idle_s=5.0)
HAS_GROUPS = bool((found := make_group(64 << 20, 8)) and (found.remove() is None))
needs_namespaces = pytest.mark.skipif(not bubblewrap_works(), reason="bubblewrap makes no namespaces here")


def _has_ciphers() -> bool:
    try:
        socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).close()
    except OSError:
        return False
    return True


UNUSUAL = {
    "makes a user namespace": lambda: subprocess.run(["unshare", "-U", "true"], check=False).returncode != 0,
    "makes a user namespace with clone": lambda: subprocess.run(["unshare", "-U", "true"], check=False).returncode != 0,
    "calls by the way of 32 bits": lambda: platform.machine() != "x86_64",
    "types into the terminal": lambda: not os.path.exists("/dev/ptmx"),
    "opens a socket of the kernel's ciphers": lambda: not _has_ciphers(),
}
"""What some machines do not have to attack."""


def ids(probe: SandboxProbe) -> str:
    return probe.name


def result(box: Sandbox, source: str, limits: Limits = QUICK) -> CaseResult:
    return box.run([Program(source, stdins=("",), limits=limits)])[0].cases[0]


def held(box: Sandbox, probe: SandboxProbe) -> str:
    """Empty where the attack was fended off, else what it says that it got."""
    _, found = box.attack([probe])
    assert found.held or "BREACH" in found.detail or "outside" in found.detail, found
    return "" if found.held else found.detail


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len({p.name for p in (*ESCAPES, *LEFTOVER_ATTACKS)}) >= 60 + 20
    assert len({p.name for p in RESOURCE_ATTACKS}) >= 30


@pytest.mark.parametrize("probe", [*ESCAPES, *LEFTOVER_ATTACKS], ids=ids)
def test_no_attack_escapes_or_leaves_anything(box: Sandbox, probe: SandboxProbe) -> None:
    assert not held(box, probe)
    assert result(box, "print(input())").error == ("EOFError", "EOF when reading a line"), "the next one is as ever"


@pytest.mark.parametrize("tier", ["B", "C", "D"])
def test_weaker_tiers_keep_what_they_promise(tier: Tier) -> None:
    try:
        weak = Sandbox.open(tier=tier)
    except SandboxError as error:
        pytest.skip(str(error))
    with weak:
        promised = [p for p in (*ESCAPES, *LEFTOVER_ATTACKS) if TIERS.index(p.tier) >= TIERS.index(weak.tier)]
        assert [f for f in weak.attack(promised) if not f.held] == []
        assert len(promised) > (60 if tier in ("B", "C") else -1)


@pytest.mark.parametrize("probe", ESCAPES, ids=ids)
def test_every_escape_works_where_nothing_guards(unprotected: Sandbox, bare: Sandbox, probe: SandboxProbe) -> None:
    if UNUSUAL.get(probe.name, lambda: False)():
        pytest.skip("this machine has nothing to attack there")
    wide = replace(probe, limits=WIDE)
    assert held(unprotected, wide) or held(bare, wide)


@pytest.mark.parametrize("probe", LEFTOVER_ATTACKS, ids=ids)
def test_every_residue_stays_where_nothing_guards(bare: Sandbox, probe: SandboxProbe) -> None:
    assert held(bare, replace(probe, limits=WIDE)) or naively(probe)


LEFT_BEFORE = ("leaves a flag on an inherited descriptor",)
"""Residues that the first run, which nothing was left for, must not find."""


def naively(probe: SandboxProbe) -> bool:
    """The same source as ordinary processes, one after the other."""
    with attack_targets(os.getuid() or 65_534) as at:
        at = replace(at, mounts=())
        drop = {"user": 65_534, "group": 65_534, "extra_groups": []} if os.getuid() == 0 else {}
        python = choose_interpreter(65_534 if os.getuid() == 0 else None)
        env = {"LD_LIBRARY_PATH": f"{python.prefix}/lib"} if python.prefix else {}
        command = [python.executable, "-c", at.source(probe).replace("/w/", f"{at.folder}/")]
        with open(os.devnull) as given:  # one for both runs, as what is inherited is
            for run in range(2):
                with open(at.folder / f"out{run}", "w") as out:  # no pipe: what a first run leaves would hold it open
                    subprocess.run(  # type: ignore[call-overload]
                        command, stdin=given, stdout=out, check=False, cwd=at.folder, env=env, timeout=60, **drop
                    )
        first, second = ((at.folder / f"out{run}").read_text() for run in range(2))
        return "BREACH" in second and (probe.name not in LEFT_BEFORE or "BREACH" not in first)


WIRED = ShellLimits(loopback=True, locks=True)
"""A shell with sockets, started anew for every episode: three times as dear as one that is not."""
EVERY = (*ESCAPES, *LEFTOVER_ATTACKS)
SOCKETS = tuple(p for p in EVERY if "socket." in p.source or p.name.startswith("locks"))
"""What they may do that others may not."""


@needs_namespaces
@pytest.mark.parametrize(
    ("limits", "probes", "least"),
    [
        pytest.param(ShellLimits(), EVERY, 60, id="plain"),
        pytest.param(WIRED, SOCKETS, 5, id="with sockets"),
        pytest.param(WIRED, EVERY, 60, id="with sockets, every attack", marks=pytest.mark.slow),
    ],
)
def test_no_attack_escapes_an_episode_shell_or_reaches_the_next_episode(
    limits: ShellLimits, probes: tuple[SandboxProbe, ...], least: int
) -> None:
    with EpisodeShell.open(limits=limits) as shell:
        found = list(attack_shell(shell, probes))
    assert len(found) >= least
    assert [f for f in found if not f.held] == []


@pytest.mark.slow
@needs_namespaces
def test_residues_stay_in_a_shell_whose_mounts_can_be_written() -> None:
    with cut(shell_launch, READ_ONLY), EpisodeShell.open() as shell:
        broken = {f.name for f in attack_shell(shell) if not f.held}
    names = ("a file in /usr/local", "a file in /usr/share", "a folder on any mount", "the time of a device file")
    assert broken >= {f"leaves {name}" for name in names}


@needs_namespaces
def test_nothing_but_the_working_folder_is_mounted_writable() -> None:
    with EpisodeShell.open() as shell, Sandbox.open() as box:
        zygote = box._attacked().pid
        for pid, folder in ((shell.pid, {"/w"}), (zygote, set())):
            with open(f"/proc/{pid}/mountinfo") as lines:
                found = {w[4] for w in map(str.split, lines) if "ro" not in w[5].split(",")}
            assert found == folder
            assert {"/usr", "/dev/null"} <= set(mounts_of(pid))


@needs_namespaces
def test_ports_of_an_episode_are_free_for_the_next_one() -> None:
    """A closed connection keeps its port for a minute: in a shell with sockets, `reset` is a new network namespace."""
    use = (
        "import socket\ns = socket.socket()\ntry: s.bind(('127.0.0.1', 7777))\nexcept OSError: print('BREACH')\nelse:\n"
        "    s.listen(); c = socket.create_connection(('127.0.0.1', 7777)); a = s.accept()[0]; a.close(); c.close()\n"
    )
    with EpisodeShell.open(limits=ShellLimits(loopback=True)) as shell:
        run = lambda: shell.run([shell.python, "-c", use]).text  # noqa: E731
        assert run() == "" and run() == "BREACH\n"
        shell.reset()
        assert run() == ""


@pytest.mark.parametrize("probe", RESOURCE_ATTACKS, ids=ids)
def test_a_trick_is_its_programs_own_doing(box: Sandbox, probe: SandboxProbe) -> None:
    if TIERS.index(probe.tier) < TIERS.index(box.tier):
        pytest.skip(f"promised in tier {probe.tier} only")
    ran = box.run([Program(probe.source, stdins=("",), limits=LIMITS)])[0]
    case = ran.cases[0]
    assert case.status in probe.expected and "BREACH" not in (case.stdout or ""), case
    if box.tier == "A":
        assert ran.cpu_s < LIMITS.cpu_s + 2.5, "whoever burns it, it is counted and bounded"
    assert result(box, "print(6 * 7)").stdout == "42\n"
    assert box.strays() == 0


WORKS_ANYWHERE = {"loops", "takes memory bit by bit", "bombs with forks of forks", "kills all it can",
                  "makes one file with holes", "takes every descriptor", "recurses without end", "stops itself",
                  "waits for its own lock", "prints without end", "answers without end",
                  "matches without end"}  # fmt: skip
"""Endless by themselves, or harmful to us: not run where nothing guards."""


BREACHING = [p for p in RESOURCE_ATTACKS if "BREACH" in p.source and p.name not in WORKS_ANYWHERE]


@pytest.mark.parametrize("probe", thinned(BREACHING, 4), ids=ids)
def test_tricks_work_where_nothing_limits_them(unprotected: Sandbox, probe: SandboxProbe) -> None:
    assert held(unprotected, replace(probe, limits=WIDE)), "under wide limits it gets what it wants"


@pytest.mark.skipif(not HAS_GROUPS, reason="no control groups here")
def test_without_a_group_children_that_nobody_waits_for_are_bounded_by_the_clock() -> None:
    probe = next(p for p in RESOURCE_ATTACKS if p.name == "burns time in children that nobody waits for")
    with Sandbox.open(tier="B") as weak:
        case = result(weak, probe.source, LIMITS)
    assert case.status == "timeout", case


def test_memory_that_kills_the_zygote_is_the_programs_memory(box: Sandbox) -> None:
    """The kernel may choose the zygote: that ends the program that filled the slot, is no fault of the sandbox
    (`sandbox`), and the next program runs.
    """
    from evotrainer.sandbox import launch

    if box.tier != "A":
        pytest.skip("needs a control group")
    source = next(p for p in RESOURCE_ATTACKS if p.name == "takes memory in files without a name").source
    with cut(launch, "kernel.volunteer_for_oom(self.proc)"), Sandbox.open() as careless:
        assert result(careless, source, LIMITS).status in ("memory", "killed", "error")
        assert result(careless, "print(1)").stdout == "1\n"


SEARCHES_MEMORY = r"""
import ctypes, os
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
r, w = os.pipe()
found = set()
def page(address):
    return os.read(r, 4096) if libc.write(w, ctypes.c_void_p(address), 4096) == 4096 else b""
def scan(low, high):
    for address in range(low, high, 4096):
        text = page(address)
        at = text.find(b"MA" + b"RK-")
        while at >= 0:
            found.add(bytes(text[at : at + 9]))
            at = text.find(b"MA" + b"RK-", at + 1)
mine = "own " + "MA" + "RK-own"
top = libc.sbrk(0) >> 12 << 12
scan(top - (4 << 20), top)
middle = id(object()) >> 12 << 12
scan(middle - (3 << 20), middle + (3 << 20))
middle = id(mine) >> 12 << 12
scan(middle - (1 << 20), middle + (1 << 20))
print(sorted(found))
"""


def test_the_zygote_holds_nothing_of_earlier_programs(box: Sandbox) -> None:
    for number in range(1000, 1006):
        result(box, f"ANSWER = 'the earlier program had ' + 'MARK' + '-{number}'\nprint(ANSWER)")
    case = result(box, SEARCHES_MEMORY, Limits(cpu_s=5))
    assert case.stdout is not None, case
    assert "MARK-own" in case.stdout, "the search finds what is there"
    assert "MARK-1" not in case.stdout
