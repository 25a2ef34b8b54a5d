"""`executors.worker`: what a trial's heartbeat says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.executors.spec import read_heartbeat, trial_dir
from evotrainer.executors.worker import TrialProcess
from evotrainer.records.keys import USER_CODE
from evotrainer.trainers import clock
from evotrainer.trainers.clock import LIFE
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from tests.executors.conftest import Make
from tests.trainers.reverse_env import logits


@pytest.fixture
def process(tmp_path: Path, make_spec: Make) -> TrialProcess:
    spec = make_spec()
    folder = trial_dir(tmp_path, spec.trial)
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(spec.model_dump_json())
    return TrialProcess(folder)


def phase(process: TrialProcess) -> str:
    beat = read_heartbeat(process.folder)
    assert beat is not None
    return beat.phase


def test_a_call_that_has_come_back_is_told_of_no_longer(process: TrialProcess) -> None:
    process.beat("training", 1)
    process.beat(waits_for="a reward function")
    assert phase(process) == f"{USER_CODE}a reward function"
    process.beat()
    assert phase(process) == "training"


def test_a_long_forward_pass_moves_the_heartbeat(process: TrialProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(clock, "SIGN_EVERY_S", 0.0)
    monkeypatch.setattr(LIFE, "sign", lambda: told.append(process.beat("evaluating search")))
    policy = Policy(DecoderShape(20, d=32, layers=3, heads=4, kv_heads=2, hidden=48, context=96)).init(1)
    assert torch.isfinite(logits(policy, [1, 2, 3])).all()
    assert len(told) == 3, "one sign a layer"
    assert phase(process) == "evaluating search"
