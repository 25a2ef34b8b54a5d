"""Where figures are exported to: one small class per tracker, each over the tracker's own Python client.

A target writes whole sheets. `write` may be called with further points of a sheet it wrote before; `known` says up to
which step it holds points already where the exporter was stopped between writing and noting it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.extras.tracking.figures import Point, Sheet, flat
from evotrainer.records.frozen import Frozen, explain


class Target(Protocol):
    """A tracker."""

    def write(self, sheet: Sheet) -> None:
        """Add the sheet's points, configuration and texts; raises whatever the client raises."""
        ...

    def known(self, sheet: Sheet) -> set[int]:
        """Steps of this tracker run that it holds."""
        ...

    def where(self) -> str:
        """Where to look, for a reader."""
        ...

    def close(self) -> None: ...


class TensorBoardOptions(Frozen):
    """`[tracking.options.tensorboard]`"""

    dir: str = ""
    """Log folder; default: `tracking/tensorboard` in the run folder."""


class TensorBoard:
    """Event files, one per write, named by the steps they hold: the same write again replaces the same file."""

    def __init__(self, folder: Path, project: str, o: TensorBoardOptions) -> None:
        self.dir = Path(o.dir).expanduser() if o.dir else folder / "tracking" / "tensorboard"

    def write(self, sheet: Sheet) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        place = self.dir / sheet.name
        place.mkdir(parents=True, exist_ok=True)
        steps = [p.step for p in sheet.points] or [0]
        name = f"events.out.tfevents.{int(sheet.start):010d}.{steps[0]:08d}-{steps[-1]:08d}.evotrainer"
        part = place / f".{name}.part"
        with open(part, "wb") as file:
            out = RecordWriter(file)
            out.write(Event(wall_time=sheet.start, file_version="brain.Event:2").SerializeToString())
            for p in sheet.points:
                scalars = [Summary.Value(tag=k, simple_value=v) for k, v in p.values.items()]
                out.write(Event(wall_time=p.time, step=p.step, summary=Summary(value=scalars)).SerializeToString())
            end = sheet.points[-1] if sheet.points else Point(0, sheet.start, {})
            config = "\n".join(f"    {k} = {v}" for k, v in flat(sheet.config))
            for tag, text in {**sheet.texts, "config": config}.items():
                out.write(Event(wall_time=end.time, step=end.step, summary=_text(tag, text)).SerializeToString())
            out.flush()
        os.replace(part, place / name)

    def known(self, sheet: Sheet) -> set[int]:
        """None: what is written again replaces itself."""
        return set()

    def where(self) -> str:
        return f"tensorboard --logdir {self.dir}"

    def close(self) -> None: ...


def _text(tag: str, text: str) -> Any:
    """A text that TensorBoard's text tab shows."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

    data = SummaryMetadata.PluginData(plugin_name="text", content=TextPluginData(version=0).SerializeToString())
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=data), tensor=tensor)])


class MlflowOptions(Frozen):
    """`[tracking.options.mlflow]`"""

    uri: str = ""
    """Tracking server (http...), database (`sqlite:///FILE`) or folder; default: MLFLOW_TRACKING_URI, else
    `tracking/mlflow.db` in the run folder."""

    @property
    def place(self) -> str:
        """As given, or MLflow's own; empty: in the run folder."""
        return self.uri or os.environ.get("MLFLOW_TRACKING_URI") or ""


class Mlflow:
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

    def _run(self, sheet: Sheet, create: bool) -> str:
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

    def write(self, sheet: Sheet) -> None:
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

    def known(self, sheet: Sheet) -> set[int]:
        run = self._run(sheet, create=False)
        if not run:
            return set()
        names = {_mlflow_name(k) for p in sheet.points for k in p.values}
        return {m.step for name in names for m in self.client.get_metric_history(run, name)}

    def where(self) -> str:
        return f"mlflow, experiment {self.experiment} at {self.uri}"

    def close(self) -> None: ...


