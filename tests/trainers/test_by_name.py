"""A trainer is a row of `trainers.TRAINERS`: its name in a task file is all that a run needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evotrainer import trainers
from evotrainer.api import preflight
from evotrainer.config.load import load_task
from evotrainer.config.task import WarmStart
from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.executors import wants_gpu
from evotrainer.executors.warm_start import make_base
from evotrainer.factors.table import OURS
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.base import TrainerSpec, WarmStartRequest
from tests.trainers.reverse_env import ReverseEnv

ALL = dict.fromkeys(Recipe.model_fields, OURS)
MATHS = Path(__file__).parents[2] / "tasks" / "math.toml"


class ToyEnv(ReverseEnv):
    def vocabulary(self) -> tuple[str, ...]:
        return ()


class Toy:
    name = "toy"

    def __init__(self, sampler: str, options: Mapping[str, Any]) -> None:
        self.given = (sampler, dict(options))


def add(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    monkeypatch.setitem(trainers.TRAINERS, "toy", TrainerSpec(make=Toy, carries=ALL, **more))  # type: ignore[arg-type]


def test_a_trainer_of_ones_own_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["trainer.name=toy", "trainer.options.speed=2"]
    with pytest.raises(ConfigError, match="unknown trainer 'toy'"):
        preflight(load_task(MATHS, asked))
    add(monkeypatch)
    task = load_task(MATHS, asked)
    preflight(task)
    made = trainers.get_trainer(task.trainer.name, "fp32", task.trainer.options)
    assert isinstance(made, Toy) and made.given == ("fp32", {"speed": 2})
    assert wants_gpu(task), "trials of a trainer that is not ours do not share a GPU unasked"


def test_what_its_row_refuses_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(options: Mapping[str, Any], recipes: object, sampler: str) -> None:
        raise ConfigError(f"the toy trainer has no option {', '.join(options)}")

    add(monkeypatch, check=check)
    with pytest.raises(ConfigError, match="the toy trainer has no option speed"):
        preflight(load_task(MATHS, ["trainer.name=toy", "trainer.options.speed=2"]))
    add(monkeypatch, libraries=("no_such_library",), remedy="pip install toy")
    with pytest.raises(MissingDependencyError, match="the toy trainer needs no_such_library, .*; run: pip install toy"):
        preflight(load_task(MATHS, ["trainer.name=toy"]))


def test_its_row_says_how_a_policy_is_trained_from_scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[WarmStartRequest] = []

    def warm_start(request: WarmStartRequest, on_step: Callable[[dict[str, float]], None]) -> None:
        asked.append(request)

    options = WarmStart(demonstrations=4, steps=3)
    add(monkeypatch)
    with pytest.raises(ConfigError, match="the toy trainer trains no policy from scratch; set policy.base to a folder"):
        make_base(ToyEnv(), options, tmp_path, lambda row: None, trainer="toy")
    add(monkeypatch, warm_start=warm_start)
    make_base(ToyEnv(), options, tmp_path, lambda row: None, trainer="toy", trainer_options={"speed": 2})
    assert [(r.steps, len(r.texts), r.out_dir, r.options) for r in asked] == [(3, 4, tmp_path, {"speed": 2})]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tlr", "did you mean trl?"),
        ("embeded", "did you mean embedded?"),
        ("x", "one of: command, embedded, trl"),
        ("verl", 'write trainer.name = "command" and trainer.options.map = "verl" (docs/verl.md)'),
        ("HF", "Hugging Face models train through trl"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_name_that_was_meant(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        preflight(load_task(MATHS, [f"trainer.name={name}"]))
    assert str(caught.value) == f"trainer.name: unknown trainer {name!r}; {hint}"
