"""`scripts/check-machine.sh`: what is missing for `make quickstart` is named before pip tries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "check-machine.sh"
NEEDED = ("bash", "uname", "df", "awk", "make")


def check(*args: str, path: Path | None = None, **env: str) -> tuple[int, str]:
    """Exit code and what stands on stderr; `path`: the only folder with commands."""
    here = {"PATH": str(path) if path else os.environ["PATH"], **env}
    bash = subprocess.run(["sh", "-c", "command -v bash"], capture_output=True, text=True).stdout.strip()
    done = subprocess.run([bash, str(SCRIPT), *args], capture_output=True, text=True, env=here, cwd=ROOT)
    assert not done.stdout
    return done.returncode, done.stderr


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder with the commands that the script needs, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True).stdout.strip()
        if not found:
            pytest.skip(f"this machine has no {name}")
        (folder / name).symlink_to(found)
    return folder


def fake_python(folder: Path, version: str) -> str:
    """A `python3` that says it is of this version."""
    major, minor, _ = version.split(".")
    file = folder / "python3"
    code = (
        f"#!{sys.executable}\nimport collections, platform, sys\n"
        f'sys.version_info = ({major}, {minor}, 0)\nplatform.python_version = lambda: "{version}"\n'
        "exec(sys.argv[2])\n"
    )
    file.write_text(code)
    file.chmod(0o755)
    return str(file)


LARGE = "999999"


@pytest.mark.parametrize(
    ("python", "disk", "memory", "code", "told"),
    [
        (sys.executable, "0", "0", 0, ()),
        ("3.12.1", "0", "0", 0, ()),
        ("3.10.12", "0", "0", 1, ("is Python 3.10.12; needed: 3.11 or later", "make quickstart PYTHON=python3.11")),
        (sys.executable, LARGE, "0", 1, ("of disk are free", "needed: 999999 GB")),
        (sys.executable, "0", LARGE, 0, ("of memory are available", "run.workers=1")),
    ],
)
def test_what_is_missing_is_named_and_only_a_small_memory_goes_on(
    python: str, disk: str, memory: str, code: int, told: tuple[str, ...], commands: Path
) -> None:
    at = python if python == sys.executable else fake_python(commands, python)
    ended, said = check(at, path=commands, EVOTRAINER_DISK_GB=disk, EVOTRAINER_MEMORY_GB=memory)
    assert ended == code and all(t in said for t in told) and bool(said) == bool(told)


def test_no_python_and_no_make_are_named_together(commands: Path) -> None:
    (commands / "make").unlink()
    code, said = check("python3", path=commands, EVOTRAINER_DISK_GB="0")
    assert code == 1 and "make is missing" in said and "python3 is not there" in said


def test_make_quickstart_asks_before_it_installs(tmp_path: Path, commands: Path) -> None:
    old = fake_python(commands, "3.9.2")
    done = subprocess.run(
        ["make", "quickstart", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and "is Python 3.9.2; needed: 3.11 or later" in done.stderr
    assert "pip" not in done.stdout and not (tmp_path / "venv").exists()
