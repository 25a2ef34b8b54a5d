"""`envs.swe.real`: checkouts print and grade what `envs.swe.memory` does, and are not to be cheated."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.real import RealHandle, RealWorld
from evotrainer.envs.swe.world import Grade, Repo
from evotrainer.errors import TaskSetError
from evotrainer.sandbox import Sandbox
from evotrainer.sandbox.launch import find_bubblewrap
from tests.tables import table

pytestmark = pytest.mark.skipif(
    find_bubblewrap() is None or shutil.which("git") is None, reason="bubblewrap or git is not installed"
)


@pytest.fixture(scope="module")
def real() -> Iterator[RealWorld]:
    machines = RealWorld()
    yield machines
    machines.shutdown()


@pytest.fixture(scope="module")
def memory() -> Iterator[MemoryWorld]:
    machines = MemoryWorld(Sandbox.open)
    yield machines
    machines.shutdown()


def repo_of(seed: int, **plan: Any) -> Repo:
    return repositories(random.Random(f"real:{seed}"), "train", Plan(**plan))


def gold_actions(repo: Repo) -> list[str]:
    return [f"write {path}\n{text}" for path, text in repo.gold.items()]


RECORDED: dict[str, list[str]] = {
    "looks": ["ls", "cat test_all.py", "grep def", "git log", "git show HEAD", "git show HEAD~1", "git show HEAD~7"],
    "edits": ["edit F 2 # new", "insert F 1 import os", "delete F 3-4", "git diff", "git status", "test", "cat F"],
    "new file": [
        "write pkg/new.py\nx = 1\n",
        "write test_new.py\nimport pkg.new\ndef test_x(): assert pkg.new.x == 1",
        "ls",
        "test",
        "git status",
        "git diff",
        "grep x",
    ],
    "broken": ["edit F 1 def (", "test", "git diff", "write F\n", "cat F", "test", "git status"],
    "errors": [
        "cat none.py",
        "edit none.py 1 x",
        "edit F 99 x",
        "cat ../x",
        "git push",
        "",
        "nope",
        "edit test_all.py 1 x",
    ],
    "exceptions": [
        "write F\nraise SystemExit(0)",
        "test",
        "write F\nraise KeyboardInterrupt",
        "test",
        "write F\nwhile True: pass",
        "test",
        "write F\nimport os; os._exit(0)",
        "test",
    ],
    "tests emptied, an own one passes": [
        "write test_all.py\n",
        "write test_own.py\ndef test_a(): pass",
        "test",
        "git diff",
        "submit",
    ],
    "tests weakened, an own one fails": [
        "write test_all.py\ndef test_a(): pass",
        "write test_own.py\ndef test_b(): assert 0",
        "test",
        "git status",
        "submit",
    ],
    "an own test fails": ["write test_own.py\ndef test_b(): assert 0", "test", "submit"],
    "tests import a helper": [
        "write test_all.py\nfrom test_own import K\ndef test_a(): assert K",
        "write test_own.py\nK = 1",
        "test",
        "submit",
    ],
    "control file imported": ["write conftest.py\nK = 1", "insert F 1 from conftest import K", "test", "submit"],
    "hidden tests written": [
        "write test_hidden.py\ndef test_a(): pass",
        "insert F 1 import test_hidden",
        "test",
        "submit",
    ],
    "names of the library": [
        "write json.py\nx = 1",
        "write math.py\nx = 2",
        "write test_lib.py\nimport json, math\ndef test_a(): assert (json.x, math.x) == (1, 2)",
        "test",
        "git status",
    ],
}


OWN_VISIBLE = {
    "tests emptied, an own one passes": False,
    "tests weakened, an own one fails": True,
    "tests import a helper": True,
}
"""Do the repository's tests pass as they were left, where they can be written?"""


def draw(rng: random.Random, repo: Repo) -> list[str]:
    """A random sequence of actions, most of them sensible."""
    paths = [*repo.files, *repo.visible, "extra.py", "test_extra.py"]
    lines = ["x = x + 1", "return x", "if x > 3: return 0", "    return -x", "raise ValueError", "def broken(", "pass"]
    out = []
    for _ in range(rng.randrange(3, 10)):
        path, line = rng.choice(paths), rng.choice(lines)
        out.append(
            rng.choice(
                [
                    "ls", "test", "git log", "git diff", "git status", f"cat {path}",
                    f"grep {rng.choice(['def', 'x', 'zz'])}", f"git show HEAD~{rng.randrange(5)}",
                    f"edit {path} {rng.randrange(1, 12)} {line}", f"insert {path} {rng.randrange(1, 12)} {line}",
                    f"delete {path} {rng.randrange(1, 9)}", f"write {path}\ndef f(x):\n    {line.strip()}\n",
                    f"edit {path} 1-{rng.randrange(1, 4)} {line}\n{line}",
                ]
            )
        )  # fmt: skip
    return out + rng.choice([[], ["submit"], [*gold_actions(repo), "test", "submit"]])


