"""The compositional grammar of the code domain: reducers, and how steps become a specification and a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evotrainer.envs.code.ops import Ints

GRAMMAR_VERSION = "code-grammar-1"
READ = "xs = list(map(int, input().split()))"
DEF = "def solve(xs):"


@dataclass(frozen=True, slots=True)
class Reducer:
    """The last step: what is printed or returned. `variants` are expressions over `xs`.

    `value` gives what a function returns; `printed` is given where printing differs from `str` of it.
    """

    name: str
    phrases: tuple[str, ...]
    variants: tuple[str, ...]
    value: Callable[[Ints], int | Ints]
    slips: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()
    print_variants: tuple[str, ...] = ()
    """Expressions inside `print(...)` where they differ from the returned ones."""


_REDUCERS = (
    Reducer("sum", ("the sum", "the total"), ("sum(xs)", "sum(x for x in xs)"), lambda xs: sum(xs)),
    Reducer(
        "max",
        ("the maximum or 0", "the largest or 0"),
        ("max(xs, default=0)", "max(xs) if xs else 0"),
        lambda xs: sorted(xs)[-1] if xs else 0,
        unguarded=("max(xs)",),
    ),
    Reducer(
        "min",
        ("the minimum or 0", "the smallest or 0"),
        ("min(xs, default=0)", "min(xs) if xs else 0"),
        lambda xs: sorted(xs)[0] if xs else 0,
        unguarded=("min(xs)",),
    ),
    Reducer("count", ("how many", "the count"), ("len(xs)", "sum(1 for x in xs)"), lambda xs: len(xs)),
    Reducer(
        "list",
        ("them", "the list"),
        ("xs", "list(xs)"),
        lambda xs: list(xs),
        print_variants=("*xs", '" ".join(map(str, xs))'),
    ),
    Reducer(
        "first",
        ("the first or 0", "the first item or 0"),
        ("xs[0] if xs else 0", "(xs or [0])[0]"),
        lambda xs: next(iter(xs), 0),
        unguarded=("xs[0]",),
    ),
    Reducer(
        "last",
        ("the last or 0", "the last item or 0"),
        ("xs[-1] if xs else 0", "(xs or [0])[-1]"),
        lambda xs: next(reversed(xs), 0),
        unguarded=("xs[-1]",),
    ),
    Reducer(
        "distinct",
        ("how many distinct", "the number of different values"),
        ("len(set(xs))", "len(dict.fromkeys(xs))"),
        lambda xs: sum(1 for i, x in enumerate(xs) if x not in xs[:i]),
        slips=("len(xs)",),
    ),
    Reducer(
        "spread",
        ("the largest minus the smallest or 0", "the range or 0"),
        ("max(xs) - min(xs) if xs else 0", "max(xs, default=0) - min(xs, default=0)"),
        lambda xs: sorted(xs)[-1] - sorted(xs)[0] if xs else 0,
        unguarded=("max(xs) - min(xs)",),
    ),
    Reducer(
        "mean",
        ("the average rounded down or 0", "the floor of the mean or 0"),
        ("sum(xs) // len(xs) if xs else 0", "sum(xs) // max(len(xs), 1)"),
        lambda xs: divmod(sum(xs), len(xs))[0] if xs else 0,
        slips=("int(sum(xs) / len(xs)) if xs else 0",),
        unguarded=("sum(xs) // len(xs)",),
    ),
    Reducer(
        "second",
        ("the second largest or 0", "the runner up or 0"),
        ("sorted(xs)[-2] if len(xs) > 1 else 0", "sorted(xs)[-2] if xs[1:] else 0"),
        lambda xs: sorted(xs, reverse=True)[1] if len(xs) >= 2 else 0,
        unguarded=("sorted(xs)[-2]", "sorted(xs)[-2] if xs else 0"),
    ),
    Reducer(
        "middle",
        ("the item in the middle or 0", "the middle item or 0"),
        ("xs[len(xs) // 2] if xs else 0", "xs[len(xs) // 2] if len(xs) else 0"),
        lambda xs: xs[len(xs) >> 1] if xs else 0,
        unguarded=("xs[len(xs) // 2]",),
    ),
    Reducer(
        "positives",
        ("how many are positive", "the count of positive numbers"),
        ("sum(x > 0 for x in xs)", "len([x for x in xs if x > 0])"),
        lambda xs: sum(1 for x in xs if x >= 1),
        slips=("sum(x >= 0 for x in xs)",),
    ),
)

REDUCERS: dict[str, Reducer] = {r.name: r for r in _REDUCERS}

OPENINGS = {"stdin": "Read integers", "function": "Write solve(xs)"}
VERBS = {"stdin": "print", "function": "return"}


def spec_text(form: str, phrases: Sequence[str], outcome: str) -> str:
    """The English specification: `Read integers; <op>; <op>; print <outcome>.`"""
    return "; ".join([OPENINGS[form], *phrases, f"{VERBS[form]} {outcome}"]) + "."


def result_variants(reducer: Reducer, form: str) -> tuple[str, ...]:
    """Correct expressions of a reducer in the given form."""
    return reducer.print_variants if form == "stdin" and reducer.print_variants else reducer.variants


def program_text(form: str, steps: Sequence[str], expression: str) -> str:
    """The whole program: header, one or more lines per step, and the printed or returned expression."""
    lines = [line for s in steps for line in s.split("\n")]
    if form == "stdin":
        return "\n".join([READ, *lines, f"print({expression})"])
    return "\n".join([DEF, *(f"    {line}" for line in lines), f"    return {expression}"])


def printed(value: int | Ints) -> str:
    """What a correct stdin program prints for a value, without the newline."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
