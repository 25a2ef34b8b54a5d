"""Reward moves, generated from the components on offer and rated by stored rollouts.

Nothing here knows any component by name. A composition is worth what its group-normalised advantages would have done on
the champion's own rollouts: how far they point towards the attempts that turned out correct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evotrainer.agents.changes import reward_changes, with_change
from evotrainer.agents.moves import CandidateMove, Situation, prior
from evotrainer.agents.symptoms import RewardFit
from evotrainer.factors.reward import FITS
from evotrainer.factors.table import Move, Variant

TRANSFER = 0.6
"""Points of score per unit of alignment and unit of headroom: a cautious share of what a perfect transfer
would give.
"""
DOUBT = 0.4
"""Standard deviation of the transfer itself, as a share of the gain: stored rollouts say where the gradient points, not
how far training follows it.
"""
HOPE = 0.15
"""Worth of giving spread to groups that all failed or all passed, where it points to correct attempts elsewhere."""
CONSTANT = 0.95
PENALTY = -0.15
"""Within-group correlation with the outcome below which a component is offered as a penalty."""
ASKED_FOR = 0.03
"""What it adds to a change's expected gain that it pays what a detector of this run found wrong attempts to lack."""


def reward_candidates(s: Situation, seen: set[str]) -> Iterator[CandidateMove]:
    """Every elementary reward move, with a prior from the evidence."""
    ev = s.evidence
    informed = bool(ev)
    known = [c for c in s.components if not informed or ev.measured(c)]
    negative = [c for c in known if informed and ev.correlation(c) < PENALTY]
    old = {k: w for k, w in s.recipe.rewards.items() if w}
    before = ev.fit(old) if informed else None
    sources = {w.name: w.source for w in s.written if w.name not in old}
    for signature, new in reward_changes(old, [*known, *sources], negative).items():
        factor: str = "rewards"
        value: Any = new
        if fresh := {k: v for k, v in sources.items() if k in new and k not in s.recipe.written}:
            factor, value = "written_reward", {"rewards": new, "written": {**s.recipe.written, **fresh}}
        child = with_change(s.recipe, factor, value)
        if child is None or child.hash in seen:
            continue
        name, _, detail = signature.partition(" ")
        shift, sd, bottleneck = prior(FITS, s)
        why = "the present reward is suspected, and no stored outcome can rate another"
        if before is not None:
            shift, sd, why = _measured(s, before, old, new)
        if lacking := [s.lacking[c] for c in sorted(new.keys() - old.keys()) if new[c] > 0 and c in s.lacking]:
            shift, why = shift + ASKED_FOR, f"{lacking[0]}; {why}"
        move = Move(name, (), why)
        yield CandidateMove(move, Variant(value, detail), factor, child, bottleneck, shift, sd, 1.0)


def _measured(
    s: Situation, before: RewardFit, old: Mapping[str, float], new: Mapping[str, float]
) -> tuple[float, float, str]:
    """(expected gain, its standard deviation, the numbers in words)."""
    ev = s.evidence
    after = ev.fit(new)
    delta, se = ev.gain(old, new)
    worth = delta + HOPE * (after.hopeful - before.hopeful)
    unit = TRANSFER * max(0.05, s.headroom)
    notes = []
    for c in sorted(new.keys() - old.keys()):
        about = next((f" ({w.about})" for w in s.written if w.name == c), "")
        notes.append(f"{c}{about} correlates {ev.correlation(c):+.2f} with the outcome within groups")
        coverage = ev.coverage(c)
        if coverage is not None and coverage >= CONSTANT:
            notes.append(f"but {coverage:.0%} of rollouts earn it")
    for c in sorted(old.keys() - new.keys()):
        notes.append(f"{c} correlates {ev.correlation(c):+.2f}")
    why = (
        f"on {ev.rollouts} stored rollouts its advantages point to the correct attempts with alignment "
        f"{after.aligned:.2f} against {before.aligned:.2f} now, "
        f"zero-variance groups {after.dead:.0%} against {before.dead:.0%}"
    )
    gain = max(-0.2, min(0.2, unit * worth))
    return gain, 0.01 + unit * se + DOUBT * abs(gain), "; ".join([why, *notes])
