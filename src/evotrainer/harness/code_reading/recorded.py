"""What is recorded with a rollout: its tests, its patch, the gold patch, hashes of protected files.

`detail["tests"]` is a list of mappings with any of these keys: kind ("visible"; anything else, such as "hidden" or
"heldout", was not shown to the policy; "perturbed": an input without an expected output), input, expected, got, status
("ok", "error", "timeout", ...), passed (true or false), error. Tests without a kind count as visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from evotrainer.records.rollout import Rollout
from evotrainer.records.text import shown

PATCHES = ("patch", "model_patch", "submission", "diff")
GOLD = ("gold_patch", "reference_patch", "gold")
NAMING = ("test_patch", "fail_to_pass", "FAIL_TO_PASS", "pass_to_pass", "PASS_TO_PASS")
"""Details that name the tests of the grader."""
READ_KEYS = ("tests", "patch", "submission", "diff", "protected", "probes")
"""A detail with none of these as (the end of) a key has nothing to say here."""
MAX_PATCH = 1 << 20
"""Characters of a patch that are read, as many as the repository environments keep."""
MAX_NAMED = 200_000
MIN_LINES = 3
"""Added lines from which equality with the gold patch is no coincidence."""


def worth_keeping(detail: Mapping[str, Any]) -> bool:
    """Does the detail hold anything that traits are read from?"""
    return bool(detail.get("tests")) or any(detail.get(k) for k in (*PATCHES, "protected", "probes"))


def patch_of(detail: Mapping[str, Any]) -> str:
    """The patch a rollout produced, as a unified diff; empty without one."""
    return _first(detail, PATCHES)


def gold_of(detail: Mapping[str, Any]) -> str:
    """The reference patch; empty without one."""
    return _first(detail, GOLD)


def _first(detail: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = detail.get(key)
        if isinstance(value, str) and value.strip():
            return value[:MAX_PATCH]
    return ""


def named_tests(detail: Mapping[str, Any]) -> str:
    """Text that names the tests the grader will run."""
    return "\n".join(str(detail[k])[:MAX_NAMED] for k in NAMING if detail.get(k))


def added_lines(patch: str) -> list[str]:
    """Lines that a unified diff adds, without blanks around and without empty ones."""
    lines = (ln[1:].strip() for ln in patch.split("\n") if ln.startswith("+") and not ln.startswith("+++"))
    return [ln for ln in lines if ln]


def likeness(patch: str, gold: str) -> float | None:
    """Similarity in [0, 1] of the added lines of two patches (multiset Dice); None below three added lines on either
    side."""
    a, b = added_lines(patch), added_lines(gold)
    if min(len(a), len(b)) < MIN_LINES:
        return None
    # a multiset: a gold patch that repeats a line is not matched by a patch that has it once
    return 2 * (Counter(a) & Counter(b)).total() / (len(a) + len(b))


def broken_protection(protected: Any) -> str | None:
    """The first protected file whose content changed: {path: false}, {path: {"ok": false}} or [{"path": ..., "ok":
    ...}]."""
    listed = protected if isinstance(protected, list | tuple) else ()
    rows = protected if isinstance(protected, Mapping) else {r.get("path"): r for r in listed if isinstance(r, Mapping)}
    states = ((path, x.get("ok") if isinstance(x, Mapping) else x) for path, x in [*rows.items()][:256])
    return next((str(path) for path, ok in states if ok is False), None)


CRASHES = frozenset({"error", "exception", "crash", "runtime_error", "runtime error", "re"})
VISIBLE = frozenset({"", "visible", "public", "example"})
_NO_CRASH = frozenset({"timeout", "memory", "killed", "sandbox"})
_PASSED = frozenset({"passed", "pass", "correct"})
_FAILED = CRASHES | {"failed", "fail", "wrong", "timeout", "memory", "killed", "output"}
MAX_TESTS = 64


class ShownTest(NamedTuple):
    """One test of a rollout, with texts in one form."""

    kind: str
    hidden: bool
    """Not shown to the policy."""
    input: str
    expected: str
    judged: bool
    """Has an expected output: a perturbed input has none."""
    got: str
    passed: bool | None
    crashed: bool
    error: str


def shown_tests(r: Rollout) -> tuple[ShownTest, ...]:
    """Visible and hidden tests of a rollout; empty where none are recorded or they are not of the documented form."""
    return tests_in(r.detail) if isinstance(r.detail, Mapping) else ()


def tests_in(detail: Mapping[str, Any]) -> tuple[ShownTest, ...]:
    """The same of a rollout's `detail`."""
    rows = detail.get("tests")
    if not isinstance(rows, list | tuple):
        return ()
    return tuple(_row(t) for t in rows[:MAX_TESTS] if isinstance(t, Mapping))


def _row(t: Mapping[str, Any]) -> ShownTest:
    status, kind = (str(t.get(k) or "").lower() for k in ("status", "kind"))
    given, expected, got, error = (_short(t.get(k)) for k in ("input", "expected", "got", "error"))
    flag = t.get("passed")
    if not isinstance(flag, bool):
        # what a status says wins over what follows from comparing outputs
        known = True if status in _PASSED else False if status in _FAILED else None
        compared = got == expected if "expected" in t and t.get("got") is not None else None
        flag = compared if known is None else known
    hidden = kind not in VISIBLE or t.get("visible") is False
    crashed = status in CRASHES or (bool(t.get("error")) and status not in _NO_CRASH)
    return ShownTest(kind, hidden, given, expected, t.get("expected") is not None, got, flag, crashed, error)


def _short(x: Any) -> str:
    return x.strip()[:500] if type(x) is str else "" if x is None else shown(x, 500, end="")
