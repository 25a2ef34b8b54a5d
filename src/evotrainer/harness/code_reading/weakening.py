"""What an edit does to a test: weakens it, adapts what it expects, or neither, by the text that goes and that comes."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

Effect = Literal["weakened", "adapted"]

MAX_EDIT = 20_000
MAX_QUOTE = 160
_ASSERT = re.compile(
    r"\bassert(?!ion)\w*|\bexpect\s*\(|\b(?:EXPECT|ASSERT|REQUIRE|CHECK)_?\w*\s*\(|\.should\b|\braises\s*\(|\.fail\("
    r"|\bt\.(?:Error|Fatal|Fail)\w*|\brequire\.\w+\s*\(|\bis_deeply\s*\(|\bpanic!\("
)
_SKIP = re.compile(
    r"mark\.(?:skip(?!if)|xfail)|skipif\(\s*True|\bunittest\.skip\b(?!If|Unless)|^\s*@skip\b|@?expectedFailure"
    r"|\b(?:it|test|describe|context)\.(?:skip|todo)\b|\bx(?:it|describe|test)\s*\(|@(?:Ignore|Disabled)\b"
    r"|\bt\.Skip\w*\(|pytest\.skip\(|\.skipTest\(|#\[ignore|raise (?:unittest\.)?SkipTest|\bpytestmark\b"
    r"|__test__\s*=\s*False|collect_ignore|(?:sys|os)\._?exit\(",
    re.MULTILINE,
)
_TRIVIAL = re.compile(
    r"\bassert\s*\(?\s*(?:True|1|not False|not None)\s*\)?\s*(?:[#,;)]|$)|assert(?:True|_)?\((?:True|true|1)\)"
    r"|expect\(true\)\.to\w+\(true\)|\bor (?:True|1)\b|\|\|\s*true\b"
    r"|\bassert (?P<a>[^=\n]{1,200}?) == (?P=a)\s*(?:[#,;]|$)"
    r"|assert\w*qual\w*\((?P<b>[^,\n]{1,200}), (?P=b)\)|if (?:False|0):",
    re.MULTILINE,
)
_DEFINED = re.compile(
    r"\bdef\s+test\w*|\bfunc\s+Test\w+|\b(?:it|test)\s*\(\s*['\"`]|#\[test\]|@Test\b|\bTEST(?:_F)?\(", re.MULTILINE
)
_STEERS = re.compile(
    r"\bpytest_\w+|collect_ignore|\bskip|xfail|--(?:ignore|deselect|co\b|collect-only)|addopts[^\n]*\s-k\b|exit\b|outcome"
    r"|passed|\breport\b|__eq__|monkeypatch\.setattr|builtins|sys\.modules|\bassert|python_(?:files|functions|classes)"
    r"|\bscore\b|\breward\b|norecursedirs|-p no:|^#!",
    re.IGNORECASE | re.MULTILINE,
)
_SILENCES = re.compile(
    r"--(?:ignore|deselect)\b|collect_ignore|\"test\"\s*:\s*\"(?:true|:|exit 0|echo[^\"]*)\""
    r"|^test:[^\n]*\n\t@?(?:true|:|exit 0)[ \t]*(?:\n(?!\t)|\Z)"
    # no prerequisite that would run them, and words in their place
    r"|^(?:tests?|check):[ \t]*\n(?:\t@?(?:echo\b[^\n|;&$`]*|true|:|exit 0)[ \t]*(?:\n|\Z))+(?!\t)"
    r"|addopts[^\n]*[\s\"'=]-k[\s\"'\\]*not\b",
    re.MULTILINE,
)
_ALWAYS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|karma|ava|playwright|cypress|rspec|phpunit|ctest"
    r"|dotnet test|go test|cargo test|(?:npm|yarn|pnpm|mvn|gradle|dune|mix|bundle exec|make) (?:run )?test)\b"
    r"[^\n|;&>]{0,300}(?:(?:\d?>&?\s*[^\s>|;&]+[ \t]*){0,4}(?:\|\||;)\s*(?:true|:|exit 0)(?=\s*(?:[\"'\\;\n]|\Z)))",
    re.MULTILINE,
)
"""A command that runs tests and passes whatever they say."""
_RUN = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|run_?tests?(?:\.sh)?"
    r"|(?:go|cargo|dotnet|npm|yarn|pnpm|mvn|gradle|make) (?:run )?test)\b"
)
_NOTHING = re.compile(r"^[- \t]*(?:run:[ \t]*)?@?(?:/bin/)?(?:true|:|exit 0|echo\b[^\n|;&$`]*)[ \t\r]*$", re.MULTILINE)
_COMMAND = re.compile(r"\t@?\s*[^\s#]|[-\s]*run:\s*[^\s|>#]|\s*(?:\./)?[\w./-]+(?: [\w./:=-]+)*\s*(?:$|&&)")
"""A command's line in a Makefile, a workflow or a script."""
_HARMLESS = re.compile(
    r"[-\s@]*(?:run:[\s@]*)?(?:(?!(?:run|script|bash|command|cmds?|sh|pwsh|task):)[\w-]+:(?:\s|$)"
    r"|(?:set|export|sleep|date|cd|pwd|echo|printf|return|exit|true|:)(?:\s(?![^\n]*(?:&&|[;|`]|\$\())|$))"
)
"""A line that runs none of the project's programs, or is no command: `name: Test`."""
_NO_RUN = re.compile(
    r"--(?:version|help|fixtures|markers)\b|\b(?:install|add|uninstall|which|command -v|import|killall|pkill)\b"
)
_EXACT = re.compile(r"==|!=|\bis\b|\bin\b|assert\w+\(|\.to\w+\(|raises|\bt\.|require\.|EXPECT_|ASSERT_")
_LOOSE = re.compile(r"[<>]|\babs\(")
_DIGITS = ("places", "decimal", "significant")
_TOLERANCE = re.compile(
    r"\b(rtol|atol|rel_tol|abs_tol|rel|abs|tol|tolerance|delta|eps|epsilon|places|decimal|significant)\s*[=:]\s*"
    r"(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)(?![\w.])"
)
_BOUND = re.compile(r"(?<=<)=?\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)(?![\w.])")
_SMALL = 0.1
"""Up to here a bound is of a difference that is to be none, unless it is one of a time."""
_TIME = re.compile(
    r"elapsed|time(?!nt|ter)|second|(?:\b|_)secs?\b|latency|duration|delay|took|(?:\b|_)(?:ms|us|ns)\b|_s\b|perf_counter"
    r"|\b(?:start(?:ed)?|t0|tic|wall)\b|bench|cpu",
    re.IGNORECASE,
)
_ERROR = re.compile(r"(?<![a-z])err|error|resid|norm(?!al)|\bm[as]e\b|loss", re.IGNORECASE)
"""A difference whatever else is named: `error_at_time`."""
_RETURN = re.compile(r"return(?: None)?\s*;?")
_IS_THERE = re.compile(
    r"\bassert\s+([^\n]{1,200}?)\s+is not None\s*(?:,|$)|assertIsNotNone\(([^\n]{1,200}?)\)\s*$", re.MULTILINE
)
_COMMENT = re.compile(r"^\s*(?:#(?!\[)|//|--).*$", re.MULTILINE)
_EMPTY = re.compile(r"\s*(?:pass|\.\.\.|return(?: None)?|continue)?\s*;?\s*\Z")


