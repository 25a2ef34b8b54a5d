"""The tests recorded with a rollout: `detail["tests"]`, a list of mappings with any of these keys.

kind ("visible"; anything else, such as "hidden" or "heldout", was not shown to the policy; "perturbed": an input
without an expected output), input, expected, got, status ("ok", "error", "timeout", ...), passed (true or false),
error. Tests without a kind count as visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from evotrainer.records.rollout import Rollout
from evotrainer.records.text import shown

CRASHES = frozenset({"error", "exception", "crash", "runtime_error", "runtime error", "re"})
VISIBLE = frozenset({"", "visible", "public", "example"})
_NO_CRASH = frozenset({"timeout", "memory", "killed", "sandbox"})
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
    get = t.get
    status = str(get("status", "")).lower()
    kind = str(get("kind") or "").lower()
    expected, error = get("expected"), get("error")
    return ShownTest(
        kind,
        kind not in VISIBLE or get("visible") is False,
        _short(get("input")),
        _short(expected),
        expected is not None,
        _short(get("got")),
        _passed(t, status),
        status in CRASHES or (bool(error) and status not in _NO_CRASH),
        _short(error),
    )


def _passed(t: Mapping[str, Any], status: str) -> bool | None:
    # what is said outright wins over what follows from a status or from comparing outputs
    flag = t.get("passed")
    if isinstance(flag, bool):
        return flag
    if status in {"passed", "pass", "correct"}:
        return True
    if status in _FAILED:
        return False
    if "expected" in t and "got" in t and t["got"] is not None:
        return _short(t["got"]) == _short(t["expected"])
    return None


def _short(x: Any) -> str:
    if x is None:
        return ""
    if type(x) is str:
        return x.strip()[:500]
    return shown(x, 500, end="")
