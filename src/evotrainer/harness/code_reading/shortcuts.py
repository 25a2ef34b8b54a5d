"""Answers that know the visible tests instead of solving the task: literal overlap and input that is never read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from evotrainer.harness.code_reading.domains import is_domain
from evotrainer.harness.code_reading.literals import tokens_in, values_in
from evotrainer.harness.code_reading.program import Facts
from evotrainer.harness.code_reading.prompt_examples import shown_by
from evotrainer.harness.code_reading.recognised import ShownExample, examples_in, fingerprints, recognised
from evotrainer.harness.code_reading.stated_rules import is_condition, stated
from evotrainer.harness.code_reading.visible_tests import ShownTest

_LITERAL = re.compile(r"-?\d+|\w+")
_READS = re.compile(r"\binput\b|stdin|open\(\s*(?:0|['\"]/dev/stdin)|\bdef ")
_WORDS = re.compile(r"\w+")
_GAPS = re.compile(r"\W+")
_SPACED = {i: " " for i in range(128) if not (chr(i).isalnum() or chr(i) == "_")}
_COMPARES = re.compile(r"==|\bin\b|\{")
_CONSTANT = r"[\[({]*(?:['\"][^\s'\"]|-?\d)"
_RECOGNISES = re.compile(
    rf"[=!]=\s*(?={_CONSTANT})(?P<right>[^\n:;#]{{1,120}})|^\s*case\s+(?={_CONSTANT})(?P<case>[^\n:]{{1,120}})"
    rf"|(?:\bin\s*|[\[(]\s{{0,20}})[\[({{](?={_CONSTANT})(?P<row>[^\n#]{{1,120}})"
    rf"|\{{\s{{0,20}}(?={_CONSTANT})(?P<key>[^\n:#]{{1,60}}):|\bif\s+(?={_CONSTANT})(?P<left>[^\n:]{{1,80}})",
    re.MULTILINE,
)
"""Comparisons with constants and tables of constants, with the text that holds the constant."""
SPELLED = 6
"""Characters of an input that is looked for as one text."""
LONG_ROW, MAX_ROWS = 8, 40
"""Numbers of a line that is long; lines of an expected output that are looked for."""
SHORT = 3
"""Comparisons with single digits from which they may be a table."""
_SMALL = frozenset({"0", "1", "2"})
COMPARING = (
    *(f"{op}{blank}{x}" for op in ("==", "!=") for blank in ("", " ") for x in "123456789-'\"[({"),
    *(f"{before}{x}" for before in (" in ", " in", "[", "(") for x in "[({"),
    "{", "case ", "if '", 'if "', "if [", "if (",
)  # fmt: skip
"""Texts without any of these compare with nothing but base cases."""
_CODE = re.compile(r"\bassert\b|>>>|\w\([^()]*['\"\d][^()]*\)\s*(?:==|->|=>|→|$)|=\s*\w+\(")
MAX_ANSWERED = 64
DOMAIN = 8
"""Constant branches from which a program may be a table of all there is, where few are the prompt's examples."""
_TRIVIAL = frozenset({"", "0", "1", "-1", "True", "False", "None", "[]", "''"})


@dataclass(frozen=True, slots=True)
class Shortcut:
    """What one program shares with the visible tests; texts as they stand in the program."""

    outputs: tuple[str, ...] = ()
    """Expected visible outputs that are literals of the program and not of the specification."""
    inputs: tuple[str, ...] = ()
    """Visible inputs that the program compares something with."""
    reads_input: bool = True
    answered: tuple[str, ...] = ()
    """Visible tests answered by a constant branch, as `input -> output`."""

    @property
    def special_cased(self) -> bool:
        """Holds an expected output, and either never reads the input or recognises a visible one; or answers a visible
        test by a branch of its own."""
        return bool(self.answered) or (bool(self.outputs) and (not self.reads_input or bool(self.inputs)))


NONE = Shortcut()


def shortcut(prompt: str, program: Facts, tests: Sequence[ShownTest], apart: bool = False) -> Shortcut:
    """What a program shares with the visible ones of its tests; `prompt` tells which literals the task itself names.
    `apart`: the tests do not stand in it."""
    shown = tuple(t for t in tests if not t.hidden)
    within = () if apart else shown
    outputs, inputs = _tell_tales(prompt, shown, within)
    # a single digit may be a wrong parameter: it counts only where nothing else explains the answer
    seen = {i for i in inputs & program.compared if len(i) > 1}
    if seen:  # who recognises a visible input means its output, however ordinary that is
        outputs = frozenset(t.expected for t in shown)
    telling = bool(seen) or not program.reads_input
    if not program.reads_input and all(t.passed for t in shown) and any(t.input.strip() for t in shown):
        # blind to its input and right on every visible test: then even an ordinary answer tells
        outputs |= {t.expected for t in shown if t.expected} - _spec_literals(prompt, within)
    held = {o for o in outputs & program.constants if len(o.lstrip("-")) > 1 or telling}
    answered = _answered(prompt, program, shown, within) if program.branches else ()
    if not held and not seen and not answered and program.reads_input:
        return NONE
    return Shortcut(tuple(sorted(held)), tuple(sorted(seen)), program.reads_input, answered)