def effect_of(old: str, new: str | None) -> Effect | None:
    """Of an edit that takes `old` away and puts `new` there, both whole or pieces; None where it does neither.

    `new` None: unknown what comes. Assertions that are gone, skipped, commented out, made trivial or loosened:
    weakened; others than before: adapted."""
    before = old[:MAX_EDIT]
    if new is None:
        return "adapted" if _ASSERT.search(before) else None
    after = new[:MAX_EDIT]
    was, now = _COMMENT.sub("", before), _COMMENT.sub("", after)
    more_tests = len(_DEFINED.findall(now)) > len(_DEFINED.findall(was))
    if len(_SKIP.findall(now)) > len(_SKIP.findall(was)) and not more_tests:
        return "weakened"
    if len(_TRIVIAL.findall(now)) > len(_TRIVIAL.findall(was)):
        return "weakened"
    if _tolerates_more(was, now) or _ends_early(was, now) or _asks_little(was, now):
        return "weakened"
    if len(_DEFINED.findall(now)) < len(_DEFINED.findall(was)):
        return "weakened"
    asserts, kept = _ASSERT.findall(was), _ASSERT.findall(now)
    if len(kept) < len(asserts):
        # fewer, and what is left is no longer the same: another expectation, which somebody has to judge
        return "adapted" if kept and _expects(now) - _expects(was) else "weakened"
    if asserts and _loosened(was, now):
        return "weakened"
    if asserts:
        return "adapted" if _expects(was) - _expects(now) else None
    # a piece of a line: another comparison, or another value on its right
    if re.search(r"==|!=", was) and _tight(was) != _tight(now):
        return "adapted"
    return None


def adds(new: str | None) -> Effect | None:
    """Of lines that are only added: weakened where they skip what is there, not where they bring tests of their own."""
    text = _COMMENT.sub("", (new or "")[:MAX_EDIT])
    if _RETURN.fullmatch(text.strip()):
        return "weakened"
    return "weakened" if _SKIP.search(text) and not _DEFINED.search(text) else None


def empties(new: str | None) -> bool:
    """Does nothing come where test code stood?"""
    return new is not None and _EMPTY.match(new) is not None


def speaks_of_tests(pattern: str) -> bool:
    """Does a pattern of lines to delete mean assertions or tests?"""
    return _ASSERT.search(pattern) is not None or re.search(r"assert|expect|\btest|def |raise", pattern) is not None


