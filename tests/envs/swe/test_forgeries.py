"""`envs.swe.memory`: wrong code that tries to be graded right (`tests/data/module_forgeries.toml`)."""

from __future__ import annotations

import random

import pytest

from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.world import Grade, Repo
from evotrainer.sandbox import Sandbox
from tests.sandbox.frames import FRAMES, Frame
from tests.tables import table

_DATA = table("module_forgeries")
MODULES: dict[str, str] = _DATA["modules"]
"""A module of the repository, with `{f}` for the function that is wrong."""
MESSAGES: dict[str, str] = _DATA["messages"]


@pytest.fixture(scope="module")
def memory(box: Sandbox) -> MemoryWorld:
    return MemoryWorld(lambda: box)


@pytest.fixture(scope="module")
def repo() -> Repo:
    return repositories(random.Random(11), "train", Plan())


def graded(memory: MemoryWorld, repo: Repo, source: str) -> Grade:
    """The repository with its wrong module replaced."""
    handle = memory.open(repo, {})
    handle.tree[repo.tags["module"]] = source
    return memory.grade([handle])[0]


@pytest.mark.parametrize("name", MODULES)
def test_no_forged_module_passes_a_hidden_test(memory: MemoryWorld, repo: Repo, name: str) -> None:
    grade = graded(memory, repo, MODULES[name].replace("{f}", repo.tags["function"]))
    assert grade.fault is None
    assert not any(grade.hidden[i] for i in repo.fail_to_pass)


@pytest.mark.parametrize("name", MESSAGES)
def test_no_forged_message_passes_a_hidden_test(memory: MemoryWorld, repo: Repo, name: str) -> None:
    grade = graded(memory, repo, MESSAGES[name])
    assert grade.fault is None, "a program cannot make its failure look like ours"
    assert not any(grade.hidden[i] for i in repo.fail_to_pass)


@pytest.mark.parametrize("frame", [f for f in FRAMES if f.harm == "raises"], ids=lambda f: f.name)
def test_no_frame_of_a_repository_ends_the_grader(memory: MemoryWorld, repo: Repo, frame: Frame) -> None:
    grade = graded(memory, repo, f"import os\nfor _ in range(9): os.write(4, {frame.line!r} + b'\\n')\nos._exit(0)")
    assert grade.fault is None
    assert not any(grade.hidden.values())
