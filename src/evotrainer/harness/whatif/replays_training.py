"""Replays of how strongly rollouts pull: the weight of negative advantages."""

from __future__ import annotations

import numpy as np

from evotrainer.harness.columns.numerics import weighted_share
from evotrainer.harness.whatif.forecast import advantages
from evotrainer.harness.whatif.replay import Answer, ReplayInput, compose_or_stored, replays, trained_groups

PUSHES_DOWN = 0.6
"""Share above which the metric `negative_share` is out of its healthy range."""


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
    kept = trained_groups(b, x.old, reward)[b.group]
    a = np.where(kept, np.nan_to_num(advantages(b, reward, x.old.reward_scaling)), 0.0)
    down, pull = (a < 0).astype(float), np.abs(a) * np.nan_to_num(b.tokens)

    def share(weight: float) -> float | None:
        return weighted_share(down, pull * np.where(a < 0, weight, 1.0), b.task)[0]

    before, after = share(x.old.negative_weight), share(x.new.negative_weight)
    if before is None or after is None:
        return "contradicts", "no trained group has a reward spread: no advantage is negative", {}
    m = {"negative_share_before": before, "negative_share_after": after}
    text = f"{before:.0%} of |advantage| x tokens push down, {after:.0%} under the new weight"
    if before > PUSHES_DOWN and abs(after - 0.5) < abs(before - 0.5):
        return "supports", text, m
    return "silent", text, m
