"""Validation of a rendered folder by verl itself, without a GPU;
what verl says is traced to the factor that caused it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.extras.verl.folder import intact
from evotrainer.extras.verl.venv import Venv, last_json, script
from evotrainer.factors.trainer_mapping import owners

CAUSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        r"real_train_batch_size \((\d+)\) must be divisible by minimal possible batch size \((\d+)\)",
        ("prompts_per_step", "group_size"),
        "prompts_per_step x group_size = {0} must be a multiple of the {1} GPUs; change one of the two, "
        "or --gpus and --nodes",
    ),
    (
        r"train_batch_size \((\d+)\) must be >= actor\.ppo_mini_batch_size \((\d+)\)",
        ("prompts_per_step",),
        "a batch of {0} prompts cannot hold a mini-batch of {1}; leave ppo_mini_batch_size to prompts_per_step",
    ),
    (
        r"ppo_mini_batch_size \((\d+)\) must be divisible by ppo_micro_batch_size \((\d+)\)",
        ("prompts_per_step",),
        "choose a --micro-batch that divides {0}",
    ),
    (
        r"n_gpus \((\d+)\) must be divisible by rollout\.tensor_model_parallel_size \((\d+)\)",
        (),
        "choose a --tensor-parallel that divides the {0} GPUs",
    ),
    (r"validation gen temperature should be greater than 0", ("temperature",), "raise recipe.temperature"),
    (r"Invalid loss_agg_mode", ("loss",), "report this: the mapping of loss does not fit this version of verl"),
    (r"Unsupported loss mode", ("loss",), "report this: the mapping of loss does not fit this version of verl"),
    (r"lr_scheduler_type", ("schedule",), "choose constant or cosine"),
    (r"Unknown advantage estimator", ("reward_scaling",), "the plug-in did not register; render the folder again"),
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
    """What verl made of the configuration."""

    ok: bool
    findings: tuple[VerlComplaint, ...]
    notices: tuple[str, ...]
    gpus: int
    verl: str
    seconds: float


def overrides_of(gpus: int | None, nodes: int | None) -> list[str]:
    """Hydra overrides for another size of cluster."""
    out = []
    if gpus is not None:
        out.append(f"trainer.n_gpus_per_node={gpus}")
    if nodes is not None:
        out.append(f"trainer.nnodes={nodes}")
    return out


def validate(folder: Path, venv: Venv, gpus: int | None = None, nodes: int | None = None) -> Validation:
    """Compose and validate in verl's environment."""
    manifest = intact(folder)
    done = subprocess.run(
        [venv.python, "-P", script("check.py"), folder.resolve(), *overrides_of(gpus, nodes)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )
    answer = last_json(done.stdout)
    if answer is None:
        why = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise MissingDependencyError(
            f"verl's environment {venv.python} does not work: {why}; make it anew (docs/verl.md)"
        )
    return explain(answer, manifest["gpus"] * manifest["nodes"])


def explain(answer: Mapping[str, Any], gpus: int) -> Validation:
    """The answer of inside/check.py as findings."""
    owner = owners("verl")
    findings = [
        VerlComplaint(
            f"verl has no setting {key}",
            (owner[key],) if key in owner else (),
            "report this: the mapping does not fit this version of verl"
            if key in owner
            else "correct --set and render again",
        )
        for key in answer.get("unknown", ())
    ]
    if error := answer.get("error"):
        findings.append(_trace(str(error["message"]), str(error["type"]), str(answer.get("stage")), owner))
    return Validation(
        bool(answer.get("ok")) and not findings,
        tuple(findings),
        tuple(answer.get("notices", ())),
        int(answer.get("gpus", gpus)),
        str(answer.get("versions", {}).get("verl", "")),
        float(answer.get("seconds", 0.0)),
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
    named = tuple(dict.fromkeys(f for k, f in owner.items() if k in message or k.rsplit(".", 1)[-1] in message))
    return VerlComplaint(f"{kind} at {stage}: {message}", named, "see verl's documentation of that setting")


def demand_valid(v: Validation) -> None:
    """ConfigError with every finding where verl refuses the configuration."""
    if not v.ok:
        raise ConfigError("verl refuses the configuration: " + "; ".join(str(f) for f in v.findings))
