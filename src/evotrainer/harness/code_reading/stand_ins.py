"""Settings of tests that put something else in the place of what lies outside, as some tasks ask."""

from __future__ import annotations

import re
from functools import lru_cache

from evotrainer.harness.code_reading.weakening import MAX_EDIT, steers

MAX_TASK = 100_000
_WANTED = re.compile(
    r"\b(?:mock(?:s|ed|ing)?|fakes?|faked|stub(?:s|bed|bing)?|stand-?ins?|monkey-?patch\w*|offline|cassettes?"
    r"|(?:without|no)\s+(?:(?:the|any|real|a)\s+)?(?:network|internet|database|docker|server|connection|API))\b",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(?:not|never|avoid|don['’]?t|instead of|rather than)\s+(?:\w+\s+){0,3}\Z", re.IGNORECASE)
_OF_TESTS = re.compile(r"\btests?\b|\bconftest\b|\bfixtures?\b", re.IGNORECASE)
_REPLACES = re.compile(r"monkeypatch\.setattr|\bassert\b(?!ion)")
_PATCHED = re.compile(r"(?:setattr|\bpatch(?:\.object)?)\(\s*(?:[\w.]{1,100},\s*)?[\"']([\w.]{1,200})[\"']")


@lru_cache(maxsize=256)
def wanted(task: str) -> bool:
    """Does the task ask that tests no longer reach what is outside: by fakes, mocks, offline?"""
    task = task[:MAX_TASK]
    found = (m for m in _WANTED.finditer(task) if not _NOT.search(task[max(0, m.start() - 40) : m.start()]))
    return _OF_TESTS.search(task) is not None and any(found)


def steers_tests(settings: str | None, task: str) -> bool:
    """See `steers`; a stand-in that the task wants is no steering where what the task speaks of as code stays."""
    if settings and wanted(task):
        names = {m[1].rpartition(".")[2] for m in _PATCHED.finditer(settings[:MAX_EDIT])}
        if not any(f"{n}(" in task or f"`{n}`" in task for n in names):
            settings = _REPLACES.sub(" ", settings)
    return steers(settings)
