"""Runs on paper: `PaperExecutor` bound to the calls of the API, so that a test says `paper.start(...)`."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import PaperExecutor

from evotrainer import api
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.recipe import Recipe
from evotrainer.run.context import RunContext
from evotrainer.run.open_run import open_context
from evotrainer.verify import Record
from evotrainer.verify.report import Problem
from evotrainer.verify.verdicts import judged, verdict_on

SELDOM = (
    *("negative_weight", "averaging", "deploy_temperature", "phases", "replay", "prompt_noise", "credit", "start"),
    *("written", "hooks", "scaffold"),
)
"""Factors that trials on paper do not draw by where a recipe leaves them at their default."""


def set_in(recipe: Recipe) -> str:
    """What trials on paper draw by, 16 hex digits: a recipe that gets a further factor, named in `SELDOM`, draws as it
    did, and what a test chose its draws for stays."""
    text = json.dumps(_drawn_by(recipe.model_dump(mode="json")), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _drawn_by(values: dict[str, Any]) -> dict[str, Any]:
    usual = Recipe().model_dump(mode="json")
    out = {k: v for k, v in values.items() if k not in SELDOM or v != usual[k]}
    tags = ("tag", "floor", "until")
    out["curriculum"] = {k: v for k, v in out["curriculum"].items() if k not in tags or v != usual["curriculum"][k]}
    return out | {"start": _drawn_by(values["start"])} if values["start"] else out


class Paper(PaperExecutor):
    """A paper executor that starts, resumes and audits runs itself."""

    def start(self, task: Any, out: Path | str, overrides: Sequence[str] = (), **more: Any) -> api.Run:
        """`api.start` on paper."""
        return api.start(task, out, overrides, executor=self, **more)

    def resume(self, folder: Path | str, overrides: Sequence[str] = (), **more: Any) -> api.Run:
        """`api.resume` on paper."""
        return api.resume(folder, overrides, executor=self, **more)

    def audit_branch(self, folder: Path, branch: str, shortcuts: Sequence[str] = (), **more: Any) -> Any:
        """`api.audit_branch` on paper."""
        return api.audit_branch(folder, branch, shortcuts, executor=self, **more)

    @contextlib.contextmanager
    def stopped(self, at: Callable[[TrialSpec], bool], by: type[BaseException] = KeyboardInterrupt) -> Iterator[None]:
        """The run inside is interrupted, or ended by an error, at the first trial for which `at` holds."""
        go_on = self.finish

        def finish(spec: TrialSpec) -> TrialFinished:
            if at(spec):
                raise by
            return go_on(spec)

        self.finish = finish
        try:
            with pytest.raises(by):
                yield
        finally:
            self.finish = go_on

    @contextlib.contextmanager
    def context(self, run: api.Run) -> Iterator[RunContext]:
        """A run's context, walked to its last event."""
        with Ledger.open(run.folder / "ledger.db") as ledger:
            with open_context(run.folder, run.task, ledger, executor=self) as ctx:
                ctx.refresh()
                yield ctx


@contextlib.contextmanager
def stopped_before(event: str) -> Iterator[None]:
    """The run inside is interrupted between what an event tells of and its record."""

    def stop(name: str) -> None:
        if name == f"before:{event}":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as m:
        m.setattr("evotrainer.records.ledger.fault_point", stop)
        with pytest.raises(KeyboardInterrupt):
            yield


def stopped_before_each(points: Sequence[str], start: Callable[[], api.Run], resume: Callable[[], api.Run]) -> api.Run:
    """One run that is stopped before each of these events, in their order, and taken up again every time.

    What a resume forgets is forgotten by all of them: the end tells of it as runs of their own for every event would,
    and costs one run. What goes wrong long after a single resume needs a run that is stopped once.
    """
    for k, point in enumerate(points):
        with stopped_before(point):
            (resume if k else start)()
    return resume()


def rejudged(run: api.Run, branch: str) -> list[str]:
    """What of a branch's last verdict does not follow from the ledger."""
    record = Record(run.folder, run.events())
    return [p.message for p in judged(record, verdict_on(record, branch))]


def ids(run: api.Run) -> list[str]:
    """Ids of all events but those that tell of a resume."""
    return [e.id for e in run.events() if e.kind != "resumed"]


def bodies(run: api.Run, kind: str) -> list[Any]:
    """Bodies of all events of a kind."""
    return [e.body for e in run.events() if e.kind == kind]


def complaints(run: api.Run) -> list[Problem]:
    """What `verify` finds in decisions and versions: trials on paper leave other files and rollouts than real ones."""
    decided = ("ledger", "run", "lineage", "branch", "gap", "harness", "round", "planned", "judged", "promoted")
    return [p for p in run.verify().problems if p.area in decided]
