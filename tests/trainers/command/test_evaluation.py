"""A policy is evaluated by a server or a program of the user's: the environment scores, what is lost is not wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import FaultsError, TrainerError
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.base import EvalRequest, Identity
from evotrainer.trainers.command import evaluation
from evotrainer.trainers.command.keeper import below
from evotrainer.trainers.command.trainer import CommandTrainer
from tests.trainers.command.own import RECIPE, options
from tests.trainers.command.test_command_trainer import processes
from tests.trainers.reverse_env import GuessDigitEnv, ReverseEnv

pytestmark = pytest.mark.xdist_group("command-evaluation")  # each looks for processes of this file's server
SERVER = str(Path(__file__).with_name("own_server.py"))


def served(after: int = 1000, **more: Any) -> dict[str, Any]:
    serve = [sys.executable, SERVER, "serve", "{port}", str(after)]
    return {"by": "endpoint", "base_url": "http://127.0.0.1:{port}/v1", "serve": serve, "parallel": 2, **more}


def evaluated(how: dict[str, Any], policy: Path, environment: Any = None, split: str = "gate") -> list[list[Rollout]]:
    trainer = CommandTrainer(options(evaluation=how))
    asked = EvalRequest(Identity("r", "b1", 1), RECIPE.model_copy(update={"max_turns": 3}), policy, split, 3, 2, 4)
    stored: list[Any] = []
    try:
        groups = trainer.evaluate(asked, environment or ReverseEnv(), stored.extend)
        assert stored == groups
        return groups
    finally:
        trainer.close()
        assert not processes(Path(SERVER), "own_server.py")


def test_a_server_that_is_started_for_the_policy_answers_and_is_ended(base: Path) -> None:
    groups = evaluated(served(), base)
    assert [[r.outcome for r in g] for g in groups] == [["correct"] * 2] * 4
    assert {(r.tokens, r.split, r.finish) for g in groups for r in g} == {(3, "gate", "stop")}
    twice = evaluated(served(), base, GuessDigitEnv())
    assert all(len([t for t in r.turns if t.role == "assistant"]) == 2 for g in twice for r in g), "turn by turn"


def test_one_that_goes_away_costs_attempts_and_no_score(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PAUSE_S", 0.01)
    rows = [r for g in evaluated(served(after=3), base) for r in g]
    lost = [r for r in rows if r.error_kind]
    assert 1 <= len(lost) < 8 and {(r.error_kind, r.reward, r.outcome) for r in lost} == {
        ("model_api", None, "unknown")
    }
    assert {r.outcome for r in rows if not r.error_kind} == {"correct"}


def test_one_that_does_not_know_the_policy_or_does_not_come_up_is_told(base: Path) -> None:
    rows = [r for g in evaluated(served(model="{policy}/none"), base) for r in g]
    assert {r.error_kind for r in rows} == {"model_api"} and "HTTP 404" in str(rows[0].error)
    with pytest.raises(
        FaultsError, match="serve ended; it printed last: .*can't open file.*; correct serve and base_url"
    ):
        evaluated(served(serve=[sys.executable, "no-such.py"]), base)


def test_a_program_samples_and_keeps_nothing(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = {"by": "command", "command": [sys.executable, SERVER, "samples", "{request}"]}
    rows = [r for g in evaluated(program, base) for r in g]
    assert [r.outcome for r in rows].count("correct") == 7, "its own reward of 0 is nobody's score"
    (lost,) = [r for r in rows if r.error_kind]
    assert lost.error == "the program wrote no attempt" and lost.k == 1
    fails = {**program, "command": [sys.executable, SERVER, "fails", "{request}"]}
    with pytest.raises(TrainerError, match="exit code 3; it printed last: what I was asked: .*search-0"):
        evaluated(fails, base, split="search")
    with pytest.raises(TrainerError, match="exit code 3; correct it"):
        evaluated(fails, base)
    assert not list(tmp_path.iterdir())
    evaluated(served(), base)
    assert not list(tmp_path.iterdir()), "nor does a server"


def test_a_program_that_a_signal_ends_is_started_again(base: Path, tmp_path: Path) -> None:
    def killed(does: str) -> dict[str, Any]:
        return {"by": "command", "command": [sys.executable, SERVER, does, "{request}", str(tmp_path / "killed")]}

    assert [r.outcome for g in evaluated(killed("is killed once"), base) for r in g].count("correct") == 7
    (tmp_path / "killed").unlink()
    with pytest.raises(FaultsError, match=r"signal 9 ended the program .* each of 3 times \(out of memory\?\); make"):
        evaluated(killed("is killed"), base)


@pytest.mark.skipif(sys.platform != "linux", reason="a keeper dies with its parent")
def test_what_a_kill_of_everything_leaves_the_next_process_removes(base: Path, tmp_path: Path) -> None:
    (temp := tmp_path / "temp").mkdir()
    at = tmp_path / "tasks"
    own = {"by": "command", "command": [sys.executable, SERVER, "waits", "{request}", str(at)]}
    code = f"from tests.trainers.command.test_evaluation import *; evaluated({own!r}, Path({str(base)!r}))"
    env = {**os.environ, "TMPDIR": str(temp)}
    trial = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=Path(__file__).parents[3])
    end = time.monotonic() + 120
    while not (at.exists() and at.read_text()):
        assert trial.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    assert "gate-0" in Path(at.read_text()).read_text()
    left = [trial.pid, *below(trial.pid)]
    sweeps = [sys.executable, "-c", "from evotrainer.trainers.command.passing_folder import *; sweep_folders()"]
    subprocess.run(sweeps, env=env, check=True)
    assert list(temp.iterdir()), "one that is in use stays"
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    trial.wait()
    assert list(temp.iterdir())
    subprocess.run(sweeps, env=env, check=True)
    assert not list(temp.iterdir())
