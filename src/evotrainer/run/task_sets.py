"""Which tasks a run is judged and certified on: drawn for it alone, or a set whose looks all runs count."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evotrainer.config.task import TaskFile
from evotrainer.envs.base import DRAWN, Environment, EnvironmentWithDraws, can_redraw
from evotrainer.errors import ConfigError, StoreError
from evotrainer.projections.environment_files import any_trained
from evotrainer.projections.task_sets import budget_line
from evotrainer.records import keys
from evotrainer.records.durable import writer_of
from evotrainer.records.events import TaskDraw, TaskSet
from evotrainer.records.ledger import Ledger
from evotrainer.records.looks import WHOLE, LookCount, LookRegister, register_file, set_key, share_of
from evotrainer.records.sealed import SealedSplits, Seed

if TYPE_CHECKING:
    from evotrainer.run.context import RunContext


def draw(ctx: RunContext, environment: Environment) -> TaskDraw:
    """The run's gate and cert: a seed is drawn and kept before anything names it, the run is counted where it shares
    its gate. `environment`: opened, with its own tasks; it has the run's afterwards."""
    wanted = ctx.task.evaluation.draw
    mode = mode_of(ctx.task, environment)
    ctx.sealed = SealedSplits.begin(ctx.folder, SealedSplits.keys_folder(ctx.task.run.keys))
    seed = ctx.sealed.draw(wanted if isinstance(wanted, int) else None)
    if mode != "fixed" and isinstance(environment, EnvironmentWithDraws):
        environment.redraw(seed.seed)
    register = None if mode == "fresh" else register_of(ctx.task)
    sizes = environment.describe()["splits"]
    sets = []
    for split in DRAWN:
        if not sizes.get(split):
            continue
        tasks = environment.tasks(split)
        key, number = set_key(str(t.prompt) for t in tasks), 0
        shared = split == "gate" and mode != "fresh" and _judges(ctx.task)
        if shared and register is not None:
            number = register.join(key, seed.commitment, ctx.folder)
        most = getattr(ctx.task.evaluation, f"{split}_tasks")
        ids = ids_sha256(t.id for t in tasks[:most])
        own = ctx.task.judge.alpha * share_of(number) if number else None
        counted = not shared or number > 0
        sets.append(TaskSet(split=split, ids=ids, tasks=key, run=number, counted=counted, alpha=own))
    name = "" if mode == "fixed" else seed.name
    return TaskDraw(mode=mode, commitment=seed.commitment, seed=name, sets=tuple(sets))


def take_keys(ctx: RunContext) -> None:
    """Keys of a run that goes on; IntegrityError where they are lost. After its last end nothing is encrypted."""
    opened = ctx.recorded(keys.RUN)
    if opened is None or not opened.body.key_sha256:
        return
    ends = ctx.ledger.events("closed")
    if ends and ends[-1].seq > max((e.seq for e in ctx.ledger.events("resumed")), default=0):
        return
    folder = SealedSplits.keys_folder(ctx.task.run.keys)
    ctx.sealed = SealedSplits.resume(ctx.folder, folder, opened.body.key_sha256[:16], len(ends))


def mode_of(task: TaskFile, environment: Environment) -> str:
    """`fresh`, `given` or `fixed`; ConfigError for a number that the environment cannot draw from."""
    if isinstance(task.evaluation.draw, int):
        if not can_redraw(environment):
            raise ConfigError(
                f"evaluation.draw={task.evaluation.draw}: environment {environment.name} generates no tasks; "
                "its gate and cert are given: set evaluation.draw=fixed, or leave it out"
            )
        return "given"
    return "fresh" if task.evaluation.draw == "fresh" and can_redraw(environment) else "fixed"


def ids_sha256(ids: Iterable[str]) -> str:
    """SHA-256 of ids, whatever their order."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def register_of(task: TaskFile) -> LookRegister | None:
    """The register that a task file's runs count in; None: off."""
    path = register_file(task.run.looks)
    return LookRegister(path) if path else None


def _judges(task: TaskFile) -> bool:
    """Does the run compare branches on gate? One that does not needs no alpha."""
    return not (task.run.evaluate_only or task.run.search_only)


