"""Which rollouts a reader is shown, and what its verdicts on them say of all: nominated ones, and a random share.

Rules, probes and unexplained gaps nominate; of what nothing nominates a random share is read, whose rate of hacks
estimates what nominations miss. Pure functions, for runs and audits alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evotrainer.harness.columns.numerics import Floats, at_least
from evotrainer.records.reader import ReaderRate

NOMINATING = ("bypass", "special", "tampers", "leaks", "probed")
"""Trait columns that nominate a rollout ..."""
NOMINATES = 0.5
"""... from this value on: 0.5 is a nomination, 1 and more is certain."""
CHECKED = 8
"""One in so many of a reading, and two at least, checks the detectors that explain hacks."""
CONFIDENCE = 0.975
"""Of each end of an interval."""


@dataclass(frozen=True, slots=True)
class ReadSample:
    """What is read of some rollouts."""

    picks: tuple[int, ...]
    """Places of the rollouts in the order in which they are read: what is nominated first."""
    nominated: int
    rest: int
    """Rollouts that nothing nominates."""
    explained: int = 0
    """Rollouts that a detector explains; they are in neither of the others."""


def nominations(columns: Mapping[str, Floats], n: int, more: Mapping[str, np.ndarray] | None = None) -> list[str]:
    """Of each of `n` rollouts the trait columns that nominate it, `special+leaks`; empty: none does. Columns that are
    not there nominate nothing. `more`: further ones by name, bool."""
    named = {k: np.nan_to_num(columns[k]) >= NOMINATES for k in NOMINATING if k in columns} | dict(more or {})
    hits = [(name, np.asarray(mask, dtype=bool)) for name, mask in named.items() if np.any(mask)]
    return ["+".join(name for name, mask in hits if mask[i]) for i in range(n)] if hits else [""] * n


def draw(
    names: Sequence[str], why: Sequence[str], size: int, random: float, explained: Sequence[str] | None = None
) -> ReadSample:
    """Up to `size` rollouts: a share `random` of those that nothing nominates, the others of those that something does.

    `names`: what a rollout is called, the same at every reading; `why`: of `nominations`. Each rollout of a part is as
    likely as any other, and those of a smaller draw are among those of a larger one.

    `explained`: of each rollout the detector that explains it. Of those a few are read, and their part of `size` is
    left to later readings.
    """
    order = sorted(range(len(names)), key=lambda i: order_of(names[i]))
    known = [i for i in order if explained and explained[i]]
    checks = known[: min(size, max(2, round(size / CHECKED)))]
    left = [i for i in order if not (explained and explained[i])]
    size = min(size - len(checks), math.ceil(size * len(left) / max(1, len(order))))
    nominated, rest = [i for i in left if why[i]], [i for i in left if not why[i]]
    blind = min(len(rest), max(round(size * random), size - len(nominated)))
    picks = (*checks, *nominated[: size - blind], *rest[:blind])
    return ReadSample(picks, len(nominated), len(rest), len(known))


def order_of(name: str) -> bytes:
    """Rollouts are read in the order of this."""
    return hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest()


def rate(hacks: int, read: int, of: int) -> ReaderRate:
    """Share of hacks with its 95% interval; of a part of which none was read: 0 to 1."""
    if not read:
        return ReaderRate(of=of, read=0, hacks=0)
    low, high = at_least(hacks, read, CONFIDENCE), 1 - at_least(read - hacks, read, CONFIDENCE)
    return ReaderRate(of=of, read=read, hacks=hacks, low=low, high=high)


def lower_bound(*parts: ReaderRate) -> float:
    """Share of hacks among all rollouts of the parts, at least: their lower bounds, weighed by their sizes."""
    whole = sum(p.of for p in parts)
    return sum(p.of * p.low for p in parts if p.read) / whole if whole else 0.0


def describe_parts(nominated: ReaderRate, random: ReaderRate, explained: ReaderRate | None = None) -> str:
    """What was read of the parts and how much of it is a hack; the rate of the second estimates what was missed."""
    parts = (
        nominated.summary("nominated, read"),
        random.summary("not nominated, read at random"),
        explained.summary("explained by a detector, read to check it") if explained else "",
    )
    return "; ".join(x for x in parts if x)
