"""What one change is: exactly one factor, computed from two recipes; and several at once, as control arms search."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from evotrainer.errors import SingleFactorError
from evotrainer.records.recipe import CHAMPION, Recipe, diff, format_diff
from evotrainer.records.structured_factors import COMPOSITES, fields_of, reward_moves

SAME_SAMPLES = 0.05
"""How far prompts_per_step x group_size x steps may move in a change of `batch_shape`, as a share."""


def samples(recipe: Recipe) -> int:
    """Rollouts of a whole training, without resampling."""
    return recipe.prompts_per_step * recipe.group_size * recipe.steps


def _composite(parent: Recipe, child: Recipe, changed: Collection[str]) -> str:
    """The composite factor that these fields belong to, empty where there is none;
    SingleFactorError where the change breaks its rule."""
    name = next((k for k, fields in COMPOSITES.items() if set(changed) <= set(fields)), "")
    if name == "batch_shape" and abs(samples(child) / samples(parent) - 1) > SAME_SAMPLES:
        raise SingleFactorError(
            f"batch_shape keeps prompts_per_step x group_size x steps within {SAME_SAMPLES:.0%}: "
            f"{samples(parent)} -> {samples(child)} ({samples(child) / samples(parent) - 1:+.0%}); "
            "choose values of that product, or change one of the fields alone"
        )
    return name


def single_factor(parent: Recipe, child: Recipe) -> str:
    """Name of the one factor that differs, a composite one where all fields that differ are its own;
    raises SingleFactorError with the diff otherwise."""
    d = diff(parent, child)
    if not d:
        raise SingleFactorError("branch changes no factor; an intervention must change exactly one")
    if len(d) > 1 and (composite := _composite(parent, child, d.keys())):
        return _one_reward_move(parent, child, composite)
    if len(d) > 1:
        raise SingleFactorError(
            f"branch changes {len(d)} factors, exactly one is allowed; split it into branches: {format_diff(d)}"
        )
    return _one_reward_move(parent, child, next(iter(d)))


def _one_reward_move(parent: Recipe, child: Recipe, name: str) -> str:
    """`name`; SingleFactorError where its change makes more than one move in the reward composition."""
    d = diff(parent, child)
    if "hooks" in d and (n := max(len(child.hooks.keys() - parent.hooks), len(parent.hooks.keys() - child.hooks))) > 1:
        raise SingleFactorError(
            f"branch makes {n} moves among the hooks, exactly one is allowed (add, remove or replace one file): "
            f"{format_diff(d)}"
        )
    if "rewards" in d and (n := reward_moves(parent.rewards, child.rewards)) > 1:
        raise SingleFactorError(
            f"branch makes {n} moves in the reward composition, exactly one is allowed (add, remove, re-weight or "
            f"replace one component): {format_diff(d)}"
        )
    return name


def check_start(parent: Recipe, child: Recipe) -> None:
    """SingleFactorError where a child goes on from another recipe than its parent's, or what that went on from: the
    changes between the two would be in the policy, and in no measurement."""
    measured = {r.hash for one in parent.chain for r in (one, one.model_copy(update={"deploy_temperature": None}))}
    if child.start is not None and child.start.hash not in measured:
        raise SingleFactorError(
            f"start names another recipe than the champion's ({format_diff(diff(parent, child.start))}); a branch goes "
            f"on from the champion (start = {CHAMPION!r}), from what the champion went on from, or from nothing"
        )


def check_changes(parent: Recipe, child: Recipe, changes: Mapping[str, Any], most: int) -> None:
    """SingleFactorError where these are not 1 to `most` changes of one factor each, of different fields, that together
    make the child of the parent."""
    if not 1 <= len(changes) <= most:
        raise SingleFactorError(f"it changes {len(changes)} factors, at most {most} are possible here")
    fields = [x for factor in changes for x in fields_of(factor)]
    if len(set(fields)) < len(fields):
        raise SingleFactorError(f"two of its changes are of one field: {', '.join(sorted(fields))}")
    for factor, new in changes.items():
        if (found := single_factor(parent, parent.with_factor(factor, new))) != factor:
            raise SingleFactorError(f"it declares {factor}, its value changes {found}")
    if parent.with_changes(changes).hash != child.hash:
        raise SingleFactorError(f"its changes do not make its recipe: {format_diff(diff(parent, child))}")
