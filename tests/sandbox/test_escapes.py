"""Nothing gets out. Every attack is also run without protection, where it must work: the corpus can fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

from evotrainer.sandbox import CaseResult, Limits, Program, Sandbox
from evotrainer.sandbox.probes import Scene, scene

from . import escapes

TIGHT = Limits(cpu_s=0.4, memory_mb=256, idle_s=1.0, processes=16)
WIDE = Limits(cpu_s=30, memory_mb=8192, idle_s=60, processes=2000, file_mb=64)


def aim(source: str, at: Scene) -> str:
    """The attack with its targets filled in."""
    targets = {
        "secret": at.folder / "secret",
        "folder": at.folder,
        "port": at.port,
        "token": at.token,
        "victim": at.victim.pid,
    }
    return Template(source).substitute(targets)


@pytest.fixture
def targets(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A secret, a port and a victim that only the sandbox protects; the victim runs as the sandbox's own user."""
    box: Sandbox = request.getfixturevalue(request.param)
    os.environ["THE_SECRET"] = "in the environment"
    with scene(box.report.uid) as made:
        (made.folder / "secret").write_text("the secret")
        yield made
    del os.environ["THE_SECRET"]


def attack(box: Sandbox, source: str, limits: Limits) -> CaseResult:
    """Run one attack; whatever it does, it must not look like a fault of ours."""
    return box.run([Program(source, stdins=("",), limits=limits)])[0].cases[0]


def breached(case: CaseResult, at: Scene) -> bool:
    """It says so, or its traces are outside."""
    return "BREACH" in (case.stdout or "") or at.victim.poll() is not None or (at.folder / "made-by-attack").exists()


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(escapes.ESCAPES) >= 17


@pytest.mark.parametrize("targets", ["box"], indirect=True)
@pytest.mark.parametrize("name", escapes.ESCAPES)
def test_no_attack_escapes(box: Sandbox, targets: Scene, name: str) -> None:
    if name == "takes memory in many processes" and box.tier != "A":
        pytest.skip("memory of several processes is limited in tier A only (needs a control group)")
    case = attack(box, aim(escapes.ESCAPES[name], targets), TIGHT)
    assert not breached(case, targets), case
    assert case.status != "sandbox", "an attack must never count as an infrastructure fault"
    after = attack(box, "print(input())", TIGHT)
    assert after.error is not None
    assert after.error[0] == "EOFError", "the next program runs as if nothing had happened"


@pytest.mark.parametrize("targets", ["unprotected"], indirect=True)
@pytest.mark.parametrize("name", escapes.ESCAPES)
def test_every_attack_works_without_protection(unprotected: Sandbox, targets: Scene, name: str) -> None:
    if name == "makes a user namespace" and subprocess.run(["unshare", "-U", "true"], check=False).returncode:
        pytest.skip("this machine has no user namespaces to make")
    case = attack(unprotected, aim(escapes.ESCAPES[name], targets), WIDE)
    assert breached(case, targets), case


@pytest.mark.parametrize("targets", ["box"], indirect=True)
def test_files_of_one_program_are_gone_for_the_next(box: Sandbox, targets: Scene) -> None:
    attack(box, aim(escapes.LEAVES_BEHIND, targets), TIGHT)
    assert attack(box, aim(escapes.LOOKS_FOR_LEFTOVERS, targets), TIGHT).stdout == ""


@pytest.mark.parametrize("targets", ["unprotected"], indirect=True)
def test_files_stay_without_protection(unprotected: Sandbox, targets: Scene) -> None:
    attack(unprotected, aim(escapes.LEAVES_BEHIND, targets), WIDE)
    case = attack(unprotected, aim(escapes.LOOKS_FOR_LEFTOVERS, targets), WIDE)
    assert "BREACH" in (case.stdout or "")
    for path in (Path(f"/tmp/left-{targets.token}"), Path(f"/dev/shm/left-{targets.token}")):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("targets", ["box"], indirect=True)
def test_shared_memory_of_one_program_is_no_channel_to_the_next(box: Sandbox, targets: Scene) -> None:
    source = aim(escapes.SHARED_MEMORY, targets)
    attack(box, source, TIGHT)
    assert attack(box, source, TIGHT).stdout == "none\n"


def test_a_daemon_dies_with_its_program(box: Sandbox) -> None:
    attack(box, escapes.DAEMON, TIGHT)
    assert box.strays() == 0


def test_a_daemon_is_found_even_without_namespaces(unprotected: Sandbox) -> None:
    attack(unprotected, escapes.DAEMON, WIDE)
    assert unprotected.strays() == 0


def test_the_zygote_holds_nothing_of_earlier_programs(box: Sandbox) -> None:
    for number in range(1000, 1006):
        attack(box, escapes.EARLIER.format(number=number), TIGHT)
    case = attack(box, escapes.SEARCHES_MEMORY, Limits(cpu_s=5))
    assert case.stdout is not None, case
    assert "MARK-own" in case.stdout, "the search finds what is there"
    assert "MARK-1" not in case.stdout
