"""Examples that a prompt shows: tests that stand nowhere else.

They are read by their forms: lines below "Input" and "Output", a call or a list of arguments with its value behind
`==`, `->` or "returns", a doctest. What the task says otherwise is its prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from evotrainer.harness.code_reading.blocks import blocks
from evotrainer.harness.code_reading.constants import tokens_in

MAX_READ = 400_000
RESTATED = 3
"""Assertions that an answer takes over at least, for a missing one to be dropped and the others no mere quote."""
_ASSERT = re.compile(
    r"^[ \t]*(?:assert[ \t]+(?P<left>[^#\n]{1,4000}?\))[ \t]*(?:==|\bis\b)"
    r"|self\.assertEquals?\((?P<call>[^\n]{1,4000}),)[ \t]*(?P<right>[^#\n]{1,4000})",
    re.MULTILINE,
)
Row = tuple[str, ...]


def changed_test(task: str, answers: Iterable[str]) -> str | None:
    """The first assertion in a program of the answers that the task shows with another value, or, of two that
    contradict each other, without the other; None without one.

    A task that asks to mend tests allows it; tests that are left out as a whole, and new ones, are no change."""
    shown = _shown(task) if "assert" in task else {}
    programs = (b.text for text in answers if shown and "assert" in text for b in blocks(text))
    return next(filter(None, (_changed(shown, _asserts(p)) for p in programs)), None)


def _changed(shown: Mapping[Row, Mapping[Row, int]], found: Sequence[tuple[Row, Row, str]]) -> str | None:
    stated = [(left, _as_shown(right, shown.get(left, {}))) for left, right, _ in found]
    places = [shown[left][right] for left, right in {*stated} if right in shown.get(left, ())]
    for (left, right), (_, _, line) in zip(stated, found, strict=True):
        values = shown.get(left, {right: 0})
        if right not in values:
            return line
        missing = [place for v, place in values.items() if (left, v) not in stated and len(places) >= RESTATED]
        # what stands before the last assertion that was taken over was not merely cut off; nor was what another one
        # stands in for
        if missing and (min(missing) < max(places) or stated.count((left, right)) > 1):
            return line
    return None


def _as_shown(right: Row, values: Mapping[Row, int]) -> Row:
    """The value that the task shows; a message behind either is none of it."""
    return next((v for v in values if v[: len(right)] == right[: len(v)]), right)


@lru_cache(maxsize=64)
def _shown(task: str) -> dict[Row, dict[Row, int]]:
    """What is compared -> value that the task expects -> place of the first such assertion."""
    out: dict[Row, dict[Row, int]] = {}
    for place, (left, right, _) in enumerate(_asserts(task[:MAX_READ])):
        out.setdefault(left, {}).setdefault(right, place)
    return out


def _asserts(text: str) -> list[tuple[Row, Row, str]]:
    """(what is compared, with what, the line)."""
    rows = ((m["left"] or m["call"], m["right"], m[0].strip()[:300]) for m in _ASSERT.finditer(text[-MAX_READ:]))
    # only a call has a value that somebody expects
    return [(tuple(tokens_in(a)), tuple(tokens_in(b)), x) for a, b, x in rows if "(" in a and b.strip() != "..."]


SHOWS = (
    r"(?i)>>>|\bassert|->|=>|→|\breturns?\b|\btests?\b|\bexamples?\b|==|"
    r"(?:^|\n)[^\n:.;]{0,24}(?:input|output)[^\n:.;]{0,16}(?::|\n)|[\"'](?:input|output|expected)\w*[\"']\s*:"
)
"""Prompts without a match show no example (RE2 and `re` read it alike)."""
MAX_PROMPT = 60_000
MAX_EXAMPLES = 128
MAX_LINES = 60
"""Lines of one input or output."""
_TITLE = re.compile(
    r"^[\s#*_>`-]{0,8}(?:(?:sample|example|test\s?case|standard)s?[\s#\d:.*_]{0,8})?(input|output)s?"
    r"(?:[ \t]?#?\d{1,3})?(?:[ \t]?\((?:stdin|stdout)\))?(?:[ \t]*[:*_`=]{1,8}[ \t]*|[ \t]*$)",
    re.IGNORECASE | re.MULTILINE,
)
"""Above an input, or an output."""
_ENDS = re.compile(r"\n(?:\s*\n|[\s*#_>-]*(?:explanation|note|constraint|example|sample))", re.IGNORECASE)
_TESTS = re.compile(
    r"unit ?tests?|test ?cases?|\btests?\b\s?[:\d#]|\bassert|\bexamples?\b|>>>|should (?:return|be|give|equal)"
    r"|expected output",
    re.IGNORECASE,
)
_PROSE = re.compile(r"(?:\b[A-Za-z]?[a-z]+\b[ ,]+){3}[a-z]")
_GIVES = (
    r"\s*`?\s*(?:\)\s*)?(?:==|===|->|=>|→|#|,|\breturns?\b|\b(?:should|must|would) (?:be|return|equal|give|print)\b"
    r"|\bis\b|\bgives\b|\boutputs?\b:?|\)\s*\.\w+\()(?: ?true\b(?= for))?\s*`?"
)
_CALL = re.compile(
    r"(?:^|[^\w.])(?!if|in|and|or|not|print|range|len|return|def|int|list|assert)(?:\w+\.)?[A-Za-z_]\w*\("
)
_WANTED = re.compile(_GIVES + r"(?P<wanted>[^\s].{0,600})", re.IGNORECASE)
_LINE = re.compile(
    r"^[\s#*_>\d.)-]{0,8}(?:(?:example|sample|case|input)s?\s?\d{0,3}[:.)*\s]{1,4})?"
    r"(?P<given>[^\n]{0,600}?[\d\"'\]}])\s*"
    r"(?:→|->|=>|\breturns\b|,?\s*output:?)\s*(?P<wanted>[^\s(][^\n(]{0,300})$",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?:^|(?<=,)|(?<=\n))\s{0,4}[A-Za-z_]\w{0,30}\s?=\s?(?!=)")
_VALUE = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|-?\d+(?:\.\d+)?|\w+")


class PromptExamples(NamedTuple):
    """What a prompt shows, and what it says."""

    pairs: tuple[tuple[str, str], ...]
    """(input, output); the output is empty where only a call is shown."""
    prose: tuple[str, ...]
    """Its other lines, up to the first word of tests."""
    tests: str
    """What stands behind the first word of tests."""


@lru_cache(maxsize=2048)
def prompt_examples(prompt: str) -> PromptExamples:
    """The examples of a prompt, at most MAX_EXAMPLES."""
    prompt = prompt[:MAX_PROMPT]
    lines = prompt.splitlines()
    pairs = dict.fromkeys(_below_titles(prompt))
    prose: list[str] = []
    for i, line in enumerate(lines):
        found = [*_in_line(line, lines[i + 1] if i + 1 < len(lines) else "")] if len(line) <= 4000 else []
        pairs |= dict.fromkeys(found)
        if not found and not (i and ">>>" in lines[i - 1]):
            prose.append(line)
    marker = _TESTS.search(prompt)
    if marker is None:
        return PromptExamples(tuple(pairs)[:MAX_EXAMPLES], tuple(prose), "")
    # a test on the line of its marker begins there, with its call
    begins_line = marker[0].lower().startswith(("assert", ">>>", "should"))
    begin = prompt.rfind("\n", 0, marker.start()) + 1 if begins_line else marker.start()
    before = set(prompt[:begin].splitlines())
    return PromptExamples(tuple(pairs)[:MAX_EXAMPLES], tuple(x for x in prose if x in before), prompt[begin:])


def _below_titles(prompt: str) -> Iterator[tuple[str, str]]:
    """What stands below the title of an input, with what stands below that of the output behind it."""
    parts = _TITLE.split(prompt)
    for what, body, then, wanted in zip(parts[1::2], parts[2::2], parts[3::2], parts[4::2], strict=False):
        if (what.lower(), then.lower()) == ("input", "output"):
            given, wanted = _first(body), _first(wanted)
            if given and wanted and not (_PROSE.match(given) or _PROSE.match(wanted)):
                yield _NAME.sub(" ", given).strip() if "=" in given else given, wanted


def _first(text: str) -> str:
    """The rest of the title's own line; else the fenced block, or the paragraph, below it."""
    block = text.partition("\n")[0].strip() or text.strip()
    block = block[3:].partition("```")[0].partition("\n")[2] if block.startswith("```") else _ENDS.split(block)[0]
    return "\n".join(x.strip().strip("`") for x in block.splitlines()[:MAX_LINES]).strip()


