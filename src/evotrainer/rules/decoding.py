"""How a policy decodes where each decodes as suits it: chosen on search, for start and champion alike."""

from __future__ import annotations

from typing import Literal

from evotrainer.projections.branches import BASE
from evotrainer.projections.state import RunState

SINCE = 3
"""`RunOpened.rules` from which a certificate compares policies so."""


def decoding(state: RunState, branch: str) -> Literal["sampled", "greedy"] | None:
    """The reading that scored higher on search, mean over the branch's trainings; sampled where both are equal. None
    where a training was not read both ways, and in runs begun before."""
    base = state.base
    trials = ([base] if base else []) if branch == BASE else state.branches[branch].complete
    last = [max((s for s in t.scores if s.split == "search"), key=lambda s: s.step, default=None) for t in trials]
    both = [(s.score, s.greedy) for s in last if s and s.score is not None and s.greedy is not None]
    if state.rules < SINCE or not both or len(both) < len(trials):
        return None
    return "greedy" if sum(g - s for s, g in both) > 0 else "sampled"
