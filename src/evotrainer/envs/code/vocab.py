"""The fixed vocabulary of the code domain: multi-character tokens from the grammar itself, never from data counts.

Three sources, in this order: the numbers 0 to 99 (bare and with a leading space), the pieces of every phrase around its
constant, and idioms of the code variants. Single characters are the tokenizer's own. A policy's weights are tied to
this list, so it is checked in (`assets/code-v1.json`) and a changed grammar that changes it needs a new version.
"""

from __future__ import annotations

import json
from pathlib import Path

from evotrainer.envs.code.grammar import DEF, FORMS, OPENINGS, OPS, READ, REDUCERS, VERBS

VOCABULARY_VERSION = "code-v1"
VOCABULARY_FILE = Path(__file__).parents[1] / "assets" / f"{VOCABULARY_VERSION}.json"
LARGEST = 99
"""Integers up to this one are single tokens."""

IDIOMS = (
    # statements over the whole list, up to the part that differs
    "xs = [x for x in xs if",
    "xs = [x",
    "xs = [",
    "xs = [i",
    "xs = [(i",
    "xs = [(x",
    "xs = [*xs[",
    "xs = [a",
    "xs = [b",
    "xs = [y",
    "xs = [sum(xs[:i",
    "xs = [max(xs[:i",
    "xs = [max(x,",
    "xs = [min(x,",
    "xs = [abs(x)",
    "xs = [-x",
    "xs = sorted(xs",
    "xs = list(dict.fromkeys(xs))",
    "xs = xs[",
    "xs = xs",
    "xs = ",
    "xs += xs",
    "xs.sort(",
    "xs.reverse()",
    "xs.remove(",
    "xs.append(xs.pop(0))",
    " xs.count(x)",
    "del xs[",
    "if xs: ",
    "m = ",
    # expressions
    " for x in xs]",
    " for x in xs",
    " for i, x in enumerate(xs)]",
    " for i, x in enumerate(xs, 1)]",
    " for i, x in enumerate(xs) if",
    " for a, b in zip(xs, xs[1:])]",
    " for i in range(len(xs))]",
    " for i in range(len(xs) - 1)]",
    " for i in range(1, len(xs) + 1)]",
    " for _ in range(2)]",
    " for y in (x, x)]",
    " not in xs[:i]]",
    " not",
    " if xs else 0",
    " if xs else None",
    " if",
    " else",
    " x",
    " xs",
    " xs[",
    " m",
    " -x",
    "max(xs",
    "min(xs",
    "sum(xs",
    "len(set(xs))",
    "len(dict.fromkeys(xs))",
    "len(xs)",
    " len(xs)",
    " sum(xs)",
    " min(xs",
    " max(",
    "len([x",
    "sum(x",
    "sum(",
    "int(",
    "xs = [int(x",
    "xs = [xs[i]",
    "sorted(xs",
    "sorted(set(xs))",
    "(xs or [0])[",
    "xs[len(xs)",
    "xs[0]",
    "xs[-1]",
    "[::-1]",
    " xs[::-1]",
    " *xs[:1]]",
    "xs = [xs[i + 1]",
    " xs[i + 1]",
    " xs[i]",
    "[-2]",
    ", reverse=True)",
    ", default=0)",
    ", key=abs)",
    "key=abs)",
    " ".join(('"', '".join(map(str, xs))')),
    "*xs",
    "::2]",
    "1::2]",
    "1:]",
    ":]",
    "))",
    "])",
    # operators, before the number tokens with their leading space
    " %",
    " //",
    " /",
    " **",
    " *",
    " +",
    " -",
    " >",
    " <",
    " >=",
    " <=",
    " ==",
    " !=",
    # the ends of a program
    READ,
    DEF,
    "    ",
    "print(",
    "return ",
)


def _phrase_pieces() -> list[str]:
    """`; keep multiples of {k}` -> `; keep multiples of`; the number follows with its leading space."""
    out = list(OPENINGS.values())
    for op in OPS.values():
        for phrase in op.phrases:
            parts = phrase.split("{k}")
            out.append("; " + parts[0].rstrip())
            out += [p.rstrip() for p in parts[1:] if len(p.rstrip()) > 1]
    for form in FORMS:
        out += [f"; {VERBS[form]} {p}" for r in REDUCERS.values() for p in r.phrases]
    return [*out, " ->"]


def derive() -> tuple[str, ...]:
    """The vocabulary as the present grammar yields it; single characters and repetitions left out."""
    numbers = [str(n) for n in range(LARGEST + 1)]
    tokens = [*numbers, *(f" {n}" for n in numbers), *_phrase_pieces(), *IDIOMS]
    return tuple(dict.fromkeys(t for t in tokens if len(t) > 1))


def vocabulary() -> tuple[str, ...]:
    """The checked-in vocabulary, multi-character tokens only, in the order of their ids."""
    return tuple(json.loads(VOCABULARY_FILE.read_text(encoding="utf-8"))["tokens"])


def write(path: Path = VOCABULARY_FILE) -> None:
    """Write the derived vocabulary; only when a new version is made."""
    body = {"version": VOCABULARY_VERSION, "tokens": list(derive())}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(body, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")
