"""Credit by turn: each turn's tokens have that turn's advantage, and without turn rewards nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.trainers.embedded.attempts import EmbeddedAttempt
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer
from evotrainer.trainers.embedded.update import Example
from tests.trainers.embedded.test_trainer import SMALL, train
from tests.trainers.talk_env import TalkEnv

sha = EmbeddedTrainer().policy_sha256


def recipe(**more: Any) -> Recipe:
    return parse_recipe(SMALL.model_dump(mode="json") | {"steps": 3, "max_turns": 3, "rewards": {"digits": 1.0}} | more)


def test_tokens_have_their_turns_advantage_and_observations_none() -> None:
    # two turns of 2 and 3 sampled tokens, an observation of 2 between them
    mask = [True, True, False, False, True, True, True]
    attempt = EmbeddedAttempt(None, 0, None, (1,), ids=[5] * 7, loss=mask, logprobs=[-1.0] * 5)
    assert Example(attempt, 0.5, (2.0, -1.0)).by_token() == [2.0, 2.0, -1.0, -1.0, -1.0]
    assert Example(attempt, 0.5).by_token() == [0.5] * 5
    assert Example(attempt, 0.0, (1.0, -1.0)).pulls and not Example(attempt, 0.0, (0.0, 0.0)).pulls


@pytest.mark.parametrize("loss", ["dapo", "gspo"])
def test_without_weight_credit_by_turn_is_the_episodes_to_the_bit(loss: str, base: Path, tmp_path: Path) -> None:
    plain, _ = train(base, tmp_path / "a", recipe(loss=loss), TalkEnv(64, 3))
    same, _ = train(base, tmp_path / "b", recipe(loss=loss, credit={"kind": "turn", "weight": 0.0}), TalkEnv(64, 3))
    other, _ = train(base, tmp_path / "c", recipe(loss=loss, credit={"kind": "turn", "weight": 0.5}), TalkEnv(64, 3))
    assert sha(plain.policy_dir) == sha(same.policy_dir) != sha(other.policy_dir)


def test_groups_that_ended_alike_learn_from_their_turns(base: Path, tmp_path: Path) -> None:
    nothing = {"rewards": {"never": 1.0}}  # every episode earns 0
    _, before = train(base, tmp_path / "a", recipe(**nothing), TalkEnv(64, 3))
    taught, after = train(base, tmp_path / "b", recipe(**nothing, credit={"kind": "turn"}), TalkEnv(64, 3))
    assert all(r.advantage == 0.0 for r in before) and any(r.advantage for r in after)
    assert taught.curve[0]["grad_norm"] > 0
