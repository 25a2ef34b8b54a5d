"""Export to trackers, read back through the trackers' own clients: whole, once, and never in the way of a run."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.whole_run import SPECS, STEPS
from tests.whole_run import story as told

from evotrainer import api
from evotrainer.cli.track import track
from evotrainer.config.load import load_task
from evotrainer.config.task import TrackingConfig
from evotrainer.errors import ConfigError, MissingDependencyError, StoreError
from evotrainer.extras.tracking import check_targets
from evotrainer.extras.tracking.export import Exporter, about_run, read_events
from evotrainer.extras.tracking.figures import TrackerRun, story, trial_sheets
from evotrainer.extras.tracking.to_wandb import Wandb, WandbOptions
from evotrainer.records.chain import Event
from evotrainer.records.events import Diagnosed
from evotrainer.records.findings import Finding, HealthReport
from evotrainer.records.ledger import Ledger
from evotrainer.run.tracking import following

TASK = """[task]
name = "code"
[environment]
name = "code"
[recipe.rewards]
visible = 1.0
"""


def write_run(folder: Path, until: str | None = None) -> Path:
    """A run's ledger and task file; `until`: id of the last event. Goes on where a ledger is there."""
    folder.mkdir(exist_ok=True)
    (folder / "task.toml").write_text(TASK)
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        for kind, id, body in told():
            ledger.append(kind, id, body)
            if id == until:
                break
    return folder


def export(folder: Path, name: str, **options: Any) -> int:
    exporter = Exporter(folder, name, "p", options)
    try:
        return exporter.export(read_events(folder), about_run(folder))
    finally:
        exporter.close()


def finished_trials(events: Sequence[Event]) -> int:
    return sum(e.kind == "finished" for e in events)


