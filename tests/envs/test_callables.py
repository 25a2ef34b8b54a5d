"""Rewards and environments in every form that TRL takes, and what is refused by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from evotrainer.config.load import resolve
from evotrainer.envs import open_environment
from evotrainer.envs.callables import callable_name, environment_class, is_async, reward_functions
from evotrainer.envs.components import load_components
from evotrainer.envs.simple import TextEnv
from evotrainer.errors import TaskSetError
from evotrainer.records.recipe import parse_recipe
from evotrainer.run.checks.rewards import try_rewards

TASK = resolve(
    {"task": {"name": "t"}, "environment": {}, "trainer": {"name": "trl"}, "recipe": {"rewards": {"any": 1.0}}}
)
MINE = '''
import functools


def scaled(scale, completions, **columns):
    """A share of the full mark."""
    return [scale for _ in completions]


third = functools.partial(scaled, 1 / 3)
sixth = functools.partial(functools.partial(scaled), 1 / 6)


class Judge:
    """Asks itself."""

    def __call__(self, completions, **columns):
        return [1.0 for _ in completions]

    def score(self, completions, **columns):
        """Half of that."""
        return [0.5 for _ in completions]


class Later:
    async def __call__(self, completions, **columns):
        """Takes its time."""
        return [float(len(c) > 3) for c in completions]


def counter(n):
    def inner(completions, **columns):
        return [float(n) for _ in completions]

    return inner


judge, later = Judge(), Later()
short = lambda completions, **columns: [0.1 for _ in completions]
score = judge.score
one, two = counter(1), counter(2)
both = [judge, third, short]
none = []
number = 3
model = "someone/reward-model"


class Level:
    def __init__(self, depth=0):
        self.depth = depth

    def reset(self, **row):
        return f"Depth {self.depth}."

    def dig(self, n: int) -> str:
        """Dig."""
        return str(n)

    def get_reward(self):
        return 1.0


deep = functools.partial(Level, depth=7)
levels = {"a": Level, "b": deep}


def make():
    return Level(9)
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return tmp_path / "mine.py"


def probed(environment: Any) -> list[str]:
    recipe = {"rewards": {environment.truth: 0.0}}
    return list(try_rewards(TASK.model_copy(update={"recipe": parse_recipe(recipe)}), environment))


def opened(mine: Path, what: str, **options: Any) -> Any:
    rows = mine.with_name("rows.jsonl")
    lines = [
        {"prompt": f"Say {n}.", "answer": f"It is {n}.", "told": [{"role": "assistant", "content": f"{n}!"}]}
        for n in range(40)
    ]
    rows.write_text("".join(json.dumps(r) + "\n" for r in lines), encoding="utf-8")
    return open_environment({"name": what.format(mine), "source": str(rows), **options})


@pytest.mark.parametrize(
    ("name", "components"),
    [
        ("scaled", {"scaled": "A share of the full mark."}),
        ("third", {"third": "A share of the full mark."}),
        ("judge", {"judge": "Asks itself."}),
        ("later", {"later": "Takes its time."}),
        ("short", {"short": "short"}),
        ("score", {"score": "Half of that."}),
        ("judge.score", {"score": "Half of that."}),
        ("both", {"Judge": "Asks itself.", "scaled": "A share of the full mark.", "both_3": "both_3"}),
    ],
)
def test_each_form_is_a_reward_under_one_name(mine: Path, name: str, components: dict[str, str]) -> None:
    environment = opened(mine, f"trl-rewards:{{}}:{name}")
    assert environment.components == components
    assert [f.__name__ for f in environment.reward_functions.values()] == list(components)


def test_functions_that_share_a_name_are_called_as_the_task_file_calls_them(mine: Path) -> None:
    found = reward_functions([f"{mine}:one", f"{mine}:two", f"{mine}:sixth"])
    assert {k: f(completions=["x"])[0] for k, f in found.items()} == {"one": 1.0, "two": 2.0, "sixth": 1 / 6}
    (other := mine.with_name("other.py")).write_text(MINE)
    with pytest.raises(
        TaskSetError, match="two reward functions are called 'judge'; give one another name in its file"
    ):
        reward_functions([f"{mine}:judge", f"{other}:judge"])


def test_names_and_awaiting_are_as_trl_has_them(mine: Path) -> None:
    utils = pytest.importorskip("trl.trainer.utils")
    scope: dict[str, Any] = {}
    exec(MINE, scope)
    for name in ("scaled", "third", "sixth", "judge", "later", "short", "score", "one"):
        assert callable_name(scope[name]) == utils.get_callable_name(scope[name])
        assert is_async(scope[name]) == utils.is_async_callable(scope[name])


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("trl-rewards:{}:Judge", r"is a class; give an instance of it \(judge = Judge\(\) in the file\)"),
        ("trl-rewards:{}:model", "is 'someone/reward-model', a reward model, .*give a function that asks it"),
        ("trl-rewards:{}:number", "is int 3, no function; define one"),
        ("trl-rewards:{}:none", "an empty list; give a reward function"),
        ("trl-rewards:{}:nobody", "has no function 'nobody'; define it"),
        ("trl-rewards:trl.rewards:accuracy_reward", "names no file; .*from trl.rewards import accuracy_reward"),
        ("trl:{}:levels", "maps names to environments; name one of them"),
        ("trl:{}:number", "is int 3; give a class with a reset method"),
        ("trl:{}:counter", r"the environment factory .*:counter failed: TypeError: counter\(\) missing 1"),
        ("trl:{}:Judge", "not a class with a reset method"),
    ],
)
def test_what_is_no_reward_or_environment_is_said_in_one_sentence(mine: Path, what: str, says: str) -> None:
    with pytest.raises(TaskSetError, match=says):
        opened(mine, what)


@pytest.mark.parametrize(("name", "depth"), [("Level", 0), ("deep", 7), ("make", 9)])
def test_an_environment_is_made_by_whatever_makes_one(mine: Path, name: str, depth: int) -> None:
    kind = environment_class(f"{mine}:{name}")
    made = kind()
    assert type(made) is kind and kind.__name__ == "Level" and made.reset() == f"Depth {depth}."
    environment = opened(mine, f"trl:{{}}:{name}")
    environment.use_scaffold({"tool_dig": "Go down."})
    assert environment.environment_factory().reset() == f"Depth {depth}."
    assert [t.__name__ for t in environment.tool_methods()] == ["dig"]


def test_rewards_that_are_awaited_are_tried_before_a_run_and_watched_in_it(mine: Path) -> None:
    with mine.open("a") as f:
        f.write('\n\nasync def odd(completions, **columns):\n    return ["good" for _ in completions]\n')
        f.write("\n\nasync def gone(completions, **columns):\n    return [c.nothing for c in completions]\n")
    assert probed(opened(mine, "trl-rewards:{}:later")) == []
    with pytest.raises(TaskSetError, match="'odd' gave the text 'good' for attempt 0"):
        probed(opened(mine, "trl-rewards:{}:odd"))
    with pytest.raises(
        TaskSetError, match="'gone' raised AttributeError: .*on every completion .*completions are text"
    ):
        probed(opened(mine, "trl-rewards:{}:gone"))


def test_a_reward_file_may_hold_them_too(tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(
        "import functools\nfrom pathlib import PurePath\n\n\n"
        "def least(n, attempt):\n    'At least so long.'\n    return 1.0\n\n\n"
        "long = functools.partial(least, 3)\nkept = functools.partial(least, n=3)\nroot = PurePath('.')\n\n\n"
        "class Tone:\n    'Friendly?'\n    def __call__(self, attempt):\n        return 0.0\n\n\ntone = Tone()\n"
    )
    assert list(load_components(tmp_path / "more.py")) == ["long", "kept", "tone"]
    sys.path.insert(0, str(tmp_path))
    try:
        import more  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
    assert TextEnv("t", {}, {"tone": more.tone, "long": more.long}, "tone").components == {
        "tone": "Friendly?",
        "long": "At least so long.",
    }


class TestWorkedAnswers:
    @pytest.mark.parametrize(("column", "answer"), [("answer", "It is {}."), ("told", "{}!")])
    def test_a_column_of_them_warm_starts_a_policy(self, mine: Path, column: str, answer: str) -> None:
        environment = opened(mine, "trl-rewards:{}:judge", demonstrations=column)
        known = {t.prompt for t in environment.tasks("train")}
        demos = environment.demonstrations(1000, 0)
        assert {p for p, _ in demos} == known and len(environment.demonstrations(3, 1)) == 3
        assert all(text == answer.format(p.removeprefix("Say ").rstrip(".")) for p, text in demos)
        assert demos == environment.demonstrations(1000, 0) != environment.demonstrations(1000, 1)

    def test_a_column_that_is_not_there_is_named(self, mine: Path) -> None:
        with pytest.raises(
            TaskSetError, match="no train row has a worked answer in column 'gold'; they have: prompt, a"
        ):
            opened(mine, "trl-rewards:{}:judge", demonstrations="gold")
        with pytest.raises(TaskSetError, match="a class's prompts are made by its reset"):
            opened(mine, "trl:{}:Level", demonstrations="answer")

    def test_an_outcome_that_calls_none_right_is_noted_with_one_of_them(self, mine: Path) -> None:
        (note,) = probed(opened(mine, "trl-rewards:{}:third", demonstrations="answer"))
        assert "none of 32 demonstrations is correct by third (values up to 0.33" in note and "'It is " in note
        assert probed(opened(mine, "trl-rewards:{}:later", demonstrations="answer")) == []


def test_one_whose_name_raises_is_called_as_the_task_file_does(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import functools\n\n\nclass Odd:\n    @property\n    def __name__(self):\n        raise ValueError\n\n"
        "    def __call__(self, completions, **columns):\n        return [1.0 for _ in completions]\n\n\n"
        "odd = Odd()\npart = functools.partial(odd)\nboth = [odd, part]\n"
    )
    for name, names in (("odd", ["odd"]), ("part", ["part"]), ("both", ["both_1", "both_2"])):
        found = reward_functions([f"{tmp_path / 'own.py'}:{name}"])
        assert list(found) == names and all(f(completions=["x"]) == [1.0] for f in found.values())


def test_an_unknown_component_to_be_paid_says_which_name_the_function_has(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MINE + "\n\nbound = judge.score\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1 ="}\n{"prompt": "1 + 2 ="}\n')
    config = {"name": f"trl-rewards:{tmp_path / 'own.py'}:bound", "source": str(tmp_path / "rows.jsonl")}
    assert list(open_environment({**config, "payable": ["score"]}).components) == ["score"]
    with pytest.raises(TaskSetError, match="no reward component 'bound'; .*own.py:bound is called score, as that is"):
        open_environment({**config, "payable": ["bound"]})


def test_a_factory_may_make_instances_without_a_dict(tmp_path: Path) -> None:
    file = tmp_path / "env.py"
    file.write_text(
        "class Game:\n    __slots__ = ('level',)\n    def __init__(self, level):\n        self.level = level\n"
        "    def reset(self, **row):\n        return str(self.level)\n\n\ndef make():\n    return Game(3)\n"
    )
    assert environment_class(f"{file}:make")().reset() == "3"
