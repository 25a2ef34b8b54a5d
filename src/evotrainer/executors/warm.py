"""Base policies: a warm start on an environment's demonstrations, from scratch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.config import WarmStart
from evotrainer.errors import ConfigError

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment


def make_base(
    world: Environment,
    options: WarmStart,
    out: Path,
    on_step: Callable[[dict[str, float]], None],
    *,
    bf16: bool = False,
) -> None:
    """Train a policy from scratch and save it in `out`; ConfigError where the environment has no demonstrations."""
    from evotrainer.trainers.embedded import warm_start

    demos = world.demonstrations(options.demonstrations, options.seed)
    if not demos:
        raise ConfigError(
            f"environment {world.name} offers no demonstrations to warm-start from; set policy.base to a folder"
        )
    s = options.shape
    warm_start(
        demos,
        world.vocabulary(),
        {"d": s.width, "layers": s.layers, "heads": s.heads, "hidden": s.mlp, "context": s.context},
        options.steps,
        options.batch,
        options.lr,
        options.seed,
        out,
        on_step,
        vocabulary=str(world.describe().get("vocabulary") or world.name),
        dtype="bfloat16" if bf16 else "float32",
    )
