"""`envs.swe.tools`: what actions mean and what they print, to the byte,
because checkouts and memory must print the same.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.world import Commit, Observation, ParsedAction, TestResult
from evotrainer.errors import TaskSetError

FILES = {
    "core.py": "def bump(x):\n    # add 3\n    x = x - 3\n    return x\n",
    "test_all.py": "def test_bump():\n    pass\n",
}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("ls", ParsedAction("ls")),
        ("  test\n", ParsedAction("test")),
        ("$ cat core.py", ParsedAction("cat", "core.py")),
        ("grep bump", ParsedAction("grep", text="bump")),
        ("edit core.py 3 x = x + 3", ParsedAction("edit", "core.py", 3, 3, "x = x + 3")),
        ("edit core.py 3-4 a\nb", ParsedAction("edit", "core.py", 3, 4, "a\nb")),
        ("insert core.py 1 import os", ParsedAction("insert", "core.py", 1, 1, "import os")),
        ("delete core.py 2-3", ParsedAction("delete", "core.py", 2, 3)),
        ("write a/new.py\nx = 1\ny = 2", ParsedAction("write", "a/new.py", text="x = 1\ny = 2")),
        ("git log", ParsedAction("git log")),
        ("git show", ParsedAction("git show")),
        ("git show HEAD~2", ParsedAction("git show", back=2)),
        ("git diff", ParsedAction("git diff")),
        ("git status", ParsedAction("git status")),
        ("submit", ParsedAction("submit")),
    ],
)
def test_actions_are_read(text: str, action: ParsedAction) -> None:
    assert tools.parse(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rm -rf /",
        "cat",
        "cat ../secret",
        "cat /etc/passwd",
        "cat .git/HEAD",
        "cat a/../b",
        "cat a//b",
        "edit core.py x y",
        "edit core.py 3",
        "insert core.py 1-2 x",
        "delete core.py 1 x",
        "write ../x.py\na",
        "git push",
        "git show deadbeef",
        "git show HEAD~1 --stat",
        "ls -la",
        "submit now",
        "edit core.py ٣ x",
    ],
)
def test_what_is_no_action_is_an_error_and_nothing_else(text: str) -> None:
    action = tools.parse(text)
    assert action.tool == "invalid"
    assert tools.read_only_observation(action, FILES, FILES, ()) == Observation(action.error, ok=False)
    assert action.error.startswith("error: ")


def _after(text: str) -> str:
    new = tools.changed(FILES, tools.parse(text))
    assert isinstance(new, str)
    return new


def test_edits_keep_the_indentation_of_the_line_they_replace() -> None:
    assert _after("edit core.py 3 x = x + 3") == "def bump(x):\n    # add 3\n    x = x + 3\n    return x\n"
    assert _after("insert core.py 3 if x < 2: return 0").splitlines()[2:4] == [
        "    if x < 2: return 0",
        "    x = x - 3",
    ]
    assert _after("insert core.py 5 y = 1").splitlines()[4] == "    y = 1"
    assert _after("delete core.py 2-3") == "def bump(x):\n    return x\n"
    assert _after("edit core.py 2-3 x = 1").splitlines() == ["def bump(x):", "    x = 1", "    return x"]
    assert _after("edit core.py 1 def f(x):\n    y = 2").splitlines()[:2] == ["def f(x):", "    y = 2"]


def test_edits_that_cannot_be_done_say_why() -> None:
    for text, why in (
        ("edit nowhere.py 1 x", tools.NO_FILE),
        ("edit core.py 5 x", tools.NO_LINE),
        ("edit core.py 0 x", tools.NO_LINE),
        ("edit core.py 3-2 x", tools.NO_LINE),
        ("insert core.py 6 x", tools.NO_LINE),
        ("delete core.py 9", tools.NO_LINE),
        ("write core.py/x.py\na", tools.TOO_LARGE),
        ("write big.py\n" + "x" * 30_000, tools.TOO_LARGE),
    ):
        assert tools.changed(FILES, tools.parse(text)) == Observation(why, ok=False), text


def test_looking_prints_these_bytes() -> None:
    commits = (
        Commit("start", {"core.py": None}, {"core.py": "a\n"}),
        Commit("tweak bump", {"core.py": "a\n"}, {"core.py": FILES["core.py"]}),
    )
    changed = {**FILES, "core.py": FILES["core.py"].replace("- 3", "+ 3"), "new.py": "x\n"}

    def said(text: str) -> str:
        return tools.read_only_observation(tools.parse(text), changed, FILES, commits).text

    assert said("ls") == "core.py new.py test_all.py"
    assert said("cat new.py") == "1 x"
    assert said("cat gone.py") == tools.NO_FILE
    assert said("grep bump") == "core.py:1: def bump(x):\ntest_all.py:1: def test_bump():"
    assert said("grep zzz") == tools.NO_MATCH
    assert said("git log") == "HEAD~0 tweak bump\nHEAD~1 start"
    assert said("git show HEAD~1") == "start\ncore.py\n@@ -0,0 +1 @@\n+a"
    assert said("git show HEAD~2") == tools.NO_REVISION
    assert said("git status") == "M core.py\nA new.py"
    assert said("git diff") == "core.py\n@@ -3 +3 @@\n-    x = x - 3\n+    x = x + 3\nnew.py\n@@ -0,0 +1 @@\n+x"
    assert tools.status(FILES, {}) == "D core.py\nD test_all.py"


def test_the_patch_is_one_that_git_takes() -> None:
    assert tools.git_patch({"a.py": "x\n"}, {"b.py": "y\n"}).splitlines() == [
        "diff --git a/a.py b/a.py",
        "deleted file mode 100644",
        "--- a/a.py",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-x",
        "diff --git a/b.py b/b.py",
        "new file mode 100644",
        "--- /dev/null",
        "+++ b/b.py",
        "@@ -0,0 +1 @@",
        "+y",
    ]
    assert tools.git_patch(FILES, FILES) == ""


PIECES = (
    "x = 1",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    " ",
    "\t",
    "ä",
    "-- a",
    "++ b",
    "\\ No",
)
NAMES = (
    "a.py",
    "b c.py",
    "d/e\nf.py",
    'g"h.py',
    "i\\j.py",
    "ä/k\x7f.py",
    "l\u2028m.py",
    "n\udcff.py",
    " b/o.py",
    "p\r.py",
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(20))
def test_git_makes_the_same_files_of_a_patch(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)

    def tree() -> dict[str, str]:
        return {n: "".join(rng.choices(PIECES, k=rng.randrange(30))) for n in NAMES if rng.random() < 0.7}

    before, after = tree(), tree()
    kept = {n: t + rng.choice(PIECES) + "y" for n, t in before.items() if rng.random() < 0.5}
    after |= kept
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    patch = tools.git_patch(before, after).encode()
    if patch:
        subprocess.run(["git", "apply", "--whitespace=nowarn"], cwd=tmp_path, input=patch, check=True)
    left = {str(p.relative_to(tmp_path)): p.read_bytes().decode() for p in tmp_path.rglob("*") if p.is_file()}
    assert left == after


def test_results_of_tests_are_counted_and_the_first_failures_named() -> None:
    rows = [TestResult("t.py", f"test_{i}", "AssertionError" if i else "") for i in range(6)]
    assert tools.tests_text(rows) == "1 passed 5 failed\n" + "\n".join(f"test_{i} AssertionError" for i in (1, 2, 3))
    assert tools.tests_text(rows[:1]) == "1 passed"
    assert tools.tests_text([]) == tools.NO_TESTS


def test_a_scrubbed_history_that_shows_more_than_the_base_is_refused() -> None:
    repo = repositories(random.Random(1), "train", Plan())
    scrubbed = {"history": "scrubbed"}
    tools.check_reachable(repo, scrubbed, tools.commits_shown(repo, scrubbed))
    leaky = (*repo.history, *repo.future)
    tools.check_reachable(repo, {"history": "full"}, leaky)
    with pytest.raises(TaskSetError, match="newer than the base"):
        tools.check_reachable(repo, scrubbed, leaky)


def test_hidden_test_files_are_not_in_the_history_either() -> None:
    repo = repositories(random.Random(2), "train", Plan())
    knobs = {"visible_tests": "hidden"}
    commits = tools.commits_shown(repo, knobs)
    tools.check_reachable(repo, knobs, commits)
    assert any("test_all.py" in c.after for c in repo.history)
    assert not any("test_all.py" in c.after for c in commits)


def test_a_long_commit_is_cut() -> None:
    text = "".join(f"line {i}\n" for i in range(50))
    said = tools.show((Commit("start", {"a.py": None}, {"a.py": text}),), 0).text.split("\n")
    assert said[0] == "start"
    assert said[-1] == "..."
    assert len(said) == tools.SHOW_LINES + 2
