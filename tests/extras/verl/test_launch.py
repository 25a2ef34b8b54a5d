"""Launch, tail and checkpoints against a stand-in for verl (fake_verl.py):
it trains nothing, but writes and resumes as verl does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extras.verl.rendering import machine, task

from evotrainer.cli.verl_checkpoints import verl_checkpoints
from evotrainer.cli.verl_launch import verl_launch
from evotrainer.cli.verl_tail import verl_tail
from evotrainer.cli.verl_validate import verl_validate
from evotrainer.errors import ConfigError, MissingDependencyError, StoreError, TrainerError
from evotrainer.extras.verl import tail
from evotrainer.extras.verl.checkpoints import checkpoints, latest_step, merge_command
from evotrainer.extras.verl.launch import Launch, attempts, born, launch, state, stop
from evotrainer.extras.verl.render import render
from evotrainer.extras.verl.validate import validate
from evotrainer.extras.verl.venv import CPU_PACKAGES, RECORD, Venv, extras_of, find, setup

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


@pytest.fixture
def folder(tmp_path: Path, venv: Venv) -> Iterator[Path]:
    """A validated folder of three steps; whatever runs from it at the end is ended, by its own process number."""
    out = tmp_path / "v"
    render(task(), out, machine())
    assert validate(out, venv).ok
    yield out
    for a in attempts(out):
        if state(out, a) == "running":
            os.killpg(a.pid, signal.SIGKILL)


def wish(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    monkeypatch.setenv("FAKE_VERL", json.dumps({"gpus": 1, **values}))


def over(folder: Path) -> str:
    """How the newest attempt ended."""
    while (s := state(folder, attempts(folder)[-1])) == "running":
        time.sleep(0.02)
    return s


def test_without_a_gpu_nothing_starts_and_the_command_for_the_day_is_named(
    folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(monkeypatch, gpus=0)
    with pytest.raises(
        TrainerError, match=r"this machine has 0 GPUs.*nothing was started.*run: evotrainer verl launch \S+/v$"
    ):
        launch(folder, venv)
    assert not attempts(folder)
    wish(monkeypatch, gpus=8, ray=0)
    with pytest.raises(TrainerError, match="the Ray cluster at 10.0.0.1:6379 has 0 GPU"):
        launch(folder, venv, ray_address="10.0.0.1:6379")


def test_several_nodes_need_the_clusters_gpus(tmp_path: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "two"
    render(task(), out, machine(gpus=4, nodes=2))
    validate(out, venv)
    wish(monkeypatch, gpus=4)
    with pytest.raises(TrainerError, match=r"needs 4 on each of 2 nodes.*--ray-address HEAD_ADDRESS:6379$"):
        launch(out, venv)
    wish(monkeypatch, ray=8)
    a = launch(out, venv, ray_address="10.0.0.1:6379")
    assert over(out) == "ended" and "10.0.0.1:6379" in a.log(out).read_text()


def test_a_training_runs_through(folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    wish(monkeypatch)
    a = launch(folder, venv)
    assert os.getpgid(a.pid) == a.pid != os.getpgrp(), "a session of its own"
    assert [line.step for line in tail.follow(folder, 0.02)] == [0, 1, 2, 3]
    assert over(folder) == "ended" and "evo_advantage local" in a.log(folder).read_text()
    assert tail.check_advance(folder) == {1: 3} and tail.verdict(folder) == "attempt 1 ended well"
    two, three = checkpoints(folder)
    assert (two.step, two.bytes, two.latest, two.missing) == (2, 1024, False, ()) and three.latest and three.step == 3
    assert "verl.model_merger merge --backend fsdp --local_dir" in merge_command("python", three, folder / "policy")
    with pytest.raises(ConfigError, match="has ended after 3 steps"):
        launch(folder, venv)


def test_killed_training_resumes_behind_its_checkpoint_and_loses_no_metrics(
    folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(monkeypatch, kill_at=3)
    launch(folder, venv)
    assert over(folder) == "lost" and "gone without an exit code" in tail.verdict(folder)
    second = launch(folder, venv)
    assert second.number == 2 and second.resumed_from == 2 and over(folder) == "ended"
    assert [(x.attempt, x.step, x.trained) for x in tail.lines(folder)] == [
        (1, 0, False), (1, 1, True), (1, 2, True), (2, 2, False), (2, 3, True)
    ]  # fmt: skip
    assert tail.check_advance(folder) == {1: 2, 2: 1}
    assert sorted(str(p.relative_to(folder / "rollouts")) for p in folder.glob("rollouts/*/*.jsonl")) == [
        "attempt-1/1.jsonl", "attempt-1/2.jsonl", "attempt-2/3.jsonl"
    ]  # fmt: skip


def test_a_resume_that_begins_anew_is_not_taken_for_one(
    folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(monkeypatch, kill_at=3)
    launch(folder, venv)
    over(folder)
    wish(monkeypatch, forget=True)
    launch(folder, venv)
    with pytest.raises(
        TrainerError, match="attempt 2 logged step 1 after the checkpoint of step 2: .*did not go on where it was"
    ):
        list(tail.follow(folder, 0.02))
    over(folder)
    with pytest.raises(TrainerError, match="attempt 2 logged step 1"):
        tail.check_advance(folder)


def test_the_launcher_may_be_killed_and_a_second_one_is_refused(
    folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(monkeypatch, hang_at=2)
    code = (
        f"from evotrainer.cli import app; app(['verl', 'launch', {str(folder)!r}, '--venv', "
        f"{str(venv.python.parent.parent)!r}, '--wait'])"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    while not list(tail.lines(folder)):
        time.sleep(0.05)
    launcher.kill()
    launcher.wait()
    a = attempts(folder)[-1]
    assert state(folder, a) == "running" and a.pid != launcher.pid
    with pytest.raises(StoreError, match=rf"attempt 1 of .* is running \(process {a.pid}\).*kill -TERM -- -{a.pid}"):
        launch(folder, venv)
    assert stop(folder, 5).number == 1
    assert over(folder) in ("failed", "lost")
    with pytest.raises(ConfigError, match="no attempt of .* is running"):
        stop(folder)


def test_a_failure_keeps_its_exit_code(folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    wish(monkeypatch, fail=17)
    launch(folder, venv)
    assert over(folder) == "failed" and "failed with exit code 17" in tail.verdict(folder)
    wish(monkeypatch, steps=0)
    launch(folder, venv)
    assert over(folder) == "ended"
    with pytest.raises(TrainerError, match="attempt 2 ended without training a step"):
        tail.check_advance(folder)


def test_what_was_not_validated_is_not_launched(tmp_path: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    wish(monkeypatch)
    out = tmp_path / "w"
    render(task(), out, machine())
    with pytest.raises(ConfigError, match="was not validated; run `evotrainer verl validate"):
        launch(out, venv)
    wish(monkeypatch, answer="unknown setting")
    assert not validate(out, venv).ok
    with pytest.raises(ConfigError, match="is not valid as it stands"):
        launch(out, venv)
    wish(monkeypatch)
    launch(out, venv, force=True)
    assert over(out) == "ended"


def test_console_lines_are_read_where_there_is_no_metrics_file(
    folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(monkeypatch, no_file_logger=True)
    launch(folder, venv)
    over(folder)
    assert [x.values.get("critic/score/mean") for x in tail.lines(folder)] == [None, 0.1, 0.2, 0.3]
    line = tail.parse_console(
        "(TaskRunnerV1 pid=7) step:12 - a/b:1e-05 - c:np.float64(nan) - d:np.int32(-3) - e:text", 1
    )
    assert line is not None and line.step == 12 and set(line.values) == {"a/b", "c", "d"} and line.values["d"] == -3
    assert tail.parse_console("step:1 of something else", 1) is None and tail.parse_record('{"step": 1, "da', 1) is None


def test_responses_are_clipped_only_where_one_is_as_long_as_allowed(folder: Path) -> None:
    """As read on a GPU: verl said 0.297 of a step whose longest response had 12 of 24 tokens."""
    room = tail.response_room(folder)
    assert room == 8
    short = {"response_length/clip_ratio": 0.297, "response_length/max": 7.0}
    assert tail.shown(tail.Line(1, 3, short), room).split("  ")[-1] == "clipped 0"
    full = {"response_length/clip_ratio": 0.0156, "response_length/max": 8.0}
    assert "clipped 0.0156" in tail.shown(tail.Line(1, 1, full), room)
    assert "clipped 0.297" in tail.shown(tail.Line(1, 3, short)), "unknown room: as verl says"
    (folder / "config.yaml").unlink()
    assert tail.response_room(folder) is None


def test_checkpoints_that_cannot_be_resumed_say_what_they_lack(folder: Path) -> None:
    assert checkpoints(folder) == [] and latest_step(folder) == 0
    actor = folder / "checkpoints" / "global_step_4" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("9")
    assert checkpoints(folder)[0].missing == ("model shards", "data.pt") and latest_step(folder) == 0
    (actor / "model_world_size_4_rank_2.pt").write_bytes(b"x")
    (actor / "huggingface" / "model.safetensors").write_bytes(b"x")
    (c,) = checkpoints(folder)
    assert c.missing == ("model shards of rank 0, 1, 3", "data.pt") and c.merged and not c.latest


def test_a_process_is_told_from_a_later_one_of_its_number(folder: Path) -> None:
    assert born(os.getpid()) and born(2**22 + 1) == ""
    (folder / "attempts").mkdir()
    a = Launch(1, 0, ("sh",), 0.0, os.getpid(), "1")
    assert state(folder, a) == "lost"


def test_commands_print_what_they_did(
    folder: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    wish(monkeypatch)
    home = venv.python.parent.parent
    verl_validate(folder, venv=home)
    verl_launch(folder, venv=home, wait=True)
    verl_checkpoints(folder, venv=home)
    out = capsys.readouterr().out
    assert re.search(r"valid: verl 0\.9\.1 accepts the configuration for 1 GPU", out)
    assert re.search(r"attempt 1  step 3  score 0\.3  entropy 0\.5", out) and "steps trained: attempt 1: 3" in out
    assert "latest: a launch resumes from it" in out and "as a Hugging Face folder: " in out
    verl_tail(folder, as_json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["metrics"]["critic/score/mean"] == 0.3


def test_setup_completes_an_environment_and_records_it(
    tmp_path: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for pip; bench/verl/results.md has a real one."""
    asked, said = tmp_path / "pip.json", []
    monkeypatch.setenv("FAKE_PIP", str(asked))
    home = venv.python.parent.parent
    record = setup(home, gpu=False, python=None, extra=extras_of("math"), pip=["--index-url=x"], say=said.append)
    assert record == json.loads((home / RECORD).read_text()) and record["versions"]["verl"] == "0.9.1"
    words = json.loads(asked.read_text())
    assert words[:3] == ["install", "--no-input", "--index-url=x"] and set(CPU_PACKAGES) <= set(words)
    assert words[words.index("--editable") + 1] == str(HERE.parents[2]), "the plug-ins use the code that rendered them"
    assert any(w.startswith("math-verify") for w in words) and "Successfully installed verl-0.9.1" in said
    setup(home, gpu=True, python=None, extra=[], pip=[], say=said.append)
    assert "verl[vllm]==0.9.1" in json.loads(asked.read_text())
    wish(monkeypatch, pip_fails=True)
    with pytest.raises(ConfigError, match=r"-m pip install failed with exit code 1: .*ERROR: no space left; mend that"):
        setup(home, gpu=False, python=None, extra=[], pip=[], say=said.append)


def test_no_environment_says_how_to_make_one(tmp_path: Path, venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDependencyError, match="make one with `evotrainer verl setup`"):
        find(tmp_path / "nowhere")
    monkeypatch.setenv("EVOTRAINER_VERL_PYTHON", str(venv.python))
    assert find(None).python == venv.python
    bare = tmp_path / "bare" / "bin"
    bare.mkdir(parents=True)
    (bare / "python").symlink_to(sys.executable)
    with pytest.raises(MissingDependencyError, match=r"lacks what verl 0\.9\.1 needs here"):
        find(tmp_path / "bare")
