"""Alpha spending over a run whose number of looks nobody knows.

Online fallback (Tian and Ramdas 2021, "Online control of the familywise error rate"): look j is tested at
alpha * gamma_j with sum gamma_j = 1, plus the whole level of look j-1 where that one promoted. The probability of any
false promotion in the run stays below alpha whatever the dependence between looks (they share controls and noise).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pydantic import Field

from evotrainer.records.evidence import Verdict
from evotrainer.records.recipe import Frozen

EXPONENT = 1.5
ZETA = 2.612375348685488
"""Riemann zeta(1.5), so that the shares sum to 1."""


class Look(Frozen):
    """One test of the run: its 1-based number and the one-sided error probability it may spend."""

    number: int = Field(ge=1)
    alpha: float = Field(gt=0, lt=0.5)


def share(look: int) -> float:
    """gamma_j: the share of alpha that look j owns, whatever happened before."""
    return look**-EXPONENT / ZETA


def alpha_for(look: int, promoted: Collection[int], alpha: float) -> float:
    """Level of a look, given the numbers of the earlier looks that promoted."""
    level = 0.0
    for j in range(1, look + 1):
        level = alpha * share(j) + (level if j - 1 in promoted else 0.0)
    return level


def next_look(verdicts: Iterable[Verdict], alpha: float) -> Look:
    """The look that follows the run's verdicts so far; verdicts that spent nothing (look 0) do not count."""
    spent = [v for v in verdicts if v.look]
    number = max((v.look for v in spent), default=0) + 1
    promoted = {v.look for v in spent if v.kind == "promote"}
    return Look(number=number, alpha=alpha_for(number, promoted, alpha))
