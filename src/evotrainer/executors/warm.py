"""Base policies, from scratch: a warm start on an environment's drills, if asked for, then on its demonstrations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evotrainer.config.task import WarmStart
from evotrainer.errors import ConfigError

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment


def make_base(
    environment: Environment,
    options: WarmStart,
    out: Path,
    on_step: Callable[[dict[str, float]], None],
    *,
    bf16: bool = False,
    trainer: str = "embedded",
    trainer_options: Mapping[str, Any] | None = None,
) -> None:
    """Train a policy from scratch and save it in `out`; `step` of its entries counts to `options.all_steps`.

    `trainer`: whose policy it is; that of trl is Qwen3's architecture with a chat template, in float32.

    ConfigError where the environment has no demonstrations, or no drills and `options.drill_steps` asks for them.
    """
    from evotrainer.trainers.embedded import warm_start

    demos = environment.demonstrations(options.demonstrations, options.seed)
    if not demos:
        raise ConfigError(
            f"environment {environment.name} offers no demonstrations to warm-start from; set policy.base to a folder"
        )
    s = options.shape
    kv_heads = s.heads if s.heads % 2 else 2
    shape = {"d": s.width, "layers": s.layers, "heads": s.heads, "kv_heads": kv_heads, "hidden": s.mlp,
             "context": s.context}  # fmt: skip

    def phase(
        texts: Sequence[tuple[str, ...]],
        steps: int,
        lr: float,
        folder: Path,
        done: int,
        start: Path | None,
        dtype: Literal["float32", "bfloat16"],
    ) -> None:
        def report(row: dict[str, float]) -> None:
            on_step(row | {"step": row["step"] + done})

        if trainer == "trl":
            from evotrainer.trainers.trl import warm_start as chat_start

            chat = (trainer_options or {}).get("chat", "auto")
            words = environment.vocabulary()
            chat_start(texts, words, shape, steps, options.batch, lr, options.seed, folder, report, start, chat)
            return
        warm_start(
            texts,
            environment.vocabulary(),
            shape,
            steps,
            options.batch,
            lr,
            options.seed,
            folder,
            report,
            vocabulary=str(environment.describe().get("vocabulary") or environment.name),
            start=start,
            dtype=dtype,
        )

    last: Literal["float32", "bfloat16"] = "bfloat16" if bf16 else "float32"
    if not options.drill_steps:
        phase(demos, options.steps, options.lr, out, 0, None, last)
        return
    texts = drills(environment, options)
    with tempfile.TemporaryDirectory() as tmp:
        drilled = Path(tmp) / "drilled"
        phase(texts, options.drill_steps, options.drill_lr or options.lr, drilled, 0, None, "float32")
        phase(demos, options.steps, options.lr, out, options.drill_steps, drilled, last)


def drills(environment: Environment, options: WarmStart) -> Sequence[tuple[str, ...]]:
    """The environment's drills; ConfigError where it has none."""
    from evotrainer.envs.base import Drilled

    texts = environment.drills(options.drills, options.seed) if isinstance(environment, Drilled) else []
    if not texts:
        raise ConfigError(
            f"environment {environment.name} offers no drills; set policy.warm_start.drill_steps = 0, "
            "or give it drills(n, seed)"
        )
    return texts
