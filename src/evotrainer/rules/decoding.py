"""What a certificate knows of a policy beside its scores: how it decodes, and which weights it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from evotrainer.projections.branches import BASE, START
from evotrainer.projections.state import RunState
from evotrainer.records.events import TrialFinished

_OWN = {"scaffold", "deploy_temperature"}
"""What evaluations of a recipe's policy take from the recipe: all else is the run's protocol (`rules.recipes`)."""


def decoding(state: RunState, branch: str) -> Literal["sampled", "greedy"] | None:
    """The reading that scored higher on search, mean over the branch's trainings; sampled where both are equal. None
    where a training was not read both ways."""
    base = state.base
    trials = ([base] if base else []) if branch == BASE else state.branches[branch].complete
    last = [max((s for s in t.scores if s.split == "search"), key=lambda s: s.step, default=None) for t in trials]
    both = [(s.score, s.greedy) for s in last if s and s.score is not None and s.greedy is not None]
    if not both or len(both) < len(trials):
        return None
    return "greedy" if sum(g - s for s, g in both) > 0 else "sampled"


def policies(state: RunState, branch: str, trials: Sequence[TrialFinished]) -> frozenset[str]:
    """The policies that these evaluations of a branch read, by weights and by what else their answers depend on; empty
    where weights were not recorded."""
    if not all(t.policy_sha256 for t in trials):
        return frozenset()
    recipe = state.branches[START if branch == BASE else branch].recipe
    how = json.dumps(recipe.model_dump(mode="json", include=_OWN), sort_keys=True)
    return frozenset(f"{t.policy_sha256} {how}" for t in trials)
