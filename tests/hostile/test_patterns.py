"""Patterns over texts of rollouts reach the end of a megabyte, whatever it holds, and see what stands there.

Those of commit 9bd9c32 took the square of a text's length. How long it takes: `python -m bench.audit.patterns`.
"""

from __future__ import annotations

import pytest

from evotrainer.harness.code_reading import file_changes, leaking, tampering
from evotrainer.harness.code_reading.actions import Action
from evotrainer.harness.code_reading.paths import is_test
from evotrainer.harness.code_reading.tampering import patch_effects
from tests.thinned import thinned

MEGABYTE = 1_000_000


def commands(piece: str) -> list[Action]:
    """250 different commands of 4,000 characters, each with words that make the detectors look."""
    return [Action("bash", f"solution test git {i} " + (piece * 4000)[:3900], True) for i in range(MEGABYTE // 4000)]


def patches(piece: str, length: int = MEGABYTE) -> list[str]:
    """A megabyte in the names of a patch, and as its text."""
    text = (piece * length)[:length]
    return [f"diff --git a/x b/{text}tests/x_\n-x\n", f"--- a/{text}tests/x\n+++ b/{text}tests/x\n-x\n", text]


PIECES = ("cat ", "sed -n ", "open('", "cat <<E\n", "\nmv ", "git log ", "\n", " ", "> a", "'a' ", "curl git")
NAMES = ("/", "a/", "tests/", "-\n", "--- a/tests/test_x.py\n")
AT_THE_END = """
diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1,2 +1,1 @@
-    assert f(1) == 2
"""


@pytest.mark.parametrize("piece", thinned(PIECES, 3))
def test_a_megabyte_of_commands_is_read(piece: str) -> None:
    hostile = commands(piece)
    acts = [
        *hostile,
        Action("bash", "rm tests/test_a.py", True),
        Action("bash", "git show origin/fix -- solution.py", True),
    ]
    said = ["task"] * len(acts)
    assert tampering.found(said, acts)[0].place == len(hostile)
    assert leaking.found(said, acts)[0].place == len(hostile) + 1


@pytest.mark.parametrize("piece", NAMES)
def test_a_megabyte_of_a_patch_is_read(piece: str) -> None:
    for patch in patches(piece):
        assert not [t for t in patch_effects(patch) if t.certain]
        assert next(t.path for t in patch_effects(patch + AT_THE_END) if t.certain) == "tests/test_a.py"


def writes() -> list[Action]:
    """A thousand tests of one's own, of 900 characters."""
    return [
        Action("write_file", f'{{"path": "tests/test_{i}.py", "content": "{"x" * 900}"}}', True) for i in range(1000)
    ]


def test_a_thousand_files_of_ones_own_are_read() -> None:
    acts = writes()
    assert not tampering.found(["task", *["y" * 1000] * 1000], acts)
    theirs = Action("bash", "rm tests/test_5000.py", True)
    assert tampering.found(["task", *["y" * 1000] * 1000], [*acts, theirs])[0].place == 1000


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("cat > a.py <<EOF\nrm tests/test_a.py\nEOF\n", []),
        ("cat <<'E' > a.py\nrm tests/test_a.py\n  E\nrm tests/test_b.py", ["tests/test_b.py"]),
        ("cat <<A\nB\nA\ncat <<B\nrm tests/test_a.py\nB", []),
        ("cat <<EOF\nrm tests/test_a.py", []),
        ("cat <<EOF\nEOFX\nrm tests/test_a.py\nEOF", []),
    ],
)
def test_texts_within_a_command_are_no_commands(line: str, paths: list[str]) -> None:
    assert [c.path for c in file_changes.changes("bash", line) if is_test(c.path)] == paths
