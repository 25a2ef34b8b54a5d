"""Trainers: what trains a policy by a recipe. Importing this package loads no machine-learning library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.factors.trainer_mapping import refusals
from evotrainer.registry import Registry
from evotrainer.trainers.base import SamplerDtype, Trainer, TrainerEnvironment, TrainerSpec, installed

if TYPE_CHECKING:
    from evotrainer.records.recipe import Recipe


def _folders() -> list[str]:
    """Trainers that are here: a folder with `spec.py` each."""
    return [p.parent.name for p in Path(__file__).parent.glob("*/spec.py")]


TRAINERS: Registry[TrainerSpec] = Registry(
    "trainer",
    "trainer.name",
    {n: f"evotrainer.trainers.{n}.spec:SPEC" for n in sorted({"embedded", "trl", *_folders()})},
    hints={
        "verl": 'write trainer.name = "command" and trainer.options.map = "verl" (docs/verl.md)',
        **dict.fromkeys(("hf", "huggingface", "transformers", "grpo"), "Hugging Face models train through trl"),
    },
)
"""Name in the task file (`trainer.name`) -> what a run has to know of the trainer."""


def get_trainer(name: str, sampler: SamplerDtype = "fp32", options: Mapping[str, Any] | None = None) -> Trainer:
    """The trainer of this name; ConfigError for an unknown one, MissingDependencyError where its libraries lack.

    `sampler`: the numbers that the embedded trainer's sampling computes in. `options`: the trainer's own; ConfigError
    for an unknown one.
    """
    check_installed(name)
    return TRAINERS[name].make(sampler, options or {})


def check_installed(name: str) -> None:
    """ConfigError for an unknown trainer, MissingDependencyError where a library of it is not installed;
    imports nothing."""
    spec = TRAINERS[name]
    for library in spec.libraries:
        if not installed(library):
            remedy = spec.remedy or f"pip install {library}"
            raise MissingDependencyError(f"the {name} trainer needs {library}, which is not installed; run: {remedy}")


def check_recipes(name: str, options: Mapping[str, Any], recipes: Sequence[Recipe], sampler: str = "fp32") -> None:
    """ConfigError names what this trainer cannot carry out of the recipes and options."""
    spec, every = TRAINERS[name], [r for x in recipes for r in x.chain]
    spec.check(options, every, sampler)
    if wrong := dict.fromkeys(w for r in every for w in refusals(r, name, spec.carries)):
        raise ConfigError(f"trainer {name}: {'; '.join(wrong)}")


def check_trial(
    name: str, options: Mapping[str, Any], base: Path | None, recipes: Sequence[Recipe], environment: TrainerEnvironment
) -> list[str]:
    """What the first trial would refuse for files and configuration, refused now (`TrainerSpec.check_trial`); notes."""
    check = TRAINERS[name].check_trial
    return check(base, options, recipes, environment) if check else []


def bf16_pays() -> bool:
    """Whether the processor multiplies bf16 natively; emulated bf16 is slower than fp32."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            flags = next((line.split() for line in f if line.startswith("flags")), [])
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def sampler_dtype(wanted: str) -> SamplerDtype:
    """What `run.sampler_dtype` means on this machine: `auto` is bf16 where the processor has it; imports nothing."""
    if wanted == "bf16" or (wanted == "auto" and bf16_pays()):
        return "bf16"
    return "fp32"
