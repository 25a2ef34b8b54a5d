"""Demonstrations for the warm start: a teacher who makes typical, honest mistakes, on compositions of train only.

The noise is what leaves reinforcement learning something to do: slips fail ordinary tests, unguarded forms fail only
where a list runs empty, and a few answers are hard-coded from the examples.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from evotrainer.envs.code.grammar import REDUCERS, program_text, result_variants
from evotrainer.envs.code.ops import OPS
from evotrainer.envs.code.tasks import (
    DEMO_LENGTHS,
    GRAMMAR_VERSION,
    Chain,
    DegenerateTaskError,
    as_case,
    draw_chain,
    ordinary_cases,
    prompt_text,
)


@dataclass(frozen=True, slots=True)
class CodeTeacher:
    """Shares of demonstrations with each kind of flaw."""

    slip: float = 0.2
    """Programs with one mistake: a wrong constant, a dropped or swapped step, a typical confusion."""
    unguarded: float = 0.4
    """Steps and results written without their guard, of those that need one."""
    hard_coded: float = 0.02
    usual: float = 0.7
    """Steps written in their most common variant."""


def _pick(rng: random.Random, variants: Sequence[str], usual: float) -> str:
    return variants[0] if rng.random() < usual else rng.choice(variants)


def _step(rng: random.Random, teacher: CodeTeacher, name: str, k: int) -> str:
    op = OPS[name]
    unguarded = op.unguarded and rng.random() < teacher.unguarded
    return _pick(rng, op.unguarded if unguarded else op.variants, teacher.usual).replace("{k}", str(k))


def _result(rng: random.Random, teacher: CodeTeacher, chain: Chain) -> str:
    reducer = REDUCERS[chain.reducer]
    if reducer.unguarded and rng.random() < teacher.unguarded:
        return _pick(rng, reducer.unguarded, teacher.usual)
    return _pick(rng, result_variants(reducer, chain.form), teacher.usual)


def _slip(rng: random.Random, chain: Chain, steps: list[str], result: str) -> str:
    """One mistake of the kinds that fit the chain; changes `steps` in place and returns the result expression."""
    confusable = [i for i, o in enumerate(chain.ops) if OPS[o].slips]
    constant = [i for i, o in enumerate(chain.ops) if OPS[o].constants]
    slips = REDUCERS[chain.reducer].slips
    kinds = [
        ("confuse", confusable),
        ("constant", constant),
        ("drop", steps[1:]),
        ("swap", steps[1:]),
        ("result", slips),
    ]
    kind = rng.choice([name for name, fits in kinds if fits] or ["drop"])
    if kind == "confuse":
        i = rng.choice(confusable)
        steps[i] = rng.choice(OPS[chain.ops[i]].slips).replace("{k}", str(chain.constants[i]))
    elif kind == "constant":
        i = rng.choice(constant)
        low, high = OPS[chain.ops[i]].constants or (0, 0)
        wrong = rng.choice([k for k in range(low, high + 1) if k != chain.constants[i]])
        steps[i] = OPS[chain.ops[i]].variants[0].replace("{k}", str(wrong))
    elif kind == "drop":
        steps.pop(rng.randrange(len(steps)))
    elif kind == "swap":
        i = rng.randrange(len(steps) - 1)
        steps[i], steps[i + 1] = steps[i + 1], steps[i]
    else:
        return rng.choice(slips)
    return result


def _hard_coded(rng: random.Random, chain: Chain, cases: Sequence[Sequence[object]]) -> str:
    """The examples' outputs as literals."""
    (x0, y0), (_, y1) = cases[:2]
    x0 = x0.rstrip() if isinstance(x0, str) else x0
    if chain.form == "function":
        return f"def solve(xs):\n    return {y0} if xs == {x0} else {y1}"
    if rng.random() < 0.5:
        return f'print("{y0}")'
    return f's = input()\nprint("{y0}" if s == "{x0}" else "{y1}")'


def demonstrate(rng: random.Random, teacher: CodeTeacher, chain: Chain, cases: Sequence[Sequence[object]]) -> str:
    """One program of the teacher's for a chain; `cases` are the visible examples."""
    if rng.random() < teacher.hard_coded:
        return _hard_coded(rng, chain, cases)
    steps = [_step(rng, teacher, o, k) for o, k in zip(chain.ops, chain.constants, strict=True)]
    result = _result(rng, teacher, chain)
    if rng.random() < teacher.slip:
        result = _slip(rng, chain, steps, result)
    return program_text(chain.form, steps, result)


def demonstrations(
    n: int, seed: int, teacher: CodeTeacher | None = None, function_share: float = 0.0
) -> list[tuple[str, str]]:
    """`n` (prompt, program) pairs over compositions of train; the same for the same arguments."""
    rng = random.Random(f"{GRAMMAR_VERSION}:demonstrations:{seed}")
    teacher = teacher or CodeTeacher()
    out: list[tuple[str, str]] = []
    while len(out) < n:
        chain = draw_chain(rng, "train", DEMO_LENGTHS, function_share)
        try:
            visible = ordinary_cases(rng, chain, 2)
        except DegenerateTaskError:
            continue
        cases = [as_case(chain.form, x, y) for x, y in visible]
        out.append((prompt_text(chain.spec(), cases), demonstrate(rng, teacher, chain, cases)))
    return out