def reuse_warnings(task: TaskFile, environment: Environment) -> list[str]:
    """What whoever starts a run on tasks that others were judged on must know before it starts."""
    if not _judges(task) or (mode := mode_of(task, environment)) == "fresh":
        return []
    register = register_of(task)
    if register is None:
        return ["register of looks off: earlier runs on these gate tasks are not counted, and verdicts say so"]
    if mode == "given" and isinstance(environment, EnvironmentWithDraws):
        environment.redraw(str(task.evaluation.draw))
    key = set_key(str(t.prompt) for t in environment.tasks("gate"))
    number = register.next_number(key)
    if not number:
        return ["these gate tasks were drawn for another run, which had their whole alpha; verdicts will say so"]
    line = budget_line(number, task.judge.alpha * share_of(number)) + _idle(register.never_judged(key, number))
    own = (
        "evaluation.draw=fresh gives this run"
        if can_redraw(environment)
        else "a `draw` of the environment gives each run"
    )
    return [line if number == 1 else f"{line}; {own} tasks, and an alpha, of its own"]


def _idle(folders: list[Path]) -> str:
    """A way to a larger alpha."""
    still = [f for f in folders if writer_of(f / "ledger.db.lock") is None]
    if not still:
        return ""
    names = ", ".join(map(str, still[:3])) + (f" and {len(still) - 3} more" if len(still) > 3 else "")
    return f"; not judged so far: {names}; the number of one that will not go on is free again once it is deleted"


def keep_look_number(ledger: Ledger, task: TaskFile, folder: Path) -> None:
    """The number of a run that goes on is its own again. StoreError where another run has it meanwhile."""
    if found := _gate(ledger, task):
        found.register.hold(found.tasks, found.run, found.number, folder)


@contextlib.contextmanager
def number_held(ledger: Ledger, task: TaskFile) -> Iterator[None]:
    """A run that an error ends before a training has finished gives its number back: a typing error costs no alpha."""
    try:
        yield
    except Exception:  # who interrupts a run goes on with it
        if not any_trained(ledger.events("finished")) and (found := _gate(ledger, task)):
            with contextlib.suppress(StoreError):  # what broke the run off is told, and the number is kept
                found.register.leave(found.tasks, found.run)
        raise


class _Gate(NamedTuple):
    register: LookRegister
    tasks: str
    run: str
    number: int


def _gate(ledger: Ledger, task: TaskFile) -> _Gate | None:
    """Where the run is counted, if it is."""
    event = ledger.get(keys.RUN)
    draw, register = event.body.draw if event else None, register_of(task)
    found = draw.of("gate") if draw else None
    if draw is None or found is None or not found.run or register is None:
        return None
    return _Gate(register, found.tasks, draw.commitment, found.run)


def look(ctx: RunContext, split: str, what: str) -> LookCount | None:
    """Enter a look at a split into the register, before it is taken; None where the run counts none."""
    opened = ctx.state.opened.draw if ctx.state.opened else None
    found = opened.of(split) if opened else None
    register = register_of(ctx.task)
    if opened is None or found is None or opened.mode == "fresh" or register is None:
        return None
    return register.enter(found.tasks, opened.commitment, what, found.run, ctx.folder)


def revealed(ctx: RunContext) -> Seed | None:
    """The seed, told at the end; None where nothing was drawn. IntegrityError where it is lost.

    From here on others can draw the same tasks: the register knows that their alpha is spent.
    """
    found = ctx.state.opened.draw if ctx.state.opened else None
    if found is None or found.mode == "fixed":
        return None
    seed = ctx.sealed.seed(found.seed, found.commitment)
    gate, register = found.of("gate"), register_of(ctx.task)
    if found.mode == "fresh" and gate is not None and register is not None:
        try:
            register.enter(gate.tasks, found.commitment, WHOLE, 0, ctx.folder)
        except StoreError as e:  # the run itself counts nothing, so it must not fail for it
            ctx.observer.note(f"{e}; runs that draw this run's tasks again will not be told")
    return seed
