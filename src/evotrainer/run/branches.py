"""Branches as a run opens them: proposed, controls at equal compute, starts."""

from __future__ import annotations

from evotrainer.projections.branches import Branch
from evotrainer.records import keys
from evotrainer.records.events import BranchOpened
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import Recipe
from evotrainer.run.context import RunContext


def open_branch(
    ctx: RunContext,
    name: str,
    parent: str | None,
    n: int,
    recipe: Recipe,
    iv: Intervention | None,
    *,
    matches: str = "",
) -> Branch:
    """A branch of round `n` with its recipe; a recorded one is taken up as it was recorded.

    `matches`: see `BranchOpened`.
    """
    ctx.record(
        keys.opened(name),
        BranchOpened,
        lambda: BranchOpened(
            branch=name,
            parent=parent,
            round=n,
            recipe=recipe,
            recipe_hash=recipe.hash,
            intervention=iv,
            matches=matches,
        ),
    )
    return ctx.branches[name]
