"""`python -m bench.compare`, called as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from bench.compare.__main__ import compare as command
from typer.testing import CliRunner

from evotrainer.errors import ConfigError
from tests.cli.call import ROOT, in_this_process
from tests.compare.worlds import TASK, WORLD


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "world.json").write_text(WORLD.model_dump_json())
    return tmp_path


APP = typer.Typer(add_completion=False)
APP.command()(command)
GREEDY = ("--arms", "greedy,best_of_n", "--trainings", "12", "--surface", "world.json")


def compare(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "140", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bench.compare", "task.toml", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)


def test_it_ends_with_a_table_and_json(here: Path) -> None:
    done = compare(*GREEDY, "--repeats", "2", "--out", "out", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "1/4 greedy, repeat 1" in done.stderr
    assert "greedy minus it" in done.stdout and "out/results.json" in done.stdout
    found = json.loads((here / "out" / "results.json").read_text())
    assert {a["arm"]: a["repeats"] for a in found["arms"]} == {"greedy": 2, "best_of_n": 2}
    again = compare(*GREEDY, "--repeats", "2", "--out", "out", "--json", cwd=here)
    assert json.loads(again.stdout) == found
    status = in_this_process("status", "out/greedy-1", cwd=here)
    assert status.returncode == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--arms", "tpee"), "did you mean tpe"),
        (("--trainings", "9"), "too few for arm statistical"),
        (("--arms", ","), "names no arm"),
        (("--repeats", "0"), "--repeats: must be at least 1"),
        (("--fresh", "1"), "--fresh: must be at least 2"),
        (("--surface", "nothing.json"), "cannot read surface"),
    ],
)
def test_what_cannot_be_compared_is_refused(here: Path, args: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CliRunner().invoke(APP, [str(here / "task.toml"), "--out", str(here / "out"), *args], catch_exceptions=False)
    assert not (here / "out").exists()


def test_one_repeat_is_told_to_have_no_interval(here: Path) -> None:
    done = compare(*GREEDY, "--repeats", "1", "--out", "out", cwd=here)
    assert "one repeat gives no interval" in done.stderr and "[" not in done.stdout.splitlines()[1]


@pytest.mark.slow
def test_killed_in_the_middle_the_same_command_goes_on(here: Path) -> None:
    told = [*GREEDY, "--repeats", "3"]
    args = [sys.executable, "-m", "bench.compare", "task.toml", *told, "--out", "cut"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(args, cwd=here, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
        for _ in range(1200):
            if (here / "cut" / "greedy-2" / "ledger.db").exists():
                break
            time.sleep(0.05)
        os.kill(p.pid, signal.SIGKILL)
    assert not (here / "cut" / "results.json").exists()
    assert compare(*told, "--out", "cut", cwd=here).returncode == 0
    assert compare(*told, "--out", "whole", cwd=here).returncode == 0
    cut, whole = (json.loads((here / n / "results.json").read_text()) for n in ("cut", "whole"))
    assert cut["rows"] == whole["rows"]
