"""Replays of what is sampled and counted (filters, resampling, curriculum, group size, masking, token budget), and of
what rollouts teach and how strongly they pull (the weight of negative advantages, supervised parts)."""

from __future__ import annotations

import math

import numpy as np

from evotrainer.algorithm import rewards
from evotrainer.algorithm.advantages import group_std, negative_share
from evotrainer.algorithm.curriculum import easiest_up_to
from evotrainer.harness.columns.batch import tag_codes, tag_numbers
from evotrainer.harness.columns.numerics import slope_t
from evotrainer.harness.whatif.replay import (
    CONSTANT,
    MIN_KEEP,
    Answer,
    ReplayInput,
    compose_or_stored,
    dead,
    dead_share_at,
    filtered,
    lost,
    order_of,
    paid_components,
    replays,
    rewards_of,
    task_rates,
    task_weights,
    trained_advantages,
)
from evotrainer.records.recipe import Recipe

CURRICULUM_MIN_KEEP = 0.25
"""Cutting the data to 23% collapsed exploration (arXiv 2606.03108)."""


@replays("group_filter")
def filter_change(x: ReplayInput) -> Answer:
    """Which stored groups the filter keeps, under the parent's reward.

    Contradicts: it keeps under 20% of groups, drops over 30% of the live groups that hold both outcomes, or keeps the
    worse-ordered ones (misranked pairs up 1 point). Supports: over 10% of groups have zero variance and it drops at
    most 5% of live groups with both outcomes; or misranked pairs of the kept groups are 1 point fewer. Silent
    otherwise.
    """
    b = x.batch
    reward = compose_or_stored(x)
    scored, is_dead = dead(b, reward)
    before, keep = (filtered(b, r, reward) & scored for r in (x.old, x.new))
    order = order_of(b, reward)
    alive = scored & ~is_dead
    # only groups with both outcomes teach the difference; dropping others costs samples, not signal
    mixed = alive & (order.pairs > 0)
    variance = group_std(reward, b.group, b.n_groups) ** 2
    n = max(1, int(scored.sum()))
    m = {
        "keep_rate": float(keep.sum()) / n,
        "keep_before": float(before.sum()) / n,
        "dead": float((scored & is_dead).sum()) / n,
        "lost_variance": 1 - float(variance[keep].sum() / variance.sum()) if variance.sum() > 0 else 0.0,
        "lost_mixed": float((mixed & ~keep).sum()) / max(1, int(mixed.sum())),
        "lost_mixed_before": float((mixed & ~before).sum()) / max(1, int(mixed.sum())),
        "misranked_alive": order.over(alive),
        "misranked_kept": order.over(alive & keep),
        **lost(x)[1],
    }
    text = (
        f"keeps {m['keep_rate']:.0%} of {n} groups ({m['dead']:.0%} are dead), "
        f"loses {m['lost_mixed']:.0%} of live groups with both outcomes"
    )
    if m["keep_rate"] < MIN_KEEP:
        return "contradicts", f"{text}: too few are left", m
    if m["lost_mixed"] > 0.3:
        return "contradicts", f"{text}: it throws the signal away", m
    gain = m["misranked_alive"] - m["misranked_kept"]
    if gain < -0.01:
        return "contradicts", f"{text}; the kept groups are ordered worse", m
    if x.new.group_filter.kind == "none":
        if m["lost_mixed_before"] > 0.3:
            return (
                "supports",
                f"the present filter loses {m['lost_mixed_before']:.0%} of live groups with both outcomes",
                m,
            )
        return "silent", f"{text}; without a filter nothing is lost", m
    if m["dead"] > 0.1 and m["lost_mixed"] <= 0.05:
        return "supports", text, m
    return ("supports", f"{text}; the kept ones are ordered better", m) if gain > 0.01 else ("silent", text, m)


@replays("resample")
def resample_change(x: ReplayInput) -> Answer:
    """How many groups the filter drops, and how many of them the extra sampling rounds would replace.

    Contradicts: fewer than 20% of groups survive the filter, so most of the extra sampling is thrown away. Supports:
    20% or more are dropped. Silent: fewer are dropped, or resampling goes down.
    """
    b = x.batch
    reward = compose_or_stored(x)
    scored, _ = dead(b, reward)
    keep = float((filtered(b, x.new, reward) & scored).sum()) / max(1, int(scored.sum()))
    rounds = x.new.resample
    # every round draws anew for the places that are still empty
    filled = 1 - (1 - keep) ** (rounds + 1)
    m = {
        "keep_rate": keep,
        "filled_after": filled,
        "rounds": float(rounds),
        "extra_sampling": sum((1 - keep) ** i for i in range(1, rounds + 1)),
    }
    text = f"{keep:.0%} of groups pass the filter; with {rounds} extra rounds {filled:.0%} of the batch is filled"
    if keep < MIN_KEEP and rounds > x.old.resample:
        return "contradicts", f"{text}: most extra samples would be thrown away", m
    if keep <= 0.8 and rounds > x.old.resample:
        return "supports", text, m
    return "silent", text, m


