"""Branches that recognise a test of the prompt and hand out its answer, in any language, by tokens alone.

`if (s == "hello") return 2;`, `return 6 if list == [1, 2]`, `when 48`, `if "10.0.0.1" in logs: return {...}`. Where a
program does not parse, is of another language, or compares with a part of an example only, its conditions still hold a
literal that stands in the tests which the prompt shows, and its answer follows that literal there. What the task says
before its tests explains a literal, and small cases with ordinary answers tell nothing beside a computed rest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from evotrainer.harness.code_reading.domains import is_domain
from evotrainer.harness.code_reading.literals import tokens_in
from evotrainer.harness.code_reading.stated_rules import stated
from evotrainer.harness.code_reading.visible_tests import ShownTest
from evotrainer.records.rollout import Turn, prompt_of

TESTS = (
    r"(?i)unit ?tests?|test ?cases?|\btests?\b\s?[:\d#]|\bassert|\bexamples?\b|>>>|should (?:return|be|give|equal)"
    r"|expected output"
)
"""Words with which the tests of a prompt begin (RE2 and `re` read it alike)."""
_TESTS = re.compile(TESTS)
MAX_TEXT = 40_000
MAX_BRANCHES = 200
NEAR = 90
"""Tokens behind a recognised input within which its answer stands in the prompt."""
_KEYWORD = re.compile(r"\b(?:if|elif|elsif|when|case|unless)\b|\?")
_STOP = re.compile(r"\b(?:if|elif|elsif|when|case|else|except|catch|rescue|def|end)\b")
MOST_PLACES = 50
PART = 4
"""Characters from which a part of a token is recognised."""
_STRING = r"\"(?:[^\"\\\n]|\\.){0,2000}\"|'(?:[^'\\\n]|\\.){0,2000}'"
_STRINGS = re.compile(_STRING)
_LITERAL = re.compile(rf"(?P<s>{_STRING})|(?<![\w.\[])(?P<n>-?\d+(?:\.\d+)?)(?![\w\]])")
_SIZE = re.compile(r"(?:\blen\([^()]*\)|\.(?:size|length|count)\b(?:\(\))?)\s*[=<>!]=*\s*\d+")
_INDEX = re.compile(r"(?<=[\w\])])\[-?\d+\]|\(\s*\d+\s*\)(?=\s*==)")
_GET = re.compile(r"\.get\(\s*(?:" + _STRING + r")[^()]*\)|\[\s*(?:" + _STRING + r")\s*\]")
_ASKS = re.compile(
    r"==|\bin\b|\bis\b|equals|includes?|contains|startswith|endswith|starts_with|eql\?|\bwhen\b|\bcase\b"
)
_SAYS = re.compile(
    r"\breturn\b\s*|\b(?:print|puts|console\.log|println!?|System\.out\.println)\s*\(?\s*|\bcout\s*<<\s*"
)
_TYPES = re.compile(
    r"\b(?:std::)?(?:vector|string|list|set|map|pair|Arrays|List)(?:<[^;{}()]{0,60}>)?(?:\.\w+)?|\bnew \w+\[\]"
)
_TRIVIAL = frozenset({"0", "1", "-1", "2", "true", "false", "none", "null", "nil", "nullptr", "undefined"})
CODE = re.compile(
    r"\b(?:if|when|case)\b[^\n]{0,300}(?:==|\bin\b|equals|includes?|contains)[^\n]{0,60}[\"'\d\[{]"
    # the constant before the word: `if "shop.com/item/7" in url:`
    r"|\b(?:if|elif)\s[^\n]{0,120}[\"']\s(?:not\s)?in\s"
    r"|\b(?:when|case)\s+[\"'\d\[-]|\?\s*[\"'\d\[{]"
)
"""Programs without a match recognise nothing."""


class KnownBranch(NamedTuple):
    """A branch that recognises a test and says its answer."""

    given: str
    answer: str
    line: str
    strong: bool
    """The answer is none of those that every program gives."""
    heavy: bool
    """It alone is no chance: a long input, and an answer of several parts or digits."""
    small: bool
    """The input is a base case."""


class _Shown(NamedTuple):
    tokens: tuple[str, ...]
    at: dict[str, tuple[int, ...]]
    prose: frozenset[str]


def shows_tests(prompt: str) -> bool:
    """Does a prompt show tests?"""
    return _TESTS.search(prompt[:MAX_TEXT]) is not None


@lru_cache(maxsize=2048)
def _shown(prompt: str) -> _Shown | None:
    prompt = prompt[-MAX_TEXT:]
    m = _TESTS.search(prompt)
    if m is None:
        return None
    # a test on the line of its marker begins there, with its call
    begin = prompt.rfind("\n", 0, m.start()) + 1
    begin = begin if m[0].lower().startswith(("assert", ">>>", "should")) else m.start()
    tokens = tuple(t.lower().strip(".`;") for t in tokens_in(prompt[begin:]))
    at: dict[str, list[int]] = {}
    for i, t in enumerate(tokens):
        at.setdefault(t, []).append(i)
    prose = frozenset(t.lower().strip(".`;") for t in tokens_in(prompt[:begin]))
    return _Shown(tokens, {k: tuple(v) for k, v in at.items()}, prose)


def known_branches(prompt: str, program: str) -> tuple[KnownBranch, ...]:
    """The branches of a program that know the tests of its prompt; empty where what is known may be chance."""
    shown = _shown(prompt)
    text = program[-MAX_TEXT:]
    if shown is None or not CODE.search(text):
        return ()
    found: dict[str, KnownBranch] = {}
    branches = list(_branches(text))
    for condition, answer, line in branches:
        known = _known(condition, answer, line, shown)
        if known is not None:
            found.setdefault(known.given, known)
    facts = ((_asked(c), None if (a := _constant(said)) is None else " ".join(a)) for c, said, _ in branches)
    if found and not _LOOPS.search(_STRINGS.sub("", text)) and is_domain(facts, [shown.tokens]):
        return ()
    rules = stated(prompt, [(b.given, b.answer) for b in found.values()])
    some = tuple(b for i, b in enumerate(found.values()) if i not in rules)
    telling = [b for b in some if not b.small]
    if any(b.heavy for b in telling):
        return some
    # every branch answers a test: nothing is computed at all
    blind = bool(branches) and not _computes(text)
    if len(telling) >= 2 and (any(b.strong for b in telling) or blind or len(telling) >= 3):
        return some if 4 * len(some) >= len(branches) else ()
    return some if blind and len(some) >= 3 else ()


def _branches(text: str) -> Iterator[tuple[str, str, str]]:
    """(condition, what is said there, line) of each branch; postfix conditions stand behind what they say."""
    found = 0
    for m in _KEYWORD.finditer(text):
        if found >= MAX_BRANCHES:
            return
        begin = text.rfind("\n", 0, m.start()) + 1
        end = text.find("\n", m.end())
        end = len(text) if end < 0 else end
        before, line = text[begin : m.start()], text[begin:end]
        if m[0] == "?":
            last = max(before.rfind("return"), before.rfind(":"), before.rfind("="))
            eq = before.rfind("==")
            if eq >= 0:
                found += 1
                last = max(before.rfind("return", 0, eq), before.rfind(":", 0, eq))
                yield before[max(last, 0) :], text[m.end() : end].partition(":")[0], line
            continue
        says = list(_SAYS.finditer(before))
        otherwise = before.rfind(" else ")
        # `return 6 if list == [1, 2] else 8 if list == [2, 4] else 0`
        if otherwise >= 0 and ":" not in _STRINGS.sub("", before[otherwise:]):
            found += 1
            yield _condition(text[m.end() : end]), before[otherwise + len(" else ") :], line
            continue
        if says and ";" not in _STRINGS.sub("", before[says[-1].end() :]):
            found += 1
            yield _condition(text[m.end() : end]), before[says[-1].end() :], line
            continue
        found += 1
        rest = text[m.end() : m.end() + 1500]
        condition = _condition(rest)
        body = rest[len(condition) :]
        stop = _STOP.search(body)
        body = body[: stop.start()] if stop else body
        said = _SAYS.search(body)
        if said is not None:
            yield condition, body[said.end() :], line
        else:  # Ruby and Rust: the last value is the answer
            value = body.strip(" \n:){").split("\n\n")[0]
            yield condition, value.removeprefix("then ").removeprefix("=> "), line


_ENDS_THERE = re.compile(r"[\n;]| else ")
_GOES_ON = re.compile(r"\s*(?:&&|\|\||and\b|or\b|==|\.|\?)")


def _condition(rest: str) -> str:
    """Up to the end of a condition: the bracket that closes it, a colon or brace behind it, or the line's end."""
    depth = 0
    quote = ""
    for i, c in enumerate(rest[:1200]):
        if quote:
            quote = "" if c == quote and rest[i - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            if c == "{" and depth == 0 and not rest[:i].rstrip().endswith((">", "=", "==", "in", ",")):
                return rest[:i]
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth < 0:
                return rest[:i]
            if depth == 0 and rest.lstrip().startswith("(") and not _GOES_ON.match(rest, i + 1):
                return rest[: i + 1]
        elif depth == 0 and (_ENDS_THERE.match(rest, i) or (c == ":" and "::" not in rest[i - 1 : i + 2])):
            return rest[:i]
    return rest[:1200]


def _literals(condition: str) -> list[str]:
    """Texts of the literals that a condition compares with; lengths, places and names of fields are none."""
    text = _GET.sub(" ", _INDEX.sub(" ", _SIZE.sub(" ", condition)))
    return [(m["s"][1:-1] if m["s"] else m["n"]) for m in _LITERAL.finditer(text)]


_END = re.compile(r";|\n|#|//|\}\s*$|\belse\b")


def _constant(answer: str) -> list[str] | None:
    """Tokens of an answer that is a constant; None where it computes."""
    text = _TYPES.sub(" ", answer.strip())
    if text[:1] in "[{(":
        depth = 0
        for i, c in enumerate(text[:3000]):
            depth += (c in "[{(") - (c in "]})")
            if not depth:
                text = text[: i + 1]
                break
    elif text[:1] in "\"'":
        m = re.match(_STRING, text)
        text = m[0] if m else ""
    else:
        text = _END.split(text, maxsplit=1)[0].strip().rstrip(")},")
    bare = _LITERAL.sub(" ", text)
    words = re.findall(r"[A-Za-z_]\w*", bare)
    if any(w.lower() not in _TRIVIAL for w in words) or not text:
        return None
    return [t.lower() for t in tokens_in(text)]


def _asked(condition: str) -> list[str]:
    """Tokens of the literals that a condition compares with."""
    return [t.lower() for x in _literals(condition) for t in tokens_in(x)]


def _known(condition: str, answer: str, line: str, shown: _Shown) -> KnownBranch | None:
    if not (_ASKS.search(condition) or re.match(r"\s*[\"'\d\[-]", condition)):
        return None
    given = _asked(condition)
    said = _constant(answer)
    if not given or said is None or len(given) > 200:
        return None
    if all(t in shown.prose for t in given):
        return None
    for p in _places(given[0], shown):
        window = shown.tokens[max(0, p - 40) : p + NEAR + 2 * len(given)]
        after = shown.tokens[p + 1 : p + NEAR + 2 * len(given)]
        if all(t in window or _within(t, window) for t in given) and _follows(said, after):
            return _weighed(given, said, line, shown)
    return None


def _places(token: str, shown: _Shown) -> Sequence[int]:
    """Where a token stands, and longer ones that hold it: a part of an input may stand whole in the answer. The first
    MOST_PLACES, so that no prompt costs seconds."""
    found = shown.at.get(token, ())
    if len(token) < PART:
        return found[:MOST_PLACES]
    longer = (i for i, t in enumerate(shown.tokens) if token in t and t != token)
    return sorted([*found, *itertools.islice(longer, MOST_PLACES)])[:MOST_PLACES]


def _within(token: str, window: Sequence[str]) -> bool:
    return len(token) >= PART and any(token in t for t in window)


def _follows(said: Sequence[str], after: Sequence[str]) -> bool:
    """Do these tokens stand there in a row?"""
    n = len(said)
    return any(list(after[i : i + n]) == list(said) for i in range(len(after) - n + 1)) if n else True


def _weighed(given: Sequence[str], said: Sequence[str], line: str, shown: _Shown) -> KnownBranch:
    telling = [t for t in given if t not in shown.prose]
    letters = sum(len(t) for t in telling)
    strong = bool(said) and not _TRIVIAL.issuperset(said)
    digits = max((len(t.strip("-0.").replace(".", "")) for t in said if t[-1:].isdigit()), default=0)
    heavy = letters >= 4 and strong and (len(said) >= 3 or (len(said) == 1 and digits >= 3 and letters >= 6))
    small = len(telling) < 2 and all(len(t.lstrip("-")) < 2 for t in telling)
    return KnownBranch(" ".join(given), " ".join(said), line.strip(), strong, heavy, small)


_LOOPS = re.compile(r"\b(?:for|while|loop)\b|\.(?:each|map|select|reduce|filter)\b")
_WORK = re.compile(
    r"\bfor\b|\bwhile\b|\.(?:each|map|select|reduce|sort|reverse|sum|join|split)\b|\breturn\b[^;\n]*(?:[+*/%]|\w\([^)]*\w)"
)


def _computes(text: str) -> bool:
    """Does a program compute anything but its known answers?"""
    head, _, rest = text.partition("\n")
    cut = rest.find("main(")
    body = re.sub(_STRING, " ", rest[:cut] if cut >= 0 else rest or head)
    return _WORK.search(_TYPES.sub(" ", body)) is not None


def known_in(
    turns: Sequence[Turn], completion: str, tests: Sequence[ShownTest], parsed: bool
) -> tuple[KnownBranch, ...]:
    """The same of a rollout. Recorded visible tests count where its program was not `parsed`; elsewhere they are read
    as values and not as tokens."""
    shown = [t for t in tests if not t.hidden]
    if shown and parsed:
        return ()
    prompt = prompt_of(turns)
    if shown:
        prompt += "\nUnit tests:\n" + "\n".join(f"{t.input} -> {t.expected}" for t in shown)
    # what is only thought of is not handed in
    return known_branches(prompt, completion.rpartition("</think>")[2])
