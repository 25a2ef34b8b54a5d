"""Trials on paper whose scores are of the very tasks that the run drew, by their ids."""

from __future__ import annotations

import tomllib
from functools import cache

from bench.compare.paper import draw_result

from evotrainer.envs import open_environment
from evotrainer.envs.base import EnvironmentWithDraws
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.sealed import SealedSplits
from tests.paper import Paper, set_in

SIZES = {"search": 30, "gate": 40, "cert": 40}
TASK = """
[task]
name = "sums"
[environment]
name = "math"
payable = ["correct"]
train = 20
search = 30
gate = 40
cert = 40
[policy]
base = "builtin:math-v1"
[recipe]
lr = 1e-5
steps = 4
[recipe.rewards]
correct = 1.0
[judge]
min_effect = 0.02
max_seeds = 3
[run]
agent = "fixed"
rounds = 1
branches = 1
health_every = 0
evolve_harness = false
[run.agent_options]
interventions = [{factor = "lr", new = 2e-3}]
[budget]
trial_cpu_s = 10
"""


@cache
def ids_of(seed: str, split: str) -> list[str]:
    """Ids of a split of `TASK`, drawn from a seed where one is given."""
    environment = open_environment(tomllib.loads(TASK)["environment"])
    if seed:
        assert isinstance(environment, EnvironmentWithDraws)
        environment.redraw(seed)
    return [t.id for t in environment.tasks(split)]


class OnItsTasks(Paper):
    """A higher learning rate helps; each score is of a task that there really is."""

    def __init__(self) -> None:
        super().__init__(self._finish)

    def _finish(self, spec: TrialSpec) -> TrialFinished:
        p = 0.3 if spec.branch == "base" else 0.85 if spec.recipe.lr > 1e-4 else 0.5
        drawn = draw_result(spec, p, lambda plan: f"{set_in(spec.recipe)}-{spec.seed}-{plan.split}", steps=4, tasks=40)
        seed = next((SealedSplits(self.folder).seed(plan.draw).seed for plan in spec.evals if plan.draw), "")
        scores = []
        for s in drawn.scores:
            own = dict(zip(ids_of(seed, s.split), s.per_task.values(), strict=False))
            mean = sum(own.values()) / len(own)
            greedy = {"greedy": mean, "greedy_per_task": own} if s.greedy_per_task else {}
            scores.append(s.model_copy(update={"per_task": own, "score": mean, **greedy}))
        return drawn.model_copy(update={"scores": tuple(scores)})
