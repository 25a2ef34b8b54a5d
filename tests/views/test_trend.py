"""`evotrainer health --trend`: a branch is the mean of its seeds, a trial itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from evotrainer import api
from evotrainer.cli.health import health
from evotrainer.records.findings import HealthReport, MetricValue


def report(subject: str, accuracy: float) -> HealthReport:
    metric = MetricValue(name="accuracy", layer="score", value=accuracy, n=8)
    return HealthReport(harness="h", subject=subject, rollouts=8, groups=2, metrics=(metric,), findings=())


def run() -> SimpleNamespace:
    events = [
        SimpleNamespace(
            kind="finished",
            body=SimpleNamespace(
                trial=f"b1-s{s}", health=[report(f"b1/{s}@{step} train", s / 10 + step / 100) for step in (2, 4)]
            ),
        )
        for s in (1, 2)
    ]
    read = SimpleNamespace(kind="diagnosed", body=SimpleNamespace(health=report("b1@4 search", 0.5)))
    return SimpleNamespace(folder=Path("run"), champion="b1", events=lambda: [*events, read])


@pytest.mark.parametrize(("name", "seeds", "first"), [("b1", 2, 0.17), ("b1-s2", 1, 0.22), ("b1-s1", 1, 0.12)])
def test_a_trial_has_a_trend_of_its_own(
    name: str, seeds: int, first: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "open_run", lambda folder: run())
    health(Path("run"), name, trend=True, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [r["step"] for r in rows] == [2, 4]
    assert all(r["seeds"] == seeds for r in rows)
    assert rows[0]["metrics"]["accuracy"] == pytest.approx(first)
