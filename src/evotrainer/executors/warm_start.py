"""Base policies, from scratch: a warm start on an environment's drills, if asked for, then on its demonstrations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evotrainer.config.task import WarmStart
from evotrainer.envs.return_checks import demonstrations_of
from evotrainer.errors import ConfigError
from evotrainer.trainers import TRAINERS
from evotrainer.trainers.base import WarmStartRequest, conversational

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment

Precision = Literal["float32", "bfloat16"]
Texts = Sequence[tuple[str, ...]]


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

    ConfigError where the trainer trains nothing from scratch, or the environment has no demonstrations, or no drills
    and `options.drill_steps` asks for them.
    """
    demos = warm_texts(environment, options)
    warm_start = TRAINERS[trainer].warm_start
    if warm_start is None:
        raise ConfigError(f"the {trainer} trainer trains no policy from scratch; set policy.base to a folder")
    last: Precision = "bfloat16" if bf16 else "float32"

    def train(texts: Texts, steps: int, lr: float, out: Path, dtype: Precision, after: int = 0, **more: Any) -> None:
        request = warm_request(
            environment, options, texts, trainer_options, steps, lr, out_dir=out, dtype=dtype, **more
        )
        warm_start(request, lambda row: on_step(row | {"step": row["step"] + after}))

    if not options.drill_steps:
        train(demos, options.steps, options.lr, out, last)
        return
    texts = environment.drills(options.drills, options.seed)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as tmp:
        drilled = Path(tmp) / "drilled"
        train(texts, options.drill_steps, options.drill_lr or options.lr, drilled, "float32")
        train(demos, options.steps, options.lr, out, last, options.drill_steps, start=drilled)


def warm_request(
    environment: Environment,
    options: WarmStart,
    texts: Texts,
    trainer_options: Mapping[str, Any] | None = None,
    steps: int = 1,
    lr: float = 0.0,
    **more: Any,
) -> WarmStartRequest:
    """What a trainer is asked for. Prompts that are text reach the policy without a template, whatever it has."""
    s = options.shape
    kv_heads = s.heads if s.heads % 2 else 2
    shape = {"d": s.width, "layers": s.layers, "heads": s.heads, "kv_heads": kv_heads, "hidden": s.mlp}
    plain = {} if conversational(environment) else {"chat": False}
    return WarmStartRequest(
        texts=texts,
        words=environment.vocabulary(),
        vocabulary=str(environment.describe().get("vocabulary") or environment.name),
        shape=shape | {"context": s.context},
        steps=steps,
        batch=options.batch,
        lr=lr,
        seed=options.seed,
        options={**(trainer_options or {}), **plain},
        **more,
    )


def warm_texts(environment: Environment, options: WarmStart) -> Texts:
    """Demonstrations for a warm start; ConfigError where there are none, or no drills and some are asked for."""
    from evotrainer.envs.base import EnvironmentWithDrills

    demos = demonstrations_of(environment, options.demonstrations, options.seed)
    if not demos:
        own = "give it some (demos of a TextEnv), or set policy.base to a policy folder"
        raise ConfigError(
            f"policy.base=warm-start, but environment {environment.name} offers no demonstrations to learn from; "
            f"{getattr(environment, 'without_demonstrations', own)}"
        )
    if options.drill_steps and not isinstance(environment, EnvironmentWithDrills):
        raise ConfigError(
            f"environment {environment.name} offers no drills; set policy.warm_start.drill_steps=0, or give it drills"
        )
    return demos
