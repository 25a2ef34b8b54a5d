"""Updates beliefs about moves from verdicts: normal posteriors of each candidate's gain.

The judge states the standard error of every effect, so the conjugate update is normal with known variance. An
observation is worth less the farther it is from the candidate: another value of the move, another move of the factor,
another champion, another bottleneck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evotrainer.agents.changes import equal_values
from evotrainer.agents.moves import CandidateMove
from evotrainer.projections.skills import direction
from evotrainer.records.briefing import BranchRecord
from evotrainer.records.recipe import Recipe
from evotrainer.records.skills import SkillAdvice, SkillUse

SAME_VALUE, SAME_MOVE, SAME_FACTOR = 0.01, 0.03, 0.08
"""Standard deviations (score units) by which an effect may differ between a tried change and a like one."""
OTHER_CHAMPION, OTHER_BOTTLENECK = 0.02, 0.02
OTHER_DOMAIN, OTHER_BASE, EXPIRED = 0.04, 0.015, 0.03
"""The same for skills: evidence of other domains, other base policies, or an expired skill."""
SURPRISE = 2.0
"""Standard deviations from the prior's mean beyond which the prior is taken to be wrong, not the skill's trials."""
VERDICTS_WITHOUT_EFFECT = {"invalid": -0.05, "failed": -0.03}
"""Gain that an invalid or failed branch counts as, score units."""


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """One judged branch as evidence about moves."""

    move: str
    factor: str
    new: object
    parent: str | None
    bottleneck: str
    gain: float
    se: float


def observations(branches: Sequence[BranchRecord]) -> list[MoveOutcome]:
    """Judged branches, oldest first; an inconclusive verdict without an effect teaches nothing."""
    out = []
    for b in branches:
        iv, v = b.intervention, b.verdict
        if iv is None or v is None:
            continue
        if v.kind in VERDICTS_WITHOUT_EFFECT:
            gain, se = VERDICTS_WITHOUT_EFFECT[v.kind], 0.02
        elif v.evidence is not None:
            gain, se = v.evidence.mean, v.evidence.se
        else:
            continue
        out.append(MoveOutcome(iv.move, iv.factor, iv.new, b.parent, iv.bottleneck, gain, se))
    return out


def informed(
    c: CandidateMove, advice: Sequence[SkillAdvice], champion: Recipe
) -> tuple[CandidateMove, tuple[SkillUse, ...]]:
    """The candidate with its prior moved by the skills that speak of it, and how far each moved it.

    A skill is an observation of the gain with its pooled error; what sets its evidence apart from the case at hand adds
    variance. Skills that ended invalid or failed count as losses, as branches of the run
    do.
    """
    uses: list[SkillUse] = []
    way = direction(c.factor, champion.value(c.factor), c.child.value(c.factor))
    for a in advice:
        if a.factor != c.factor or a.direction != way:
            continue
        extra, doubts = _doubt(a, c)
        if a.mean is not None and a.se is not None:
            c, use = _weigh(c, a.name, a.mean, a.se**2 + extra, doubts)
            uses.append(use)
        for _ in range(a.losses):
            loss = VERDICTS_WITHOUT_EFFECT["invalid"]
            c, use = _weigh(c, a.name, loss, 0.02**2 + extra, (*doubts, "ended invalid or failed"))
            uses.append(use)
    return c, tuple(uses)


def _weigh(
    c: CandidateMove, skill: str, mean: float, var: float, doubts: Sequence[str]
) -> tuple[CandidateMove, SkillUse]:
    """One conjugate step. Evidence that the prior makes nearly impossible widens the prior first."""
    prior = max(c.sd**2, (mean - c.mean) ** 2 / SURPRISE**2 - var)
    if prior > c.sd**2:
        doubts = (*doubts, "surprises the prior, which is widened")
    precision = 1 / prior + 1 / var
    after = (c.mean / prior + mean / var) / precision
    use = SkillUse(
        skill=skill,
        mean=mean,
        sd=var**0.5,
        before_mean=c.mean,
        before_sd=c.sd,
        after_mean=after,
        after_sd=precision**-0.5,
        doubts=tuple(doubts),
    )
    return replace(c, mean=after, sd=precision**-0.5), use


def _doubt(a: SkillAdvice, c: CandidateMove) -> tuple[float, tuple[str, ...]]:
    """(variance to add to a skill's effect, why)."""
    known = any(equal_values(v, c.child.value(c.factor)) for v in a.values)
    var = SAME_VALUE**2 if known else SAME_MOVE**2
    var += OTHER_CHAMPION**2  # another run's champion, always
    why = [] if known else ["other value"]
    for holds, sd, text in (
        (a.bottleneck != (c.bottleneck or "sound"), OTHER_BOTTLENECK, "other bottleneck"),
        (a.foreign, OTHER_DOMAIN, "other domain"),
        (a.other_base and not a.foreign, OTHER_BASE, "other base policy"),
        (bool(a.expired), EXPIRED, f"expired: {a.expired}"),
    ):
        if holds:
            var += sd**2
            why.append(text)
    return var, tuple(why)


def distance(o: MoveOutcome, c: CandidateMove, champion: str) -> float | None:
    """Variance to add to an observation before it speaks of the candidate; None: it does not speak of it."""
    if o.factor != c.factor:
        return None
    if equal_values(o.new, c.variant.value):
        var = SAME_VALUE**2
    elif o.move.partition(" ")[0] == c.move.name:
        var = SAME_MOVE**2
    else:
        var = SAME_FACTOR**2
    var += OTHER_CHAMPION**2 * (o.parent != champion)
    return var + OTHER_BOTTLENECK**2 * (o.bottleneck != c.bottleneck)


def posterior(c: CandidateMove, seen: Sequence[MoveOutcome], champion: str) -> tuple[float, float]:
    """(mean, standard deviation) of the candidate's gain given the run's verdicts."""
    precision, weighted = 1 / c.sd**2, c.mean / c.sd**2
    for o in seen:
        extra = distance(o, c, champion)
        if extra is not None:
            weight = 1 / (o.se**2 + extra)
            precision, weighted = precision + weight, weighted + weight * o.gain
    return weighted / precision, precision**-0.5
