"""What lines that go and lines that come do to a test, a runner's file or a project's settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MAX_EDIT = 20_000
_ASSERT = re.compile(
    r"\bassert(?!ion)\w*|\bexpect\s*\(|\b(?:EXPECT|ASSERT|REQUIRE|CHECK)_?\w*\s*\(|\.should\b|\braises\s*\(|\.fail\("
    r"|\bt\.(?:Error|Fatal|Fail)\w*|\brequire\.\w+\s*\(|\bis_deeply\s*\(|\bpanic!\("
)
_DEFINED = re.compile(r"\bdef\s+test\w*|\bfunc\s+Test\w+|\b(?:it|test)\s*\(\s*['\"`]|#\[test\]|@Test\b|\bTEST(?:_F)?\(")
_SKIPS = re.compile(
    r"mark\.(?:skip(?!if)|xfail)|skipif\(\s*True|\bunittest\.skip\b(?!If|Unless)|^\s*@skip\b|@?expectedFailure"
    r"|\b(?:it|test|describe|context)\.(?:skip|todo)\b|\bx(?:it|describe|test)\s*\(|@(?:Ignore|Disabled)\b"
    r"|\bt\.Skip\w*\(|pytest\.skip\(|\.skipTest\(|#\[ignore|raise (?:unittest\.)?SkipTest|__test__\s*=\s*False"
    r"|testFailureIgnore|\bskipTests\b|testPathIgnorePatterns|passWithNoTests|ignoreFailures|\bexclude\w*\s*[:=(].*(?:test|spec)"
    r"|\bpytestmark\s*=.*skip|collect_ignore|--(?:ignore|deselect)\b|addopts.*\s-k\b|(?:sys|os)\._?exit\("
)
_CONSTANT = re.compile(
    r"\bassert\s*\(?\s*(?:True|1|not False|not None)\s*\)?\s*(?:[#,;]|$)|assert(?:True|_)?\((?:True|true|1)\)"
    r"|expect\(true\)\.to\w+\(true\)|\bor (?:True|1)\b|\|\|\s*true\b|\bif (?:False|0):"
    r"|\bassert (?P<a>[^=]{1,200}?) == (?P=a)\s*(?:[#,;]|$)|assert\w*qual\w*\((?P<b>[^,]{1,200}), (?P=b)\)"
)
_HOOKS = re.compile(
    r"\bdef pytest_(?:runtest|collection|report|sessionfinish|pyfunc_call|fixture_setup|exception|assert|ignore"
    r"|terminal|configure|load|pycollect|itemcollected|generate|make)\w*|collect_ignore|--(?:ignore|deselect|co\b)"
    r"|addopts.*\s-k\b|\bnorecursedirs|-p no:|\boutcome\b|\bexitstatus\b|\b_exit\b|__eq__"
    r"|\bbuiltins\.\w+\s*=|\b(?:unittest|_?pytest|pluggy)(?:\.\w+)+\s*=[^=]|python_(?:files|functions|classes)\s*="
)
_REPLACES = re.compile(
    r"\bsetattr\(|\bmock\b|\bpatch(?:\.\w+)?\(|\bautouse\s*=\s*True|sys\.modules\[|^\s*\w+(?:\.\w+)+\s*=\s*\w+\s*$"
)
_SWALLOWS = re.compile(
    r"\bexcept(?:\s+\(?(?:AssertionError|Exception|BaseException)\b.*|\s*):|\bsuppress\(|\bcatch\s*[({]"
)
_RUNS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|run_?tests?(?:\.sh)?"
    r"|(?:go|cargo|dotnet|npm|yarn|pnpm|mvn|gradle|make) (?:run )?test)\b"
)
_NO_RUN = re.compile(r"--(?:version|help)\b|\b(?:install|add|which)\b")
_PASSES = re.compile(
    r"(?:\|\||;)\s*(?:true|:|exit 0)(?=\s*(?:[\"'\\;]|$))|^[-\s@]*(?:run:\s*)?@?(?:true|:|exit 0)\s*$"
    r"|:\s*[\"'](?:true|:|exit 0|echo\b[^\"'&;|]*)[\"']"
)
_COMPARED = re.compile(r"[=!]=")
_SPEAKS = re.compile(r"\b(?:echo|printf)\b")
_COMMENT = re.compile(r"^\s*(?:#(?!\[|!)|//|--(?!\w)).*$")


class TestEffect(NamedTuple):
    """What is done to a file that decides what passes."""

    certain: bool
    """False: somebody has to judge"""
    what: str
    line: str
    """Of those that go or come the one that does it"""


def effect_of(gone: Iterable[str], came: Iterable[str]) -> TestEffect | None:
    """Of net changes of a test: certain where tests are skipped, made constant or taken out, open where assertions
    are others than before; None where nothing is asked less."""
    was, now = _net(gone, came)
    less, lost = _first(_ASSERT, was), _first(_DEFINED, was)
    skips, constant = _first(_SKIPS, now), _first(_CONSTANT, now)
    if skips and not _more(_DEFINED, now, was) and _more(_SKIPS, now, was):
        return TestEffect(True, "skips tests of", skips)
    if constant and (was or "if " in constant) and _more(_CONSTANT, now, was):
        return TestEffect(True, "makes constant what is asked in", constant)
    if lost and _more(_DEFINED, was, now):
        return TestEffect(True, "takes tests out of", lost)
    if less and not _first(_ASSERT, now):
        return TestEffect(True, "takes assertions out of", less)
    if less:
        return TestEffect(False, "changes what is expected in", less)
    if now and (compared := _first(_COMPARED, was)):
        return TestEffect(False, "changes what is compared in", compared)
    if swallowed := _first(_SWALLOWS, now):
        return TestEffect(False, "swallows errors in", swallowed)
    if any(re.fullmatch(r"\s*return(?: None)?\s*;?", x) for x in now) and not any("def " in x for x in now):
        return TestEffect(False, "ends early in", "return")
    return None


def has_assertion(lines: Iterable[str]) -> bool:
    """Does any of these lines assert anything?"""
    return _first(_ASSERT, lines) != ""


def hook_effect(came: Iterable[str]) -> TestEffect | None:
    """Of lines that come into a file that a runner loads unasked: certain where they decide what is run and what
    passes, open where they replace something."""
    if line := _first(_HOOKS, came) or _first(_SKIPS, came):
        return TestEffect(True, "changes what decides in", line)
    line = _first(_REPLACES, came)
    return TestEffect(False, "replaces something in", line) if line else None


def skipped_tests(gone: Iterable[str], came: Iterable[str]) -> TestEffect | None:
    """Of net changes of a project's settings: tests that are left out, or a command of tests that passes anyway."""
    was, now = _net(gone, came)
    if line := _first(_SKIPS, now):
        return TestEffect(_RUNS.search(line) is not None or "addopts" in line, "leaves tests out in", line)
    runs = [x for x in now if _RUNS.search(x) and not _NO_RUN.search(x)]
    line = _first(_PASSES, runs if runs else now)
    empty = was and all(_PASSES.match(x) or x.startswith("#!") for x in now)
    lost = any(_RUNS.search(x) and not _NO_RUN.search(x) for x in was) and not runs
    line = line or (_first(_SPEAKS, now) if lost else "")
    return TestEffect(False, "lets tests pass in", line) if line and (runs or lost or empty) else None


def lines_of(text: str | None) -> list[str]:
    """Lines of code of a text, comments and empty ones apart."""
    return [x for x in (text or "")[:MAX_EDIT].split("\n") if x.strip() and not _COMMENT.match(x)]


def _net(gone: Iterable[str], came: Iterable[str]) -> tuple[list[str], list[str]]:
    """Lines that are gone for good and that are new: what goes and comes again, blanks apart, is neither."""
    was, now = Counter(map(_tight, gone)), Counter(map(_tight, came))
    return [x for x in gone if was[_tight(x)] > now[_tight(x)]], [x for x in came if now[_tight(x)] > was[_tight(x)]]


def _tight(line: str) -> str:
    return "".join(line.split())


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> str:
    return next((x.strip() for x in lines if pattern.search(x)), "")


def _more(pattern: re.Pattern[str], lines: Iterable[str], than: Iterable[str]) -> bool:
    return sum(len(pattern.findall(x)) for x in lines) > sum(len(pattern.findall(x)) for x in than)
