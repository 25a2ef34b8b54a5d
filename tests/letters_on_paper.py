"""The scaffolded task's trials on paper: a higher temperature helps, larger groups harm,
half of the groups are dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.rollout import Rollout, Turn
from tests.paper import set_in

QUICK = ["run.rounds=1", "run.branches=1", "judge.max_seeds=3", "run.evolve_harness=false"]
QUICK += ["evaluation.greedy=false"]  # rollouts on paper are of one reading
GAIN = {"temperature": 0.12, "group_size": -0.08}
"""What a factor above its start is worth, score units."""


def solved(spec: TrialSpec) -> float:
    r = spec.recipe
    if spec.branch == "base":
        return 0.3
    return 0.5 + GAIN["group_size"] * (r.group_size > 8) + GAIN["temperature"] * (r.temperature > 1)


def finish(spec: TrialSpec) -> TrialFinished:
    """What a trial of the specification would have written."""

    def key(plan: EvalPlan) -> str:
        return f"{set_in(spec.recipe)}-{spec.seed}-{plan.split}"

    return draw_result(spec, solved(spec), key, spec.protocol.knobs, steps=15, tasks=150)


def rollouts(spec: TrialSpec) -> list[Rollout]:
    """Search rollouts of words sorted or not: half of the groups fail as one;
    of the others half is right, of warm ones more."""
    rng = random.Random(f"{spec.branch}-{spec.seed}")
    warm = spec.branch != "base" and spec.recipe.temperature > 1
    out = []
    for task in range(40):
        right = [False] * 4 if task % 2 else rng.sample([True, True, warm, False], 4)
        for k, ok in enumerate(right):
            said = "".join(rng.choice("abcdefgh") for _ in range(4))
            out.append(
                Rollout(
                    id=f"{spec.trial}-{task}-{k}", task=f"search-{task}", group=f"{spec.trial}-{task}", k=k,
                    split="search", turns=(Turn("user", f"sort {task}\n"), Turn("assistant", said)), reward=float(ok),
                    tokens=5, finish="stop",
                    components={"sorted_word": float(ok), "right_letters": float(ok), "brevity": 0.6},
                    outcome="correct" if ok else "incorrect",
                )
            )  # fmt: skip
    return out


Go = Callable[..., api.Run]
WARM, MORE, COLD = (
    '{factor="temperature",new=1.3}',
    '{factor="group_size",new=12}',
    '{factor="temperature",new=0.8}',
)
"""Helps, harms, does nothing."""
