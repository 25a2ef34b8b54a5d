"""What a branch is judged against, and the recipe that spends a branch's training compute on its control."""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.config.task import TaskFile
from evotrainer.judge import cost_ratio
from evotrainer.projections.branches import START
from evotrainer.projections.state import RunState
from evotrainer.records.events import TrialFinished
from evotrainer.records.events.trials import token_passes
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe

MARGIN = 1.1
"""A control gets this much more than its branch: what a further step costs is an estimate, and a control that comes out
too short by a few percent leaves a promotion open that nothing then settles."""
COUNTED_MARGIN = 1.03
"""The same where compute is counted in tokens: by seconds alone trainings of one recipe came out 1.13 times as dear in
one hour as in another (LOG.md, 2026-11-26)."""


def control_of(state: RunState, branch: str) -> str:
    """The branch that a verdict compares with: the parent's recipe trained for as long as the branch, where there is
    such a one, else the parent, also after another promotion."""
    matched = (x.branch for x in state.branches.values() if x.matches == branch)
    return next(matched, state.branches[branch].parent or START)


def steps_to_match(task: TaskFile, state: RunState, branch: str) -> int | None:
    """Steps in which the parent's recipe costs what the branch cost; None where it is not dearer than allowed."""
    most, b = task.judge.max_cost, state.branches[branch]
    if most is None or b.parent is None:
        return None
    parent = state.branches[b.parent]
    if parent.recipe.with_factor("steps", b.recipe.steps).hash == b.recipe.hash:
        return None  # its control at equal compute would be itself
    found = cost_ratio(b.complete, parent.complete)
    if found is None or not found.above(most):
        return None
    wanted = found.ratio * (COUNTED_MARGIN if found.counted else MARGIN)
    return parent.recipe.steps + max(1, round((wanted - 1) / mean_share_of_a_step(parent.complete, found.counted)))


def mean_share_of_a_step(trials: Sequence[TrialFinished], counted: bool = False) -> float:
    """A further step's cost as a share of the whole training's, mean over trainings: by the second half of their
    curves, since what comes before the first step is not paid again and later steps may be dearer than early ones.
    `counted`: in tokens, not in seconds."""
    shares = []
    for t in trials:
        at = [(x.get("step", 0.0), (token_passes(x) if counted else x.get("cpu_s")) or 0.0) for x in t.curve]
        if t.training_s is None:
            continue
        (s0, c0), (s1, c1) = at[len(at) // 2 - 1] if len(at) > 3 else (0.0, 0.0), at[-1]
        shares.append((c1 - c0) / (s1 - s0) / c1 if s1 > s0 and c1 > c0 else 1 / t.steps)
    return sum(shares) / len(shares)


def longer(recipe: Recipe, steps: int, branch: str) -> Intervention:
    """The change of steps, as every branch declares its one change."""
    return Intervention(
        factor="steps",
        old=recipe.steps,
        new=steps,
        hypothesis=f"control of {branch}: the compute that {branch} takes gains as much without its change",
        prediction=Prediction(metric="score", direction="up", size=0.0),
        success_criterion="none: it is a control and is never promoted",
        rollback="none",
        move="equal compute",
    )
