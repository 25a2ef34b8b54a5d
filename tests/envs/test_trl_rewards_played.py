"""Reward functions for TRL without a class are tasks that every trainer plays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.envs.trl_env import TrlEnv
from evotrainer.errors import TaskSetError
from tests.small_run import FEW

REWARDS = """
def right(prompts, completions, answer, **columns):
    return [float(a in (c if isinstance(c, str) else c[-1]["content"])) for a, c in zip(answer, completions)]


def asks(completions, completion_ids, **columns):
    return [float(len(ids)) for ids in completion_ids]


def parses(completions, **columns):
    return [float(int(c) > 0) for c in completions]


def reads(completions, **columns):
    return [float(len(ids)) for ids in columns["completion_ids"]]
"""


def opened(folder: Path, *, messages: bool = False, also: str = "") -> TrlEnv:
    rows = [{"prompt": f"Add {i} and 1.", "answer": str(i + 1)} for i in range(40)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    more = {"rewards": [f"{folder}/rewards.py:{also}"]} if also else {}
    name, source = f"trl-rewards:{folder}/rewards.py:right", f"{folder}/rows.jsonl"
    found = open_environment({"name": name, "source": source, "messages": messages, **more})
    assert isinstance(found, TrlEnv) and found.conversational is messages
    return found


@pytest.mark.parametrize("messages", [False, True])
def test_an_episode_is_scored_as_trl_would(tmp_path: Path, messages: bool) -> None:
    env = opened(tmp_path, messages=messages)
    tasks = env.tasks("train")[:3]
    said = [str(tasks[0].data["answer"]), "no number", "7 and " + str(tasks[2].data["answer"])]
    episodes = [env.reset(t, {}) for t in tasks]
    assert [e.turns[-1].role for e in episodes] == ["user"] * 3
    env.step(episodes, said, ["stop", "length", "stop"])
    assert all(e.done for e in episodes)
    scores = env.score(episodes)
    assert [s.components for s in scores] == [{"right": 1.0}, {"right": 0.0}, {"right": 1.0}]
    assert [s.outcome for s in scores] == ["correct", "incorrect", "correct"]
    assert scores == env.grade(list(zip(tasks, said, strict=True)))
    with pytest.raises(TaskSetError, match="is over; reset it"):
        env.step(episodes[:1], ["again"], ["stop"])


def test_what_only_trl_hands_is_asked_of_trl(tmp_path: Path) -> None:
    env = opened(tmp_path, also="asks")
    env.check_plays("trl")
    with pytest.raises(TaskSetError, match="reward function 'asks' asks for completion_ids, which only TRL hands it"):
        env.check_plays("embedded")


def test_one_that_reads_it_unnamed_is_a_fault_and_no_reward(tmp_path: Path) -> None:
    env = opened(tmp_path, also="reads")
    episodes = [env.reset(env.tasks("train")[0], {})]
    env.step(episodes, ["1"], ["stop"])
    (score,) = env.score(episodes)
    assert score.error_kind == "reward" and "KeyError" in str(score.error) and not score.components


def test_one_answer_that_a_function_cannot_read_is_a_fault_of_its_own(tmp_path: Path) -> None:
    env = opened(tmp_path, also="parses")
    episodes = [env.reset(t, {}) for t in env.tasks("train")[:3]]
    env.step(episodes, ["1", "no number", "0"], ["stop"] * 3)
    good, bad, zero = env.score(episodes)
    assert (good.components["parses"], good.error_kind, zero.components["parses"]) == (1.0, None, 0.0)
    assert bad.error_kind == "reward" and "ValueError" in str(bad.error)


def test_a_run_of_the_embedded_trainer_is_paid_by_them(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "task.toml").write_text(
        """
[task]
name = "added"
[environment]
name = "trl-rewards:./rewards.py:right"
source = "./rows.jsonl"
splits = { train = 0.4, search = 0.2, gate = 0.2, cert = 0.2 }
payable = ["right"]
[policy]
base = "builtin:math-v1"
[recipe]
steps = 1
prompts_per_step = 2
group_size = 2
max_tokens = 8
[recipe.rewards]
right = 1.0
[run]
rounds = 0
workers = 1
""",
        encoding="utf-8",
    )
    run = api.start(load_task(tmp_path / "task.toml", [*FEW, "evaluation.draw=fixed"]), tmp_path / "run")
    read = list(run.rollouts("search", branch="b0"))
    assert read and all(r.reward == r.components["right"] for r in read)
    assert {r.outcome for r in read} <= {"correct", "incorrect"}
    assert run.verify().ok
