"""Figures as runs of a Trackio project."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from evotrainer.extras.tracking.figures import Target, TrackerRun, flat
from evotrainer.records.frozen import Frozen


class TrackioOptions(Frozen):
    """`[tracking.options.trackio]`"""

    dir: str = ""
    """Folder of its databases; default: Trackio's own (TRACKIO_DIR, else in the Hugging Face cache)."""
    space_id: str = ""
    """A Hugging Face Space to write to as well."""


class Trackio(Target):
    """Trackio: the project, one run per trial, grouped by run."""

    def __init__(self, folder: Path, project: str, o: TrackioOptions) -> None:
        if o.dir:
            os.environ["TRACKIO_DIR"] = str(Path(o.dir).expanduser())
        self.project, self.options = project, o

    def write(self, sheet: TrackerRun) -> None:
        import trackio

        texts = {f"said/{k}": v for k, v in sheet.texts.items()}
        with redirect_stdout(StringIO()):  # it tells where its dashboard is, for every run
            run = trackio.init(
                project=self.project,
                name=_trackio_name(sheet),
                group=sheet.group,
                space_id=self.options.space_id or None,
                config=dict(flat({**sheet.config, "evotrainer_key": sheet.key, **texts})),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            try:
                for a in sheet.alerts:
                    run.alert(a.title, a.text, trackio.AlertLevel.ERROR, a.step)
                last = sheet.points[-1].step if sheet.points else 0
                drawn = {k for p in sheet.points for k in p.values}
                rest = {k: v for k, v in sheet.summary.items() if k not in drawn} if sheet.complete else {}
                rows = [(dict(p.values), p.step) for p in sheet.points] or [({}, 0)]
                rows[-1] = ({**rows[-1][0], **rest}, last)
                for values, step in rows:
                    if values:
                        trackio.log(values, step=step)
            finally:
                trackio.finish()

    def known(self, sheet: TrackerRun) -> set[int]:
        from trackio.sqlite_storage import SQLiteStorage

        rows = SQLiteStorage.get_logs(self.project, _trackio_name(sheet))
        return {int(r["step"]) for r in rows if r.get("step") is not None}

    def where(self) -> str:
        return f"trackio show --project {self.project}"


def _trackio_name(sheet: TrackerRun) -> str:
    """Runs are told by name there: the key joins it."""
    return f"{sheet.name} {sheet.key[:6]}"
