"""The parts of a training, and the texts that its supervised parts learn from: the rules that trainers follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, Literal

from evotrainer.algorithm.rewards import columns, full_marks
from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Curriculum, Recipe, Schedule
from evotrainer.trainers.base import GivesReferences, TrainerEnvironment
from evotrainer.trainers.curriculum import TaskStream
from evotrainer.trainers.groups import Group
from evotrainer.trainers.rollouts import Attempt
from evotrainer.trainers.schedule import learning_rate
from evotrainer.trainers.wordings import Worded

WARMUP = 0.1
"""Share of a supervised part over which its rate rises."""
NO_REFERENCES = "phases: the environment has no references of its train problems; leave that part out"


@dataclass(frozen=True, slots=True)
class PhasePart:
    """One part of a training. Steps count from 0."""

    kind: Literal["rl", "references", "own"]
    first: int
    steps: int
    lr: float
    schedule: Schedule
    batch: int | None
    """Texts of a step; None: all there are."""

    def rate(self, step: int) -> float:
        """Learning rate of a step of the training."""
        return learning_rate(self.lr, self.schedule, step - self.first, self.steps)


def parts_of(recipe: Recipe) -> tuple[PhasePart, ...]:
    """The parts in order; all of it RL where the recipe names none."""
    if not recipe.phases:
        return (PhasePart("rl", 0, recipe.steps, recipe.lr, recipe.schedule, None),)
    out: list[PhasePart] = []
    first = 0
    for p in recipe.phases:
        steps = recipe.steps - first if p.steps is None else p.steps
        schedule, batch = recipe.schedule, p.batch
        if p.kind != "rl":
            schedule = Schedule(kind="cosine", warmup=max(1, round(WARMUP * steps)))
        if p.kind == "references":
            batch = p.batch or recipe.prompts_per_step
        out.append(PhasePart(p.kind, first, steps, p.lr or recipe.lr, schedule, batch))
        first += steps
    return tuple(out)


def part_at(recipe: Recipe, step: int) -> PhasePart:
    """The part that a step belongs to; the last one for any step beyond."""
    return next(p for p in reversed(parts_of(recipe)) if p.first <= step)


def sampled_steps(recipe: Recipe) -> int:
    """Steps that sample rollouts."""
    return sum(p.steps for p in parts_of(recipe) if p.kind != "references")


Text = tuple[str, ...]
"""(prompt, action, observation, action, ...), in the form of a demonstration."""


class ReferenceTexts:
    """References of train problems, drawn in seeded epochs; problems without one are passed over."""

    def __init__(self, environment: TrainerEnvironment, knobs: Mapping[str, Any], seed: int) -> None:
        """TrainerError where the environment has no references."""
        if not isinstance(environment, GivesReferences):
            raise TrainerError(NO_REFERENCES)
        self.environment, self.knobs = environment, knobs
        self.tasks = environment.tasks("train")
        self.stream = TaskStream(self.tasks, Curriculum(), seed)

    def draw(self, n: int, ask: Worded = lambda task: task) -> list[Text]:
        """`n` texts, tasks worded by `ask`; TrainerError where two epochs hold no further one."""
        out: list[Text] = []
        tried = 0
        while len(out) < n:
            if tried > 2 * len(self.tasks):
                raise TrainerError(
                    "phases: the environment has no references of its train problems; leave the part out"
                )
            chosen = [ask(self.tasks[i]) for i in self.stream.draw(n - len(out), set())[0]]
            tried = 0 if (found := [x for x in self._of(chosen) if x]) else tried + len(chosen)
            out += found
        return out

    def _of(self, tasks: Sequence[Any]) -> Sequence[Text | None]:
        # what is learnt from the answer must be a train problem, whatever an environment returns as its train split
        if other := next((t for t in tasks if t.split != "train"), None):
            raise TrainerError(f"phases: task {other.id} is of split {other.split}; only train problems are taught")
        assert isinstance(self.environment, GivesReferences)
        return self.environment.references(tasks, self.knobs)


def successes(groups: Sequence[Group], recipe: Recipe, most: int | None = None) -> list[Attempt]:
    """The policy's own verified successes, at most `most`: attempts with full marks that ended by themselves, distinct
    within a task; the first of every task, then the second of every task, ..."""
    rounds = chain.from_iterable(zip_longest(*(_successes_of(g, recipe) for g in groups)))
    return [a for a in rounds if a is not None][:most]


def rare_successes(groups: Sequence[Group], recipe: Recipe) -> list[Attempt]:
    """The first success of each group in which at most `replay.rare` of the graded attempts earned full marks."""
    out = []
    for g in groups:
        if sum(_right(g, recipe)) <= recipe.replay.rare * len(g.rewards):
            out += _successes_of(g, recipe)[:1]
    return out


def _successes_of(g: Group, recipe: Recipe) -> list[Attempt]:
    seen: dict[tuple[int, ...], Attempt] = {}
    for a, right in zip(g.attempts, _right(g, recipe), strict=True):
        if right and a.finish == "stop":
            seen.setdefault(tuple(a.sampled), a)
    return list(seen.values())


def _right(g: Group, recipe: Recipe) -> list[bool]:
    """Which attempts were graded and earned full marks."""
    paid = columns([r.components for r in g.rollouts], recipe.rewards)
    marks = full_marks(recipe.rewards, paid, len(g.rollouts)).tolist()
    return [m and r.error_kind is None for m, r in zip(marks, g.rollouts, strict=True)]


def without_advantages(groups: Sequence[Group]) -> None:
    """Take the advantages out of groups that no policy gradient is taken of."""
    for g in groups:
        g.rollouts = [replace(r, advantage=None) for r in g.rollouts]
