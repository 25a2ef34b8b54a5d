"""Results of attempts, with their files in the run folder."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.ray.artifacts import Artifacts
from evotrainer.executors.ray.attempts import DispatchedTrial
from evotrainer.executors.ray.job import Report
from evotrainer.executors.spec import trial_dir
from evotrainer.records.durable import sha256_file
from evotrainer.records.events import FailureLabel, TrialFinished

VISIBLE_S = 90.0
"""A file that a node wrote on a shared file system must be seen here within this many seconds (attribute caches)."""
CHECK_S = 0.2
"""Seconds between two checks for a file that a node wrote."""


@dataclass(frozen=True, slots=True)
class ResultCollector:
    """Collects results and files of attempts. `artifacts`: None where the nodes share the run folder's file system."""

    run_dir: Path
    local: LocalExecutor
    artifacts: Artifacts | None

    def failed(self, a: DispatchedTrial, label: FailureLabel, error: str) -> TrialFinished:
        """The recorded failure of a trial that is given up, with what it left in the run folder."""
        if self.artifacts is not None:
            self.artifacts.restore(a.spec.trial, self.run_dir)
        folder = trial_dir(self.run_dir, a.spec.trial)
        return self.local.record_failure(a.spec, folder, label, error, time.monotonic() - a.since, a.beat)

    def collect(self, a: DispatchedTrial, report: Report | None) -> TrialFinished:
        """A finished attempt's result with its files in the run folder."""
        if self.artifacts is not None:
            snapshot = self.artifacts.final(a.spec.trial)
            if snapshot is None:
                raise StoreError(
                    f"artifacts {self.artifacts.url}: trial {a.spec.trial} ended, but its files are not there; "
                    "was the folder emptied? `evotrainer resume` trains it again"
                )
            try:
                self.artifacts.fetch(a.spec.trial, snapshot, self.run_dir)
            except FileNotFoundError as e:
                raise StoreError(f"artifacts {self.artifacts.url}: {e} is gone; resume trains the trial again") from e
        wait = time.monotonic() + VISIBLE_S
        while (done := self.local.result(a.spec)) is None:
            if time.monotonic() > wait:
                raise StoreError(
                    f"trial {a.spec.trial} ended on {report.node if report else 'a node'}, "
                    f"but its result is not in {self.run_dir}: the nodes do not share this file system; "
                    "set executor.options.artifacts to an fsspec URL"
                )
            with contextlib.suppress(OSError):
                os.listdir(trial_dir(self.run_dir, a.spec.trial))  # refreshes a network file system's cache
            time.sleep(CHECK_S)
        if report is not None and done != TrialFinished.model_validate_json(report.result):
            raise IntegrityError(
                f"trial {a.spec.trial}: result.json is not what its node reported; the run folder was changed"
            )
        self._check(a, done)
        return done

    def _check(self, a: DispatchedTrial, done: TrialFinished) -> None:
        """Every file the result vouches for is here, as it was on the node."""
        if self.artifacts is None:
            return
        named = {**done.files, **dict(zip(done.parts, done.parts_sha256, strict=True))}
        for path, sha in named.items():
            p = self.run_dir / path
            if not p.is_file() or sha256_file(p) != sha:
                raise IntegrityError(
                    f"trial {a.spec.trial}: {path} did not arrive as it was on the node; "
                    "`evotrainer resume` fetches it again"
                )
