"""Replays of what rollouts teach and how strongly they pull: the weight of negative advantages, supervised parts."""

from __future__ import annotations

import numpy as np

from evotrainer.algorithm import rewards
from evotrainer.algorithm.advantages import negative_share
from evotrainer.harness.columns.numerics import slope_t
from evotrainer.harness.whatif.replay import (
    CONSTANT,
    Answer,
    ReplayInput,
    compose_or_stored,
    dead,
    paid_components,
    replays,
    rewards_of,
    trained_advantages,
)
from evotrainer.records.recipe import Recipe

PUSHES_DOWN = 0.6
"""Share above which the metric `negative_share` is out of its healthy range."""


RIGHT = 0.95
"""Share of right attempts above which a supervised part has little to show."""
SLOPE_STEPS, SURE = 8, 2.0
"""Steps of a curve from which its last half has a slope, and the t from which it rises."""


@replays("negative_weight")
def negative_weight_change(x: ReplayInput) -> Answer:
    """Share of |advantage| x tokens that pushes down, under the old weight and the new one. Advantages are those that
    the rewards give under the parent's recipe (search rollouts stand for training rollouts).

    Contradicts: no trained group has a reward spread, so that no advantage is negative. Supports: more than 60% push
    down, and the new weight brings the share nearer to one half. Silent otherwise, and without token counts: how far
    training follows is not in stored rollouts.
    """
    b = x.batch
    if not b.has("tokens"):
        return "silent", "token counts are not stored in these rollouts", {}
    reward = compose_or_stored(x)
    before, after = (
        negative_share(trained_advantages(b, recipe, reward), np.nan_to_num(b.tokens)) for recipe in (x.old, x.new)
    )
    if before is None or after is None:
        return "contradicts", "no trained group has a reward spread: no advantage is negative", {}
    m = {"negative_share_before": before, "negative_share_after": after}
    text = f"{before:.0%} of |advantage| x tokens push down, {after:.0%} under the new weight"
    if before > PUSHES_DOWN and abs(after - 0.5) < abs(before - 0.5):
        return "supports", text, m
    return "silent", text, m


def full_marks(x: ReplayInput, recipe: Recipe) -> np.ndarray | None:
    """Rollouts that earn all that a recipe's components can pay, as the trainers have it; boolean, shape (N,). None
    where a component is not stored."""
    paid = paid_components(x.batch, recipe)
    if not paid or not set(paid) <= set(x.batch.component_names):
        return None
    return rewards.full_marks(recipe.rewards, paid, x.batch.n)


@replays("phases", "phase_plan")
def phases_change(x: ReplayInput) -> Answer:
    """What a supervised part would find: own successes, and tasks of which none is.

    Own: contradicts where no attempt earns full marks, so that it would learn nothing. Both: contradicts where 95% of
    the attempts do, so that there is little to show. References: supports where on a fifth of the tasks or more no
    attempt does. Silent otherwise: what imitation teaches is not in stored rollouts.
    """
    kinds = {p.kind for p in x.new.phases} - {"rl"}
    right = full_marks(x, x.new)
    if not kinds or right is None:
        return "silent", "without supervised parts, or rewards that can be computed, nothing can be said", {}
    share = float(right.mean())
    solved = np.bincount(x.batch.task, weights=right.astype(float), minlength=x.batch.n_tasks) > 0
    m = {"successes": share, "unsolved_tasks": 1 - float(solved.mean())}
    text = f"{share:.0%} of attempts earn full marks; of {m['unsolved_tasks']:.0%} of the tasks none does"
    if "own" in kinds and not right.any():
        return "contradicts", f"{text}: there is nothing to imitate", m
    if share >= RIGHT:
        return "contradicts", f"{text}: there is little to show", m
    return ("supports" if kinds == {"references"} and m["unsolved_tasks"] >= 0.2 else "silent"), text, m


@replays("start", "continuation")
def start_change(x: ReplayInput) -> Answer:
    """Whether a training that goes on from the parent's policy would find something to learn.

    Contradicts: 95% of the stored groups have no reward spread, so that it would have next to no gradient. Supports:
    the training score rose over the last half of the parent's curve, by a least-squares line with t above 2. Silent
    otherwise, and where it goes on from another recipe: what further steps teach is not in stored rollouts.
    """
    start, old = x.new.start, x.old.model_copy(update={"deploy_temperature": None})
    rewards = rewards_of(x)
    if start is None or start.hash != old.hash or rewards is None:
        return "silent", "rollouts of the policy that it goes on from are not stored, or not its rewards", {}
    scored, none = dead(x.batch, rewards[1])
    m = {"dead_groups": float(none[scored].mean()) if scored.any() else 1.0}
    text = f"{m['dead_groups']:.0%} of groups have no reward spread"
    late = x.context.series("score")
    if len(late) >= SLOPE_STEPS:
        m["late_gain"], m["late_gain_t"] = slope_t(late[len(late) // 2 :])
        text += f"; the training score changed by {100 * m['late_gain']:+.1f} points over the last half of the curve"
    if m["dead_groups"] >= CONSTANT:
        return "contradicts", f"{text}: there is no gradient to go on with", m
    rising = m.get("late_gain", 0.0) > 0 and m.get("late_gain_t", 0.0) > SURE
    return ("supports" if rising else "silent"), text, m


@replays("replay")
def replay_change(x: ReplayInput) -> Answer:
    """How many groups would give a success to the buffer, and how many hold none.

    Contradicts: no group in which a success is rare enough holds one, so that nothing would be replayed. Supports: 5%
    of the groups or more do, and 30% or more have no success at all: there is something to see again, and cause to.
    Silent otherwise: what seeing it again teaches is not in stored rollouts.
    """
    b, right = x.batch, full_marks(x, x.new)
    if not x.new.replay.weight or right is None:
        return "silent", "without a weight, or rewards that can be computed, nothing can be said", {}
    size = np.bincount(b.group, minlength=b.n_groups)
    share = np.bincount(b.group, weights=right.astype(float), minlength=b.n_groups) / np.maximum(size, 1)
    m = {"kept": float(((share > 0) & (share <= x.new.replay.rare)).mean()), "none": float((share == 0).mean())}
    text = f"{m['kept']:.0%} of groups hold a rare success, {m['none']:.0%} none"
    if m["kept"] == 0:
        return "contradicts", f"{text}: nothing would be replayed", m
    return ("supports" if m["kept"] >= 0.05 and m["none"] >= 0.3 else "silent"), text, m
