"""Exports the part of a run that was not exported yet. Idempotent, also after a crash in between."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError
from evotrainer.extras.tracking.figures import Point, Target, TrackerRun, live_sheet, running, story, trial_sheets
from evotrainer.extras.tracking.targets import open_target, parse_target
from evotrainer.records.chain import Event
from evotrainer.records.durable import WriterLock, os_errors
from evotrainer.records.ledger import Ledger
from evotrainer.records.regular_file import read_text


@dataclass(slots=True)
class ExportState:
    """What a target already holds: `tracking/<target>-<where>.json` in the run folder."""

    path: Path
    trials: dict[str, int] = field(default_factory=dict)
    """Trial's key -> sequence number of its event."""
    after: int = 0
    """The last event that the evolution's figures were exported of."""
    closed: bool = False
    live: dict[str, int] = field(default_factory=dict)
    """Trial -> last step of its heartbeats; -1 once it has ended."""
    begun: str = ""
    """Key of the sheet that is being written: what of it arrived is not known until it is noted."""

    @classmethod
    def read(cls, path: Path) -> ExportState:
        """An empty one where there is none; StoreError for a damaged one."""
        if not path.exists():
            return cls(path)
        try:
            found = json.loads(read_text(path))
            live = dict(found.get("live", {}))
            return cls(
                path, dict(found["trials"]), int(found["after"]), bool(found["closed"]), live, str(found["begun"])
            )
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise StoreError(
                f"{path} cannot be read ({e}); delete it, and what the tracker holds of this run, to export again"
            ) from None

    def write(self) -> None:
        body: dict[str, Any] = {"trials": self.trials, "after": self.after, "closed": self.closed, "begun": self.begun}
        body["live"] = self.live
        part = self.path.with_name(self.path.name + ".part")
        with os_errors(f"cannot write {self.path}"):
            part.write_text(json.dumps(body, indent=1) + "\n", "utf-8")
            os.replace(part, self.path)


class Exporter:
    """Exports a run folder's figures to one target. Close it; StoreError where another process exports there."""

    def __init__(
        self, folder: Path, name: str, project: str, options: Mapping[str, Any], *, again: bool = False
    ) -> None:
        """`again`: forget what was exported before."""
        self.folder, self.name = folder, name
        settled = parse_target(name, options).model_dump(mode="json")
        digest = hashlib.sha256(json.dumps([project, settled], sort_keys=True).encode()).hexdigest()[:8]
        place = folder / "tracking"
        with os_errors(f"cannot make {place}"):
            place.mkdir(exist_ok=True)
        self._lock = WriterLock(place / f"{name}-{digest}.lock", f"the export of {folder} to {name}")
        try:
            path = place / f"{name}-{digest}.json"
            if again:
                path.unlink(missing_ok=True)
            self.note = ExportState.read(path)
            self.target: Target = open_target(name, folder, project, options)
        except BaseException:
            self._lock.release()
            raise

    def export(self, events: Sequence[Event], about: Mapping[str, Any]) -> int:
        """Everything that is not there yet; returns how many sheets were written. Raises what the client raises."""
        written = 0
        for seq, sheet in trial_sheets(events, about):
            if sheet.key not in self.note.trials:
                self._write(sheet)
                self.note.trials[sheet.key] = seq
                self._settle()
                written += 1
        whole = story(events, about, self.note.after)
        if whole is not None and not self.note.closed and (whole.points or whole.complete):
            self._write(whole)
            self.note.after, self.note.closed = events[-1].seq, whole.complete
            self._settle()
            written += 1
        return written

    def live(self, events: Sequence[Event], beats: Mapping[str, Sequence[Point]]) -> None:
        """Heartbeats of trials that run (or ran until now) that were not exported yet;
        a step counts once, also after a resume."""
        at_work = running(events)
        for trial, points in beats.items():
            last, ended = self.note.live.get(trial, 0), trial not in at_work
            new = [p for p in points if p.step > last >= 0]
            if new or (ended and last > 0):
                self._write(live_sheet(events, trial, new, ended))
                self.note.live[trial] = -1 if ended else new[-1].step
                self._settle()

    def _write(self, sheet: TrackerRun) -> None:
        if self.note.begun == sheet.key:  # stopped in the middle: only what did not arrive
            held = self.target.known(sheet)
            sheet = replace(sheet, points=[p for p in sheet.points if p.step not in held])
        self.note.begun = sheet.key
        self.note.write()
        self.target.write(sheet)

    def _settle(self) -> None:
        self.note.begun = ""
        self.note.write()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.target.close()
        self._lock.release()


def about_run(folder: Path) -> dict[str, Any]:
    """What joins every configuration: task file, report."""
    from evotrainer.config.load import load_run_task

    task = load_run_task(folder)
    return {
        "task_file": task.model_dump(mode="json", exclude={"recipe", "tracking", "notify"}, exclude_none=True),
        "task_hash": task.hash,
        "report": str((folder / "report.html").resolve()),
    }


def read_events(folder: Path) -> list[Event]:
    """The ledger's events so far."""
    with contextlib.closing(Ledger.open(folder / "ledger.db", readonly=True)) as ledger:
        return ledger.events()
