"""Figures as runs of an MLflow experiment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from evotrainer.extras.tracking.figures import Point, Target, TrackerRun, flat
from evotrainer.records.frozen import Frozen


class MlflowOptions(Frozen):
    """`[tracking.options.mlflow]`"""

    uri: str = ""
    """Tracking server (http...), database (`sqlite:///FILE`) or folder; default: MLFLOW_TRACKING_URI, else
    `tracking/mlflow.db` in the run folder."""

    @property
    def place(self) -> str:
        """As given, or MLflow's own; empty: in the run folder."""
        return self.uri or os.environ.get("MLFLOW_TRACKING_URI") or ""


class Mlflow(Target):
    """MLflow: the project is the experiment; trials are runs of it, told by the tag `evotrainer.key`."""

    def __init__(self, folder: Path, project: str, o: MlflowOptions) -> None:
        own = folder.resolve() / "tracking"
        uri = o.place or f"sqlite:///{own / 'mlflow.db'}"
        if "://" not in uri:  # a folder, which MLflow still writes where it is asked to
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self.uri = str(self.client.tracking_uri)
        found = self.client.get_experiment_by_name(project)
        artifacts = None if o.place else str(own / "mlflow-artifacts")
        self.experiment = found.experiment_id if found else self.client.create_experiment(project, artifacts)
        self._runs: dict[str, str] = {}

    def _run(self, sheet: TrackerRun, create: bool) -> str:
        """Id of the tracker run; empty where there is none and none is to be made."""
        if sheet.key not in self._runs:
            rows = self.client.search_runs([self.experiment], f"tags.`evotrainer.key` = '{sheet.key}'", max_results=1)
            if rows:
                self._runs[sheet.key] = rows[0].info.run_id
            elif not create:
                return ""
            else:
                tags = {
                    "evotrainer.key": sheet.key,
                    "evotrainer.run": sheet.group,
                    "evotrainer.tags": ", ".join(sheet.tags),
                }
                made = self.client.create_run(self.experiment, int(sheet.start * 1000), tags=tags, run_name=sheet.name)
                self._runs[sheet.key] = made.info.run_id
        return self._runs[sheet.key]

    def write(self, sheet: TrackerRun) -> None:
        from mlflow.entities import Metric, Param, RunTag

        run = self._run(sheet, create=True)
        held = set(self.client.get_run(run).data.params)
        params = [Param(_mlflow_name(k), str(v)[:6000]) for k, v in flat(sheet.config) if _mlflow_name(k) not in held]
        metrics = [
            Metric(_mlflow_name(k), v, int(p.time * 1000), p.step) for p in sheet.points for k, v in p.values.items()
        ]
        last = sheet.points[-1] if sheet.points else Point(0, sheet.start, {})
        drawn = {k for p in sheet.points for k in p.values}
        metrics += [
            Metric(_mlflow_name(k), v, int(last.time * 1000), last.step)
            for k, v in sheet.summary.items()
            if k not in drawn
        ]
        tags = [RunTag(_mlflow_name(k), v[:5000]) for k, v in sheet.texts.items()]
        for at in range(0, max(len(metrics), len(params), len(tags)), 100):
            part = slice(at, at + 100)
            self.client.log_batch(run, metrics=metrics[part], params=params[part], tags=tags[part])
        if sheet.complete:
            self.client.set_terminated(run, "FAILED" if sheet.failed else "FINISHED", int(last.time * 1000))

    def known(self, sheet: TrackerRun) -> set[int]:
        run = self._run(sheet, create=False)
        if not run:
            return set()
        names = {_mlflow_name(k) for p in sheet.points for k in p.values}
        return {m.step for name in names for m in self.client.get_metric_history(run, name)}

    def where(self) -> str:
        return f"mlflow, experiment {self.experiment} at {self.uri}"


def _mlflow_name(name: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]
