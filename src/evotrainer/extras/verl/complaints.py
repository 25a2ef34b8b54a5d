"""What verl's own checks said, traced to the factor that caused it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evotrainer.factors.trainer_mapping import owners

CAUSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        r"real_train_batch_size \((\d+)\) must be divisible by minimal possible batch size \((\d+)\)",
        ("prompts_per_step", "group_size"),
        "prompts_per_step x group_size = {0} must be a multiple of the {1} GPUs; change one of the two, "
        "or trainer.n_gpus_per_node and trainer.nnodes",
    ),
    (
        r"train_batch_size \((\d+)\) must be >= actor\.ppo_mini_batch_size \((\d+)\)",
        ("prompts_per_step",),
        "a batch of {0} prompts cannot hold a mini-batch of {1}; leave ppo_mini_batch_size to prompts_per_step",
    ),
    (
        r"ppo_mini_batch_size \((\d+)\) must be divisible by ppo_micro_batch_size \((\d+)\)",
        ("prompts_per_step",),
        "choose an actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu that divides {0}",
    ),
    (
        r"n_gpus \((\d+)\) must be divisible by rollout\.tensor_model_parallel_size \((\d+)\)",
        (),
        "choose an actor_rollout_ref.rollout.tensor_model_parallel_size that divides the {0} GPUs",
    ),
    (r"Could not override '", (), "verl has no such setting; correct it in trainer.options.command"),
    (
        r"prompts are no longer than data.max_prompt_length",
        ("prompts_per_step",),
        "raise data.max_prompt_length in trainer.options.command, or lower recipe.prompts_per_step",
    ),
    (r"validation gen temperature should be greater than 0", ("temperature",), "raise recipe.temperature"),
    (r"Invalid loss_agg_mode", ("loss",), "report this: the mapping of loss does not fit this version of verl"),
    (r"Unsupported loss mode", ("loss",), "report this: the mapping of loss does not fit this version of verl"),
    (r"lr_scheduler_type", ("schedule",), "choose constant or cosine"),
    (r"Unknown advantage estimator", ("reward_scaling",), "install EvoTrainer there again"),
    (r"to tokenize to one token|Continuous Token", (), "verl plays no policy with this tokenizer; change policy.base"),
    (
        r"evo_reward",
        ("rewards",),
        "the reward plug-in does not load in verl's environment; install EvoTrainer there again",
    ),
    (
        r"evo_filter",
        ("group_filter", "resample"),
        "the filter plug-in does not load; install EvoTrainer there again",
    ),
    (r"evo_agent", ("max_turns",), "the agent loop does not load; install EvoTrainer there again"),
)
"""(what verl says, recipe factors behind it, what to do; {0}, {1}: the numbers it names)."""


@dataclass(frozen=True, slots=True)
class VerlComplaint:
    """One complaint of verl."""

    message: str
    factors: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        where = f" [factor {', '.join(self.factors)}]" if self.factors else ""
        return f"{self.message}{where}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Validation:
    """What verl made of the settings."""

    ok: bool
    findings: tuple[VerlComplaint, ...]
    verl: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"valid: verl {self.verl} accepts the settings and loads the plug-ins"
        return "verl refuses the settings: " + "; ".join(map(str, self.findings))


def explain(printed: str) -> Validation:
    """The answer of inside/check.py, the last line that is a JSON object; libraries print around it."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            try:
                return _explained(json.loads(line))
            except ValueError:
                continue
    return Validation(False, (VerlComplaint("the check did not end", (), "see what was printed before"),))


def _explained(answer: Mapping[str, Any]) -> Validation:
    error, owner = answer.get("error"), owners("verl")
    if not error:
        return Validation(bool(answer.get("ok")), (), str(answer.get("versions", {}).get("verl", "")))
    return Validation(
        False, (_trace(" ".join(str(error["message"]).split()), str(error["type"]), str(answer.get("stage")), owner),)
    )


def _trace(message: str, kind: str, stage: str, owner: Mapping[str, str]) -> VerlComplaint:
    for pattern, factors, remedy in CAUSES:
        if found := re.search(pattern, message):
            return VerlComplaint(message, factors, remedy.format(*found.groups()))
    if stage == "libraries":
        return VerlComplaint(message, (), "remove it there (`pip uninstall trl`) or make one without it (docs/verl.md)")
    if stage == "environment":
        return VerlComplaint(
            f"the environment does not work in verl's: {kind}: {message}",
            ("rewards",),
            "install there what the task needs (the extra math for maths); "
            "a sandbox needs what `evotrainer doctor` names",
        )
    words = set(re.findall(r"\w+", message))
    named = tuple(dict.fromkeys(f for k, f in owner.items() if k.rsplit(".", 1)[-1] in words))
    return VerlComplaint(f"{kind} at {stage}: {message}", named, "see verl's documentation of that setting")
