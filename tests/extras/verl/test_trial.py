"""A training by verl is a trial of the command trainer; verl itself is a stand-in (fake_verl.py)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.extras.verl import fake_verl
from tests.extras.verl.asking import environment, recipe

from evotrainer.envs import open_environment
from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers import check_recipes
from evotrainer.trainers.base import Identity, TrainRequest
from evotrainer.trainers.command.trainer import CommandTrainer

ROOT = Path(__file__).resolve().parents[3]


class Trial:
    """A training to its end."""

    def __init__(self, folder: Path, wish: dict[str, int], **changes: Any) -> None:
        self.folder = folder
        fake_verl.install(folder / "site")
        (folder / "base").mkdir()
        save_file({"w": np.zeros(2)}, folder / "base" / "model.safetensors")
        self.options = {
            "command": [sys.executable, "-m", "evotrainer.extras.verl", "{request}", "trainer.n_gpus_per_node=4"],
            "map": "verl",
            "env": {"PYTHONPATH": f"{folder / 'site'}:{ROOT}", "FAKE_VERL": json.dumps(wish)},
        }
        self.recipe = parse_recipe(recipe(**changes))
        self.rollouts: list[Rollout] = []
        self.watched: list[int] = []
        self.env = open_environment(environment())
        self.request = TrainRequest(
            Identity("r", "b1", 7), self.recipe, folder / "base", folder / "trial", environment=environment(),
            watch=lambda step, _: self.watched.append(step),
        )  # fmt: skip

    def train(self) -> Any:
        check_recipes("command", self.options, [self.recipe])
        trainer = CommandTrainer(self.options)
        return trainer.train(
            self.request, self.env, lambda groups: self.rollouts.extend(r for g in groups for r in g), lambda _: None
        )


@pytest.mark.parametrize("killed", [{}, {"kill_at": 3}])
def test_verl_trains_a_trial_and_goes_on_from_its_checkpoint_where_it_was_killed(
    killed: dict[str, int], tmp_path: Path
) -> None:
    t = Trial(tmp_path, killed, reward_scaling="batch", negative_weight=0.5)
    done = t.train()
    assert done.steps == 3 and done.resumed == bool(killed)
    assert [row["step"] for row in done.curve] == [1, 2, 3] and all(row["entropy"] == 0.7 for row in done.curve)
    assert float(load_file(done.policy_dir / "model.safetensors")["w"][0]) == 3, "its last checkpoint, merged"
    assert Counter(r.step for r in t.rollouts) == {1: 8, 2: 8, 3: 8}, "none of a step that was made again"
    first = t.rollouts[0]
    assert (first.task, first.completion, first.components, first.outcome) == (
        "train-0", "0", {"right": 1.0, "digits": 1.0}, "correct",
    )  # fmt: skip
    assert {len([r for r in t.rollouts if r.group == g]) for g in {r.group for r in t.rollouts}} == {2}
    request = json.loads((tmp_path / "trial" / "command" / "request.json").read_text())
    assert request["environment"] == environment()


def test_a_failure_is_the_trials_with_verls_last_words(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="exit code 17; it printed last: CUDA out of memory"):
        Trial(tmp_path, {"fail": 17}).train()


def test_what_verl_cannot_carry_out_is_refused_by_name_before_anything_is_spent(tmp_path: Path) -> None:
    t = Trial(tmp_path, {})
    with pytest.raises(ConfigError, match="trainer command: curriculum: .*random sampler.*; sft_anchor: "):
        check_recipes(
            "command",
            t.options,
            [Recipe(rewards={"right": 1.0}, curriculum={"kind": "pass_rate_band"}, sft_anchor=0.1)],  # type: ignore[arg-type]
        )


def test_the_commands_own_check_refuses_before_a_training(tmp_path: Path) -> None:
    t = Trial(tmp_path, {})
    words = ["import sys; print(sys.argv[1:]); sys.exit(int('=4' not in sys.argv[-1]))", "{request}"]
    t.options["check"] = [sys.executable, "-c", *words]
    with pytest.raises(ConfigError, match=r"trainer.options.check refuses the recipe \(exit code 1\); it printed last"):
        CommandTrainer(t.options).check(t.request, t.env)
    t.options["map"] = {"preset": "verl", "prompts_per_step": "n"}
    t.options["check"][2] = words[0].replace("=4", "=4").replace("sys.argv[-1]", "' '.join(sys.argv)")
    CommandTrainer(t.options).check(t.request, t.env)
    assert not (tmp_path / "trial").exists()
