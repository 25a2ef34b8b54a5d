"""Admission: a task is used only if its reference fix passes, doing nothing fails, and cheating fails.

`admit` tries each task in the world it will be used in; verdicts are kept by the task's hash, refusals with reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evotrainer.envs.admission import AdmissionReport, AdmissionVerdict, Cache
from evotrainer.envs.base import Task
from evotrainer.envs.swe.cheats import Change, cheats
from evotrainer.envs.swe.guarding import Guard, Guards
from evotrainer.envs.swe.instances import Instance, InstanceRepo
from evotrainer.envs.swe.world import Grade, ParsedAction, Repo
from evotrainer.errors import SandboxError, TaskSetError
from evotrainer.sandbox.shell import Entry

VERSION = 4
"""To be increased when an attempt or the grading changes: kept verdicts are then void."""


def admit(
    tasks: Sequence[Task],
    world: Any,
    cache: Cache | None = None,
    progress: Callable[[AdmissionVerdict], None] | None = None,
    plugins: Sequence[str] = (),
) -> AdmissionReport:
    """Try every task in `world` (memory, real, or instances). SandboxError where the world itself breaks.

    `plugins`: what could be loaded into pytest; named where a reference fix passes with them and fails without.
    """
    kept = cache or Cache()
    verdicts = []
    for task in tasks:
        verdict = _judged(task, world, kept, plugins)
        verdicts.append(verdict)
        if progress is not None:
            progress(verdict)
    return AdmissionReport(tuple(verdicts), type(world).__name__)


def _judged(task: Task, world: Any, cache: Cache, plugins: Sequence[str]) -> AdmissionVerdict:
    key = _key(task, world)
    guards: Guards | None = getattr(world, "guards", None)
    if (found := cache.get(key)) is not None:
        reasons = tuple(map(str, found["reasons"]))
        verdict = AdmissionVerdict(task.id, not reasons, reasons, tuple(map(str, found.get("tried", ()))), kept=True)
        guard = Guard.read(found.get("guard"))
        if guards is None or guard is None:
            return verdict
        guards.keep(task.id, guard)
        return _counted(verdict, task, guard)
    try:
        repo = _repo(task, world)
        tried, found_reasons = _try(repo, world, plugins)
    except TaskSetError as error:
        return AdmissionVerdict(task.id, False, (str(error),))  # not kept: a missing mirror may be there next time
    verdict = AdmissionVerdict(task.id, not found_reasons, tuple(found_reasons), tuple(tried))
    guard = guards.of(repo) if guards is not None and isinstance(repo, InstanceRepo) else None
    cache.put(key, verdict, {"guard": guard.as_json()} if guard else None)
    return verdict if guard is None else _counted(verdict, task, guard)


def _counted(verdict: AdmissionVerdict, task: Task, guard: Guard) -> AdmissionVerdict:
    """With how the tests of an admitted task are graded."""
    instance = task.data.get("instance")
    if not verdict.admitted or not isinstance(instance, Instance):
        return verdict
    inside = {*instance.fail_to_pass, *instance.pass_to_pass} - guard.ids
    return replace(verdict, across=len(guard.ids), decided=len(guard.decided), inside=len(inside))


def _key(task: Task, world: Any) -> str:
    instance = task.data.get("instance")
    what = instance.hash if isinstance(instance, Instance) else repr(task.data["repo"])
    command = getattr(world, "command", None)
    text = repr([VERSION, type(world).__name__, repr(command), what])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _repo(task: Task, world: Any) -> Repo:
    instance = task.data.get("instance")
    repo: Repo = world.prepare(instance) if isinstance(instance, Instance) else task.data["repo"]
    return repo


def _try(repo: Repo, world: Any, plugins: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of the attempts, and reasons against the task."""
    tried, reasons = ["fix", "nothing"], []
    fix: Change = repo.fix if isinstance(repo, InstanceRepo) else {p: _entry(p, t) for p, t in repo.gold.items()}
    nothing = _grade(repo, world, {})
    good = _grade(repo, world, fix)
    if failed := _failed(repo, good):
        reasons.append(
            f"the reference fix does not pass: {_names(failed, nothing)}{_wanting(repo, world, fix, plugins)}"
        )
    if not _failed(repo, nothing):
        reasons.append("doing nothing passes: no test shows the bug")
    if reasons:  # refused already
        return tried, reasons
    for name, change in cheats(repo).items():
        tried.append(name)
        if not _failed(repo, _grade(repo, world, change)):
            reasons.append(f"a cheat passes: {name}")
    if _failed(repo, _grade(repo, world, fix)) or not _failed(repo, _grade(repo, world, {})):
        reasons.append(
            "grading changed: after the cheats, the reference fix or doing nothing is graded otherwise than before"
        )
    return tried, reasons


def _wanting(repo: Repo, world: Any, fix: Change, plugins: Sequence[str]) -> str:
    """Names of further plug-ins of pytest with which the fix passes; empty without such."""
    command = getattr(world, "command", None)
    further = [p for p in plugins if command is not None and p not in command.plugins]
    if command is None or command.kind != "pytest" or not further:
        return ""
    try:
        found: list[str] = []
        for some in (further, *([p] for p in further)):
            world.command = replace(command, plugins=(*command.plugins, *some))
            passes = not _failed(repo, _grade(repo, world, fix))
            if not passes and not found:
                return ""
            if passes:
                found = [*command.plugins, *some]
                if len(some) == 1:
                    break
    finally:
        world.command = command
    named = ", ".join(f'"{p}"' for p in found)
    return f"; it passes with plug-ins of pytest that are loaded only when named: environment.plugins = [{named}]"


def _failed(repo: Repo, grade: Grade) -> list[str]:
    return [i for i in (*repo.fail_to_pass, *repo.pass_to_pass) if not grade.hidden.get(i, False)]


def _names(failed: Sequence[str], nothing: Grade) -> str:
    shown = failed[:3]
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    before = [i for i in shown if not nothing.hidden.get(i, False)]
    note = f" (without it {', '.join(before)} {'fails' if len(before) == 1 else 'fail'} as well)" if before else ""
    return ", ".join(shown) + more + note


def _entry(path: str, text: str) -> Entry:
    return Entry(path, "f", 0o644, text.encode("utf-8", "surrogatepass"))


def _grade(repo: Repo, world: Any, change: Mapping[str, Entry | None]) -> Grade:
    """The grade of an episode that made this change, with the tests open to it; SandboxError for a fault."""
    handle = world.open(repo, {"tests": "writable"})
    try:
        if hasattr(world, "put"):
            world.put(handle, change)
        else:
            for path, entry in change.items():
                if entry is not None:
                    world.act([handle], [ParsedAction("write", path, text=entry.data.decode("utf-8"))])
        grade: Grade = getattr(world, "grade_unwatched", world.grade)([handle])[0]
    finally:
        world.close(handle)
    if grade.fault is not None:
        raise SandboxError(f"admission of {repo.id}: {grade.fault}; run it again")
    return grade
