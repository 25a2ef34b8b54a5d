"""Tasks of the code domain: chains of operations, their specification, their tests, and the splits.

Splits hold out *compositions*: every ordered pair of neighbouring operations belongs, by a stable hash, to train,
search, gate or cert. A task of an evaluation split has at least one pair of its own split and otherwise pairs of train,
so no pair of one evaluation split is ever seen in training or in another split, and no specification can be in two.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from evotrainer.envs.base import SPLITS, Task
from evotrainer.envs.code.grammar import (
    GRAMMAR_VERSION,
    REDUCERS,
    printed,
    program_text,
    result_variants,
    spec_text,
)
from evotrainer.envs.code.ops import OPS, Ints, ListOp
from evotrainer.envs.data.rows import split_of

KEEP_SPLITS = 8
"""Task lists that a process keeps, for environments that are opened anew and for processes that it forks."""
SHARES = {"search": 0.1, "gate": 0.1, "cert": 0.1}
"""Share of ordered operation pairs each evaluation split holds out; the rest is train's."""
LENGTHS = {"train": (5, 25, 32, 24, 14), "eval": (0, 25, 35, 25, 15)}
"""Weights of chains of 1 to 5 operations."""
DEMO_LENGTHS = (14, 32, 30, 16, 8)
LOW, HIGH = -9, 20
"""Input numbers, inclusive."""
MAX_ABS = 99_999
"""Chains whose intermediate numbers pass this are refused."""
MAX_SHOWN = 28
"""Characters of a visible output."""
MIN_DISTINCT = 3
"""Different outputs among the ordinary hidden tests, so that a constant program cannot look right."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A composition: operations with constants and the phrasing chosen, and a reducer."""

    ops: tuple[str, ...]
    constants: tuple[int, ...]
    phrasing: tuple[int, ...]
    reducer: str
    outcome: int
    form: str

    def spec(self) -> str:
        phrases = [
            OPS[o].phrases[p].replace("{k}", str(k))
            for o, k, p in zip(self.ops, self.constants, self.phrasing, strict=True)
        ]
        return spec_text(self.form, phrases, REDUCERS[self.reducer].phrases[self.outcome])

    def gold(self) -> str:
        steps = [OPS[o].variants[0].replace("{k}", str(k)) for o, k in zip(self.ops, self.constants, strict=True)]
        return program_text(self.form, steps, result_variants(REDUCERS[self.reducer], self.form)[0])


@cache
def pair_split(first: str, second: str) -> str:
    """The split that owns an ordered pair of neighbouring operations."""
    return split_of(f"{GRAMMAR_VERSION}:{first}>{second}", {**SHARES, "train": 1.0})


@cache
def _owned(split: str) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a in OPS for b in OPS if a != b and pair_split(a, b) == split)


@cache
def _neighbours(op: str, *, after: bool) -> tuple[str, ...]:
    """Operations that may follow (or precede) `op` by a pair of train."""
    pairs = {o: (op, o) if after else (o, op) for o in OPS if o != op}
    return tuple(o for o, pair in pairs.items() if pair_split(*pair) == "train")


def _fits(ops: Sequence[str]) -> bool:
    return len(set(ops)) == len(ops) and sum(OPS[o].grows for o in ops) <= 1


def compose(rng: random.Random, split: str, length: int) -> tuple[str, ...]:
    """Names of `length` different operations; for an evaluation split they hold exactly one pair it owns."""
    while True:
        ops = [rng.choice(list(OPS))] if split == "train" else list(rng.choice(_owned(split)))
        ahead = 0 if split == "train" else rng.randint(0, length - 2)
        for _ in range(ahead):
            ops.insert(0, rng.choice(_neighbours(ops[0], after=False)))
        while len(ops) < length:
            ops.append(rng.choice(_neighbours(ops[-1], after=True)))
        if _fits(ops):
            return tuple(ops)


def draw_chain(rng: random.Random, split: str, weights: Sequence[int], function_share: float) -> Chain:
    ops = compose(rng, split, rng.choices((1, 2, 3, 4, 5), weights)[0])
    reducer = rng.choice(list(REDUCERS))
    return Chain(
        ops=ops,
        constants=tuple(rng.randint(*c) if (c := OPS[o].constants) else 0 for o in ops),
        phrasing=tuple(rng.randrange(len(OPS[o].phrases)) for o in ops),
        reducer=reducer,
        outcome=rng.randrange(len(REDUCERS[reducer].phrases)),
        form="function" if function_share and rng.random() < function_share else "stdin",
    )


def _numbers(rng: random.Random, n: int, low: int = LOW, high: int = HIGH) -> Ints:
    draw, span = rng.random, high - low + 1  # randint costs four times as much, and this is most of the generation
    return [low + int(draw() * span) for _ in range(n)]


def _duplicates(rng: random.Random) -> Ints:
    pool = _numbers(rng, 2)
    return [rng.choice(pool) for _ in range(rng.randint(4, 7))]


EDGES: dict[str, Callable[[random.Random], Ints]] = {
    "empty": lambda rng: [],
    "single": lambda rng: _numbers(rng, 1),
    "negatives": lambda rng: _numbers(rng, rng.randint(3, 6), LOW, -1),
    "duplicates": _duplicates,
}


Case = tuple[Ints, "int | Ints"]
"""(input, value)"""


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """A chain with its tests: (input, value) pairs per kind; `visible` and `fresh` are ordinary inputs."""

    chain: Chain
    tests: Mapping[str, tuple[Case, ...]]


class DegenerateTaskError(Exception):
    """The chain or its inputs make a degenerate task."""


