"""What verdicts taught about moves: normal posteriors of each candidate's gain.

The judge states the standard error of every effect, so the conjugate update is normal with known variance. An
observation is worth less the farther it is from the candidate: another value of the move, another move of the factor,
another champion, another bottleneck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evotrainer.agents.changes import same
from evotrainer.agents.moves import Candidate
from evotrainer.records.evidence import BranchRecord

SAME_VALUE, SAME_MOVE, SAME_FACTOR = 0.01, 0.03, 0.08
"""Standard deviations (score units) by which an effect may differ between a tried change and a like one."""
OTHER_CHAMPION, OTHER_BOTTLENECK = 0.02, 0.02
VERDICTS_WITHOUT_EFFECT = {"invalid": -0.05, "failed": -0.03}
"""What an invalid or crashed branch counts as, score units."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One judged branch as evidence about moves."""

    move: str
    factor: str
    new: object
    parent: str | None
    bottleneck: str
    gain: float
    se: float


def observations(branches: Sequence[BranchRecord]) -> list[Observation]:
    """Judged branches, oldest first; an inconclusive verdict without an effect teaches nothing."""
    out = []
    for b in branches:
        iv, v = b.intervention, b.verdict
        if iv is None or v is None:
            continue
        if v.kind in VERDICTS_WITHOUT_EFFECT:
            gain, se = VERDICTS_WITHOUT_EFFECT[v.kind], 0.02
        elif v.effect is not None:
            gain, se = v.effect.mean, v.effect.se
        else:
            continue
        out.append(Observation(iv.move, iv.factor, iv.new, b.parent, iv.bottleneck, gain, se))
    return out


def distance(o: Observation, c: Candidate, champion: str) -> float | None:
    """Variance to add to an observation before it speaks of the candidate; None: it does not speak of it."""
    if o.factor != c.factor:
        return None
    if same(o.new, c.variant.value):
        var = SAME_VALUE**2
    elif o.move.partition(" ")[0] == c.move.name:
        var = SAME_MOVE**2
    else:
        var = SAME_FACTOR**2
    var += OTHER_CHAMPION**2 * (o.parent != champion)
    return var + OTHER_BOTTLENECK**2 * (o.bottleneck != c.bottleneck)


def posterior(c: Candidate, seen: Sequence[Observation], champion: str) -> tuple[float, float]:
    """(mean, standard deviation) of the candidate's gain given the run's verdicts."""
    precision, weighted = 1 / c.sd**2, c.mean / c.sd**2
    for o in seen:
        extra = distance(o, c, champion)
        if extra is not None:
            weight = 1 / (o.se**2 + extra)
            precision, weighted = precision + weight, weighted + weight * o.gain
    return weighted / precision, precision**-0.5