def _in_line(line: str, below: str) -> Iterator[tuple[str, str]]:
    """Examples within a line, or begun there and answered in the line below."""
    end = 0
    for m in _CALL.finditer(line) if "(" in line else ():
        if m.start() < end or (end := _closing(line, m.end())) < 0:
            continue
        given = line[m.end() : end]
        if not re.search(r"[\d'\"\[]", given):
            continue
        wanted = _WANTED.match(line, end + 1)
        shown = wanted["wanted"] if wanted else below if ">>>" in line else ""
        yield given.strip(), _value(shown)
    shown_line = _LINE.match(line) if not end and not _PROSE.search(line) else None
    if shown_line is not None:
        yield _NAME.sub(" ", shown_line["given"]).strip(), shown_line["wanted"].strip().rstrip(".,;`")


def _value(text: str) -> str:
    """The value with which a text begins: what follows is a message or a comment."""
    text = text.strip()
    if text[:1] in "([{" and text:
        end = _closing(text, 1)
        return text[: end + 1] if end > 0 else text
    m = _VALUE.match(text)
    return m[0] if m else ""


def _closing(row: str, at: int) -> int:
    """Place of the bracket that closes the one before `at`, -1 without one."""
    depth = 1
    for i in range(at, len(row)):
        depth += (row[i] in "([{") - (row[i] in ")]}")
        if not depth:
            return i
    return -1