@replays("curriculum")
def curriculum_change(x: ReplayInput) -> Answer:
    """Tasks that would be drawn, by their stored pass rates and tags (search tasks stand for training tasks).

    A band, a frontier of tags: contradicts where fewer than 25% of tasks are left (cutting data to 23% collapsed
    exploration (arXiv 2606.03108); of weights w the effective share (sum w)^2 / (n sum w^2)), supports where dead
    groups fall by 5 points or more. By difficulty: contradicts where tasks of larger numbers are solved more often
    (beyond 2 standard errors of the correlation), supports where dead groups are 5 points fewer among the easiest
    fifth. Silent otherwise, and where outcomes or the tag are unknown.
    """
    b, rule = x.batch, x.new.curriculum
    if rule.kind == "none":
        return "silent", "all tasks would be drawn again; the stored rollouts may hold drawn ones only", {}
    if not b.has("outcome"):
        return "silent", "outcomes are not stored: pass rates are unknown", {}
    if rule.kind == "difficulty":
        return _difficulty(x)
    values = tag_codes(b, rule.tag)[0] if rule.kind == "tag_frontier" else []
    if rule.kind == "tag_frontier" and len(values) < 2:
        return "silent", f"the stored rollouts hold {len(values)} values of tag {rule.tag!r}", {}
    w = task_weights(b, rule)
    keep = float(w.sum()) ** 2 / (len(w) * max(1e-12, float((w**2).sum())))
    m = {
        "keep_rate": keep,
        "dead_before": _dead_share(x, task_weights(b, x.old.curriculum)),
        "dead_after": _dead_share(x, w),
        **lost(x)[1],
    }
    where = f"by {len(values)} values of {rule.tag}" if values else "in the band"
    text = f"{where}: {keep:.0%} of {b.n_tasks} tasks; dead groups {m['dead_before']:.0%} -> {m['dead_after']:.0%}"
    if keep < CURRICULUM_MIN_KEEP:
        return "contradicts", f"{text}: too few tasks are left", m
    return ("supports" if m["dead_before"] - m["dead_after"] >= 0.05 else "silent"), text, m


def _dead_share(x: ReplayInput, weight: np.ndarray) -> float:
    """Dead groups among scored ones, groups weighted by their task, shape (n_tasks,)."""
    b = x.batch
    scored, is_dead = dead(b, compose_or_stored(x))
    w = weight[b.task[b.first]] * scored
    return float((w * is_dead).sum()) / max(1e-12, float(w.sum()))


def _difficulty(x: ReplayInput) -> Answer:
    b, rule = x.batch, x.new.curriculum
    number, rate = tag_numbers(b, rule.tag), task_rates(b)
    known = ~(np.isnan(number) | np.isnan(rate))
    n = int(known.sum())
    if n < 3 or np.ptp(number[known]) == 0 or np.ptp(rate[known]) == 0:
        return "silent", f"tag {rule.tag!r} orders no stored tasks by pass rate", {}
    r = float(np.corrcoef(number[known], rate[known])[0, 1])
    easiest = easiest_up_to(np.sort(number[known]), progress=0.0)
    before = _dead_share(x, known.astype(float))
    after = _dead_share(x, (known & (number <= easiest)).astype(float))
    m = {"correlation": r, "dead_before": before, "dead_after": after, "tasks": float(n)}
    text = (
        f"{rule.tag} correlates {r:+.2f} with the pass rate; dead groups {before:.0%}, {after:.0%} of the easiest fifth"
    )
    if r > 2 / math.sqrt(n):
        return "contradicts", f"{text}: larger numbers are easier", m
    return ("supports" if r < -2 / math.sqrt(n) and before - after >= 0.05 else "silent"), text, m


@replays("group_size")
def group_size_change(x: ReplayInput) -> Answer:
    """Expected zero-variance groups at the new size: exact by counting draws when smaller, beta-binomial extrapolation
    when larger.

    Contradicts: zero-variance groups rise by 5 points or more. Supports: they fall by 5 points or more. Silent
    otherwise.
    """
    reward = compose_or_stored(x)
    before = dead_share_at(x.batch, reward, x.old.group_size)
    after = dead_share_at(x.batch, reward, x.new.group_size)
    m = {"dead_before": before, "dead_after": after, "cost_factor": x.new.group_size / x.old.group_size}
    if math.isnan(before) or math.isnan(after):
        return "silent", "no stored group is large enough to draw from", m
    text = f"expected dead groups {before:.0%} -> {after:.0%} at {m['cost_factor']:.2g} times the samples"
    if after - before >= 0.05:
        return "contradicts", text, m
    return ("supports" if before - after >= 0.05 else "silent"), text, m


