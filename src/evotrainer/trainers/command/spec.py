"""The command trainer's row of `trainers.TRAINERS`; importing it loads no machine-learning library."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.factors.table import OURS
from evotrainer.factors.trainer_mapping import FIELDS
from evotrainer.records.recipe import Recipe
from evotrainer.trainers import TRAINERS, check_installed
from evotrainer.trainers.base import (
    SamplerDtype,
    Trainer,
    TrainerEnvironment,
    TrainerSpec,
    TrainRequest,
    WarmStartRequest,
)
from evotrainer.trainers.command.mapping import Mapped, base_config, merged
from evotrainer.trainers.command.options import SAMPLERS, filled, parse
from evotrainer.trainers.command.passing_folder import sweep_folders


def make(sampler: SamplerDtype, options: Mapping[str, Any]) -> Trainer:
    """The trainer; ConfigError for an unknown option."""
    from evotrainer.trainers.command.trainer import CommandTrainer

    sweep_folders()
    return CommandTrainer(options)


def check(options: Mapping[str, Any], recipes: Sequence[Recipe], sampler: str) -> None:
    """ConfigError for options that do not fit, a program or file that is not there, and every factor that a recipe
    moves and nothing tells the script."""
    o = parse(options)
    sweep_folders()
    mapped = Mapped.of(o)
    if o.cwd and not Path(o.cwd).is_dir():
        raise ConfigError(f"trainer.options.cwd {o.cwd}: no such folder; correct it")
    for what, words in (("command", o.command), ("check", o.check), ("evaluation.serve", o.evaluation.serve),
                        ("evaluation.command", o.evaluation.command)):  # fmt: skip
        words = tuple(filled(words, {}))
        if words and shutil.which(words[0], path=_path(o.cwd)) is None and not Path(o.cwd, words[0]).is_file():
            raise ConfigError(f"trainer.options.{what}: no program {words[0]!r}; install it, or give its path")
    tree = base_config(o.config)
    if o.evaluation.by in SAMPLERS:
        check_installed(o.evaluation.by)
        sampling = [Recipe(rewards=r.rewards, temperature=r.temperature, top_p=r.top_p) for r in recipes]
        TRAINERS[o.evaluation.by].check(o.evaluation.options, sampling, sampler)
    if wrong := dict.fromkeys(w for r in recipes for w in mapped.refusals(r)):
        raise ConfigError(f"trainer command: {'; '.join(wrong)}")
    for r in recipes:  # a place that the file does not have
        merged(deepcopy(tree), mapped.paths(r))


def _path(cwd: str) -> str:
    return os.pathsep.join([x for x in (os.environ.get("PATH", os.defpath), cwd) if x])


def _sampler(options: Mapping[str, Any]) -> tuple[TrainerSpec, Mapping[str, Any]]:
    """Whose policies these are: the trainer that samples them, and its options; trl's where it is an endpoint. `chat`
    among the options is the environment's word, not the task file's."""
    o = parse({k: v for k, v in options.items() if k != "chat"}).evaluation
    chat = {"chat": options["chat"]} if "chat" in options else {}
    return TRAINERS[o.by if o.by in SAMPLERS else "trl"], {**o.options, **chat}


def check_trial(
    base: Path | None, options: Mapping[str, Any], recipes: Sequence[Recipe], environment: TrainerEnvironment
) -> list[str]:
    """What samples the policy can load it."""
    spec, own = _sampler(options)
    if parse(options).evaluation.by not in SAMPLERS or spec.check_trial is None:
        return []
    sampling = [Recipe(rewards=r.rewards, max_tokens=r.max_tokens, max_turns=r.max_turns) for r in recipes]
    return spec.check_trial(base, own, sampling, environment)


def warm_start(request: WarmStartRequest, on_step: Callable[[dict[str, float]], None]) -> None:
    """A small policy of the kind that the evaluation samples."""
    spec, own = _sampler(request.options)
    assert spec.warm_start is not None
    spec.warm_start(replace(request, options=own), on_step)


def check_warm_start(request: WarmStartRequest) -> None:
    spec, own = _sampler(request.options)
    if spec.check_warm_start is not None:
        spec.check_warm_start(replace(request, options=own))


def room(
    policy: Path | WarmStartRequest, options: Mapping[str, Any], prompts: Sequence[Sequence[Any]]
) -> tuple[list[int], int]:
    """By the tokenizer of what samples the policy."""
    spec, own = _sampler(options)
    assert spec.room is not None
    if isinstance(policy, WarmStartRequest):
        policy = replace(policy, options=own)
    return spec.room(policy, own, prompts)


def dry_run(options: Mapping[str, Any], request: TrainRequest, environment: TrainerEnvironment) -> None:
    from evotrainer.trainers.command.trainer import CommandTrainer

    CommandTrainer(options).check(request, environment)


SPEC = TrainerSpec(
    make=make,
    carries=dict.fromkeys(FIELDS, OURS),  # `check` knows by the mapping what is told the script
    check=check,
    check_trial=check_trial,
    dry_run=dry_run,
    warm_start=warm_start,
    check_warm_start=check_warm_start,
    room=room,
    repeatable=False,  # whatever the script rests on, its key would not know
    resumable=(
        "patience_s",
        "grace_s",
        "restarts",
        "log_bytes",
        *(f"evaluation.{o}" for o in ("ready_s", "timeout_s", "parallel")),
    ),
    places=("rollouts", "rollout_format", "metrics", "policy"),
)
