"""The kit for training scripts: passes a sound one, and says what is wrong with another."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from evotrainer.testing import check_trainer_command
from evotrainer.trainers.command import process
from tests.trainers.command.own import FIXED, LINE, SCRIPT

ENVIRONMENT = """
import random

from tests.trainers.reverse_env import WORDS, ReverseEnv


class Env(ReverseEnv):
    def __init__(self):
        super().__init__()
        numbers = random.Random(3).sample(range(1000), 256)  # a prompt stands in one split only
        self.split = {s: [f"{x:03d}" for x in numbers[i::4]] for i, s in enumerate(self.split)}

    def vocabulary(self):
        return WORDS

    def demonstrations(self, n, seed):
        return []

    def describe(self):
        return super().describe() | {"splits": {k: len(v) for k, v in self.split.items()}}


def environment():
    return Env()
"""
TASK = """
task.name = "reverse"
environment = {{ name = "python:./env.py:environment", payable = ["exact"] }}
policy.base = {base}
recipe = {{ steps = 3, prompts_per_step = 4, group_size = 4, max_tokens = 4, rewards = {{ digits = 1.0 }} }}
trainer.name = "command"
[trainer.options]
command = {command}
map = {{ lr = "--lr", steps = "--steps" }}
rollouts = "rollouts.jsonl"
checkpoint = "checkpoints/step-*"
resume = {resume}
fixed = {fixed}
evaluation = {{ by = "embedded" }}
"""


def task(folder: Path, base: Path, line: str = LINE, resume: str = "--resume {checkpoint}") -> Path:
    def toml(value: Any) -> str:
        inner = ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) if isinstance(value, dict) else ""
        return f"{{ {inner} }}" if isinstance(value, dict) else json.dumps(value)

    words = [sys.executable, str(SCRIPT), *line.split(), "--pause", "0.4"]
    (folder / "env.py").write_text(ENVIRONMENT)
    own = {"base": str(base), "command": words, "fixed": FIXED, "resume": resume}
    (folder / "task.toml").write_text(TASK.format(**{k: toml(v) for k, v in own.items()}))
    return folder / "task.toml"


def test_a_sound_script_passes_and_leaves_nothing(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    killed: list[Path] = []
    monkeypatch.setattr(process, "sweep", lambda at, real=process.sweep: (killed.append(at), real(at)))
    check_trainer_command(task(tmp_path, base))
    starts = 2
    assert len([at for at in killed if at.parts[-2:] == ("ended", "command")]) > starts, "and killed between"
    assert not list((tmp_path / "temp").iterdir())


@pytest.mark.parametrize(
    ("line", "resume", "says"),
    [
        (LINE.replace("{seed}", "1"), "", "another seed gave the same weights: pass {seed} on"),
        (LINE.replace("{policy}", "BASE"), "--resume {checkpoint}", "it does not train what {policy} names"),
        (LINE, "", "it does not go on from the one that it is given"),
        (f"{LINE} --does trains-nothing-too", "--resume {checkpoint}", "the folder {policy} was empty; have it fail"),
    ],
)
def test_what_is_wrong_is_said(line: str, resume: str, says: str, base: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=says):
        check_trainer_command(task(tmp_path, base, line.replace("BASE", str(base)), resume), tmp_path / "work")
