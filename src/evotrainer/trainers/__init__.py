"""Trainers: what trains a policy by a recipe. Importing this package loads no machine-learning library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.trainers.base import Trainer

if TYPE_CHECKING:
    from pathlib import Path

    from evotrainer.records.recipe import Recipe

TRAINERS = ("embedded", "trl")
LIBRARIES = {
    "embedded": ("torch", "safetensors", "tokenizers"),
    "trl": ("torch", "transformers", "trl", "accelerate", "datasets"),
}
REMEDY = {
    "embedded": "pip install torch==2.13.0, then pip install 'evotrainer[local]'",
    "trl": "pip install 'evotrainer[trl]'",
}


def check_installed(name: str) -> None:
    """MissingDependencyError where a library of this trainer is not installed; imports nothing."""
    for library in LIBRARIES.get(name, ()):
        if not _installed(library):
            raise MissingDependencyError(
                f"the {name} trainer needs {library}, which is not installed; run: {REMEDY[name]}"
            )


def _installed(library: str) -> bool:
    from importlib.util import find_spec

    try:
        # find_spec imports nothing: torch alone takes seconds, which `--help` and a config check must not pay
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def check_recipes(name: str, options: Mapping[str, Any], recipes: Sequence[Recipe], sampler: str = "fp32") -> None:
    """ConfigError names what this trainer cannot carry out of the recipes and options.

    Imports nothing heavy, but TRL where `trainer.options.config` names fields of its own.
    """
    if name == "embedded" and options:
        raise ConfigError(f"the embedded trainer has no option {', '.join(options)}; remove [trainer.options]")
    if name == "trl":
        from evotrainer.trainers.trl.mapping import check
        from evotrainer.trainers.trl.options import parse

        if sampler == "bf16":
            raise ConfigError("run.sampler_dtype is the embedded trainer's; for trl set trainer.options.dtype=bfloat16")
        parsed = parse(options)
        for recipe in recipes:
            check(recipe, parsed)
        # GRPOConfig's fields differ between versions: only the installed one can say which names exist
        if parsed.config and _installed("trl"):
            check_config_names(parsed.config)
        for wanted, library in ((parsed.lora, "peft"), (parsed.vllm, "vllm")):
            if wanted and not _installed(library):
                raise MissingDependencyError(
                    f"trainer.options.{'lora' if library == 'peft' else 'vllm'} needs {library}, "
                    f"which is not installed; run: pip install {library}"
                )


def check_config_names(config: Mapping[str, Any]) -> None:
    """ConfigError for names that TRL's GRPOConfig does not have."""
    from dataclasses import fields
    from difflib import get_close_matches

    from trl import GRPOConfig

    known = [f.name for f in fields(GRPOConfig) if f.init]
    said = []
    for name in sorted(config.keys() - set(known)):
        near = get_close_matches(name, known, 1)
        said.append(f"{name} (did you mean {near[0]}?)" if near else name)
    if said:
        raise ConfigError(
            f"trainer.options.config: GRPOConfig of the installed TRL has no {', '.join(said)}; correct or remove"
        )


def check_turns(
    name: str, options: Mapping[str, Any], base: Path | None, recipes: Sequence[Recipe], tools: bool = False
) -> list[str]:
    """ConfigError where a base policy cannot carry the turns of the recipes; else notes for the reader.

    `tools`: TRL plays the environment. Loads the trainer's libraries only where a template has to be tried.
    """
    if name != "trl" or base is None or all(r.max_turns == 1 for r in recipes):
        return []
    from evotrainer.trainers.trl.chat import check_policy_turns
    from evotrainer.trainers.trl.options import parse

    return [note] if (note := check_policy_turns(base, parse(options), tools)) else []


def bf16_pays() -> bool:
    """Whether the processor multiplies bf16 natively; emulated bf16 is slower than fp32."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            flags = next((line.split() for line in f if line.startswith("flags")), [])
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def sampler_dtype(wanted: str) -> Literal["fp32", "bf16"]:
    """What `run.sampler_dtype` means on this machine: `auto` is bf16 where the processor has it; imports nothing."""
    if wanted == "bf16" or (wanted == "auto" and bf16_pays()):
        return "bf16"
    return "fp32"


def get_trainer(
    name: str, sampler: Literal["fp32", "bf16"] = "fp32", options: Mapping[str, Any] | None = None
) -> Trainer:
    """The trainer of this name; ConfigError for an unknown one, MissingDependencyError where its libraries lack.

    `sampler`: the numbers that the embedded trainer's sampling computes in. `options`: the trainer's own; ConfigError
    for an unknown one.
    """
    if name == "embedded":
        if options:
            raise ConfigError(f"the embedded trainer has no option {', '.join(options)}; remove [trainer.options]")
        from evotrainer.trainers.embedded import EmbeddedTrainer

        return EmbeddedTrainer(bf16=sampler == "bf16")
    if name == "trl":
        from evotrainer.trainers.trl import TrlTrainer

        return TrlTrainer(options)
    raise ConfigError(f"unknown trainer {name!r}; one of: {', '.join(TRAINERS)}")
