"""Says whether RL can learn from a base policy: once it is measured, and again at the end of a run without a gain."""

from __future__ import annotations

FEW = 0.10
"""Share of tasks that the base policy solves below which RL has too little to learn from."""
DEAD = 0.99
"""Share of groups or attempts from which something is said to hold throughout."""


def too_weak(score: float | None, base: str, warm_steps: object) -> str:
    """What to set where the base policy solves too little; empty where it solves enough. `score`: on search;
    `base`: where it comes from (`RunOpened.base_policy`); `warm_steps`: of the task file."""
    if score is None or score >= FEW:
        return ""
    text = f"the base policy solves {100 * score:.1f}% of the search tasks, few successes to learn from: "
    if base != "warm-start":
        return text + "start from a stronger policy.base, or give the train split easier tasks"
    now = f"={2 * warm_steps} (now {warm_steps})" if isinstance(warm_steps, int) else ""
    return text + f"warm-start it for longer, policy.warm_start.steps{now}"
