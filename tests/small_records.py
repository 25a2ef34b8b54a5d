"""Small records to test with."""

from __future__ import annotations

from typing import Any

from evotrainer.records.events import BranchOpened, TrialFinished, TrialIntended
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, ToolCall, Turn, rollout_id
from evotrainer.records.verdicts import Verdict

RECIPE = Recipe(lr=1e-4, rewards={"visible": 1.0}, knobs={"history": "full"})


def rollout(task: int, k: int = 0, **fields: Any) -> Rollout:
    """Attempt `k` at a task, the same for the same arguments."""
    values: dict[str, Any] = {
        "id": rollout_id("r", "b0", 1, task % 5, f"t{task}", k),
        "task": f"t{task}",
        "turns": (
            Turn("user", f"Add {task} and {k}."),
            Turn("assistant", f"print({task} + {k})  # caf\u00e9\0", (ToolCall("python", "{}", True),), 7),
        ),
        "reward": k / 4,
        "components": {"visible": k / 4, "hidden": None},
        "outcome": "correct" if k else "incorrect",
        "split": "train" if task % 2 else "search",
        "step": task % 5,
        "group": f"g{task}",
        "k": k,
        "detail": {"tests": [1, None, {"ok": True}]},
    }
    return Rollout(**(values | fields))


def group(task: int, size: int = 4) -> list[Rollout]:
    return [rollout(task, k) for k in range(size)]


def flat(groups: list[list[Rollout]]) -> list[Rollout]:
    return [r for g in groups for r in g]


def intervention(factor: str, old: Any, new: Any) -> Intervention:
    return Intervention(
        factor=factor,
        old=old,
        new=new,
        hypothesis="it is too low",
        prediction=Prediction(metric="score", direction="up", size=0.02),
        success_criterion="score rises",
        rollback="set it back",
    )


def opened(branch: str, parent: str | None, recipe: Recipe, change: Intervention | None = None) -> BranchOpened:
    return BranchOpened(
        branch=branch, parent=parent, round=1, recipe=recipe, recipe_hash=recipe.hash, intervention=change
    )


def intended(trial: str, reserve: float = 100.0, **fields: Any) -> TrialIntended:
    branch, seed = trial.split("-s")
    return TrialIntended(trial=trial, branch=branch, seed=int(seed), purpose="branch", reserve_cpu_s=reserve, **fields)


def finished(trial: str, cpu_s: float = 80.0, **fields: Any) -> TrialFinished:
    branch, seed = trial.split("-s")
    values = {"status": "complete", "wall_s": 10.0, "steps": 3} | fields
    return TrialFinished(trial=trial, branch=branch, seed=int(seed), cpu_s=cpu_s, **values)


def verdict(branch: str, kind: str) -> Verdict:
    return Verdict(branch=branch, control="b0", kind=kind, reason="measured")  # type: ignore[arg-type]