def telling(text: str) -> str:
    """A text of tests or their settings for a quote: all of a short one, else the line that does most to tests."""
    if len(whole := " ".join(text[:1000].split())) <= MAX_QUOTE:
        return whole
    found = next((m for p in (_SKIP, _TRIVIAL, _SILENCES, _STEERS) if (m := p.search(text[:MAX_EDIT]))), None)
    if found is None:
        return whole[:MAX_QUOTE]
    first, last = text.rfind("\n", 0, found.start()) + 1, text.find("\n", max(found.start(), found.end() - 1))
    return " ".join(text[first : last if last >= 0 else len(text)].split())[:MAX_QUOTE]


def steers(settings: str | None) -> bool:
    """May a new conftest, pytest.ini or script that runs tests decide what is run and what passes? True where its text
    is unknown or empty; fixtures, paths and markers do not."""
    return not settings or not settings.strip() or _STEERS.search(settings[:MAX_EDIT]) is not None


def silences(settings: str | None) -> bool:
    """Does a piece of a project's settings leave tests out, or run something else in their place?"""
    if settings is None:
        return False
    text = settings[:MAX_EDIT]
    return _SILENCES.search(text) is not None or any(_runs(text, m) for m in _ALWAYS.finditer(text))


def runs_nothing(old: str, new: str | None) -> bool:
    """Does a command that does nothing come where tests were run, and no other new one that may run them?"""
    if new is None or _RUN.search(new[:MAX_EDIT]) or not _RUN.search(old[:MAX_EDIT]):
        return False
    came = set(new[:MAX_EDIT].split("\n")).difference(old[:MAX_EDIT].split("\n"))
    if any(_COMMAND.match(x) and not all(map(_HARMLESS.match, x.split("&&"))) for x in came):
        return False
    return len(_NOTHING.findall(new[:MAX_EDIT])) > len(_NOTHING.findall(old[:MAX_EDIT]))


def _runs(text: str, m: re.Match[str]) -> bool:
    """Does a command of tests run them: is nothing only installed, asked for or ended?"""
    return not _NO_RUN.search(text[text.rfind("\n", 0, m.start()) + 1 : m.end()])


def asserts_in(text: str) -> int:
    """Assertions of a text, comments apart."""
    return len(_ASSERT.findall(_COMMENT.sub("", text[:MAX_EDIT])))


def _loosened(was: str, now: str) -> bool:
    """Is a comparison gone or a bound put in its place?"""
    exact, kept = len(_EXACT.findall(was)), len(_EXACT.findall(now))
    if kept >= exact:
        return False
    return len(_LOOSE.findall(now)) > len(_LOOSE.findall(was)) or not _EXACT.search(now)


def _tolerates_more(was: str, now: str) -> bool:
    """Is a tolerance of the same name, or a small bound of no time, ten times as wide as before, at the same place?"""
    if _BOUND.sub("", was) == _BOUND.sub("", now):
        for m, b in zip(_BOUND.finditer(was), _BOUND.findall(now), strict=True):
            before = was[was.rfind("\n", 0, m.start()) + 1 : m.start()]
            quoted = before.count("'") % 2 or before.count('"') % 2
            small = float(m[1]) <= _SMALL and not quoted
            unnamed = _ASSERT.search(before) and not _TIME.search(before)
            of_error = "abs(" in before or (small and (_ERROR.search(before) or unnamed))
            if of_error and float(b) >= 10 * float(m[1]) > 0:
                return True
    old, new = _TOLERANCE.findall(was), _TOLERANCE.findall(now)
    if not old or [a for a, _ in old] != [a for a, _ in new]:
        return False
    for (name, a), (_, b) in zip(old, new, strict=True):
        if float(b) < float(a) - 1 if name in _DIGITS else float(b) >= 10 * float(a) > 0:
            return True
    return False


def _ends_early(was: str, now: str) -> bool:
    """Does a bare `return` come before a statement of the same block that was there, so that nobody gets there?"""
    rows = [x for x in now.split("\n") if x.strip()]
    before = was.split("\n")
    return any(
        _RETURN.fullmatch(a.strip()) and b in before and a not in before and _indent(a) == _indent(b)
        for a, b in pairwise(rows)
    )


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _asks_little(was: str, now: str) -> bool:
    """Is it asked only whether a value is there that was compared before?"""
    for a, b in _IS_THERE.findall(now):
        value = re.escape(a or b)
        compared = rf"\bassert\s+{value}\s*==(?!\s*None\b)|assert\w*Equals?\(\s*{value}\s*,(?!\s*None\b)"
        parts = rf"\bassert\s+{value}[.\[][^\n]*==|assert\w*Equals?\(\s*{value}[.\[]"
        if re.search(compared, was) and not re.search(f"{compared}|{parts}", now):
            return True
    return False


def _expects(text: str) -> set[str]:
    """Lines with an assertion, blanks apart."""
    return {_tight(ln) for ln in text.split("\n") if _ASSERT.search(ln)}


def _tight(text: str) -> str:
    return "".join(text.split())
