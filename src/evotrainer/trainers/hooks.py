"""A recipe's hooks in a training: handed what they may see, their answers checked; one that fails ends the training."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from evotrainer.errors import TrainerError
from evotrainer.records.hooks import (
    HookCaller,
    group_view,
    hook_of,
    rollout_views,
    wrong_advantages,
    wrong_choice,
    wrong_weights,
)
from evotrainer.records.recipe import Curriculum, Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.curriculum import TaskStream, tags_of, task_stream


class StepHooks:
    """The hooks of one recipe, and the CPU-seconds that they took. Steps count from 1 at this recipe's first one."""

    def __init__(self, recipe: Recipe, caller: HookCaller | None, protected: Collection[str] = ()) -> None:
        """`protected`: components that hooks are not shown. TrainerError where there are hooks and nobody runs them."""
        if recipe.hooks and caller is None:
            raise TrainerError(
                f"recipe.hooks: {', '.join(recipe.hooks)} needs a sandbox, and this training was given none; give "
                "TrainRequest.hooks, or leave the hooks out"
            )
        self.recipe, self.caller, self.protected = recipe, caller, protected
        self.cpu_s = 0.0
        self._told = 0.0

    def __contains__(self, entry: str) -> bool:
        return hook_of(self.recipe.hooks, entry) is not None

    def figures(self) -> dict[str, float]:
        """CPU-seconds since the last call, for the curve; empty without hooks."""
        if not self.recipe.hooks:
            return {}
        took, self._told = self.cpu_s - self._told, self.cpu_s
        return {"cpu_hook_s": took}

    def advantages(
        self, groups: Sequence[Sequence[Rollout]], own: Sequence[Sequence[float | None]], step: int
    ) -> list[list[float | None]]:
        """Advantages of the kept groups of a step, in place of the recipe's `own`."""
        steps = self.recipe.steps
        shown = [group_view(g, a, step, steps, self.protected) for g, a in zip(groups, own, strict=True)]
        answers = self._called("advantages", [(x,) for x in shown], step)
        for i, (value, x) in enumerate(zip(answers, shown, strict=True)):
            self._check("advantages", step, wrong_advantages(value, x["rewards"]), f"group {i}: ")
        return [[None if a is None else float(a) + 0.0 for a in row] for row in answers]

    def weights(self, groups: Sequence[Sequence[Rollout]], step: int) -> list[list[float]]:
        """A weight for each rollout of a sampling round."""
        shown = rollout_views(groups, step, self.recipe.steps, self.protected)
        (answer,) = self._called("weights", [(shown,)], step)
        self._check("weights", step, wrong_weights(answer, len(shown)))
        values = iter(answer)
        return [[float(next(values)) for _ in g] for g in groups]

    def select(self, tasks: Sequence[dict[str, Any]], history: dict[str, Any]) -> list[int]:
        """Places of the tasks to draw."""
        (answer,) = self._called("select", [(list(tasks), history)], history["step"])
        self._check("select", history["step"], wrong_choice(answer, history["n"], len(tasks), history["taken"]))
        return list(answer)

    def stream(self, tasks: Sequence[Any], rule: Curriculum, seed: int, planned: int) -> TaskStream:
        """What draws the training's tasks: `select` where a hook has it, else the curriculum."""
        return SelectStream(tasks, rule, seed, self) if "select" in self else task_stream(tasks, rule, seed, planned)

    def _called(self, entry: str, arguments: Sequence[tuple[Any, ...]], step: int) -> list[Any]:
        found = hook_of(self.recipe.hooks, entry)
        assert found is not None and self.caller is not None
        answers = self.caller.call(found[1], entry, arguments)
        self.cpu_s += answers.cpu_s
        self._check(entry, step, next(iter(answers.failed.values()), ""))
        return answers.values

    def _check(self, entry: str, step: int, wrong: str, where: str = "") -> None:
        if not wrong:
            return
        found = hook_of(self.recipe.hooks, entry)
        name = found[0] if found else entry
        raise TrainerError(f"hook {name}: {entry} in step {step}: {where}{wrong}; correct it and try it: try-code")


class SelectStream(TaskStream):
    """Tasks that a hook chooses from what this training has seen: a function of recorded history, without chance."""

    def __init__(self, tasks: Sequence[Any], rule: Curriculum, seed: int, hooks: StepHooks) -> None:
        super().__init__(tasks, rule, seed)
        self.hooks = hooks
        self.shown = [{"tags": dict(tags_of(t))} for t in tasks]
        self.index = {name: i for i, name in enumerate(self.ids)}
        self.seen: list[list[float]] = []
        """[place of the task, step, pass rate] of every graded group, in order."""

    def draw(self, n: int, exclude: set[int]) -> tuple[list[int], int]:
        """(n task indices, 0). TrainerError where the hook fails, or draws a task twice while others are left."""
        history = {
            "step": self.step,
            "steps": self.hooks.recipe.steps,
            "n": n,
            "taken": sorted(exclude),
            "groups": [[int(i), int(step), rate] for i, step, rate in self.seen],
        }
        return self.hooks.select(self.shown, history), 0

    def update(self, task: str, pass_rate: float) -> None:
        """Take in the pass rate of a new group of the task."""
        super().update(task, pass_rate)
        self.seen.append([self.index[task], self.step, pass_rate])

    def state(self) -> dict[str, Any]:
        return super().state() | {"seen": [list(x) for x in self.seen]}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.seen = [list(x) for x in state["seen"]]
