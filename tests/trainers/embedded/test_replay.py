"""Replay of own successes and prompts in other words: what is kept, drawn and asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer
from tests.trainers.embedded.test_trainer import SMALL, train
from tests.trainers.reverse_env import ReverseEnv


def with_replay(**rule: float) -> Recipe:
    return parse_recipe(SMALL.model_dump(mode="json") | {"replay": {"weight": 0.3, "batch": 4} | rule})


def test_rare_successes_are_kept_up_to_the_bound_and_replayed_from_the_next_step_on(base: Path, tmp_path: Path) -> None:
    result, rollouts = train(base, tmp_path / "a", with_replay(rare=0.5, size=6))
    kept = 0
    for entry in result.curve:
        groups: dict[str, list[bool]] = {}
        for r in rollouts:
            if r.step == entry["step"]:
                groups.setdefault(r.group, []).append(r.components["exact"] == 1.0)
        assert ("replay_loss" in entry) == (kept > 0), "a step replays earlier ones only"
        kept = min(6, kept + sum(0 < sum(g) <= 2 for g in groups.values()))
        assert entry["replay_kept"] == kept
    assert kept == 6
    rows = torch.load(tmp_path / "a" / "checkpoint" / "state.pt")["replay"]["rows"]
    assert len(rows) == 6 and all(len(tokens) > 0 for _, tokens, _ in rows)
    plain, _ = train(base, tmp_path / "b", SMALL)
    off, _ = train(base, tmp_path / "c", with_replay(weight=0.0))
    sha = EmbeddedTrainer().policy_sha256
    assert sha(off.policy_dir) == sha(plain.policy_dir) != sha(result.policy_dir)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_share_of_the_groups_is_asked_in_other_words(share: float, base: Path, tmp_path: Path) -> None:
    _, rollouts = train(base, tmp_path, SMALL.with_factor("prompt_noise", share))
    groups: dict[str, set[str]] = {}
    for r in rollouts:
        groups.setdefault(r.group, set()).add(r.prompt)
    assert all(len(prompts) == 1 for prompts in groups.values()), "a group shares its wording"
    worded = [not next(iter(p)).startswith("reverse") for p in groups.values()]
    assert sum(worded) / len(worded) == pytest.approx(share, abs=0.2) and all(worded) == (share == 1.0)


def test_wordings_of_a_step_follow_from_the_seed_alone(base: Path, tmp_path: Path) -> None:
    noisy = SMALL.with_factor("prompt_noise", 0.5)
    first, second = (
        [r.prompt for r in train(base, tmp_path / str(lr), noisy.with_factor("lr", lr))[1]] for lr in (1e-3, 1e-4)
    )
    assert first == second


def test_an_environment_without_other_wordings_is_refused(base: Path, tmp_path: Path) -> None:
    class Plain:
        """The same environment, with one wording."""

        def __init__(self) -> None:
            self.inner = ReverseEnv()

        def __getattr__(self, name: str) -> object:
            if name == "reworded":
                raise AttributeError(name)
            return getattr(self.inner, name)

    with pytest.raises(TrainerError, match="no other wordings"):
        train(base, tmp_path, SMALL.with_factor("prompt_noise", 0.5), Plain())
