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