def evaluator(chain: Chain) -> Callable[[Ints], int | Ints]:
    """Reference meaning of the chain; raises DegenerateTaskError where numbers grow past MAX_ABS."""
    steps: list[tuple[ListOp, int]] = [(OPS[o], k) for o, k in zip(chain.ops, chain.constants, strict=True)]
    value = REDUCERS[chain.reducer].value

    def run(xs: Ints) -> int | Ints:
        for op, k in steps:
            xs = op.apply(xs, k)
        if any(x > MAX_ABS or x < -MAX_ABS for x in xs):
            raise DegenerateTaskError
        return value(xs)

    return run


def _idle(chain: Chain, inputs: Sequence[Ints]) -> bool:
    """Whether some operation changes none of the inputs that reach it."""
    lists = list(inputs)
    for o, k in zip(chain.ops, chain.constants, strict=True):
        apply = OPS[o].apply
        after = [apply(x, k) for x in lists]
        if after == lists:
            return True
        lists = after
    return False


def ordinary_cases(rng: random.Random, chain: Chain, n: int) -> list[Case]:
    """`n` inputs of 3 to 6 numbers, neighbours with different outputs, none of them empty, zero or long.

    Raises DegenerateTaskError where the chain hardly ever gives such outputs.
    """
    run = evaluator(chain)
    out: list[Case] = []
    for tried in range(4 * n):
        if tried == n and not out:
            break
        xs = _numbers(rng, rng.randint(3, 6))
        y = run(xs)
        text = printed(y)
        if text in ("", "0") or (out and y == out[-1][1]) or len(text) > MAX_SHOWN:
            continue
        out.append((xs, y))
        if len(out) == n:
            if _idle(chain, [x for x, _ in out]):
                break
            return out
    raise DegenerateTaskError


def make_problem(rng: random.Random, chain: Chain) -> CodeProblem:
    """Draw tests for a chain; DegenerateTaskError where the task would be degenerate.

    2 visible, 2 held-out (one ordinary, one edge case), 8 hidden (the four edge cases and four of 2 to 9 numbers) and
    2 fresh ones that can stand in for the visible tests.
    """
    run = evaluator(chain)
    ordinary = ordinary_cases(rng, chain, 5)
    edge = EDGES[rng.choice(list(EDGES))](rng)
    hidden = [make(rng) for make in EDGES.values()] + [_numbers(rng, rng.randint(2, 9)) for _ in range(4)]
    tests = {
        "visible": tuple(ordinary[:2]),
        "heldout": (ordinary[4], (edge, run(edge))),
        "hidden": tuple((x, run(x)) for x in hidden),
        "fresh": tuple(ordinary[2:4]),
    }
    if len({printed(y) for _, y in tests["hidden"][4:]}) < MIN_DISTINCT:
        raise DegenerateTaskError
    return CodeProblem(chain, tests)


def stdin_text(xs: Ints) -> str:
    """One line; an empty list is an empty line."""
    return " ".join(map(str, xs)) + "\n"


def as_case(form: str, xs: Ints, value: int | Ints) -> list[Any]:
    """[input, expected] as the grader wants it: texts for stdin programs, JSON values for functions."""
    return [stdin_text(xs), printed(value)] if form == "stdin" else [xs, value]


def prompt_text(spec: str, visible: Sequence[Sequence[Any]]) -> str:
    """Specification, one example per line, and the newline after which the program begins."""
    shown = [f"{x.rstrip() if isinstance(x, str) else x} -> {y}" for x, y in visible]
    return "\n".join([spec, *shown]) + "\n"


def as_task(problem: CodeProblem, split: str) -> Task:
    chain = problem.chain
    cases = {k: [as_case(chain.form, x, y) for x, y in v] for k, v in problem.tests.items()}
    prompt = prompt_text(chain.spec(), cases["visible"])
    digest = hashlib.blake2b(prompt.encode(), digest_size=6).hexdigest()
    return Task(
        id=f"code-{split}-{digest}",
        split=split,
        prompt=prompt,
        data={"form": chain.form, "spec": chain.spec(), "ops": list(chain.ops), "gold": chain.gold(), **cases},
        tags={"ops": str(len(chain.ops)), "reducer": chain.reducer, "form": chain.form},
    )


def problems(rng: random.Random, split: str, weights: Sequence[int], function_share: float) -> Iterator[CodeProblem]:
    """Endless problems of a split, each with a specification not seen before in this stream."""
    seen: set[str] = set()
    while True:
        chain = draw_chain(rng, split, weights, function_share)
        if (spec := chain.spec()) in seen:
            continue
        try:
            yield make_problem(rng, chain)
        except DegenerateTaskError:
            continue
        seen.add(spec)


@lru_cache(KEEP_SPLITS)
def make_split(split: str, size: int, seed: int | str, function_share: float) -> tuple[Task, ...]:
    """The tasks of a split, in a fixed order that only these arguments decide."""
    assert split in SPLITS
    weights = LENGTHS["train" if split == "train" else "eval"]
    stream = problems(random.Random(f"{GRAMMAR_VERSION}:{seed}:{split}"), split, weights, function_share)
    return tuple(as_task(p, split) for p, _ in zip(stream, range(size), strict=False))


def content_hash(splits: Mapping[str, Sequence[Task]]) -> str:
    """16 hex digits of SHA-256 over every prompt and test."""
    h = hashlib.sha256()
    for name in sorted(splits):
        for t in splits[name]:
            h.update(repr((name, t.id, t.prompt, sorted(t.data.items()))).encode())
    return h.hexdigest()[:16]
