"""Examples that a prompt shows: tests that stand nowhere else.

Problem statements show them in few ways: "Input ... Output ..." on lines of their own, with or without fences, colons
and numbers; `**Input:** nums = [2,7], target = 9`; assertions and doctests; `f(3) -> 8`; JSON rows with an input and an
output; "if the input is 5, the output should be 8". What is read are these; a prompt without any was looked at in vain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from evotrainer.harness.code_reading.literals import text_of
from evotrainer.harness.code_reading.recognised import examples_in
from evotrainer.harness.code_reading.visible_tests import ShownTest

SHOWS = (
    r"(?i)>>>|\bassert\b|->|=>|→|returns\s|"
    r"(?:^|\n)[^\n:.;]{0,24}(?:input|output)[^\n:.;]{0,16}(?::|\n)|[\"'](?:input|output|expected)\w*[\"']\s*:|"
    r"\binput\s(?:is|was|of)\b|\breturn\s"
)
"""Prompts without a match show no example (RE2 and `re` read it alike)."""
MAX_PROMPT = 60_000
MAX_EXAMPLES = 64
MAX_RECORD = 20_000
MAX_LINES = 60
"""Lines of one input or output."""
_HEAD = re.compile(
    r"^[\s#*_>`-]{0,8}(?:(?:sample|example|test\s?case|case|standard)s?[\s#\d:.*_]{0,8})?(?P<what>input|output)s?"
    r"(?:\s?(?:example|sample|#)?\s?\d{0,3})?(?:\s?\((?:stdin|stdout)\))?\s?(?P<colon>[:*_`\s=]{0,8})(?P<rest>.*)$",
    re.IGNORECASE,
)
_ENDS = re.compile(
    r"^[\s#*_>-]{0,8}(?:explanation|note|constraints?|examples?(?:\s?\d+)?|sample(?:s|\s?\d+)?|hints?|follow[- ]up"
    r"|scoring|test\s?cases?|case\s?\d|-{3,}|={3,}|your (?:task|code)|solve|write|please)\b",
    re.IGNORECASE,
)
_STOP = "Example"
_ROW = re.compile(r"\{[^{}]{1,2000}\}")
_GIVEN, _WANTED = ("input", "inputs", "stdin", "args"), ("output", "outputs", "expected_output", "expected", "stdout")
_SENTENCE = re.compile(
    r"\b(?:input|n|x|s|argument|call|given|for|when)\s(?:is|was|of|input|=)?\s{0,2}`?(?P<given>-?\d[\d.]*|\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'"
    r"|\[[^\]\n]{1,300}\])`?,?\s(?:the\s)?(?:output|result|answer|function|it|you|program|expected|return)[^.\n\d\"'\[]{0,40}?"
    r"`?(?P<wanted>-?\d[\d.]*\d|-?\d|\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|\[[^\]\n]{1,300}\])",
    re.IGNORECASE,
)
_ARROW = re.compile(
    r"^[\s#*_>-]{0,8}(?:example|sample|case)s?\s?\d{0,3}[:.)*\s]{1,4}(?P<given>[A-Za-z_]\w{0,30}\s?=\s?[^\n]{1,600}?)"
    r"\s{0,3}(?:→|->|=>)\s{0,3}(?P<wanted>[^\s(][^\n(]{0,200})$",
    re.IGNORECASE | re.MULTILINE,
)
_NAME = re.compile(r"(?:^|(?<=,)|(?<=\n))\s{0,4}[A-Za-z_]\w{0,30}\s?=\s?(?!=)")
_VALUE = re.compile(r"\s*(\"[^\"\n]*\"|'[^'\n]*'|-?\d+(?:\.\d+)?)(?:[\s,.;`]|$)")
_MESSAGE = re.compile(r",\s*f?[\"'][^\n]*$")


class PromptExamples(NamedTuple):
    """What a prompt shows, and the prompt without it."""

    tests: tuple[ShownTest, ...]
    rest: str
    """What names a literal outside of the examples."""


@lru_cache(maxsize=2048)
def prompt_examples(prompt: str) -> PromptExamples:
    """The examples of a prompt, at most MAX_EXAMPLES, as visible tests without a verdict."""
    prompt = prompt[:MAX_PROMPT]
    pairs: dict[tuple[str, str], None] = {}
    rest: list[str] = []
    for given, wanted in _of_lines(prompt.splitlines(), rest):
        pairs[given, wanted] = None
    text = "\n".join(rest)
    gone: list[str] = []
    for given, wanted, said in (*_of_rows(text), *_of_sentences(text)):
        pairs[given, wanted] = None
        gone.append(said)
    for e in examples_in(text):
        whole = _VALUE.match(e.expected)
        wanted = whole[1] if whole else _MESSAGE.sub("", e.expected).strip().rstrip(".,;`")
        if e.given and wanted:
            pairs[e.given, wanted] = None
    for said in gone:
        text = text.replace(said, "\n")
    above = ""
    calls = [f"({g})" for g, _ in pairs]
    kept: list[str] = []
    for line in text.split("\n"):
        # what a doctest prints stands below it
        shows = any(c in line.replace("( ", "(").replace(" )", ")") for c in calls) or (">>>" in above)
        kept += [] if shows else [line]
        above = line
    text = "\n".join(kept)
    for given, wanted in list(pairs):
        if (bare := _bare(given, wanted)) is not None:
            pairs[bare] = None
    tests = tuple(_test(g, w) for g, w in list(pairs)[:MAX_EXAMPLES])
    return PromptExamples(tests, text.removesuffix("\n" + _STOP))


def shown_by(prompt: str, tests: Sequence[ShownTest]) -> tuple[str, tuple[ShownTest, ...], bool]:
    """(text that names literals, visible tests, are they the prompt's own?): those that are recorded, else the examples
    that the prompt shows."""
    shown = tuple(t for t in tests if not t.hidden)
    if shown:
        return prompt, tuple(tests), False
    found = prompt_examples(prompt)
    return found.rest, found.tests, True


def _test(given: str, wanted: str) -> ShownTest:
    return ShownTest("visible", False, given[:2000].strip(), wanted[:2000].strip(), True, "", None, False, "")


def _of_lines(lines: list[str], rest: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs of an input and an output below such headings; the lines of neither go to `rest`."""
    held: dict[str, list[str]] = {}
    now = ""
    formal = False
    fence = False
    for line in [*lines, _STOP]:
        head = None if fence else _HEAD.match(line)
        if head is not None and head["rest"] and not head["colon"].strip(" "):
            head = None  # a sentence that begins with the word
        if line.lstrip().startswith(("```", "~~~")):
            fence = not fence
            if now and held.get(now):
                now = now if fence else ""
            continue
        if head is not None:
            what = head["what"].lower()
            if what == "input" and "output" in held:
                yield from _pair(held, rest)
            formal = False
            held[what] = [head["rest"].strip("`* ")] if head["rest"].strip("`* ") else []
            now = what
        elif now and not fence and (_ENDS.match(line) or (formal and not line.strip())):
            yield from _pair(held, rest)
            now = ""
            rest.append(line)
        elif now and len(held[now]) < MAX_LINES:
            held[now].append(line)
        else:
            rest.append(line)
    yield from _pair(held, rest)


def _pair(held: dict[str, list[str]], rest: list[str]) -> Iterator[tuple[str, str]]:
    """The pair that is held, if it is one; prose below a heading that describes the form of input is none."""
    given, wanted = (_block(held.get(k, [])) for k in ("input", "output"))
    both = "input" in held and "output" in held
    if both and given and wanted and not (_prose(given) or _prose(wanted)):
        yield _unnamed(given), wanted
    else:
        rest += [x for k in held for x in held[k]]
    held.clear()


def _block(lines: list[str]) -> str:
    """The lines up to an empty one behind which words stand; quotes and code marks apart."""
    kept: list[str] = []
    for i, x in enumerate(lines):
        if not x.strip() and kept and (i + 1 >= len(lines) or _prose(lines[i + 1]) or _whole("\n".join(kept))):
            break
        kept.append(x.strip().strip("`"))
    return "\n".join(kept).strip()


def _whole(text: str) -> bool:
    """Is it a record or a list, from its first bracket to its last? Then what follows is no part of it."""
    return text[:1] in "{[" and _parsed(text) is not None


def _parsed(text: str) -> object:
    try:
        return json.loads(text) if text[:1] in "{[" and len(text) <= MAX_RECORD else None
    except (ValueError, RecursionError):
        return None


def _bare(given: str, wanted: str) -> tuple[str, str] | None:
    """The same example by its values alone, where input or output is a record: programs compare with these."""
    record, answer = _parsed(given), _parsed(wanted)
    if not isinstance(record, dict) and not isinstance(answer, dict):
        return None
    if isinstance(record, dict):
        given = ", ".join(json.dumps(v) for v in record.values())
    if isinstance(answer, dict) and len(answer) == 1:
        answer = next(iter(answer.values()))
    return given, wanted if answer is None else answer if isinstance(answer, str) else text_of(answer)


_WORDS = re.compile(r"\b[a-z]{2,}\b")


def _prose(text: str) -> bool:
    """Does a text describe something, and not show it?"""
    first = text.strip().split("\n", 1)[0]
    plain = len(_WORDS.findall(first)) > 3 and re.search(
        r"\b(?:the|a|an|is|are|of|each|contains?|consists?|single|line|will)\b", first
    )
    return bool(plain) and not first.startswith(("[", "{", '"', "'"))


def _unnamed(given: str) -> str:
    """`nums = [2,7], target = 9` without its names, as the arguments of a call."""
    return _NAME.sub(" ", given).strip() if "=" in given else given


def _of_rows(text: str) -> Iterator[tuple[str, str, str]]:
    """JSON rows with an input and an output."""
    for m in _ROW.finditer(text) if '"' in text else ():
        try:
            row = json.loads(m[0])
        except ValueError:
            continue
        given, wanted = (next((row[k] for k in keys if k in row), None) for keys in (_GIVEN, _WANTED))
        if given is not None and wanted is not None:
            yield _shown(given), _shown(wanted), m[0]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_sentences(text: str) -> Iterator[tuple[str, str, str]]:
    """Examples within a sentence, or in a line of their own: `Example 2: a = [1, 2], k = 3 → 5`."""
    for m in _SENTENCE.finditer(text):
        yield m["given"], m["wanted"], m[0]
    for m in _ARROW.finditer(text):
        yield _unnamed(m["given"]), m["wanted"].strip().rstrip(".,;`"), m[0]
