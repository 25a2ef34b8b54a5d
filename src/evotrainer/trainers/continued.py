"""A recipe that goes on from another one's policy (`Recipe.start`): its chain of trainings, one after the other.

A trainer trains the last recipe of a chain only. What came before lies in the folder `start` of the training's own, a
training like any other and the same to the bit: its policy and `trained.json`. Whoever has that training already may
put it there (`executors/cache`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from evotrainer.errors import StoreError, TrainerError
from evotrainer.records.durable import replace_synced
from evotrainer.records.events import FromCache
from evotrainer.records.events.trials import TOKEN_SUMS
from evotrainer.records.faults import fault_point
from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe
from evotrainer.records.regular_file import read_text
from evotrainer.trainers.base import HasSlots, RolloutSink, Trainer, TrainerEnvironment, TrainRequest, TrainResult

STARTED, NOTE, CHECKPOINT = "start", "trained.json", "checkpoint"
SUMS = ("step", "tokens", "cpu_s", *TOKEN_SUMS)
"""Of a curve entry, what counts from the base policy on."""


class EarlierTraining(Frozen):
    """The note on an earlier training that has come to its end, beside its policy."""

    policy: str
    """Folder, relative to the note."""
    policy_sha256: str
    curve: tuple[dict[str, float], ...]
    cached: FromCache | None = None
    """None: it was computed here."""


def read_note(work_dir: Path) -> EarlierTraining | None:
    """The note in the folder `start` of a training; None where there is none yet, or half of one."""
    try:
        return EarlierTraining.model_validate_json(read_text(work_dir / STARTED / NOTE))
    except (OSError, ValueError):
        return None


def note(work_dir: Path, what: EarlierTraining) -> None:
    """Say that the earlier training is complete; its policy must be on disk."""
    replace_synced(work_dir / STARTED / NOTE, what.model_dump_json().encode())


def notes(work_dir: Path) -> Iterator[tuple[Path, EarlierTraining]]:
    """(folder, note) of every earlier training that is complete, the latest first."""
    if (found := read_note(work_dir)) is not None:
        yield work_dir / STARTED, found
    if (work_dir / STARTED).is_dir():
        yield from notes(work_dir / STARTED)


def use_scaffold(environment: TrainerEnvironment, recipe: Recipe) -> None:
    """Have an environment show its tasks as a recipe wants them; TrainerError where it declares no slots."""
    if isinstance(environment, HasSlots):
        environment.use_scaffold(recipe.scaffold)
    elif recipe.scaffold:
        raise TrainerError("recipe.scaffold: the environment declares no slots; leave it out")


def train_chain(
    trainer: Trainer,
    request: TrainRequest,
    environment: TrainerEnvironment,
    sink: RolloutSink,
    on_step: Callable[[dict[str, float]], None],
) -> TrainResult:
    """Train a recipe from the base policy on, `request.policy_dir`: first what it goes on from, then itself; or what is
    left of that. Steps, tokens and seconds in curve and `on_step` count from the base policy on.

    StoreError where the policy that it went on from is another one now.
    """
    first = request.recipe.start
    if first is None:
        use_scaffold(environment, request.recipe)
        return trainer.train(request, environment, sink, on_step)
    folder = request.work_dir / STARTED
    earlier = read_note(request.work_dir)
    if earlier is None:
        done = train_chain(trainer, replace(request, recipe=first, work_dir=folder), environment, sink, on_step)
        sha = trainer.policy_sha256(done.policy_dir)
        earlier = EarlierTraining(
            policy=str(done.policy_dir.relative_to(folder)), policy_sha256=sha, curve=tuple(done.curve)
        )
        note(request.work_dir, earlier)
        fault_point("start:trained")
        shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
    policy = folder / earlier.policy
    if trainer.policy_sha256(policy) != earlier.policy_sha256:
        raise StoreError(f"{policy} is not the policy that this training went on from; delete {folder} and resume")
    before = earlier.curve[-1]

    def whole(row: dict[str, float]) -> dict[str, float]:
        # what was not counted before has no sum
        return {k: v + before[k] if k in SUMS else v for k, v in row.items() if k not in SUMS or k in before}

    use_scaffold(environment, request.recipe)
    mine = replace(request, policy_dir=policy, before=request.recipe.before)
    result = trainer.train(mine, environment, sink, lambda row: on_step(whole(row)))
    curve = [*earlier.curve, *(whole(row) for row in result.curve)]
    return TrainResult(len(curve), result.policy_dir, curve, result.resumed)


def check_alone(request: TrainRequest) -> None:
    """TrainerError where a trainer is asked for a recipe with a start and not given its policy."""
    if request.recipe.start is not None and not request.before:
        raise TrainerError("recipe.start: trainers train one recipe; call evotrainer.trainers.continued.train_chain")
