"""`trainers.hooks`: edits of the algorithm as code in whole trainings, the same to the bit as what is built in, resumed
to the same weights, and ended by one clear line where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.hooks import DETAIL
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.rollout import Rollout
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.trainers import get_trainer
from evotrainer.trainers.base import Identity, TrainRequest, TrainResult
from tests.trainers.reverse_env import ReverseEnv

ME = Identity("run", "b0", 1)
SMALL: dict[str, Any] = {
    "rewards": {"exact": 1.0}, "steps": 4, "prompts_per_step": 8, "group_size": 4, "lr": 1e-3, "max_tokens": 8,
}  # fmt: skip
GRPO = '''import math


def advantages(group):
    """GRPO's own: centred rewards over the group's standard deviation."""
    rewards = group["rewards"]
    known = [r for r in rewards if r is not None]
    mean = math.fsum(known) / len(known)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in known) / (len(known) - 1))
    if std < 1e-8:
        return [None if r is None else 0.0 for r in rewards]
    return [None if r is None else (r - mean) / (std + 1e-4) for r in rewards]
'''
LIVE = '''def weights(rollouts):
    """Drops groups without reward spread."""
    seen = {}
    for r in rollouts:
        seen.setdefault(r["group"], set()).add(r["reward"])
    return [float(len(seen[r["group"]] - {None}) > 1) for r in rollouts]
'''
FRESH = '''def select(tasks, history):
    """Tasks that came least often, then those half solved."""
    came = [0] * len(tasks)
    rate = [0.5] * len(tasks)
    for i, step, solved in history["groups"]:
        came[i] += 1
        rate[i] = solved
    left = [i for i in range(len(tasks)) if i not in set(history["taken"])]
    left.sort(key=lambda i: (came[i], abs(rate[i] - 0.5), i))
    return left[: history["n"]]
'''


@pytest.fixture(scope="module")
def runner() -> Iterator[RewardRunner]:
    with closing(RewardRunner(accept_tier_e=True)) as found:
        yield found


Train = Callable[..., tuple[TrainResult, list[Rollout], str]]


@pytest.fixture
def train(base: Path, tmp_path: Path, runner: RewardRunner) -> Train:
    """Trains a recipe in a folder of its own: (result, its rollouts, hash of the weights)."""
    count = iter(range(100))

    def whole(stop: int = 0, work: Path | None = None, env: Any = None, **more: Any) -> Any:
        recipe = parse_recipe(SMALL | more)
        trainer, rollouts = get_trainer("embedded"), []

        def on_step(entry: Mapping[str, float]) -> None:
            if entry["step"] == stop:
                raise KeyboardInterrupt

        request = TrainRequest(
            ME, recipe, base, work or tmp_path / str(next(count)), 2, hooks=runner, unpayable=("digits",)
        )
        result = trainer.train(
            request, env or ReverseEnv(), lambda groups: rollouts.extend(r for g in groups for r in g), on_step
        )
        return result, rollouts, trainer.policy_sha256(result.policy_dir)

    return whole


def test_grpos_normalisation_as_a_hook_gives_the_same_weights_to_the_bit(train: Train) -> None:
    built_in, hook = train(), train(hooks={"grpo": GRPO})
    assert built_in[2] == hook[2]
    assert [r.advantage for r in built_in[1]] == [r.advantage for r in hook[1]]
    assert all("cpu_hook_s" in e and e["cpu_hook_s"] > 0 for e in hook[0].curve)
    assert not any("cpu_hook_s" in e for e in built_in[0].curve)


def test_the_zero_variance_filter_as_a_hook_gives_the_same_weights_to_the_bit(train: Train) -> None:
    """Also with sampling rounds that replace what was dropped, and a scale over what was kept."""
    for more in ({}, {"resample": 2, "reward_scaling": "batch"}):
        built_in, hook = train(group_filter={"kind": "zero_variance"}, **more), train(hooks={"live": LIVE}, **more)
        assert built_in[2] == hook[2]
        assert built_in[2] != train(**more)[2] or not more, "the filter matters where normalisers count groups"
        dropped = [r for r in hook[1] if r.advantage is None]
        assert dropped and all(r.detail[DETAIL]["weight"] == 0.0 for r in dropped)
    assert {r.detail[DETAIL]["round"] for r in hook[1]} == {0, 1, 2}


def test_weights_multiply_what_the_advantages_are(train: Train) -> None:
    half = "def weights(rollouts):\n    return [0.5 * (r['reward'] or 0.0) for r in rollouts]\n"
    _, plain, _ = train(steps=1)
    _, weighed, _ = train(steps=1, hooks={"half": half})
    alive = [(a, b) for a, b in zip(plain, weighed, strict=True) if b.advantage is not None]
    assert {b.advantage for a, b in alive} == {(a.advantage or 0.0) * 0.5 * (a.reward or 0.0) + 0.0 for a, b in alive}


def test_select_chooses_the_tasks_and_a_resumed_training_goes_on_to_the_same_bits(train: Train, tmp_path: Path) -> None:
    env = ReverseEnv(12)
    _, rollouts, sha = train(env=env, hooks={"fresh": FRESH, "grpo": GRPO})
    first = {r.task for r in rollouts if r.step == 1}
    second = {r.task for r in rollouts if r.step == 2}
    assert len(first) == 8 and len(second - first) == 4, "those that never came are drawn first"
    work = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        train(stop=3, work=work, env=env, hooks={"fresh": FRESH, "grpo": GRPO})
    resumed, rest, again = train(work=work, env=env, hooks={"fresh": FRESH, "grpo": GRPO})
    assert resumed.resumed and again == sha
    assert [(r.id, r.advantage) for r in rest] == [(r.id, r.advantage) for r in rollouts if r.step > 2]


BROKEN = {
    "raises": ("def advantages(group):\n    return [1 / 0]\n", "advantages in step 1: error .ZeroDivisionError"),
    "hangs": ("def advantages(group):\n    while True:\n        pass\n", "advantages in step 1: timeout"),
    "is no number": (
        "def advantages(group):\n    return [float('nan') for r in group['rewards']]\n",
        "group 0: place 0 is nan, no finite number from -100 to 100",
    ),
    "is too large": ("def advantages(group):\n    return [1e9 for r in group['rewards']]\n", "1000000000.0, no finite"),
    "is too short": ("def advantages(group):\n    return [0.0]\n", "a list of 1, not a list of 4 numbers"),
    "negative weights": ("def weights(rollouts):\n    return [-1.0 for r in rollouts]\n", "weights in step 1: place 0"),
    "one weight": ("def weights(rollouts):\n    return 1.0\n", "answers 1.0, not a list of 32 numbers"),
    "repeats a task": ("def select(tasks, history):\n    return [0] * history['n']\n", "draws 1 task that this step"),
    "no such task": ("def select(tasks, history):\n    return [10 ** 9] * history['n']\n", "no whole number from 0 to"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_hook_that_fails_ends_the_training_with_one_line(what: str, train: Train) -> None:
    source, why = BROKEN[what]
    with pytest.raises(TrainerError, match=why) as told:
        train(hooks={"broken": source})
    assert str(told.value).startswith("hook broken@") and "\n" not in str(told.value)


def test_a_hook_sees_no_component_that_may_not_be_paid(train: Train) -> None:
    spy = "def weights(rollouts):\n    return [float('dig' + 'its' in r['components']) + 1.0 for r in rollouts]\n"
    _, rollouts, _ = train(steps=1, hooks={"spy": spy})
    assert "digits" in rollouts[0].components
    assert {r.detail[DETAIL]["weight"] for r in rollouts} == {1.0}


def test_a_trainer_without_a_sandbox_refuses_hooks_by_name(base: Path, tmp_path: Path) -> None:
    request = TrainRequest(ME, parse_recipe(SMALL | {"hooks": {"grpo": GRPO}}), base, tmp_path)
    with pytest.raises(TrainerError, match=r"recipe.hooks: grpo@\w+ needs a sandbox"):
        get_trainer("embedded").train(request, ReverseEnv(), lambda g: None, lambda e: None)
    assert get_trainer("embedded").train(
        replace(request, recipe=Recipe(**SMALL | {"steps": 1})), ReverseEnv(), lambda g: None, lambda e: None
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"hooks": {"a": GRPO, "b": GRPO + "\n"}}, "both define advantages"),
        ({"hooks": {"a@000000000000": GRPO}}, "its source has the hash"),
        ({"hooks": {"a": GRPO}, "credit": {"kind": "turn"}}, "set credit to episode"),
        ({"hooks": {"a": FRESH}, "curriculum": {"kind": "pass_rate_band"}}, "set curriculum to none"),
    ],
)
def test_hooks_that_stand_in_each_others_way_are_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_recipe(SMALL | more)