def tensorboard_points(logs: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Run -> tag -> (step, value), as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = {}
    for folder in sorted({f.parent for f in logs.rglob("events.out.*")}):
        found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        tags = found.Tags()["scalars"]
        out[str(folder.relative_to(logs))] = {t: [(s.step, s.value) for s in found.Scalars(t)] for t in tags}
    return out


def test_every_trial_has_its_curve_and_evaluations_and_the_run_its_verdicts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    events = read_events(folder)
    sheets = {s.name: s for _, s in trial_sheets(events, {})}
    assert len(sheets) == finished_trials(events)
    b1 = sheets["quickstart/b1-s0"]
    assert [p.step for p in b1.points] == [*range(STEPS + 1)]  # step 0 is the evaluation before training
    assert b1.points[-1].values["eval/search/score"] == pytest.approx(0.758)
    assert "train/reward" in b1.points[-1].values
    assert b1.config["recipe"]["rewards"] == {"hidden": 1.0}
    assert sheets["quickstart/b1-s0"].key != sheets["quickstart/b1-s1"].key
    assert [s.failed for s in sheets.values()].count(True) == sum(2 for s in SPECS if s.crash)
    whole = story(events, {})
    assert whole is not None and whole.complete
    values = {k: v for p in whole.points for k, v in p.values.items()}
    assert values["effect/b1/mean"] == pytest.approx(0.121)
    assert values["promoted/b1"] == 1.0
    assert values["cert/champion/score"] == pytest.approx(0.797)
    assert values["champion/search"] == pytest.approx(next(s.hidden for s in SPECS if s.name == "b5"), abs=0.002)
    assert whole.texts["verdict/b1"].startswith("promote: ")
    assert events[-1].hash in whole.texts["ledger"]


def test_tensorboard_shows_every_point_once_also_after_a_resume_and_a_kill(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", until="b1-s0/finished")
    logs = tmp_path / "logs"
    first = export(folder, "tensorboard", dir=str(logs))
    assert first == 1 + finished_trials(read_events(folder))
    assert export(folder, "tensorboard", dir=str(logs)) == 0
    write_run(folder)  # the run goes on
    (note,) = (folder / "tracking").glob("tensorboard-*.json")
    body = json.loads(note.read_text())
    lost = body["trials"].popitem()  # written, but killed before it was noted
    note.write_text(json.dumps(body | {"begun": lost[0]}))
    export(folder, "tensorboard", dir=str(logs))
    shown = tensorboard_points(logs)
    assert len(shown) == 1 + finished_trials(read_events(folder))
    curve = shown["quickstart/b1-s0"]["train/reward"]
    assert [s for s, _ in curve] == [*range(1, STEPS + 1)]
    whole = story(read_events(folder), {})
    assert whole is not None
    for tag, points in shown["quickstart/evolution"].items():
        wanted = [(p.step, p.values[tag]) for p in whole.points if tag in p.values]
        assert points == [(s, pytest.approx(v)) for s, v in wanted], tag


def test_mlflow_holds_runs_parameters_metrics_and_verdicts(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    folder = write_run(tmp_path / "run", until="b1-s0/finished")
    store = str(tmp_path / "store")
    export(folder, "mlflow", uri=store)
    (note,) = (folder / "tracking").glob("mlflow-*.json")
    body = json.loads(note.read_text())
    lost = next(reversed(body["trials"]))
    del body["trials"][lost]
    note.write_text(json.dumps(body | {"begun": lost}))  # killed in the middle
    assert export(folder, "mlflow", uri=store) == 1
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("p")
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 1 + finished_trials(read_events(folder))
    b1 = runs["quickstart/b1-s0"]
    assert b1.data.params["recipe.rewards.hidden"] == "1.0"
    assert b1.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(b1.info.run_id, "train/reward")] == [*range(1, STEPS + 1)]
    assert runs["quickstart/evolution"].info.status == "RUNNING"
    assert runs["quickstart/evolution"].data.metrics["noise/floor"] == pytest.approx(0.026)


def test_trackio_holds_the_same_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    import trackio.sqlite_storage as storage
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    for module in (utils, storage):  # the folder is settled on import, which another test may have done
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "store")
    folder = write_run(tmp_path / "run", until="b0-s0/finished")
    export(folder, "trackio")
    write_run(folder, until="b0-s1/finished")
    export(folder, "trackio")
    names = {n.split(" ")[0]: n for n in SQLiteStorage.get_runs("p")}
    assert set(names) == {"quickstart/base", "quickstart/b0-s0", "quickstart/b0-s1", "quickstart/evolution"}
    rows = SQLiteStorage.get_logs("p", names["quickstart/b0-s1"])
    steps = [r["step"] for r in rows if "train/reward" in r]
    assert steps == [*range(1, STEPS + 1)]
    spent = [
        r["budget/cpu_s"] for r in SQLiteStorage.get_logs("p", names["quickstart/evolution"]) if "budget/cpu_s" in r
    ]
    assert len(spent) == 3 and spent == sorted(spent)


def critical_run(folder: Path) -> Path:
    """The run as far as its starting recipe, whose health is then read twice with the same critical finding."""
    write_run(folder, until="b0-s1/finished")
    found = Finding(detector="exit_before_answer", kind="tampering", severity="critical", claim="31% end the tests.")
    quiet = Finding(detector="short", kind="length", severity="warn", claim="Answers are short.")
    with Ledger.open(folder / "ledger.db") as ledger:
        for n in (1, 2):
            at = f"b0 step {30 * n} search"
            health = HealthReport(harness="h0", subject=at, rollouts=8, groups=2, metrics=(), findings=(found, quiet))
            ledger.append("diagnosed", f"b0/reading/{n}", Diagnosed(round=n, health=health))
    return folder


def test_a_critical_finding_is_one_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[TrackerRun] = []
    fake = SimpleNamespace(write=sent.append, known=lambda sheet: set(), close=lambda: None)
    monkeypatch.setattr("evotrainer.extras.tracking.export.open_target", lambda *a: fake)
    folder = critical_run(tmp_path / "run")
    for _ in range(2):
        export(folder, "tensorboard")
    alerts = [a for s in sent for a in s.alerts]
    assert len(alerts) == len({a.title for a in alerts})
    alert = next(a for a in alerts if a.title.startswith("b0"))
    first = next(e.seq for e in read_events(folder) if e.id == "b0/reading/1")
    assert (alert.title, alert.step) == ("b0: tampering", first) and "31% end the tests. (detector" in alert.text
    assert sent[-1].texts["finding/b0/exit_before_answer"] == alert.text, "also where a tracker has no alerts"
    assert any(p.step == first and p.values["findings/critical"] == 2 for p in sent[-1].points)


def test_wandb_is_told_of_alerts_as_errors(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    told: list[tuple[Any, ...]] = []
    run = SimpleNamespace(
        alert=lambda *a, **k: told.append((*a, k["level"])),
        log=lambda *a, **k: None,
        summary={},
        finish=lambda **k: None,
    )
    whole = story(read_events(critical_run(tmp_path / "run")), {})
    assert whole is not None
    target = Wandb(tmp_path, "p", WandbOptions())
    target._open[whole.key] = run
    target.write(whole)
    assert told == [(a.title, a.text, "ERROR") for a in whole.alerts] and len(told) == 2


def test_trackio_shows_a_critical_finding_as_an_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    import trackio.sqlite_storage as storage
    from trackio import utils

    for module in (utils, storage):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "store")
    folder = critical_run(tmp_path / "run")
    for _ in range(2):
        export(folder, "trackio")
    (alert,) = (a for a in storage.SQLiteStorage.get_alerts("p") if a["title"].startswith("b0"))
    assert (alert["title"], alert["level"]) == ("b0: tampering", "error") and "31% end" in alert["text"]


def test_wandb_writes_offline_runs_that_can_be_synced(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    folder = write_run(tmp_path / "run", until="base/finished")
    assert export(folder, "wandb", mode="offline") == 2
    assert export(folder, "wandb", mode="offline") == 0
    sheet = trial_sheets(read_events(folder), {})[0][1]
    (run,) = (folder / "tracking" / "wandb").glob(f"offline-run-*-{sheet.key}/run-{sheet.key}.wandb")
    stored = run.read_bytes()
    assert b"eval/search/score" in stored and b"quickstart/base" in stored


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)

    def finished(self, trial: Any) -> None:
        self.told.append(trial)


def test_a_run_is_followed_live_and_a_failing_tracker_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", until="base/finished")
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    options = {"tensorboard": {"dir": str(tmp_path / "logs")}, "mlflow": {"uri": str(blocked / "x")}}
    tracking = TrackingConfig(to=("tensorboard", "mlflow"), project="p", options=options)
    view = Notes()
    with following(folder, tracking, view) as watched:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "logs").rglob("events*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list((tmp_path / "logs" / "quickstart" / "base").iterdir())  # while the run goes on
        write_run(folder, until="b0-s0/finished")
        watched.finished("b0-s0")
    assert "b0-s0" in view.told
    warnings = [t for t in view.told if t.startswith("warning: tracking to mlflow failed")]
    assert len(warnings) == 1 and f"evotrainer track {folder} --to mlflow exports it later" in warnings[0]
    assert any(t.startswith("figures exported: tensorboard --logdir") for t in view.told)
    assert (tmp_path / "logs" / "quickstart" / "b0-s0").is_dir()
    assert export(folder, "tensorboard", dir=str(tmp_path / "logs")) == 0


def test_nothing_is_started_where_no_tracker_is_named(tmp_path: Path) -> None:
    view = Notes()
    with following(tmp_path, TrackingConfig(), view) as watched:
        assert watched is view


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("tensorboard",), {"tensorboard": {"folder": "x"}}, r"tracking.options.tensorboard: folder: unknown name"),
        ((), {"tensorbord": {}}, r"tracking.options.tensorbord: no such tracker"),
        (("wandb",), {"wandb": {"mode": "loud"}}, r"tracking.options.wandb: mode"),
        (("wandb",), {"wandb": 3}, r"tracking.options.wandb is 3, a table"),
    ],
)
def test_bad_options_are_refused_before_anything_is_spent(names: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_targets(names, options)


def test_a_missing_package_is_told_before_anything_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import evotrainer.extras.tracking.targets as targets

    found = targets.find_spec
    monkeypatch.setattr(targets, "find_spec", lambda name: None if name == "wandb" else found(name))
    (tmp_path / "task.toml").write_text(TASK)
    with pytest.raises(MissingDependencyError, match=r"wandb, which is not installed; pip install -e '.*\[wandb\]'"):
        api.start(load_task(tmp_path / "task.toml", ['tracking.to=["wandb"]']), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_exports_to_one_place_do_not_mix(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", until="base/finished")
    with contextlib.closing(Exporter(folder, "tensorboard", "p", {})):
        with pytest.raises(StoreError, match="is being written by process"):
            Exporter(folder, "tensorboard", "p", {})


def test_the_command_exports_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", until="base/finished")
    with pytest.raises(ConfigError, match="no tracker is named"):
        track(folder)
    with pytest.raises(ConfigError, match="is not of the form"):
        track(folder, to=["tensorboard", "mlflow"], option=["dir=x"])
    for again, said in ((False, "2 tracker runs written"), (False, "nothing new"), (True, "2 tracker runs written")):
        track(folder, to=["tensorboard"], option=[f"dir={tmp_path / 'logs'}"], again=again)
        assert said in capsys.readouterr().out
    assert len(list((tmp_path / "logs").rglob("events*"))) == 2
    (note,) = (folder / "tracking").glob("*.json")
    note.write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        track(folder, to=["tensorboard"], option=[f"dir={tmp_path / 'logs'}"])


def test_a_training_shows_while_it_runs_and_a_repeated_step_counts_once(tmp_path: Path) -> None:
    from evotrainer.extras.tracking.figures import Point, beat_point
    from evotrainer.extras.tracking.follower import listen

    folder = write_run(tmp_path / "run", until="b1-s0/finished")  # b1-s1 is at work
    events = read_events(folder)
    beats: dict[str, list[Point]] = {}

    def beat(trial: str, step: int) -> None:
        place = folder / "trials" / trial
        place.mkdir(parents=True, exist_ok=True)
        body = {"step": step, "steps": 30, "score": step / 30, "cpu_s": 1.0, "time": 1e9 + step}
        (place / "heartbeat").write_text(json.dumps(body))
        listen(folder, events, beats)

    logs = tmp_path / "logs"
    with contextlib.closing(Exporter(folder, "tensorboard", "p", {"dir": str(logs)})) as exporter:
        for step in (0, 1, 1, 2):
            beat("b1-s1", step)
        beat("b1-s0", 30)  # has ended: the ledger has its curve
        assert {t: [p.step for p in ps] for t, ps in beats.items()} == {"b1-s1": [1, 2]}
        exporter.live(events, beats)
    beats.clear()
    with contextlib.closing(Exporter(folder, "tensorboard", "p", {"dir": str(logs)})) as exporter:
        for step in (2, 3):  # resumed from the checkpoint of step 1
            beat("b1-s1", step)
        exporter.live(events, beats)
        write_run(folder)
        exporter.live(read_events(folder), beats)
        exporter.live(read_events(folder), beats)
    shown = tensorboard_points(logs)
    assert list(shown) == ["quickstart/b1-s1/live"]
    assert [s for s, _ in shown["quickstart/b1-s1/live"]["live/score"]] == [1, 2, 3]
    assert beat_point({"step": "x"}) is None
