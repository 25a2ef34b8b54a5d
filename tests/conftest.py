"""Fixtures of several folders: the scaffolded task, a small real run (a minute of CPU once per session),
trials on paper.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.base import base
from evotrainer.cli.init import init
from tests import leaky_task, letters_on_paper
from tests.letters_on_paper import QUICK, Go
from tests.memory_disk import fits_in_memory
from tests.paper import Paper
from tests.small_run import SHAPE, SMALL

os.environ["EVOTRAINER_REGISTER"] = "off"  # tests are judged on the same tasks over and over
KEYS = tempfile.TemporaryDirectory(prefix="evotrainer-test-keys-")
os.environ["EVOTRAINER_KEYS"] = KEYS.name  # kept apart from the user's own
MEMORY = Path("/dev/shm")
"""A disk in memory: runs write through to the disk at every event, which on a slow one is most of the tests' time."""
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and fits_in_memory(MEMORY):  # workers are told by the first process
    ROOM = tempfile.TemporaryDirectory(prefix="evotrainer-tests-", dir=MEMORY)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = ROOM.name
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # to the bit and in fp32, as on any machine: on a GPU sums and bfloat16 differ
os.environ["EVOTRAINER_SLOW_S"] = "3600"  # what a busy machine is slow at is in no test
os.environ["EVOTRAINER_CACHE"] = "off"  # a test trains what it tests; `run.cache` of a test of the cache counts more


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever reads the finished run does so in one process, so that it is made once."""
    for item in items:
        if "finished" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("loop"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """What collecting makes lives to the end: no garbage is looked for meanwhile, which was half of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        keep()
        gc.enable()


def pytest_runtest_logstart() -> None:
    """The same for the packages that tests import."""
    if len(sys.modules) > KEPT[0] + 200:
        keep()


KEPT = [0]
"""Modules at the last `keep`."""


def keep() -> None:
    """Take all that is there now out of what a full collection walks over: 700,000 objects, of which a test that makes
    many of its own would pay for the walk each time."""
    KEPT[0] = len(sys.modules)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scaffolded task, as `evotrainer init` writes it, two branches a round in place of a search: what searches is
    tested with agents that say what they want."""
    folder = tmp_path_factory.mktemp("scaffold") / "letters"
    init(folder)
    text = (folder / "task.toml").read_text(encoding="utf-8")
    assert "probes = 16" in text and "branches = 1" in text
    text = text.replace("probes = 16", "probes = 0").replace("branches = 1", "branches = 2")
    (folder / "task.toml").write_text(text, encoding="utf-8")
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
    base(task_file, ["policy.warm_start.steps=80", *SHAPE], out=out)
    return out


@pytest.fixture
def task(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The task file that the module's `TASK` describes."""
    p = tmp_path / "task.toml"
    p.write_text(request.module.TASK)
    return p


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> Paper:
    """Trials that take no time and end as the module's `finish` says."""
    return Paper(request.module.finish)


@pytest.fixture
def acted() -> Paper:
    """Trials of `leaky_task` that take no time, with rollouts."""
    return Paper(leaky_task.finish, leaky_task.as_trained)


@pytest.fixture
def letters_paper() -> Paper:
    """Trials of the scaffolded task that take no time; their readings find dead groups."""
    return Paper(letters_on_paper.finish, letters_on_paper.rollouts)


@pytest.fixture
def go(letters_paper: Paper, task_file: Path, tmp_path: Path) -> Go:
    """Start a run of the scaffolded task on paper; `changes`: the fixed agent's list, none: the statistical agent."""

    def start(name: str, *overrides: str, changes: str = "") -> api.Run:
        agent = ["run.agent=fixed", f"run.agent_options.interventions=[{changes}]"] if changes else []
        return letters_paper.start(task_file, tmp_path / name, [*QUICK, *agent, *overrides])

    return start


@pytest.fixture
def arms() -> Iterator[None]:
    """The arms of `bench.compare` are agents while a test runs."""
    from bench.compare.agents import register

    from evotrainer.agents import AGENTS

    before = dict(AGENTS)
    register()
    yield
    AGENTS.clear()
    AGENTS.update(before)
