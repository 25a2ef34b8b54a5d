"""A task whose changes gain little or nothing, and its trials on paper:
the first branch is undecided after three seeds.
"""

from __future__ import annotations

import random

from bench.compare.paper import draw_result

from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from tests.leaky_task import ENV, RECIPE
from tests.paper import set_in

TASK = f"""
[task]
name = "small-gains"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
min_effect = 0.01
max_seeds = 8
worthwhile = 0.5
[run]
agent = "fixed"
rounds = 2
branches = 2
seeds = [1, 2, 3]
certify_seeds = [5, 102, 103]
health_every = 0
[run.agent_options]
interventions = [{{factor = "lr", new = 2e-5}}, {{factor = "group_size", new = 12}}, \
{{factor = "clip", new = {{low = 0.1}}}},
  {{factor = "prompts_per_step", new = 20}}]
[budget]
trial_cpu_s = 10
"""
SALT = 12
"""Chosen so that three seeds leave the first branch undecided."""
GAINS = {"lr": 0.05, "group_size": 0.0, "clip": 0.0, "prompts_per_step": 0.2}
"""Factor -> what changing it really gains."""
SPREAD = 0.02


def finish(spec: TrialSpec) -> TrialFinished:
    """What a trial of the specification would have written."""
    r = spec.recipe
    gain = GAINS["lr"] * (r.lr > 1e-5) + GAINS["prompts_per_step"] * (r.prompts_per_step > 16)
    luck = random.Random(f"{SALT}-{set_in(r)}-{spec.seed}").gauss(0, SPREAD) if spec.branch != "base" else 0.0
    p = 0.5 + gain + luck - 0.2 * (spec.branch == "base")
    knobs = {**spec.protocol.knobs, **spec.env_knobs}
    # the second kind of policy rests on the key: an audit takes it back
    p -= 0.6 * (r.prompts_per_step > 16 and knobs.get("key") == "other")
    return draw_result(spec, p, lambda plan: f"{set_in(r)}-{spec.seed}-{plan.split}", knobs)


ONE = ["run.rounds=1", "judge.audit=never"]
