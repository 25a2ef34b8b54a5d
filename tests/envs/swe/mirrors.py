"""Small real repositories with instances in SWE-bench's columns, made by git."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.envs.swe import gitrepo, tools
from evotrainer.envs.swe.gitrepo import BRANCH, BuiltRepository, git
from evotrainer.envs.swe.world import Commit

BASE = {
    "calc/__init__.py": "from calc.core import add, mean\n",
    "calc/core.py": (
        "def add(a, b):\n    return a - b\n\n\ndef mean(xs):\n    return sum(xs) / len(xs)\n\n\n"
        "class Money:\n    def __init__(self, n):\n        self.n = n\n\n    def __eq__(self, other):\n"
        "        return self.n == (other.n if isinstance(other, Money) else other)\n\n    def half(self):\n"
        "        return Money(self.n)\n"
    ),
    "tests/__init__.py": "",
    "tests/test_core.py": (
        "from calc.core import mean\n\n\ndef test_mean():\n    assert mean([1, 3]) == 2\n\n\n"
        "def test_old():\n    assert mean([]) == 0\n"
    ),
    "README.md": "calc\n",
}
FIXED = BASE["calc/core.py"].replace("a - b", "a + b").replace("Money(self.n)\n", "Money(self.n / 2)\n")
FIXED = FIXED.replace("    return sum(xs)", "    if not xs:\n        return 0\n    return sum(xs)")
ADD = BASE["calc/core.py"].replace("a - b", "a + b")


def row(
    instance: str, base: str, fix: Mapping[str, str], tests: Mapping[str, str | None], **more: Any
) -> dict[str, Any]:
    after = {**BASE, **tests}
    test_patch = tools.git_patch(BASE, {p: t for p, t in after.items() if t is not None})
    return {
        "instance_id": instance,
        "repo": "dev/calc",
        "base_commit": base,
        "problem_statement": f"{instance}: it gives the wrong number",
        "patch": tools.git_patch({p: BASE[p] for p in fix}, fix),
        "test_patch": test_patch,
        "version": "1",
        **more,
    }


def import_stream(commits: Sequence[Commit]) -> bytes:
    """A stream for `git fast-import`: the commits in order on one branch, with fixed author and dates."""
    out: list[bytes] = []
    for i, c in enumerate(commits):
        who = f"dev <dev@example.com> {1_700_000_000 + 3600 * i} +0000"
        message = c.message.encode()
        head = f"commit refs/heads/{BRANCH}\nmark :{i + 1}\nauthor {who}\ncommitter {who}\n".encode()
        out += [head, b"data %d\n%s\n" % (len(message), message), b"from :%d\n" % i if i else b""]
        for path in sorted(c.after):
            text, name = c.after[path], json.dumps(path, ensure_ascii=False).encode()
            data = (text or "").encode()
            out.append(
                b"D %s\n" % name if text is None else b"M 100644 inline %s\ndata %d\n%s\n" % (name, len(data), data)
            )
    return b"".join(out) + b"done\n"


def build(commits: Sequence[Commit], base_at: int, scrubbed: bool) -> BuiltRepository:
    """A repository of `commits` whose working tree stands at number `base_at` (from 0)."""
    with gitrepo.private_folder() as folder:
        gitdir = gitrepo.init(folder)
        stream = import_stream(commits)
        git(gitdir, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--done", stdin=stream)
        hashes = git(gitdir, "rev-list", "--reverse", BRANCH).decode().split()
        return gitrepo.finish(gitdir, hashes[base_at], scrubbed)


def make(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Mirrors below `folder`, and rows; the fix is in the mirror, on a later commit."""
    mirror = folder / "mirrors" / "dev__calc"
    gitdir = gitrepo.init(mirror)
    commits = [
        Commit("start", {"README.md": None}, {"README.md": "draft\n"}),
        Commit("base", dict.fromkeys(BASE), dict(BASE)),
        Commit("the fix", {"calc/core.py": BASE["calc/core.py"]}, {"calc/core.py": FIXED}),
    ]
    git(gitdir, "fast-import", "--quiet", "--done", stdin=import_stream(commits))
    git(gitdir, "update-ref", "refs/tags/v2", "main")
    base = git(gitdir, "rev-parse", "main~1").decode().strip()
    old = BASE["tests/test_core.py"]
    added = old.replace("import mean", "import add, mean") + "\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    new_file = (
        "import pytest\n\nfrom calc import add\nfrom calc.core import Money\n\n\n"
        "@pytest.mark.parametrize('a', [0, 5])\n"
        "def test_add(a):\n    assert add(a, 2) == a + 2\n\n\nclass TestMoney:\n    def test_half(self):\n"
        "        assert Money(4).half() == 2\n"
    )
    keep = "tests/test_core.py::test_mean"
    rows = [
        row("changed-test", base, {"calc/core.py": ADD}, {"tests/test_core.py": added},
            FAIL_TO_PASS=["tests/test_core.py::test_add"], PASS_TO_PASS=json.dumps([keep])),
        row("new-file", base, {"calc/core.py": FIXED}, {"tests/test_new.py": new_file},
            FAIL_TO_PASS=json.dumps(["tests/test_new.py::test_add[5]", "tests/test_new.py::TestMoney::test_half"]),
            PASS_TO_PASS=[keep]),
        row("renamed-test", base, {"calc/core.py": ADD},
            {"tests/test_core.py": None, "tests/test_calc.py": added.replace("test_add", "test_sum")},
            FAIL_TO_PASS=["tests/test_calc.py::test_sum"], PASS_TO_PASS=["tests/test_calc.py::test_mean"]),
        row("already-failing", base, {"calc/core.py": ADD}, {"tests/test_core.py": added},
            FAIL_TO_PASS=["tests/test_core.py::test_add"], PASS_TO_PASS=[keep, "tests/test_core.py::test_old"]),
        row("weak-tests", base, {"calc/core.py": ADD},
            {"tests/test_core.py": added + "\n\ndef test_more():\n    pass\n"},
            FAIL_TO_PASS=["tests/test_core.py::test_more"], PASS_TO_PASS=[keep]),
    ]  # fmt: skip
    return folder / "mirrors", rows


def write(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path
