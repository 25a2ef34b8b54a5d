"""A run begun in a new folder, or taken up again: what `evotrainer run`, `resume` and the Python API call."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evotrainer.config.load import apply_overrides, load_run_task, resolve
from evotrainer.config.overrides import Overrides, as_texts, check_resumable
from evotrainer.errors import ConfigError, StoreError
from evotrainer.executors.spec import write_atomic
from evotrainer.projections.environment_files import any_trained
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import Resumed
from evotrainer.records.ledger import Ledger
from evotrainer.run.observer import SilentObserver
from evotrainer.trainers import TRAINERS

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.config.task import TaskFile
    from evotrainer.executors import MakeExecutor
    from evotrainer.run.context import Ask
    from evotrainer.run.observer import Observer


class Caller(NamedTuple):
    """Who watches a run and answers for it, and what is used in place of the task file's choice; None: that choice."""

    view: Observer | None = None
    ask: Ask | None = None
    agent: Agent | None = None
    executor: MakeExecutor | None = None

    @property
    def observer(self) -> Observer:
        return self.view or SilentObserver()


def begin(task: TaskFile, folder: Path, caller: Caller) -> None:
    """Run a task in a new folder to its end. Raises as `api.start`."""
    from evotrainer.run.checks import check_run
    from evotrainer.run.checks.base import BeforeRun
    from evotrainer.run.open_run import with_absolute_base, with_pinned_data

    pinned = with_pinned_data(task)
    notes = check_run(BeforeRun(pinned, True, folder, caller.ask is not None))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "task.toml", with_absolute_base(pinned).to_toml())
    except OSError as e:
        raise StoreError(f"cannot make run folder {folder}: {e.strerror}; choose another --out") from None
    for note in notes:
        caller.observer.note(note)
    _go(folder, load_run_task(folder), (), caller)


def resume_run(folder: Path, overrides: Overrides, caller: Caller) -> None:
    """Resume the run of a folder that holds one; a closed one stays as it is unless it is asked for more rounds."""
    from evotrainer.run.checks import check_run
    from evotrainer.run.checks.base import BeforeRun
    from evotrainer.run.checks.settings import refuse_results
    from evotrainer.run.corrections import refuse_changed

    given = as_texts(overrides)
    apply_overrides({}, given)
    # A run killed before its first event has a task file and an empty ledger, or none: it starts here.
    looked = Ledger.look(folder / "ledger.db")
    with looked or contextlib.nullcontext():
        events = looked.events() if looked else []
    if not events:
        refuse_results(folder)
    state, played = RunState.of(events), sum(e.kind == "round" for e in events)
    if state.closed_by and not given:
        return
    task = load_run_task(folder)
    trainer = TRAINERS[task.trainer.name]
    trained = any_trained(e for e in events if e.kind == "finished")
    check_resumable(given, (*trainer.resumable, *(() if trained else trainer.places)))
    every = [*(o for e in events if e.kind == "resumed" for o in e.body.overrides), *given]
    changed = resolve(apply_overrides(task.model_dump(mode="json"), every)) if every else task
    if any(o.startswith("run.rounds=") for o in given) and changed.run.rounds <= played:
        raise ConfigError(f"{folder} has played {played} of its rounds; ask for more, e.g. run.rounds={played + 1}")
    if state.closed_by and changed.run.rounds <= played:
        return
    refuse_changed(folder, changed, events)
    check_run(BeforeRun(changed, False, None, caller.ask is not None))
    _go(folder, changed, every, caller, task_hash=task.hash)


def _costs(task: TaskFile) -> dict[str, Any]:
    price = task.budget.price
    return {"budget": task.budget.limits(), "price": price.line if price else ""}


def _go(
    folder: Path, task: TaskFile, overrides: Sequence[str], caller: Caller, *, task_hash: str | None = None
) -> None:
    from evotrainer.run.corrections import accepted_corrections
    from evotrainer.run.loop import run
    from evotrainer.run.notifying import notifying
    from evotrainer.run.open_run import open_context
    from evotrainer.run.task_sets import keep_look_number, number_held
    from evotrainer.run.tracking import following

    with contextlib.ExitStack() as until_end:
        ledger = until_end.enter_context(contextlib.closing(Ledger.open(folder / "ledger.db", create=True)))
        seen = len(ledger.events())
        # what is refused is refused before it is recorded, and takes no number
        mended = accepted_corrections(folder, task, ledger)
        until_end.enter_context(number_held(ledger, task))
        if ledger.get("run") is not None:
            keep_look_number(ledger, task, folder)
            n = len(ledger.events("resumed")) + 1
            ledger.append(
                "resumed", keys.resumed(n), Resumed(n=n, overrides=tuple(overrides), files=mended, **_costs(task))
            )
            if mended:
                caller.observer.note(
                    f"goes on with the corrected {', '.join(mended)}; no training rested on the earlier one"
                )
        watched = until_end.enter_context(following(folder, task.tracking, caller.observer))
        watched = until_end.enter_context(notifying(folder, task.notify, watched, seen))
        opened = open_context(
            folder,
            task,
            ledger,
            agent=caller.agent,
            view=watched,
            ask=caller.ask,
            executor=caller.executor,
            task_hash=task_hash,
        )
        with opened as ctx:
            run(ctx)
