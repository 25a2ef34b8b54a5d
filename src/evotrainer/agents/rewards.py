"""Reward moves, generated from the components on offer and rated by stored rollouts.

Nothing here knows any component by name. A composition is worth what its group-normalised advantages would have done on
the champion's own rollouts: how far they point towards the attempts that turned out correct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evotrainer.agents.changes import changed, reward_changes
from evotrainer.agents.moves import CandidateMove, Direction, Move, Situation, Variant, relevance
from evotrainer.agents.symptoms import RewardFit

ASKING = {
    "proxy_gap": 0.9,
    "special_casing": 0.7,
    "false_revival": 0.7,
    "constant_bonus": 0.7,
    "edge_crash": 0.6,
    "dead_groups": 0.4,
    "action_timidity": 0.3,
    "abandonment": 0.3,
    "efficiency_collapse": 0.3,
    "length_gaming": 0.3,
    "laziness": 0.3,
}
"""Bottlenecks that a reward change can answer, and how well."""
AIMS: dict[str, tuple[str, Direction, float]] = {
    "proxy_gap": ("proxy_gap", "down", 0.02),
    "special_casing": ("proxy_gap", "down", 0.02),
    "edge_crash": ("proxy_gap", "down", 0.02),
    "dead_groups": ("frac_reward_zero_std", "down", 0.03),
}
"""What a reward move predicts, by the bottleneck it answers."""
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
BLIND_GAIN = 0.03
"""Gain of an unmeasured reward change per unit of fit to the diagnosis."""


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
        child = changed(s.recipe, factor, value)
        if child is None or child.hash in seen:
            continue
        name, _, detail = signature.partition(" ")
        subtracts = name == "remove_reward"
        fit, bottleneck = _relevance(name, s)
        shift, sd, why = _blind(fit) if before is None else _measured(s, before, old, new)
        if told := [s.lacking[c] for c in sorted(new.keys() - old.keys()) if new[c] > 0 and c in s.lacking]:
            shift, why = shift + ASKED_FOR, f"{told[0]}; {why}"
        metric, direction, size = AIMS.get(bottleneck, ("accuracy", "up", 0.01))
        move = Move(name, factor, "reward", ASKING, lambda _: (), why, metric, direction, size, subtracts=subtracts)
        yield CandidateMove(move, Variant(value, detail, why=why), factor, child, bottleneck, shift, sd, 1.0)


def _relevance(name: str, s: Situation) -> tuple[float, str]:
    move = Move(name, "rewards", "reward", ASKING, lambda _: (), "")
    return relevance(move, s.symptoms)


def _blind(fit: float) -> tuple[float, float, str]:
    return (
        BLIND_GAIN * fit - 0.005,
        0.01 + 0.02 * fit,
        "the present reward is suspected, and no stored outcome can rate another",
    )


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
        told = next((f" ({w.about})" for w in s.written if w.name == c), "")
        notes.append(f"{c}{told} correlates {ev.correlation(c):+.2f} with the outcome within groups")
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
