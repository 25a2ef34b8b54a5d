"""One sandbox per tier for the whole folder; skipped with a clear message where the machine cannot offer it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox import Sandbox


def bubblewrap_works() -> bool:
    """Can this machine make the namespaces at all? Asked without any code of ours."""
    command = ["bwrap", "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"]
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


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    """The strongest sandbox: tier A, or B where the user has no control group."""
    yield from _open("A")


@pytest.fixture(scope="session")
def unprotected() -> Iterator[Sandbox]:
    """Limits only (tier D), and the tests set those wide: here an attack that works at all must work."""
    yield from _open("D")