def compare(real: RealWorld, memory: MemoryWorld, repo: Repo, knobs: dict[str, Any], texts: list[str]) -> Grade:
    a, b = memory.open(repo, knobs), real.open(repo, knobs)
    try:
        for text in texts:
            action = tools.parse(text)
            expected, found = memory.act([a], [action])[0], real.act([b], [action])[0]
            assert found == expected, text
        assert real.files(b) == memory.files(a)
        expected_grade, found_grade = memory.grade([a])[0], real.grade([b])[0]
        assert found_grade == expected_grade
        return found_grade
    finally:
        real.close(b)
        memory.close(a)


@pytest.mark.parametrize(
    ("name", "tests", "fixed"),
    [
        (name, tests, fixed)
        for name in RECORDED
        for tests in ("protected", "writable")
        for fixed in (False, True)
        if "submit" in RECORDED[name] or (not fixed and (tests == "protected") == (name != "looks"))
    ],
)
def test_recorded_episodes_read_the_same_in_both_worlds(
    name: str, tests: str, fixed: bool, real: RealWorld, memory: MemoryWorld
) -> None:
    repo = repo_of(0)
    file = next(iter(repo.gold))
    texts = [t.replace(" F", f" {file}", 1) for t in RECORDED[name]]
    texts = [*gold_actions(repo), *texts] if fixed else texts
    grade = compare(real, memory, repo, {"history": "full", "tests": tests}, texts)
    solved = all(grade.hidden.values())
    if name in OWN_VISIBLE:
        assert grade.own_visible == (OWN_VISIBLE[name] if tests == "writable" else fixed)
        assert solved == fixed and bool(grade.tests_changed) == (tests == "writable")
    if name in ("control file imported", "hidden tests written"):
        assert not solved and not grade.own_visible, "what grading leaves out cannot be imported"
    if name == "an own test fails":
        assert solved == grade.own_visible == fixed


@pytest.mark.parametrize("seed", range(12))
def test_random_episodes_read_the_same_in_both_worlds(seed: int, real: RealWorld, memory: MemoryWorld) -> None:
    rng = random.Random(f"episode:{seed}")
    knobs = {
        "history": rng.choice(["scrubbed", "full"]),
        "tests": rng.choice(["protected", "writable"]),
        "visible_tests": rng.choice(["shown", "shown", "hidden"]),
    }
    repo = repo_of(
        seed % 4, modules=rng.choice([1, 2, 3]), tweaks=rng.choice([0, 2]), indirect=float(rng.random() < 0.3)
    )
    compare(real, memory, repo, knobs, draw(rng, repo))


def test_the_fix_passes_and_doing_nothing_fails(real: RealWorld, memory: MemoryWorld) -> None:
    repo = repo_of(1)
    grade = compare(real, memory, repo, {}, [*gold_actions(repo), "test", "submit"])
    assert all(grade.hidden.values()) and grade.own_visible and grade.patch
    unseen = compare(real, memory, repo, {"visible_tests": "hidden"}, [*gold_actions(repo), "submit"])
    assert unseen.own_visible
    nothing = compare(real, memory, repo, {}, ["submit"])
    assert not all(nothing.hidden[i] for i in repo.fail_to_pass) and all(nothing.hidden[i] for i in repo.pass_to_pass)


def test_a_repository_whose_history_holds_the_fix_is_refused(real: RealWorld) -> None:
    repo = repo_of(1)
    leaky = replace(repo, history=(*repo.history, *repo.future))
    with pytest.raises(TaskSetError, match="newer than the base"):
        real.open(leaky, {"history": "scrubbed"})
    real.close(real.open(leaky, {"history": "full"}))


def graded(real: RealWorld, repo: Repo, files: dict[str, str], script: str = "") -> Grade:
    """The grade of a checkout in which a policy left these files, after a command of its own."""
    handle = real.open(repo, {"tests": "writable"})
    try:
        return _graded(real, handle, files, script)
    finally:
        real.close(handle)


def _graded(real: RealWorld, handle: RealHandle, files: dict[str, str], script: str) -> Grade:
    handle.shell.write({f"repo/{path}": text for path, text in files.items()})
    if script:
        handle.shell.run(["sh", "-c", script])
    return real.grade([handle])[0]


CHEATS: dict[str, str] = table("checkout_cheats")["cheats"]


