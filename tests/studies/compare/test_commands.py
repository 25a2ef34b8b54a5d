"""`evotrainer compare`, called as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.call import evotrainer, in_this_process
from tests.studies.compare.worlds import TASK, WORLD


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "world.json").write_text(WORLD.model_dump_json())
    return tmp_path


GREEDY = ("--arms", "greedy,best_of_n", "--trainings", "12", "--surface", "world.json")


def test_it_ends_with_a_table_a_page_and_json(here: Path) -> None:
    done = evotrainer("compare", "task.toml", *GREEDY, "--repeats", "2", "--out", "out", cwd=here)
    assert done.returncode == 0, done.stderr
    assert (
        "1/4 greedy, repeat 1" in done.stderr and "greedy minus it" in done.stdout and "out/results.json" in done.stdout
    )
    found = json.loads((here / "out" / "results.json").read_text())
    assert {a["arm"]: a["repeats"] for a in found["arms"]} == {"greedy": 2, "best_of_n": 2}
    assert "<polyline" in (here / "out" / "comparison.html").read_text(), "a surface gives a curve"
    again = in_this_process("compare", "task.toml", *GREEDY, "--repeats", "2", "--out", "out", "--json", cwd=here)
    assert json.loads(again.stdout) == found
    status = in_this_process("status", "out/greedy-1", cwd=here)
    assert status.returncode == 0


def test_what_cannot_be_compared_is_one_line(here: Path) -> None:
    def refused(*args: str) -> str:
        done = in_this_process("compare", "task.toml", "--out", "out", *args, cwd=here)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert not (here / "out").exists()
        return done.stderr

    assert "did you mean tpe" in refused("--arms", "tpee")
    assert "too few for arm statistical" in refused("--trainings", "9")
    assert "names no arm" in refused("--arms", ",")
    assert "--repeats: must be at least 1" in refused("--repeats", "0")
    assert "--fresh: must be at least 2" in refused("--fresh", "1")
    assert "cannot read surface" in refused("--surface", "nothing.json")


def test_one_repeat_is_told_to_have_no_interval(here: Path) -> None:
    done = in_this_process("compare", "task.toml", *GREEDY, "--repeats", "1", "--out", "out", cwd=here)
    assert "one repeat gives no interval" in done.stderr and "[" not in done.stdout.splitlines()[1]


@pytest.mark.slow
def test_killed_in_the_middle_the_same_command_goes_on(here: Path) -> None:
    told = [*GREEDY, "--repeats", "3"]
    args = [sys.executable, "-m", "evotrainer.cli", "compare", "task.toml", *told, "--out", "cut"]
    with subprocess.Popen(args, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
        for _ in range(1200):
            if (here / "cut" / "greedy-2" / "ledger.db").exists():
                break
            time.sleep(0.05)
        os.kill(p.pid, signal.SIGKILL)
    assert not (here / "cut" / "results.json").exists()
    assert evotrainer("compare", "task.toml", *told, "--out", "cut", cwd=here).returncode == 0
    assert evotrainer("compare", "task.toml", *told, "--out", "whole", cwd=here).returncode == 0
    cut, whole = (json.loads((here / n / "results.json").read_text()) for n in ("cut", "whole"))
    assert cut["rows"] == whole["rows"]
