"""Admission of code tasks: one is used only if its own solution passes its tests,
and a program that does nothing fails.

Tasks without a solution are taken as they are.
Verdicts are kept by content, so that trials of a run admit nothing again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from evotrainer.envs.admission import AdmissionReport, AdmissionVerdict, Cache
from evotrainer.envs.base import Task
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.task_list import ListSource
from evotrainer.errors import SandboxError, TaskSetError

VERSION = 2
"""To be increased when an attempt or the grading changes: kept verdicts are then void."""
BATCH = 64
"""Tasks per call of the sandbox."""
NOTHING = "pass\n"
SAY_EVERY_S = 30.0


def golds(task: Task) -> list[str]:
    """The task's own solutions, in order."""
    found = task.data.get("golds") or ([task.data["gold"]] if task.data.get("gold") else [])
    return [str(g) for g in found]


def admit_code(
    environment: CodeEnv,
    tasks: Sequence[Task],
    cache: Cache | None = None,
    progress: Callable[[AdmissionVerdict], None] | None = None,
) -> AdmissionReport:
    """Try every task that has a solution. SandboxError where the sandbox itself breaks."""
    kept = cache or Cache()
    found: dict[str, AdmissionVerdict] = {}
    open_: list[tuple[Task, str]] = []

    def settle(verdict: AdmissionVerdict) -> None:
        found[verdict.task] = verdict
        if progress is not None:
            progress(verdict)

    for task in tasks:
        key = _key(task, environment)
        if not golds(task):
            settle(AdmissionVerdict(task.id, True, (), ("no solution to try",)))
        elif (known := kept.get(key)) is not None:
            reasons = tuple(map(str, known["reasons"]))
            settle(AdmissionVerdict(task.id, not reasons, reasons, tuple(map(str, known.get("tried", ()))), kept=True))
        else:
            open_.append((task, key))
    for at in range(0, len(open_), BATCH):
        batch = open_[at : at + BATCH]
        for (_, key), verdict in zip(batch, _judged(environment, [t for t, _ in batch]), strict=True):
            kept.put(key, verdict)
            settle(verdict)
    return AdmissionReport(tuple(found[t.id] for t in tasks), environment.name)


def _judged(environment: CodeEnv, tasks: Sequence[Task]) -> list[AdmissionVerdict]:
    why: dict[str, str] = {}
    solved: dict[str, int] = {}
    for n in range(max(len(golds(t)) for t in tasks)):
        todo = [t for t in tasks if t.id not in solved and n < len(golds(t))]
        for task, failure in zip(todo, _graded(environment, todo, [golds(t)[n] for t in todo]), strict=True):
            if failure:
                why.setdefault(task.id, failure)
            else:
                solved[task.id] = n + 1
    idle = [not failure for failure in _graded(environment, tasks, [NOTHING] * len(tasks))]
    out = []
    for task, empty in zip(tasks, idle, strict=True):
        reasons = [] if task.id in solved else [f"its own solution does not pass: {why[task.id]}"]
        if empty:
            reasons.append("a program that does nothing passes: no test asks for anything")
        out.append(
            AdmissionVerdict(task.id, not reasons, tuple(reasons), (f"solution {solved.get(task.id, 1)}", "nothing"))
        )
    return out


def _graded(environment: CodeEnv, tasks: Sequence[Task], programs: Sequence[str]) -> list[str]:
    """What failed, empty where nothing did."""
    knobs: dict[str, Any] = {}
    episodes = [environment.reset(t, knobs) for t in tasks]
    environment.step(episodes, programs, ["stop"] * len(tasks))
    out = []
    for task, score in zip(tasks, environment.score(episodes), strict=True):
        if score.error_kind is not None:
            raise SandboxError(f"admission of {task.id}: {score.error}; run it again")
        out.append("" if score.outcome == "correct" else _failure(score.detail.get("tests", ())))
    return out


def _failure(tests: Sequence[dict[str, Any]]) -> str:
    bad = next(((n, t) for n, t in enumerate(tests, 1) if not t["passed"]), None)
    if bad is None:
        return "it is not Python"
    n, t = bad
    if t["status"] != "ok":
        return f"test {n} ends in {t['status']}" + (f" ({t['error']})" if t.get("error") else "")
    return f"test {n} expects {t['expected']!r}, it gives {t['got']!r}"


def _key(task: Task, environment: CodeEnv) -> str:
    limits = [environment.source.cpu_s, environment.source.memory_mb, environment.source.output_kb]
    what = {k: v for k, v in task.data.items() if k != "spec"}
    text = json.dumps([VERSION, "code", limits, what], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def keep_admitted(environment: CodeEnv) -> AdmissionReport:
    """Leave out of the environment's tasks those that admission refuses; TaskSetError where none is left."""
    source = environment.source
    assert isinstance(source, ListSource)
    tasks = [t for split in source.sizes() for t in source.tasks(split)]
    with _progress(sum(bool(golds(t)) for t in tasks), environment.name) as progress:
        report = admit_code(environment, tasks, progress=progress)
    if not report.admitted:
        environment.close()
        raise TaskSetError(f"environment {environment.name}: no task is admitted\n{report}")
    source.keep(
        report.admitted, {v.task: int(v.tried[0].split()[1]) - 1 for v in report.verdicts if "nothing" in v.tried}
    )
    if report.refused:
        refused = {v.task: list(v.reasons) for v in report.refused}
        source.about = {**source.about, "refused": refused}
    return report


@contextmanager
def _progress(total: int, name: str) -> Iterator[Callable[[AdmissionVerdict], None]]:
    """A line on standard error now and then where admission takes long."""
    done, refused, last = 0, 0, time.monotonic()

    def tell(v: AdmissionVerdict) -> None:
        nonlocal done, refused, last
        done += bool(v.tried != ("no solution to try",))
        refused += not v.admitted
        if (now := time.monotonic()) - last >= SAY_EVERY_S:
            last = now
            print(
                f"evotrainer: admission of {name}: {done} of {total} solutions run, {refused} refused", file=sys.stderr
            )

    yield tell
