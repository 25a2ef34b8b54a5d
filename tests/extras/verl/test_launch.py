"""verl's environment, and a rendered folder's launch.sh, against a stand-in for verl (fake_verl.py): it trains nothing,
but writes and resumes as verl does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.extras.verl.rendering import machine, task

from evotrainer.cli.verl_validate import verl_validate
from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.extras.verl import VERSION
from evotrainer.extras.verl.render import render
from evotrainer.extras.verl.validate import validate
from evotrainer.extras.verl.venv import Venv, find
from evotrainer.studies.audit.curve_file import read_curves

HERE = Path(__file__).resolve().parent


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    """An environment whose Python is the stand-in."""
    home = tmp_path / "venv" / "bin"
    home.mkdir(parents=True)
    python = home / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_verl.py"} "$@"\n')
    python.chmod(0o755)
    return find(tmp_path / "venv")


def start(folder: Path, venv: Venv, *settings: str, **wish: int) -> int:
    """Run launch.sh in a session of its own; its exit code."""
    env = {**os.environ, "VERL_PYTHON": str(venv.python), "FAKE_VERL": json.dumps(wish)}
    return subprocess.run(["sh", folder / "launch.sh", *settings], env=env, start_new_session=True).returncode


def test_a_killed_training_goes_on_behind_its_checkpoint_and_loses_nothing_of_its_first_attempt(
    tmp_path: Path, venv: Venv
) -> None:
    folder = tmp_path / "a folder"
    render(task(), folder, machine())
    assert start(folder, venv, kill_at=3) == -signal.SIGKILL
    assert start(folder, venv, "trainer.save_freq=1") == 0
    steps = [[r["step"] for r in read_curves(folder / "metrics" / f"attempt-{n}.jsonl")[0].rows] for n in (1, 2)]
    assert steps == [[0, 1, 2], [2, 3]]
    assert sorted(str(p.relative_to(folder / "rollouts")) for p in folder.glob("rollouts/*/*.jsonl")) == [
        "attempt-1/1.jsonl", "attempt-1/2.jsonl", "attempt-2/3.jsonl"
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="launched"):
        render(task(), folder, machine())


def test_a_failure_keeps_its_exit_code(tmp_path: Path, venv: Venv) -> None:
    render(task(), tmp_path / "v", machine())
    assert start(tmp_path / "v", venv, fail=17) == 17


def test_validation_is_by_verls_own_python(
    tmp_path: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    render(task(), tmp_path / "v", machine())
    verl_validate(tmp_path / "v", venv=venv.python.parent.parent)
    assert "valid: verl 0.9.1 accepts the configuration for 1 GPU" in capsys.readouterr().out
    monkeypatch.setenv("FAKE_VERL", json.dumps({"answer": "unknown setting"}))
    assert not validate(tmp_path / "v", venv).ok


def test_the_extra_installs_the_version_that_the_keys_were_written_for() -> None:
    extras = tomllib.loads((HERE.parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"verl=={VERSION}" in extras["verl"] and f"verl[vllm]=={VERSION}" in extras["verl-gpu"]


def test_no_environment_says_how_to_make_one(tmp_path: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDependencyError, match=r"python -m venv \S+ && \S+/bin/pip install .*\[verl\]"):
        find(tmp_path / "nowhere")
    monkeypatch.setenv("EVOTRAINER_VERL_PYTHON", str(venv.python))
    assert find(None).python == venv.python
    bare = tmp_path / "bare" / "bin"
    bare.mkdir(parents=True)
    (bare / "python").symlink_to(sys.executable)
    with pytest.raises(MissingDependencyError, match=r"lacks what verl 0\.9\.1 needs here"):
        find(tmp_path / "bare")
