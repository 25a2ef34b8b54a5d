"""`[environment]` of a task file: known names, a user's own environment and reward functions, and clear refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evotrainer.envs import open_environment
from evotrainer.envs.base import Environment
from evotrainer.errors import TaskSetError

REWARDS = '''
def short_lines(attempt):
    """1 when no line of the program is longer than 60 characters."""
    return float(all(len(line) <= 60 for line in attempt.program.split("\\n")))


def _private(attempt):
    return 0.0
'''

OWN = '''
from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv

def make(size=2):
    tasks = {s: [Task(f"{s}-{i}", s, f"{s} {i}") for i in range(size)] for s in ("train", "search", "gate", "cert")}

    def longer(task, completion):
        """1 when there is any text."""
        return float(bool(completion))

    return TextEnv("own", tasks, {"longer": longer}, "longer")

def nothing():
    return 3
'''


def test_the_code_environment_opens_by_name() -> None:
    env = open_environment({"name": "code", "train": 20, "cert": 10})
    try:
        assert isinstance(env, Environment)
        d = env.describe()
        assert d["splits"] == {"train": 20, "search": 200, "gate": 300, "cert": 10}
        assert d["proxy"] == ["visible", "hidden"]
        assert d["sandbox_tier"] in tuple("ABCDE")
        told = {"name", "version", "hash", "sandbox_tier", "isolation", "components", "splits", "proxy", "vocabulary"}
        assert set(d) == told
        assert bool(d["isolation"]["missing"]) is (d["sandbox_tier"] != "A")
        assert all(d["components"].values())
    finally:
        env.close()


def test_a_users_reward_function_becomes_a_component(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(REWARDS)
    env = open_environment({"name": "code", "train": 5, "reward_file": str(tmp_path / "rewards.py")})
    try:
        assert env.components["short_lines"] == "1 when no line of the program is longer than 60 characters."
        assert "_private" not in env.components
        task = env.tasks("train")[0]
        episodes = [env.reset(task, {}) for _ in range(2)]
        env.step(episodes, [task.data["gold"], "print(" + "1 + " * 40 + "1)"], ["stop"] * 2)
        assert [s.components["short_lines"] for s in env.score(episodes)] == [1.0, 0.0]
    finally:
        env.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no reward function"),
        ("def visible(attempt):\n    'Mine.'\n    return 1", "name of a built-in component"),
        ("def mine(attempt):\n    return 1", "needs a docstring"),
        ("import nonsense_module", "fails on import: ModuleNotFoundError"),
    ],
)
def test_a_bad_reward_file_is_refused_with_its_cause(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rewards.py").write_text(text)
    with pytest.raises(TaskSetError, match=message):
        open_environment({"name": "code", "reward_file": str(tmp_path / "rewards.py")})


def test_a_reward_function_that_raises_is_named(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text('def mine(attempt):\n    "Broken."\n    return 1 / 0')
    env = open_environment({"name": "code", "train": 5, "reward_file": str(tmp_path / "rewards.py")})
    try:
        e = env.reset(env.tasks("train")[0], {})
        env.step([e], ["print(1)"], ["stop"])
        with pytest.raises(TaskSetError, match="reward component 'mine' failed on task code-train"):
            env.score([e])
    finally:
        env.close()


def test_a_users_own_environment_opens_by_file_and_factory(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    env = open_environment({"name": f"python:{tmp_path / 'own.py'}:make", "size": 3})
    assert isinstance(env, Environment)
    assert len(env.tasks("train")) == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "environment has no name; one of: code, swe"),
        ({"name": "maths"}, "unknown environment 'maths'; did you mean math"),
        ({"name": "gsm8k"}, "unknown environment .gsm8k.; write name = .math., .* format = .gsm8k."),
        ({"name": "code", "trian": 5}, "trian: unknown name"),
        ({"name": "code", "train": 0}, "train: must be at least 1"),
        ({"name": "code", "source": ""}, "source is empty"),
        ({"name": "code", "source": "no.jsonl"}, "no file or folder"),
        ({"name": "python:nowhere.py"}, "not of the form"),
        ({"name": "python:nowhere.py:make"}, "no file nowhere.py"),
        ({"name": "code", "reward_file": "none.py"}, "no file none.py"),
    ],
)
def test_a_wrong_section_is_refused_in_one_line(config: dict[str, object], message: str) -> None:
    with pytest.raises(TaskSetError, match=message) as e:
        open_environment(config)
    assert "\n" not in str(e.value)


def test_a_factory_must_exist_take_its_options_and_return_an_environment(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    name = f"python:{tmp_path / 'own.py'}"
    with pytest.raises(TaskSetError, match="has no function 'other'"):
        open_environment({"name": f"{name}:other"})
    with pytest.raises(TaskSetError, match="returned int, which is no environment: it lacks"):
        open_environment({"name": f"{name}:nothing"})
    with pytest.raises(TaskSetError, match="environment.colour: .*takes no option of this name; it takes "):
        open_environment({"name": f"{name}:make", "colour": "red"})
    with pytest.raises(TaskSetError, match=r"environment.paable: .*did you mean environment\.payable\?"):
        open_environment({"name": f"{name}:make", "paable": []})


def test_importing_environments_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys, evotrainer.envs; print([m for m in ('torch', 'datasets', 'numpy', 'polars') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