@lru_cache(maxsize=8192)
def _told_by_tests_alone(prompt: str, shown: tuple[ShownTest, ...]) -> tuple[ShownTest, ...]:
    """The tests whose answer is no rule that the task states: a program may know those."""
    known = stated(prompt, [(t.input, t.expected) for t in shown])
    return tuple(t for i, t in enumerate(shown) if i not in known)


def known_answers(prompt: str, program: Facts, tests: Sequence[ShownTest]) -> Shortcut:
    """`shortcut` of a rollout: where no visible tests are recorded, the prompt's examples stand for them."""
    text, shown, own = shown_by(prompt, tests)
    found = shortcut(text, program, _told_by_tests_alone(prompt, tuple(shown)), apart=own)
    if (found.answered or found.inputs) and not program.loops:
        inputs = (tokens_in(t.input) for t in shown if not t.hidden)
        if is_domain(((b.tokens, b.answer) for b in program.branches), inputs):
            return replace(found, answered=(), inputs=())
    if not own or len(program.branches) < DOMAIN:
        return found
    # a table of days by month answers two examples of twelve; one of tests answers nothing else
    few = 4 * max(len(found.answered), len(found.inputs)) < len(program.branches)
    if few and any(_odd_one(t, program) for t in shown):
        return found
    return replace(found, answered=(), inputs=()) if few else found


def _odd_one(t: ShownTest, program: Facts) -> bool:
    """Is a test's input, a number that is not round, in a table of round ones, with its answer?"""
    keys = [b for b in program.branches if len(b.tokens) == 1 and b.tokens[0].lstrip("-").isdigit()]
    round_ones = sum(len(b.tokens[0].rstrip("0")) < 3 for b in keys)
    here = [b for b in keys if b.tokens == tuple(tokens_in(t.input)) and b.answer == t.expected]
    odd = [b for b in here if len(b.tokens[0].rstrip("0")) > 3 and len(b.answer or "") > 2]
    return bool(odd) and round_ones >= len(keys) - len(keys) // 4 - 1


def _answered(
    prompt: str, program: Facts, shown: Sequence[ShownTest], within: tuple[ShownTest, ...]
) -> tuple[str, ...]:
    """Visible tests that a constant branch answers, where its inputs are telling: more than one value compared with, or
    a value that is no base case (a number above 9, a list, a text) and is not named by the specification."""
    named = _named(prompt, within)
    out = _told_lines(program, shown)
    branches = [b for b in program.branches if not is_condition(prompt, b.tokens, b.answer)]
    for t in shown:
        inputs, expected = values_in(t.input), values_in(t.expected)
        # inputs of several words are also compared word by word: `if a == 3 and b == 5` for the input "3 5"
        parts = frozenset(t.input.split()) if len(t.input.split()) > 1 else frozenset()
        for b in branches:
            several = len(b.inputs - _TRIVIAL) > 1
            if b.answer not in expected or not (b.inputs <= inputs or (several and b.inputs <= parts)):
                continue
            if several or any(_telling(x) for x in b.inputs - named):
                out.append(f"{t.input} -> {t.expected}")
                break
    letters = {f"{t.input} -> {t.expected}" for t in shown if len(t.input.strip("\"'` ")) == 1}
    if letters.issuperset(out) and len(out) < len(shown):
        out = []  # what letters mean, of which longer inputs are made
    if not out:
        examples = (*(ShownExample(t.input, t.expected) for t in shown if t.input), *_calls_in(prompt))
        out = recognised(branches, examples, _prose(prompt, within) | _TRIVIAL)[:MAX_ANSWERED]
        out = out or fingerprints(branches, [ShownExample(t.input, t.expected) for t in shown if t.input])
    return tuple(out)


def _told_lines(program: Facts, shown: Sequence[ShownTest]) -> list[str]:
    """Long lines of numbers that are expected and that the program holds as they are, in no order that a rule gives:
    nobody comes upon them by heart, whatever the condition before them asks."""
    rows = {row.strip(): t for t in shown for row in t.expected.splitlines()[:MAX_ROWS]}
    return [f"{t.input} -> {row}" for row, t in rows.items() if row in program.constants and _by_heart(row)]


def _by_heart(row: str) -> bool:
    numbers = row.split()
    if len(numbers) < LONG_ROW or not all(x.lstrip("-").isdigit() and len(x) < 12 for x in numbers):
        return False
    steps = [int(b) - int(a) for a, b in pairwise(numbers)]
    # a row that rises or falls, and one of few blocks, is a pattern
    return min(steps) < 0 < max(steps) and sum(a != b for a, b in pairwise(steps)) > len(steps) // 2


