"""What a training costs beside another, by their recipes alone."""

from __future__ import annotations

from evotrainer.factors.data import text_cost
from evotrainer.records.recipe import Recipe

SAMPLING, PASS, REFERENCE, AGAIN, ANCHOR = 0.6, 0.3, 0.2, 0.4, 0.15
"""Compute that a rollout takes: to sample it, of one pass of the update over it, of the reference policy's forward
pass, of a further sampling round or replay beside the batch, of the loss on demonstrations."""


def _compute(r: Recipe, length: int) -> float:
    """Rollouts of all steps, weighed by what is done with them; `length`: tokens of an attempt that count as one."""
    done, left = 0.0, r.steps
    for p in r.phases:
        n = p.steps or left
        left -= n
        done += n * (p.batch or r.prompts_per_step) * text_cost(r) if p.kind == "references" else n
    each = SAMPLING + PASS * r.updates_per_step + REFERENCE * (r.kl_beta > 0) + ANCHOR * (r.sft_anchor > 0)
    each += AGAIN * ((r.resample > 0) + (r.replay.weight > 0))
    # half of a longer budget is used: what is sampled is seldom as long as it may be
    size = r.prompts_per_step * r.group_size * (1 + r.max_tokens * r.max_turns / length) / 2
    return (done or r.steps) * each * size + (_compute(r.start, length) if r.start else 0.0)


def relative_cost(old: Recipe, new: Recipe) -> float:
    """Compute of a training by a recipe, as a multiple of another's."""
    length = old.max_tokens * old.max_turns
    return round(_compute(new, length) / _compute(old, length), 3)