def _mlflow_name(name: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


class WandbOptions(Frozen):
    """`[tracking.options.wandb]`"""

    mode: Literal["online", "offline", "shared"] | None = None
    """Default: W&B's own (WANDB_MODE, else online)."""
    entity: str = ""
    """User or team; default: W&B's own."""
    dir: str = ""
    """Where its files go; default: `tracking` in the run folder, below which W&B makes its folder `wandb`."""


class Wandb:
    """Weights & Biases: the project, one run per trial, grouped by run; its id follows from the ledger."""

    def __init__(self, folder: Path, project: str, o: WandbOptions) -> None:
        self.project, self.options = project, o
        self.dir = Path(o.dir).expanduser() if o.dir else folder / "tracking"
        self.dir.mkdir(parents=True, exist_ok=True)
        self.url = ""
        self._open: dict[str, Any] = {}
        """Runs to which more will be added."""

    def write(self, sheet: Sheet) -> None:
        run = self._open.get(sheet.key) or self._begin(sheet)
        for p in sheet.points:
            run.log(dict(p.values), step=p.step)
        run.summary.update({**sheet.summary, **sheet.texts})
        if sheet.complete:
            self._open.pop(sheet.key, None)
            run.finish(exit_code=int(sheet.failed))
        else:
            self._open[sheet.key] = run

    def _begin(self, sheet: Sheet) -> Any:
        import wandb

        o = self.options
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            init_timeout=120,
            x_service_wait=120,
            x_disable_stats=True,
            x_disable_meta=True,
        )
        run = wandb.init(
            project=self.project,
            entity=o.entity or None,
            mode=o.mode,
            dir=str(self.dir),
            id=sheet.key,
            name=sheet.name,
            group=sheet.group,
            tags=[t[:64] for t in sheet.tags],
            config=dict(sheet.config),
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        self.url = self.url if run.offline else run.url or self.url
        return run

    def known(self, sheet: Sheet) -> set[int]:
        """None: W&B itself drops a step that is not behind the last one of its run."""
        return set()

    def where(self) -> str:
        return self.url or f"wandb, project {self.project}; offline runs below {self.dir / 'wandb'}: wandb sync FOLDER"

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].finish()


class TrackioOptions(Frozen):
    """`[tracking.options.trackio]`"""

    dir: str = ""
    """Folder of its databases; default: Trackio's own (TRACKIO_DIR, else in the Hugging Face cache)."""
    space_id: str = ""
    """A Hugging Face Space to write to as well."""


class Trackio:
    """Trackio: the project, one run per trial, grouped by run."""

    def __init__(self, folder: Path, project: str, o: TrackioOptions) -> None:
        if o.dir:
            os.environ["TRACKIO_DIR"] = str(Path(o.dir).expanduser())
        self.project, self.options = project, o

    def write(self, sheet: Sheet) -> None:
        import trackio

        texts = {f"said/{k}": v for k, v in sheet.texts.items()}
        with redirect_stdout(StringIO()):  # it tells where its dashboard is, for every run
            trackio.init(
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

    def known(self, sheet: Sheet) -> set[int]:
        from trackio.sqlite_storage import SQLiteStorage

        rows = SQLiteStorage.get_logs(self.project, _trackio_name(sheet))
        return {int(r["step"]) for r in rows if r.get("step") is not None}

    def where(self) -> str:
        return f"trackio show --project {self.project}"

    def close(self) -> None: ...


def _trackio_name(sheet: Sheet) -> str:
    """Runs are told by name there: the key joins it."""
    return f"{sheet.name} {sheet.key[:6]}"


TARGETS: Mapping[str, tuple[type, type[Frozen]]] = {
    "tensorboard": (TensorBoard, TensorBoardOptions),
    "mlflow": (Mlflow, MlflowOptions),
    "wandb": (Wandb, WandbOptions),
    "trackio": (Trackio, TrackioOptions),
}
"""Name -> class, and its options. Each is also the name of its client's package and of our extra."""


def packages(name: str, options: Frozen) -> tuple[str, ...]:
    """Packages that a target imports."""
    database = isinstance(options, MlflowOptions) and (not options.place or options.place.startswith("sqlite:"))
    return (name, "sqlalchemy", "alembic") if database else (name,)


def parse_target(name: str, options: Mapping[str, Any]) -> Frozen:
    """The target's options as a model; ConfigError names what is wrong. Imports no client."""
    if name not in TARGETS:
        raise ConfigError(f"unknown tracker {name!r}; one of: {', '.join(TARGETS)}")
    model = TARGETS[name][1]
    try:
        return model.model_validate(dict(options))
    except ValidationError as e:
        raise ConfigError(f"tracking.options.{name}: {explain(e, model)}") from None


def check_targets(names: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Before anything is spent: every target's package is there and its options are understood. Imports no client.

    Raises ConfigError, MissingDependencyError.
    """
    for name in options:
        if name not in TARGETS:
            raise ConfigError(f"tracking.options.{name}: no such tracker; one of: {', '.join(TARGETS)}")
    for name in names:
        of_name = options.get(name, {})
        if not isinstance(of_name, Mapping):
            raise ConfigError(f"tracking.options.{name} is {of_name!r}, a table of options expected")
        for package in packages(name, parse_target(name, of_name)):
            if find_spec(package) is None:
                raise MissingDependencyError(
                    f"tracking to {name} needs {package}, which is not installed; pip install 'evotrainer[{name}]', "
                    "or take it out of tracking.to"
                )


def open_target(name: str, folder: Path, project: str, options: Mapping[str, Any]) -> Target:
    """The target, with its client imported; raises whatever the client raises."""
    made: Target = TARGETS[name][0](folder, project, parse_target(name, options))
    return made