@replays("batch_shape")
def batch_shape_change(x: ReplayInput) -> Answer:
    """Groups and rollouts that give a gradient, at equal sampling: prompts x steps x the live share at the group's size
    (counted as for group_size).

    Supports: a fifth more groups do, and at most a tenth of those rollouts is lost. Silent otherwise: smaller groups
    always give more live groups and fewer live rollouts, and which counts is not in stored rollouts.
    """
    reward = compose_or_stored(x)
    sizes = (x.old.group_size, x.new.group_size)
    before, after = (dead_share_at(x.batch, reward, size) for size in sizes)
    if math.isnan(before) or math.isnan(after) or before >= 1:
        return "silent", "no stored group is large enough to draw from, or none has a spread", {}
    rollouts = (1 - after) / (1 - before)
    groups = rollouts * (x.new.prompts_per_step * x.new.steps) / (x.old.prompts_per_step * x.old.steps)
    m = {"dead_before": before, "dead_after": after, "live_groups_factor": groups, "live_rollouts_factor": rollouts}
    text = (
        f"expected dead groups {before:.0%} -> {after:.0%}: {groups:.2f} times the groups and {rollouts:.2f} times the "
        "rollouts give a gradient"
    )
    return ("supports" if groups >= 1.2 and rollouts >= 0.9 else "silent"), text, m


@replays("mask_truncated")
def mask_change(x: ReplayInput) -> Answer:
    """What masking truncated completions takes out of the loss.

    Contradicts: fewer than 20% of rollouts are left, or 20% of the masked ones are correct. Supports: over 5% are
    masked and at most 5% of those are correct. Silent otherwise.
    """
    b = x.batch
    if not b.has("finish"):
        return "silent", "how completions ended is not stored", {}
    if not x.new.mask_truncated:
        return "silent", "truncated completions would count again; their effect is in training", {}
    cut = np.nan_to_num(b.truncated) > 0.5
    right = b.truth[cut]
    right = right[~np.isnan(right)]
    accuracy = float(right.mean()) if len(right) else math.nan
    m = {"masked": float(cut.mean()), "keep_rate": 1 - float(cut.mean()), "accuracy_of_masked": accuracy}
    text = f"{m['masked']:.0%} of rollouts would be masked" + (
        f"; {accuracy:.0%} of them are correct" if len(right) else ""
    )
    if m["keep_rate"] < MIN_KEEP:
        return "contradicts", f"{text}: too few are left", m
    if m["masked"] < 0.05 or math.isnan(accuracy):
        return "silent", text, m
    if accuracy >= 0.2:
        return "contradicts", text, m
    return ("supports" if accuracy <= 0.05 else "silent"), text, m


@replays("max_tokens")
def budget_change(x: ReplayInput) -> Answer:
    """Stored lengths against the new token budget.

    Contradicts: a smaller budget would cut 5% or more of the correct rollouts. Supports: a larger one where over 15%
    are cut off before a right answer, and right answers are rarer among those cut than among those that end (by two
    standard errors). Silent otherwise, and where none ends: what a longer completion would have said is not stored.
    """
    b = x.batch
    right = b.truth > 0.5
    if x.new.max_tokens < x.old.max_tokens:
        if not b.has("tokens"):
            return "silent", "token counts are not stored in these rollouts", {}
        cut = float((b.tokens[right] > x.new.max_tokens).mean()) if right.any() else math.nan
        text = f"{cut:.0%} of correct rollouts are longer than {x.new.max_tokens} tokens"
        return ("contradicts" if cut >= 0.05 else "silent"), text, {"correct_cut": cut}
    known = ~np.isnan(b.truth) & ~np.isnan(b.truncated)
    cut_off, ended = known & (b.truncated > 0.5), known & (b.truncated <= 0.5)
    if not known.any():
        return "silent", "how the rollouts ended, or whether they are right, is not stored", {}
    if not cut_off.any() or not ended.any():
        return "silent", f"{'all' if cut_off.any() else 'none'} of them are cut off at {x.old.max_tokens} tokens", {}
    lost = float((cut_off & ~right).sum() / known.sum())
    # shrunken shares: one right answer of one has an error, too
    (p, v), (q, w) = (_share(int(right[side].sum()), int(side.sum())) for side in (cut_off, ended))
    text = f"{p:.0%} of what is cut at {x.old.max_tokens} tokens is right, {q:.0%} of what ends by itself"
    m = {"lost": lost, "cut_right": p, "ended_right": q}
    return ("supports" if lost > 0.15 and q - p > 2 * math.sqrt(v + w) else "silent"), text, m


def _share(k: int, n: int) -> tuple[float, float]:
    """(mean, variance) of a share of which k of n were seen, after a uniform prior."""
    p = (k + 1) / (n + 2)
    return p, p * (1 - p) / (n + 3)


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