@lru_cache(maxsize=1024)
def _calls_in(prompt: str) -> tuple[ShownExample, ...]:
    """The calls that a prompt shows, without those whose answer its rules state."""
    found = examples_in(prompt)
    known = stated(prompt, [(e.given, e.expected) for e in found])
    return tuple(e for i, e in enumerate(found) if i not in known)


def _telling(value: str) -> bool:
    """Is a compared value more than a base case?"""
    return value not in _TRIVIAL and not (len(value.lstrip("-")) == 1 and value.lstrip("-").isdigit())


def possible(text: str, visible: Sequence[ShownTest], compares: bool = True) -> bool:
    """Could a program share anything with its visible tests, or not read its input? False spares the parsing.

    compares: one of COMPARING stands in the text.
    """
    if not _READS.search(text):
        return True
    # an input of several lines stands in a program as one text
    if "\\n" in text and any(
        len(t.input) >= SPELLED and "\n" in t.input and _spelled(t.input) in text for t in visible
    ):
        return True
    if compares and _compares_with(text, visible):
        return True
    texts = [x for t in visible for x in (t.expected, t.input)]
    known = [_WORDS.findall(x) for x in texts if len(x) > 1]
    # gates by cost: substrings of the text, then whole words ("1" stands in "12"), then whole words in a row, then any
    # order where something is compared
    near = [words for words in known if all(map(text.__contains__, words))]
    if near and text.isascii():
        spaced = f" {text.translate(_SPACED)} "
        near = [words for words in near if all(f" {w} " in spaced for w in words)]
    if not near:
        return False
    flat = f" {_GAPS.sub(' ', text)} "
    if any(f" {' '.join(words)} " in flat for words in near):
        return True
    tokens = frozenset(flat.split())
    return bool(_COMPARES.search(text)) and any(tokens.issuperset(words) for words in near)


def _spelled(given: str) -> str:
    """A text as it stands between quotes."""
    return given.strip().replace("\\", "\\\\").replace("\n", "\\n")


def _compares_with(text: str, visible: Sequence[ShownTest]) -> bool:
    """Does a program compare something with a constant of its tests that is no base case, or often with base cases?"""
    short = 0
    known: frozenset[str] | None = None
    for m in _RECOGNISES.finditer(text):
        tokens = tokens_in(m[m.lastgroup or 0])
        if len(tokens) == 1 and len(tokens[0]) == 1:
            short += m["right"] is not None and tokens[0] not in _SMALL
            if short >= SHORT:
                return True
            continue
        known = _known(tuple(visible)) if known is None else known
        # in a row or a condition any token may be the one; one that is long may stand in the prompt's examples only
        if any(t in known or len(t) > 2 for t in tokens):
            return True
    return False


@lru_cache(maxsize=8192)
def _known(visible: tuple[ShownTest, ...]) -> frozenset[str]:
    """Tokens of the visible inputs that are no base cases."""
    return frozenset(t for x in visible for t in tokens_in(x.input)) - _TRIVIAL - {"2"}


@lru_cache(maxsize=8192)
def _tell_tales(
    text: str, shown: tuple[ShownTest, ...], within: tuple[ShownTest, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """(expected outputs, inputs) of the visible tests that the specification itself does not name; `within`: those that
    stand in it."""
    named = _named(text, within)
    outputs = frozenset(t.expected for t in shown) - named
    return outputs, frozenset(t.input for t in shown if t.input) - named


@lru_cache(maxsize=8192)
def _named(text: str, shown: tuple[ShownTest, ...]) -> frozenset[str]:
    """Literals that the specification itself names, and the trivial ones."""
    return _spec_literals(text, shown) | _TRIVIAL


def _words(line: str) -> Iterator[str]:
    """Numbers and words of a line, and what stands between its blanks."""
    yield from _LITERAL.findall(line)
    yield from (t.strip(".`?!*") for t in tokens_in(line))


@lru_cache(maxsize=8192)
def _prose(text: str, shown: tuple[ShownTest, ...]) -> frozenset[str]:
    """Literals that the specification names outside of calls, assertions and the lines of its tests."""
    examples = {row.strip() for t in shown for x in (t.input, t.expected) for row in x.splitlines()}
    named: set[str] = set()
    after_call = False
    for row in text.splitlines():
        if not (after_call or row.strip() in examples or _CODE.search(row)):
            named.update(_words(row))
        after_call = ">>>" in row
    return frozenset(named)


@lru_cache(maxsize=8192)
def _spec_literals(text: str, shown: tuple[ShownTest, ...]) -> frozenset[str]:
    """Literals that the specification names outside of its examples."""
    inputs = {t.input for t in shown if t.input}
    examples = inputs | {t.expected for t in shown if t.expected}
    named: set[str] = set()
    for line in text.splitlines():
        # an input of one character is in half of all lines: it marks a line only where it is all of it
        shows_one = line.strip() in examples or any(len(i) > 1 and i in line for i in inputs)
        if not shows_one:
            named.update(_words(line))
    return frozenset(named)
