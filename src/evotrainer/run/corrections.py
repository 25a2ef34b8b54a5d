"""Correct and resume: a user's file that made a run fail may be corrected as long as no training rests on it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evotrainer.config.preflight import run_fingerprints
from evotrainer.config.task import TaskFile
from evotrainer.envs import open_environment, pay_terms
from evotrainer.envs.base import DRAWN
from evotrainer.errors import IntegrityError
from evotrainer.executors.spec import store_dirs, trial_dir
from evotrainer.projections.environment_files import CODE, any_trained, files_of
from evotrainer.records.chain import Event
from evotrainer.records.events import RunOpened
from evotrainer.records.ledger import Ledger
from evotrainer.records.looks import set_key
from evotrainer.run.environment_copies import remedies
from evotrainer.run.task_sets import ids_sha256

SAME = ("components", "knobs", "proxy", "outcome", "splits", "demonstrations")
"""What a correction leaves as it was: names and numbers that the run's first event holds."""


def accepted_corrections(folder: Path, task: TaskFile, ledger: Ledger) -> dict[str, str]:
    """Corrected files, path -> SHA-256, where the run may go on with them: no training has finished, and only Python
    files changed, which leave tasks, components and outcome as they were. What the old code had begun is removed.

    IntegrityError where the run may not go on with them: names the file and the remedy.
    """
    event = ledger.get("run")
    if event is None:
        return {}
    refuse_changed(folder, task, ledger.events())
    known, now = files_of(ledger.events()), run_fingerprints(task)
    changed = [f for f, sha in known.items() if now.get(f) != sha]
    if not changed:
        return {}
    if what := _differs(event.body, task):
        raise IntegrityError(
            f"{changed[0]} was changed after the run began, and its {what} with it; "
            f"{remedies(folder, changed[0], known[changed[0]])}"
        )
    ended = {e.body.trial for e in ledger.events("finished")}
    for begun in (e.body.trial for e in ledger.events("intended") if e.body.trial not in ended):
        for place in (trial_dir(folder, begun), *store_dirs(folder, begun)):
            shutil.rmtree(place, ignore_errors=True)
    return {f: now[f] for f in changed}


def refuse_changed(folder: Path, task: TaskFile, events: Iterable[Event]) -> None:
    """IntegrityError where a file of the environment was changed in a way that no correction is, whatever it holds now;
    looked at before it is opened, which might fail for the change."""
    events = list(events)
    known, now = files_of(events), run_fingerprints(task)
    trained = any_trained(e for e in events if e.kind == "finished")
    for file in (f for f, sha in known.items() if now.get(f) != sha):
        remedy = remedies(folder, file, known[file])
        if file not in now:
            raise IntegrityError(f"{file} was there when the run began and is not now; {remedy}")
        if trained:
            raise IntegrityError(f"{file} was changed after the run began, and trainings rest on it; {remedy}")
        if not file.endswith(CODE):
            raise IntegrityError(f"{file} was changed after the run began: its tasks are others now; {remedy}")


def _differs(opened: RunOpened, task: TaskFile) -> str:
    """What of the environment is not what the run began with; empty where only its code is."""
    with contextlib.closing(open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)) as found:
        facts: dict[str, Any] = {
            **found.describe(),
            **pay_terms(found, task.environment),
            "components": dict(found.components),
            "knobs": {k: ", ".join(map(str, v)) for k, v in found.knobs.items()},
            "proxy": list(found.proxy) if found.proxy else None,
        }
        for name in SAME:
            if _names(facts.get(name)) != _names(opened.environment.get(name)):
                return name
        for split in DRAWN if opened.draw.mode == "fixed" else ():
            kept = opened.draw.of(split)
            tasks = found.tasks(split) if kept else ()
            most = getattr(task.evaluation, f"{split}_tasks")
            if kept and (kept.tasks, kept.ids) != (
                set_key(str(t.prompt) for t in tasks),
                ids_sha256(t.id for t in tasks[:most]),
            ):
                return f"{split} tasks"
    return ""


def _names(value: Any) -> Any:
    """Components by name: their descriptions may be corrected, too."""
    if isinstance(value, Mapping):
        return {k: (v if isinstance(v, int) else "") for k, v in value.items()}
    return list(value) if isinstance(value, list | tuple) else value
