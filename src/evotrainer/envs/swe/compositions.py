"""Compositions and their splits: which ordered pairs of operations a split may use, and which bug fits which pair.

Every ordered pair of neighbouring operations belongs to one split by a stable hash. The buggy function of a search,
gate or cert repository has exactly one pair of that split, all other functions have pairs of train. So no composition
of a pair and a bug class that a split holds out occurs in another split or in a demonstration.
"""

from __future__ import annotations

import random
from functools import cache

from evotrainer.envs.data.rows import split_of
from evotrainer.envs.swe.bugs import fitting
from evotrainer.envs.swe.ops import GENERATOR_VERSION, OPS

SHARES = {"search": 0.12, "gate": 0.12, "cert": 0.12}
"""Share of ordered operation pairs that each evaluation split holds out; the rest is train's."""
PROMPTS = {"search": 0.2, "gate": 0.2, "cert": 0.2}
"""Share of issue texts that each evaluation split owns, so that no text is in two splits."""
BUG_WEIGHTS = {
    "wrong_constant": 4,
    "off_by_one": 3,
    "wrong_operator": 4,
    "swapped_arguments": 2,
    "wrong_comparison": 3,
    "missing_guard": 4,
}


def _owner(text: str, shares: dict[str, float]) -> str:
    return split_of(f"{GENERATOR_VERSION}:{text}", {**shares, "train": 1.0})


@cache
def pair_split(first: str, second: str) -> str:
    """The split that owns an ordered pair of neighbouring operations."""
    return _owner(f"{first}>{second}", SHARES)


def prompt_split(prompt: str) -> str:
    """The split that owns an issue text."""
    return _owner(prompt, PROMPTS)


@cache
def owned(split: str) -> tuple[tuple[str, str], ...]:
    """Ordered pairs of different operations of a split."""
    return tuple((a, b) for a in OPS for b in OPS if a != b and pair_split(a, b) == split)


@cache
def _places(split: str, bug: str) -> tuple[tuple[tuple[str, str], int], ...]:
    """(pair, position of the buggy line) that a bug class fits."""
    return tuple((p, at) for p in owned(split) for at in (0, 1) if bug in fitting(p[at]))


@cache
def _train_neighbours(op: str, *, after: bool) -> tuple[str, ...]:
    pairs = {o: (op, o) if after else (o, op) for o in OPS if o != op}
    return tuple(o for o, pair in pairs.items() if pair_split(*pair) == "train")


def buggy(rng: random.Random, split: str, length: int) -> tuple[tuple[str, ...], int, str]:
    """Operations of a buggy function, place of the buggy line, bug class."""
    bug = rng.choices(list(BUG_WEIGHTS), list(BUG_WEIGHTS.values()))[0]
    pair, at = rng.choice(_places(split, bug))
    ops = list(pair)
    while len(ops) < length:
        if rng.random() < 0.5:
            ops.append(rng.choice(_train_neighbours(ops[-1], after=True)))
        else:
            ops.insert(0, rng.choice(_train_neighbours(ops[0], after=False)))
            at += 1
    return tuple(ops), at, bug


def honest(rng: random.Random, length: int) -> tuple[str, ...]:
    """Operations of a function without a bug: pairs of train only."""
    ops = list(rng.choice(owned("train")))
    while len(ops) < length:
        ops.append(rng.choice(_train_neighbours(ops[-1], after=True)))
    return tuple(ops)
