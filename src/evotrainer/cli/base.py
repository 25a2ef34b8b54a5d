"""`evotrainer base`: a base policy trained from scratch on a task's demonstrations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import Overrides, TaskPath, check_new_folder
from evotrainer.cli._progress import progress
from evotrainer.records.output import print


def base(
    task: TaskPath,
    overrides: Overrides = None,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the policy.")],
    bf16: Annotated[bool, typer.Option("--bf16", help="Store the weights as bfloat16 (half the size).")] = False,
) -> None:
    """Train a base policy from scratch on the task's demonstrations (the warm start).

    Example: evotrainer base tasks/code.toml --out my-base policy.warm_start.steps=1500
    """
    from evotrainer.config.load import load_task
    from evotrainer.envs import open_environment
    from evotrainer.executors.warm_start import make_base
    from evotrainer.trainers import get_trainer

    resolved = load_task(task, overrides or [])
    check_new_folder(out)
    kind, options, plan = resolved.trainer.name, resolved.trainer.options, resolved.policy.warm_start
    trainer = get_trainer(kind, options=options)
    environment = open_environment(resolved.environment, accept_tier_e=resolved.sandbox.accept_tier_e)
    try:
        with progress() as say:

            def show(row: dict[str, float]) -> None:
                say(f"warm start, loss {row['loss']:.3f}", int(row["step"]), plan.all_steps)

            make_base(environment, plan, out, show, bf16=bf16, trainer=kind, trainer_options=options)
    finally:
        environment.close()
    print(f"wrote {out} (sha256 {trainer.policy_sha256(out)[:16]}); use it with policy.base={json.dumps(str(out))}")
