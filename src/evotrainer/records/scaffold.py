"""A policy's scaffold: the texts around its tasks (system prompt, tool descriptions, format of observations).

An environment declares *slots*, each with the text that stands there by default; a recipe holds the texts that differ
(`Recipe.scaffold`), so the recipe's hash is of them. A text is shown as `<slot>@<first 12 hex digits of its SHA-256>`.
This module holds what needs no environment: what a slot is, how its text is filled in, what a text itself says against
it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from evotrainer.records.frozen import Frozen
from evotrainer.records.text import quoted
from evotrainer.records.written import DIGITS, content_name, source_lines

LABELS = ("unknown_slot", "identical", "placeholder_missing", "too_long", "reads_protected")
"""What ends a scaffold before a training, in the order in which it is looked for: what costs least first."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
PREFIX = "scaffold."
"""Of its factors: one for each slot."""
SHARED_WORDS = 8
"""Words in a row that a text may not have in common with an evaluation task, unless training tasks have them, too."""
SHORTEST_ANSWER = 16
"""Characters from which an answer is looked for: a shorter one stands in any text by chance."""


class Slot(Frozen):
    """A place for a text that surrounds the tasks, as an environment declares it."""

    name: str = Field(pattern=rf"^{NAME.pattern}$")
    about: str
    """What stands there, for whoever writes another text."""
    default: str = ""
    """The text of recipes that say nothing."""
    placeholders: tuple[str, ...] = ()
    """What the environment fills in; each stands in every text exactly as here, in braces: `{observation}`."""
    most: int = Field(4000, ge=1)
    """Characters of a text."""


def slots_of(environment: Mapping[str, Any]) -> tuple[Slot, ...]:
    """The slots in an environment's description."""
    return tuple(Slot.model_validate(x) for x in environment.get("slots") or ())


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders replaced, `values` by name without braces; other braces stay."""
    if not values:
        return text
    at = re.compile("|".join(re.escape("{" + k + "}") for k in values))
    return at.sub(lambda m: values[m[0][1:-1]], text)


def digest(scaffold: Mapping[str, str]) -> str:
    """12 hex digits of SHA-256 over all its texts; of none, too."""
    return hashlib.sha256(json.dumps(dict(scaffold), sort_keys=True).encode()).hexdigest()[:DIGITS]


def fault(scaffold: Mapping[str, str], slots: Sequence[Slot], where: str) -> tuple[str, str] | None:
    """(label, why) of what the texts themselves say against a scaffold, None where nothing does; `where`: the
    environment's name."""
    known = {s.name: s for s in slots}
    for name in scaffold:
        if name not in known:
            there = f"it has: {', '.join(known)}" if known else "it declares none; leave recipe.scaffold out"
            return "unknown_slot", f"{where} has no slot {quoted(name)}; {there}"
    for name, text in scaffold.items():
        if text == known[name].default:
            return "identical", f"{name} is the default text; leave it out"
    for name, text in scaffold.items():
        if gone := [p for p in known[name].placeholders if text.count("{" + p + "}") != 1]:
            return "placeholder_missing", f"{name} must hold {{{gone[0]}}} once: {known[name].about}"
    for name, text in scaffold.items():
        if len(text) > known[name].most:
            return "too_long", f"{name} has {len(text)} characters; at most {known[name].most}"
    return None


def leaks(text: str, held_out: Iterable[tuple[str, Any]], open_: Iterable[tuple[str, Any]]) -> bool:
    """Does a text hold words of a held-out task, or an answer to one? Tasks are (prompt, data).

    Of a prompt `SHARED_WORDS` words in a row, or all of a shorter one (two words at least); of the data, texts of
    `SHORTEST_ANSWER` characters and more. What training tasks hold as well is no secret: sentences that all tasks share
    do not count.
    """
    words = _words(text)
    plain, runs = f" {' '.join(words)} ", _runs(words)
    hits: set[str] = set()
    for prompt, data in held_out:
        hits |= _found(prompt, data, text, plain, runs)
    for prompt, data in open_ if hits else ():
        # what is found of a training task is no secret; nor is what stands in the text by a training task's right
        hits -= _found(prompt, data, text, plain, runs)
    return bool(hits)


def _found(prompt: str, data: Any, text: str, plain: str, runs: set[str]) -> set[str]:
    """What a text (`plain` in words, `runs` of words) holds of a task."""
    words = _words(prompt)
    short = " ".join(words)
    hits = _runs(words) & runs
    if 2 <= len(words) < SHARED_WORDS and f" {short} " in plain:
        hits.add(short)
    for x in _texts(data):
        if SHORTEST_ANSWER <= len(x) <= 2 * len(text):  # a longer one cannot be in it
            answer = " ".join(_words(x))
            if len(answer) >= SHORTEST_ANSWER and f" {answer} " in plain:
                hits.add(answer)
    return hits


def _words(text: str) -> list[str]:
    """Words and numbers in lower case; every other sign stands by itself, so that `7+5` is three."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def _runs(words: Sequence[str]) -> set[str]:
    return {" ".join(words[i : i + SHARED_WORDS]) for i in range(len(words) - SHARED_WORDS + 1)}


def _texts(data: Any) -> Iterable[str]:
    """All texts in a task's data; objects of an environment's own are read by their fields."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for x in data.values():
            yield from _texts(x)
    elif isinstance(data, Collection) and not isinstance(data, bytes):
        for x in data:
            yield from _texts(x)
    elif hasattr(data, "__dataclass_fields__"):
        for name in data.__dataclass_fields__:
            yield from _texts(getattr(data, name, None))


def changed_texts(old: Mapping[str, str], new: Mapping[str, str], slots: Iterable[Slot]) -> dict[str, list[str]]:
    """`<slot>@<hash>` -> what differs from the text before, the default's where there was none; a slot that is back
    at its default is named by that text's hash."""
    default = {s.name: s.default for s in slots}
    out = {}
    for name in sorted(old.keys() | new.keys()):
        a, b = (x.get(name, default.get(name, "")) for x in (old, new))
        if a != b:
            out[content_name(name, b)] = source_lines(b, a)
    return out
