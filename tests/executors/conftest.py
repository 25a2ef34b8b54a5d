"""A task small enough for clusters of one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evotrainer.cli.base import base as base_command
from evotrainer.cli.init import init
from evotrainer.config.load import load_task
from evotrainer.executors.spec import EvalPlan, TrialSpec
from tests.small_run import SHAPE

Make = Callable[..., TrialSpec]


@pytest.fixture(scope="session")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scaffolded task, as `evotrainer init` writes it."""
    folder = tmp_path_factory.mktemp("scaffold") / "letters"
    init(folder)
    return folder / "task.toml"


@pytest.fixture(scope="session")
def base(task_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small base policy."""
    out = tmp_path_factory.mktemp("base") / "policy"
    base_command(task_file, ["policy.warm_start.steps=20", *SHAPE], out=out)
    return out


@pytest.fixture(scope="session")
def make_spec(task_file: Path, base: Path) -> Make:
    """Specifications of short trainings: `make_spec(seed, steps, checkpoint_every)`."""

    def make(seed: int = 1, steps: int = 4, every: int = 2, **changes: object) -> TrialSpec:
        task = load_task(task_file, [f"recipe.steps={steps}", "recipe.prompts_per_step=4", "recipe.group_size=4"])
        spec = TrialSpec(
            run="r",
            trial=f"b0-s{seed}",
            branch="b0",
            seed=seed,
            purpose="noise",
            train=True,
            recipe=task.recipe,
            protocol=task.recipe,
            environment=task.environment,
            policy_dir=str(base),
            evals=(EvalPlan(split="search", attempts=1, tasks=4), EvalPlan(split="gate", attempts=1, tasks=4)),
            checkpoint_every=every,
            cpu_limit_s=600,
        )
        return spec.model_copy(update=changes)

    return make
