"""One sandbox per tier for the whole folder; skipped with a clear message where the machine cannot offer it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from types import ModuleType

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox import Sandbox, launch
from evotrainer.sandbox.launch import Mechanism, find_bubblewrap
from evotrainer.sandbox.shell import EpisodeShell


def bubblewrap_works() -> bool:
    """Can this machine make the namespaces at all? Asked without any code of ours."""
    command = [find_bubblewrap() or "bwrap", "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _open(tier: str) -> Iterator[Sandbox]:
    try:
        box = Sandbox.open(tier=tier, workers=2)  # type: ignore[arg-type]
    except SandboxError as error:
        if tier == "A" and bubblewrap_works():
            pytest.fail(f"bubblewrap works, but the sandbox does not open:\n{error}")
        pytest.skip(f"no such sandbox here: {error}")
    if tier == "A" and box.tier not in ("A", "B"):
        report = str(box.report)
        box.close()
        pytest.fail(f"bubblewrap starts, but a promise is broken:\n{report}")
    yield box
    box.close()


@contextlib.contextmanager
def cut(where: ModuleType, line: str) -> Iterator[None]:
    """What starts below runs without one line of what runs inside: the defence that an attack is fended off by."""
    real = where._modules()
    assert sum(source.count(line) for _, source in real) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, "_modules", lambda: [(name, source.replace(line, "pass")) for name, source in real])
        yield


READ_ONLY = "kernel.make_mounts_read_only(self.proc)"


@pytest.fixture(scope="session")
def bare() -> Iterator[Sandbox]:
    """Namespaces and nothing else: no filter, no control group, and every mount as bubblewrap leaves it."""
    if not bubblewrap_works():
        pytest.skip("no namespaces here")
    with cut(launch, READ_ONLY):
        box = Sandbox(Mechanism(namespaces=True, seccomp=False, cgroup=False))
    yield box
    box.close()


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    """The strongest sandbox: tier A, or B where the user has no control group."""
    yield from _open("A")


@pytest.fixture(scope="session")
def unprotected() -> Iterator[Sandbox]:
    """Limits only (tier D), and the tests set those wide: here an attack that works at all must work."""
    yield from _open("D")


@pytest.fixture
def shell(machine: EpisodeShell) -> EpisodeShell:
    machine.reset()
    return machine
