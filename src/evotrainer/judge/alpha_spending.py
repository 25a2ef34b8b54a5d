"""Alpha spending over a run whose number of looks nobody knows.

The run owns `alpha`. After look j at most alpha * (gamma_1 + ... + gamma_j) may have been spent, with sum gamma = 1; a
look that promoted gives its level back (Bonferroni-Holm; online fallback, Tian and Ramdas 2021, is the one-by-one
case). Branches judged in one round share what is free equally, so the order in which they are judged may depend on
their scores. The probability of any false promotion in the run stays below alpha, whatever the dependence between
looks (they share controls and noise).
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Verdict

EXPONENT = 1.5
ZETA = 2.612375348685488
"""Riemann zeta(1.5), so that the shares sum to 1."""


class InterimAnalysis(Frozen):
    """One test of the run: its 1-based number and the one-sided error probability it may spend."""

    number: int = Field(ge=1)
    alpha: float = Field(gt=0, lt=0.5)


def share(look: int) -> float:
    """gamma_j: the share of alpha that look j adds to what may be spent."""
    return look**-EXPONENT / ZETA


def next_looks(verdicts: Iterable[Verdict], alpha: float, size: int = 1) -> list[InterimAnalysis]:
    """Looks for the next `size` branches, to be judged in any order, given all earlier verdicts of the run.

    Verdicts that tested nothing (look 0: too few seeds, invalid, failed, identical) have spent nothing.
    """
    # look 0 tested nothing: failed and invalid branches must not use up the run's error probability
    tested = [v for v in verdicts if v.look]
    last = max((v.look for v in tested), default=0)
    # the whole budget up to the last of the new looks, less what rejections kept; summed anew, so that what earlier
    # looks did not use is passed on to later ones
    free = alpha * sum(share(j) for j in range(1, last + size + 1))
    # a promotion gives its level back as in Holm (1979): a rejected null hypothesis no longer counts against the family
    free -= sum(v.alpha or 0.0 for v in tested if v.kind != "promote")
    # equal parts: if the best-scoring branch got the largest part, the level would depend on the data it tests
    return [InterimAnalysis(number=last + i, alpha=free / size) for i in range(1, size + 1)]


def next_look(verdicts: Iterable[Verdict], alpha: float) -> InterimAnalysis:
    """The look of a branch that is judged alone."""
    return next_looks(verdicts, alpha)[0]
