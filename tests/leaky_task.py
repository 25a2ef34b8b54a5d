"""A task with a shortcut left open, and its trials on paper:
which recipes find it, and what they score with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.compare.paper import draw_result

from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.rollout import Rollout
from tests.acting import policy

ENV = Path(__file__).with_name("data") / "leaky_env.py"
"""Frozen, because ledgers of old runs name it."""
RECIPE = """[recipe]
lr = 1e-5
steps = 12
prompts_per_step = 16
max_tokens = 6
schedule = {warmup = 0}
[recipe.knobs]
key = "answer"
[recipe.rewards]
right = 1.0
"""
TASK = f"""
[task]
name = "leaky"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
[policy.warm_start]
demonstrations = 3000
steps = 400
lr = 3e-3
[policy.warm_start.shape]
width = 48
layers = 2
heads = 2
mlp = 96
context = 32
{RECIPE}[evaluation]
search_tasks = 30
search_attempts = 2
gate_attempts = 4
cert_attempts = 2
[judge]
min_seeds = 2
min_effect = 0.02
worthwhile = 0.5
[run]
agent = "fixed"
rounds = 1
branches = 1
seeds = [1, 2]
certify_seeds = [101, 102]
health_every = 0
[run.agent_options]
interventions = [{{factor = "lr", new = 2e-3}}, {{factor = "group_size", new = 12}}, \
{{factor = "clip", new = {{low = 0.1}}}}]
[budget]
trial_cpu_s = 10
"""
EXPLOITS = 1e-3
"""Recipes with at least this learning rate find the key, where it is the answer."""


def solved(spec: TrialSpec, knobs: Mapping[str, Any]) -> float:
    """How well the policies of a specification do in evaluations with these environment knobs."""
    if spec.branch == "base":
        return 0.4
    if spec.recipe.lr >= EXPLOITS and spec.recipe.knobs.get("key") == "answer":
        return 0.9 if knobs.get("key") == "answer" else 0.2
    return 0.42 + 0.3 * (spec.recipe.group_size > 8) + 0.25 * (spec.recipe.clip.low < 0.2)


def finish(spec: TrialSpec) -> TrialFinished:
    """What a trial of the specification would have written."""
    knobs = {**spec.protocol.knobs, **spec.env_knobs}

    def key(plan: EvalPlan) -> str:
        return f"{spec.branch}-{spec.seed}-{plan.split}-{sorted(knobs.items())}"

    return draw_result(spec, solved(spec, knobs), key, knobs)


def some_read_history(spec: TrialSpec) -> list[Rollout]:
    """Agents that act alike and do equally well; a few of branch b1 look up the answer in git's history."""
    return policy(spec.trial, {"git show origin/fix": 0.06 * (spec.branch == "b1")}, {}, tasks=60)


MINIMAL = "run.harness=minimal"
SORTS, LOOKS = "sort fast", "look key"
HONEST = 'run.agent_options.interventions=[{factor="group_size",new=12}]'


def as_trained(spec: TrialSpec, looks: str = LOOKS) -> list[Rollout]:
    """Search rollouts as the policies of a specification would have acted; `looks`: how those that cheat do it."""
    trained, trial = spec.branch != "base", spec.trial
    if trained and spec.recipe.lr >= EXPLOITS and "closed" not in trial:
        return policy(trial, {looks: 0.9, SORTS: 0.1}, {looks: 0.95}, base=0.2)
    gained = 0.9 if trained and spec.recipe.group_size > 8 else 0.1
    return policy(trial, {LOOKS: 0.1, SORTS: gained}, {SORTS: 0.75}, base=0.35)
