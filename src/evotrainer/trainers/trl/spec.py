"""The trl trainer's row of `trainers.TRAINERS`; importing it loads no machine-learning library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError, MissingDependencyError, install
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.base import (
    SamplerDtype,
    Trainer,
    TrainerEnvironment,
    TrainerSpec,
    WarmStartRequest,
    installed,
)
from evotrainer.trainers.trl.merging import merge_adapter

if TYPE_CHECKING:
    from evotrainer.trainers.trl.options import TrlOptions


def make(sampler: SamplerDtype, options: Mapping[str, Any]) -> Trainer:
    """The trainer; ConfigError for an unknown option."""
    from evotrainer.trainers.trl.trainer import TrlTrainer

    return TrlTrainer(options)


def check(options: Mapping[str, Any], recipes: Sequence[Recipe], sampler: str) -> None:
    """ConfigError for options and recipes that TRL cannot carry out together.

    Imports nothing heavy, but TRL where `trainer.options.config` names fields of its own.
    """
    from evotrainer.trainers.trl.mapping import check as check_recipe
    from evotrainer.trainers.trl.options import parse

    if sampler == "bf16":
        raise ConfigError("run.sampler_dtype is the embedded trainer's; for trl set trainer.options.dtype=bfloat16")
    parsed = parse(options)
    for recipe in recipes:
        check_recipe(recipe, parsed)
    # GRPOConfig's fields differ between versions: only the installed one can say which names exist
    if parsed.config and installed("trl"):
        check_config(parsed, recipes)
    for wanted, library in ((parsed.lora, "peft"), (parsed.vllm, "vllm")):
        if wanted and not installed(library):
            raise MissingDependencyError(
                f"trainer.options.{'lora' if library == 'peft' else 'vllm'} needs {library}, "
                f"which is not installed; run: pip install {library}"
            )


def check_config(options: TrlOptions, recipes: Sequence[Recipe]) -> None:
    """ConfigError for names that TRL's GRPOConfig does not have, and values that it does not take."""
    from dataclasses import fields
    from difflib import get_close_matches

    from trl import GRPOConfig

    from evotrainer.trainers.trl.mapping import config_fields

    config = options.config
    known = [f.name for f in fields(GRPOConfig) if f.init]
    problems = []
    for name in sorted(config.keys() - set(known)):
        near = get_close_matches(name, known, 1)
        problems.append(f"{name} (did you mean {near[0]}?)" if near else name)
    if problems:
        raise ConfigError(
            f"trainer.options.config: GRPOConfig of the installed TRL has no {', '.join(problems)}; correct or remove"
        )
    for recipe in recipes:
        try:
            GRPOConfig(**config_fields(recipe, options), output_dir="unused", use_cpu=True, bf16=False, report_to=[])
        except (TypeError, ValueError, ImportError) as e:
            raise ConfigError(f"trainer.options.config: TRL refuses it: {e}; correct or remove what it names") from e


def check_trial(
    base: Path | None, options: Mapping[str, Any], recipes: Sequence[Recipe], environment: TrainerEnvironment
) -> list[str]:
    """By the check that every training begins with."""
    from evotrainer.trainers.trl.checks import check_trial as check_by_files
    from evotrainer.trainers.trl.options import parse

    return check_by_files(base, parse(options), recipes, environment)


def warm_start(request: WarmStartRequest, on_step: Callable[[dict[str, float]], None]) -> None:
    """A small Qwen3 with a chat template, in float32."""
    from evotrainer.trainers.trl.scratch import warm_start as train

    train(request, on_step)


def check_warm_start(request: WarmStartRequest) -> None:
    """By the encoding that a warm start begins with."""
    from evotrainer.trainers.trl.scratch import encoded, tokenizer_of

    tokenizer = tokenizer_of(request)
    encoded(request, tokenizer, (tokenizer.eos_token_id,), request.shape["context"])


def room(
    policy: Path | WarmStartRequest, options: Mapping[str, Any], prompts: Sequence[Sequence[Any]]
) -> tuple[list[int], int]:
    """By the policy's own template. The tokens of one from scratch are made of its texts: its trainings count them."""
    if isinstance(policy, WarmStartRequest):
        return [0] * len(prompts), policy.shape["context"]
    from evotrainer.trainers.trl.options import parse
    from evotrainer.trainers.trl.templates import prompt_room

    return prompt_room(policy, parse(options), prompts)


SPEC = TrainerSpec(
    make=make,
    libraries=("torch", "transformers", "trl", "accelerate", "datasets"),
    remedy=install("trl"),
    check=check,
    check_trial=check_trial,
    warm_start=warm_start,
    check_warm_start=check_warm_start,
    room=room,
    merge=merge_adapter,
)