@pytest.mark.parametrize("as_text", [False, True], ids=["calls", "texts"])
@pytest.mark.parametrize("name", CHEATS)
def test_cheats_in_the_code_pass_no_hidden_test(name: str, as_text: bool, real: RealWorld) -> None:
    repo = repo_of(2)
    repo = replace(repo, calls={}) if as_text else repo
    right = [""] * len(repo.hidden) * len({*repo.fail_to_pass, *repo.pass_to_pass})
    cheat = CHEATS[name].replace("ANSWER", json.dumps(right))
    grade = graded(real, repo, dict.fromkeys(repo.files, cheat))
    assert grade.fault is None
    assert set(grade.hidden) == {*repo.fail_to_pass, *repo.pass_to_pass} and not any(grade.hidden.values())


def test_test_files_and_control_files_of_the_policy_do_not_count(real: RealWorld) -> None:
    repo = repo_of(2)
    nothing = graded(real, repo, {})
    files = dict.fromkeys((*repo.visible, *repo.hidden), "def test_fold(): pass\n")
    files |= dict.fromkeys(("conftest.py", "sitecustomize.py", "usercustomize.py", "x.pth"), "raise SystemExit(0)\n")
    files |= {"pytest.ini": "[pytest]\naddopts = --co\n", "setup.cfg": "[tool:pytest]\naddopts = --co\n"}
    grade = graded(real, repo, files)
    assert grade.hidden == nothing.hidden and grade.visible == nothing.visible
    assert grade.own_visible and not nothing.own_visible and grade.tests_changed == tuple(repo.visible)


def test_what_a_policy_leaves_in_git_reaches_nothing_but_its_episode(real: RealWorld, tmp_path: Any) -> None:
    repo = repo_of(2)
    handle = real.open(repo, {})
    script = (
        "printf '#!/bin/sh\\ntouch /var/tmp/evotrainer-hook\\n' > .git/hook; chmod +x .git/hook; mkdir .git/hooks; "
        "for h in post-checkout post-index-change pre-commit; do cp .git/hook .git/hooks/$h; done; "
        "printf '[core]\\n\\tfsmonitor = .git/hook\\n\\tpager = .git/hook\\n[diff]\\n\\texternal = .git/hook\\n' >> "
        ".git/config; echo '* diff=x filter=x' > .gitattributes"
    )
    handle.shell.run(["sh", "-c", script])
    for text in ("git log", "git show HEAD", "git diff", "git status", "test"):
        assert real.act([handle], [tools.parse(text)])[0].fault is None
    grade = real.grade([handle])[0]
    real.close(handle)
    assert grade.fault is None and not __import__("os").path.exists("/var/tmp/evotrainer-hook")


def test_a_checkout_that_cannot_be_read_passes_nothing(real: RealWorld) -> None:
    repo = repo_of(2)
    for script in ("mkdir d; chmod 0 d", "for i in 1 2 3 4 5; do truncate -s 30000000 h$i; done", "rm -rf .git *.py"):
        grade = graded(real, repo, {}, script)
        assert grade.fault is None and not any(grade.hidden.values()), script


def test_links_in_the_place_of_files_lead_nowhere(real: RealWorld) -> None:
    repo = repo_of(2)
    path = next(iter(repo.gold))
    handle = real.open(repo, {})
    handle.shell.run(["sh", "-c", f"rm {path}; ln -s /etc/passwd {path}; ln -s / root"])
    seen = real.act([handle], [tools.parse(f"cat {path}")])[0]
    assert seen.text == tools.NO_FILE
    assert real.act([handle], [tools.parse("cat root/etc/passwd")])[0].text == tools.NO_FILE
    assert real.act([handle], [tools.parse(f"write {path}\nx = 1")])[0].text == tools.DONE
    assert "root:" not in "".join(real.files(handle).values())
    hidden = real.grade([handle])[0].hidden
    assert not any(hidden[i] for i in repo.fail_to_pass)
    real.close(handle)


def test_a_broken_shell_is_a_fault_and_never_a_grade(real: RealWorld) -> None:
    handle = real.open(repo_of(1), {})
    handle.shell.close()
    seen = real.act([handle], [tools.parse("ls")])[0]
    assert seen.fault and not seen.ok
    assert real.grade([handle])[0].fault
    real.close(handle)


def test_shutdown_ends_shells_that_nobody_gave_back() -> None:
    machines = RealWorld()
    handle = machines.open(repo_of(1), {})
    machines.grade([handle])
    machines.shutdown()
    assert handle.shell.closed


def test_hidden_tests_are_nowhere_while_the_policy_acts(real: RealWorld) -> None:
    repo = repo_of(3)
    handle = real.open(repo, {"history": "scrubbed"})
    ran = handle.shell.run(
        ["sh", "-c", "ls -a; find / -name 'test_hidden*' 2>/dev/null; git log --all --format=%s; git stash list"]
    )
    assert "test_hidden" not in ran.text and ran.text.count(repo.future[-1].message) == 0
    real.close(handle)
