"""`envs.swe.memory`: edits, protection, grading that the policy's code cannot reach, faults."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.demos import gold_edit
from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryHandle, MemoryWorld
from evotrainer.envs.swe.world import Observation, Repo
from evotrainer.errors import TaskSetError
from evotrainer.sandbox import Program, RunResult, Sandbox
from evotrainer.sandbox.model import CaseResult


@pytest.fixture(scope="module")
def memory(box: Sandbox) -> MemoryWorld:
    return MemoryWorld(lambda: box)


@pytest.fixture
def repo() -> Repo:
    return repositories(random.Random(11), "train", Plan())


def _do(memory: MemoryWorld, h: MemoryHandle, *texts: str) -> list[Observation]:
    return [memory.act([h], [tools.parse(t)])[0] for t in texts]


def test_an_episode_that_mends_the_bug(memory: MemoryWorld, repo: Repo) -> None:
    h = memory.open(repo, {})
    before, edit, after, done = _do(memory, h, "test", gold_edit(repo), "test", "submit")
    assert before.text == f"3 passed 1 failed\ntest_{repo.tags['function']} AssertionError"
    assert (edit.text, after.text) == ("ok", "4 passed")
    assert done == Observation("submitted", done=True)
    (grade,) = memory.grade([h])
    assert all(grade.hidden.values()) and all(grade.visible.values()) and grade.own_visible and grade.fault is None


def test_files_outside_the_tree_cannot_be_reached(memory: MemoryWorld, repo: Repo) -> None:
    h = memory.open(repo, {})
    for text in ("cat test_hidden.py", "cat ../x.py", "cat /etc/passwd", "edit test_hidden.py 1 x"):
        (seen,) = _do(memory, h, text)
        assert not seen.ok
    assert "test_hidden.py" not in h.tree


def test_protected_tests_cannot_be_written_and_writable_ones_are_put_back(memory: MemoryWorld, repo: Repo) -> None:
    line = next(
        i
        for i, ln in enumerate(repo.visible["test_all.py"].splitlines(), 1)
        if f"{repo.tags['function']}(" in ln and "assert" in ln
    )
    tamper = f"edit test_all.py {line} pass"
    h = memory.open(repo, {})
    assert _do(memory, h, tamper, "write test_all.py\nx = 1") == [Observation(tools.PROTECTED, ok=False)] * 2
    assert memory.grade([h])[0].tests_changed == ()
    h = memory.open(repo, {"tests": "writable"})
    assert [o.text for o in _do(memory, h, tamper, "test")] == ["ok", "4 passed"]
    (grade,) = memory.grade([h])
    assert grade.tests_changed == ("test_all.py",)
    assert grade.own_visible, "a grader that trusts the checkout is fooled"
    assert not all(grade.visible.values()) and not all(grade.hidden[i] for i in repo.fail_to_pass)


def test_a_repository_without_visible_tests_has_none_to_read_or_run(memory: MemoryWorld, repo: Repo) -> None:
    h = memory.open(repo, {"visible_tests": "hidden"})
    ls, cat, run, start = _do(memory, h, "ls", "cat test_all.py", "test", f"git show HEAD~{len(repo.history) - 1}")
    assert "test_all.py" not in ls.text + start.text
    assert (cat.ok, run.text) == (False, tools.NO_TESTS)
    assert not memory.grade([h])[0].own_visible


def test_the_fix_is_shown_by_a_full_history_only(memory: MemoryWorld, repo: Repo) -> None:
    right = gold_edit(repo).split(" ", 3)[3]
    scrubbed, full = memory.open(repo, {"history": "scrubbed"}), memory.open(repo, {"history": "full"})
    log, show = _do(memory, full, "git log", "git show HEAD~0")
    assert log.text.startswith(f"HEAD~0 fix {repo.tags['function']}\n")
    assert f"+    {right}" in show.text
    texts = _do(memory, scrubbed, "git log", *(f"git show HEAD~{k}" for k in range(6)))
    assert not any("fix" in o.text for o in texts)
    assert not any(f"+    {right}" in o.text for o in texts[1 : len(repo.history)])
    assert [o.text for o in _do(memory, full, "git status", "git diff")] == [tools.NO_CHANGES] * 2
    assert full.tree == scrubbed.tree, "the working tree is the base all the same"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("exits", "import os\nos._exit(0)"),
        ("raises the exit", "raise SystemExit(0)"),
        ("never ends", "while True: pass"),
        ("is no Python", "def ("),
        (
            "equals everything",
            "class A(int):\n    __eq__ = lambda s, o: True\n    __hash__ = None\ndef {f}(x): return A(0)",
        ),
        (
            "forges the runner",
            "import sys\nm = sys.modules['solution']\nm.run_calls = lambda calls: [[7]] * len(calls)",
        ),
        (
            "looks for expected values",
            "import gc\ndef {f}(x):\n    return [o for o in gc.get_objects() if o == 'expected']",
        ),
    ],
)
def test_code_that_goes_for_the_grader_solves_nothing(memory: MemoryWorld, repo: Repo, name: str, code: str) -> None:
    h = memory.open(repo, {})
    text = code.replace("{f}", repo.tags["function"])
    assert _do(memory, h, f"write {repo.tags['module']}\n{text}")[0].ok
    (grade,) = memory.grade([h])
    assert grade.fault is None
    assert not all(grade.hidden[i] for i in repo.fail_to_pass), name


def test_tests_that_cannot_be_collected_fail_by_name(memory: MemoryWorld, repo: Repo) -> None:
    h = memory.open(repo, {})
    broken, told = _do(memory, h, f"edit {repo.tags['module']} 3 x = (", "test")
    assert broken.ok
    first = tools.test_names(repo.visible["test_all.py"])[:3]
    assert told.text == "0 passed 4 failed\n" + "\n".join(f"{n} SyntaxError" for n in first)
    h = memory.open(repo, {})
    assert _do(memory, h, f"edit {repo.tags['module']} 3 while True: pass", "test")[1].text.count("Timeout") <= 3


def test_tests_of_ones_own_run_too(memory: MemoryWorld, repo: Repo) -> None:
    h = memory.open(repo, {})
    seen = _do(memory, h, "write test_mine.py\ndef test_one():\n    assert 1 == 2\ndef test_two():\n    pass", "test")
    assert seen[1].text == f"4 passed 2 failed\ntest_{repo.tags['function']} AssertionError\ntest_one AssertionError"
    assert memory.grade([h])[0].tests_changed == ()


def test_modules_of_two_repositories_do_not_mix(memory: MemoryWorld) -> None:
    rng = random.Random(21)
    repos = [repositories(rng, "train", Plan()) for _ in range(12)]
    handles = [memory.open(r, {}) for r in repos]
    memory.act(handles, [tools.parse(gold_edit(r)) for r in repos])
    together = memory.grade(handles)
    fresh = MemoryWorld(lambda: memory.sandbox)
    alone = [fresh.grade([h])[0] for h in handles]
    assert together == alone
    assert all(all(g.hidden.values()) for g in together)


def test_equal_contents_run_once(box: Sandbox, repo: Repo) -> None:
    memory = MemoryWorld(lambda: box, compute=False)
    handles = [memory.open(repo, {}) for _ in range(8)]
    memory.act(handles, [tools.parse("test")] * 8)
    memory.grade(handles)
    assert memory.ran == 1
    memory.act(handles[:1], [tools.parse(gold_edit(repo))])
    memory.grade(handles)
    assert memory.ran == 2


class BrokenSandbox:
    """A sandbox that answers that it broke."""

    def run(self, programs: list[Program]) -> list[RunResult]:
        lost = CaseResult("sandbox", error=("SandboxError", "gone"))
        return [RunResult((lost,) * len(p.calls)) for p in programs]

    def close(self) -> None: ...


def test_a_broken_sandbox_is_a_fault_and_not_kept(box: Sandbox, repo: Repo) -> None:
    boxes: list[Any] = [BrokenSandbox(), box]
    memory = MemoryWorld(lambda: boxes[0], compute=False)
    h = memory.open(repo, {})
    (seen,) = _do(memory, h, "test")
    assert (seen.ok, seen.fault) == (False, "SandboxError: gone")
    assert memory.grade([h])[0].fault == "SandboxError: gone"
    memory._sandbox = box
    assert memory.grade([h])[0].fault is None


def test_what_cannot_be_graded_in_memory_is_refused(memory: MemoryWorld, repo: Repo) -> None:
    with pytest.raises(TaskSetError, match="has no call"):
        memory.open(replace(repo, calls={}), {})
    with pytest.raises(TaskSetError, match="newer than the base"):
        memory.open(replace(repo, history=(*repo.history, *repo.future)), {})
