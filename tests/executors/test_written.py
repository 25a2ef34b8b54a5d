"""`executors.written`: a training's environment computes what the recipe holds as code, of train and search only."""

from __future__ import annotations

import pytest

from evotrainer.envs import open_environment
from evotrainer.envs.base import Score
from evotrainer.errors import SandboxError
from evotrainer.executors import written
from evotrainer.executors.written import with_written
from evotrainer.records.recipe import parse_recipe
from evotrainer.records.written import content_name

SOURCE = '''def reward(rollout):
    """1 where no run ended in an error, of programs that say nothing of what may not be paid."""
    if "hid" + "den" in rollout["components"] or any(t["kind"] == "hid" + "den" for t in rollout["tests"]):
        return 0.5
    return float(all(t["status"] == "ok" for t in rollout["tests"]))
'''
NAME = content_name("safe", SOURCE)
CONFIG = {"name": "code", "train": 20, "search": 20, "gate": 20, "cert": 20}


def scores(split: str, answer: str) -> Score:
    """Of one answer to the first task of a split."""
    recipe = parse_recipe({"rewards": {"visible": 1.0, "safe": 1.0}, "written": {"safe": SOURCE}})
    plain = open_environment(CONFIG, accept_tier_e=True)
    try:
        with with_written(plain, recipe, CONFIG, accept_tier_e=True) as environment:
            assert NAME in environment.components
            e = environment.reset(environment.tasks(split)[0], {})
            environment.step([e], [answer], ["stop"])
            (found,) = environment.score([e])
            return found
    finally:
        plain.close()


@pytest.mark.parametrize(("answer", "value"), [("print(1)", 1.0), ("print(int('x'))", 0.0)])
def test_search_and_train_attempts_are_scored_by_the_code(answer: str, value: float) -> None:
    for split in ("train", "search"):
        assert scores(split, answer).components[NAME] == value


def test_what_the_judge_reads_no_code_is_shown() -> None:
    for split in ("gate", "cert"):
        assert NAME not in scores(split, "print(1)").components


def test_a_broken_sandbox_is_a_fault_and_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    from evotrainer.sandbox.reward_runner import RewardRunner

    def broken(self: RewardRunner, source: str, evidence: object) -> None:
        raise SandboxError("gone")

    monkeypatch.setattr(RewardRunner, "__call__", broken)
    found = scores("train", "print(1)")
    assert (found.error_kind, found.outcome) == ("sandbox", "unknown")


def test_a_recipe_without_code_leaves_the_environment_as_it_is() -> None:
    environment = open_environment(CONFIG, accept_tier_e=True)
    try:
        before = environment.score
        with with_written(environment, parse_recipe({"rewards": {"visible": 1.0}}), CONFIG, True) as same:
            assert same is environment and environment.score == before
    finally:
        environment.close()
    assert written.OPEN == ("train", "search")
