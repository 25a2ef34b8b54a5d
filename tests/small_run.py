"""Overrides that make of the scaffolded task a small real run: real policy, real RL, real store."""

from __future__ import annotations

SHAPE = ["policy.warm_start.shape.width=32", "policy.warm_start.shape.layers=1", "policy.warm_start.shape.mlp=64"]
"""A policy that costs a third of what the scaffold's does."""
SMALL = [
    *SHAPE,
    "policy.warm_start.steps=120",
    "recipe.steps=4",
    "recipe.prompts_per_step=8",
    "recipe.group_size=4",
    "evaluation.search_tasks=30",
    "evaluation.gate_tasks=60",
    "evaluation.cert_tasks=60",
    "evaluation.search_attempts=2",
    "evaluation.gate_attempts=2",
    "evaluation.cert_attempts=2",
    "run.rounds=1",
    "run.branches=2",
    "run.checkpoint_every=2",
    "run.health_every=2",
    "evaluation.draw=fixed",  # the same run at every start: what it decides must not be chance
]
FEW = ["run.seeds=[1,2]", "judge.min_seeds=2", "run.certify_seeds=[101]"]
"""As few trainings as a run can do with."""
TINY = [*SMALL, *FEW, "recipe.steps=2", "recipe.prompts_per_step=4", "evaluation.search_tasks=8"]
TINY += ["evaluation.gate_tasks=12", "evaluation.cert_tasks=12", "run.checkpoint_every=1", "run.branches=1"]
