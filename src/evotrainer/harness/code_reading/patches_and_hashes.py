"""What is recorded with a rollout apart from its tests: its patch, the gold patch, hashes of protected files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

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
