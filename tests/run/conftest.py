"""A small real run: real policy, real RL, real store; a minute of CPU once per session, shared by the tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.base import base
from evotrainer.cli.init import init

SMALL = [
    "policy.warm_start.steps=120",
    "recipe.steps=4",
    "recipe.prompts_per_step=8",
    "recipe.group_size=4",
    "evaluation.search_tasks=30",
    "evaluation.gate_tasks=60",
    "evaluation.cert_tasks=60",
    "evaluation.search_attempts=2",
    "evaluation.gate_attempts=2",
    "evaluation.cert_attempts=2",
    "run.rounds=1",
    "run.branches=2",
    "run.checkpoint_every=2",
    "run.health_every=2",
]

FEW = ["run.seeds=[1,2]", "judge.min_seeds=2", "run.certify_seeds=[101]"]
"""As few trainings as a run can do with."""
TINY = [*SMALL, *FEW, "recipe.steps=2", "recipe.prompts_per_step=4", "evaluation.search_tasks=8"]
TINY += ["evaluation.gate_tasks=12", "evaluation.cert_tasks=12", "run.checkpoint_every=1", "run.branches=1"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever reads the finished run does so in one process, so that it is made once."""
    for item in items:
        if "finished" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("loop"))


@pytest.fixture(scope="session")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scaffolded task, as `evotrainer init` writes it."""
    folder = tmp_path_factory.mktemp("scaffold") / "letters"
    init(folder)
    return folder / "task.toml"


@pytest.fixture(scope="session")
def finished(task_file: Path, tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """One finished small run; read it, do not change it."""
    return api.start(task_file, tmp_path_factory.mktemp("runs") / "small", SMALL)


@pytest.fixture
def copy(finished: api.Run, tmp_path: Path) -> Callable[[], api.Run]:
    """A private copy of the finished run, to be damaged."""

    def make() -> api.Run:
        to = tmp_path / finished.folder.name
        shutil.copytree(finished.folder, to)
        return api.Run(to)

    return make


@pytest.fixture(scope="session")
def trained_base(task_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small base policy, so that runs of their own need not warm-start one."""
    out = tmp_path_factory.mktemp("base") / "policy"
    base(task_file, ["policy.warm_start.steps=80"], out=out)
    return out


@pytest.fixture
def task(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The task file that the module's `TASK` describes."""
    p = tmp_path / "task.toml"
    p.write_text(request.module.TASK)
    return p
