"""Admission: an instance is used only if its reference fix passes, doing nothing fails, and cheating fails.

`admit` tries each one in the world it will be used in; verdicts are kept by the task's hash, refusals with reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from evotrainer.envs.admission import AdmissionReport, AdmissionVerdict, Cache
from evotrainer.envs.base import Task
from evotrainer.envs.swe.cheats import Change, cheats
from evotrainer.envs.swe.guarding import Guard
from evotrainer.envs.swe.instance_world import InstanceWorld
from evotrainer.envs.swe.instances import Instance, InstanceRepo
from evotrainer.envs.swe.world import Grade
from evotrainer.errors import SandboxError, TaskSetError

VERSION = 4
"""To be increased when an attempt or the grading changes: kept verdicts are then void."""


def admit(
    tasks: Sequence[Task],
    world: InstanceWorld,
    cache: Cache | None = None,
    progress: Callable[[AdmissionVerdict], None] | None = None,
    plugins: Sequence[str] = (),
) -> AdmissionReport:
    """Try every instance in `world`. SandboxError where the world itself breaks.

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


def _judged(task: Task, world: InstanceWorld, cache: Cache, plugins: Sequence[str]) -> AdmissionVerdict:
    instance: Instance = task.data["instance"]
    key = _key(instance, world)
    if (found := cache.get(key)) is not None:
        reasons = tuple(map(str, found["reasons"]))
        verdict = AdmissionVerdict(task.id, not reasons, reasons, tuple(map(str, found.get("tried", ()))), kept=True)
        guard = Guard.read(found.get("guard"))
        if guard is None:
            return verdict
        world.guards.keep(task.id, guard)
        return _counted(verdict, instance, guard)
    try:
        repo = world.prepare(instance)
        tried, found_reasons = _try(repo, world, plugins)
    except TaskSetError as error:
        return AdmissionVerdict(task.id, False, (str(error),))  # not kept: a missing mirror may be there next time
    verdict = AdmissionVerdict(task.id, not found_reasons, tuple(found_reasons), tuple(tried))
    guard = world.guards.of(repo)
    cache.put(key, verdict, {"guard": guard.as_json()})
    return _counted(verdict, instance, guard)


def _counted(verdict: AdmissionVerdict, instance: Instance, guard: Guard) -> AdmissionVerdict:
    """With how the tests of an admitted task are graded."""
    if not verdict.admitted:
        return verdict
    inside = {*instance.fail_to_pass, *instance.pass_to_pass} - guard.ids
    return replace(verdict, across=len(guard.ids), decided=len(guard.decided), inside=len(inside))


def _key(instance: Instance, world: InstanceWorld) -> str:
    text = repr([VERSION, type(world).__name__, repr(world.command), instance.hash])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _try(repo: InstanceRepo, world: InstanceWorld, plugins: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of the attempts, and reasons against the task."""
    tried, reasons = ["fix", "nothing"], []
    nothing, good = _grade(repo, world, {}), _grade(repo, world, repo.fix)
    if failed := _failed(repo, good):
        reasons.append(f"the reference fix does not pass: {_names(failed, nothing)}{_wanting(repo, world, plugins)}")
    if not _failed(repo, nothing):
        reasons.append("doing nothing passes: no test shows the bug")
    if reasons:  # refused already
        return tried, reasons
    for name, change in cheats(repo).items():
        tried.append(name)
        if not _failed(repo, _grade(repo, world, change)):
            reasons.append(f"a cheat passes: {name}")
    if _failed(repo, _grade(repo, world, repo.fix)) or not _failed(repo, _grade(repo, world, {})):
        reasons.append(
            "grading changed: after the cheats, the reference fix or doing nothing is graded otherwise than before"
        )
    return tried, reasons


def _wanting(repo: InstanceRepo, world: InstanceWorld, plugins: Sequence[str]) -> str:
    """Names of further plug-ins of pytest with which the fix passes; empty without such."""
    command = world.command
    further = [p for p in plugins if p not in command.plugins]
    if command.kind != "pytest" or not further:
        return ""
    try:
        found: list[str] = []
        for some in (further, *([p] for p in further)):
            world.command = replace(command, plugins=(*command.plugins, *some))
            passes = not _failed(repo, _grade(repo, world, repo.fix))
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


def _failed(repo: InstanceRepo, grade: Grade) -> list[str]:
    return [i for i in (*repo.fail_to_pass, *repo.pass_to_pass) if not grade.hidden.get(i, False)]


def _names(failed: Sequence[str], nothing: Grade) -> str:
    shown = failed[:3]
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    before = [i for i in shown if not nothing.hidden.get(i, False)]
    note = f" (without it {', '.join(before)} {'fails' if len(before) == 1 else 'fail'} as well)" if before else ""
    return ", ".join(shown) + more + note


def _grade(repo: InstanceRepo, world: InstanceWorld, change: Change) -> Grade:
    """The grade of an episode that made this change, with the tests open to it; SandboxError for a fault."""
    handle = world.open(repo, {"tests": "writable"})
    try:
        world.put(handle, change)
        grade = world.grade_unwatched([handle])[0]
    finally:
        world.close(handle)
    if grade.fault is not None:
        raise SandboxError(f"admission of {repo.id}: {grade.fault}; run it again")
    return grade
