"""`views.trend`, by `evotrainer health --trend`: a branch is the mean of its seeds, a trial itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer.cli.health import health
from evotrainer.records.events import Diagnosed
from evotrainer.records.findings import HealthReport, MetricValue
from evotrainer.records.ledger import Ledger
from tests.small_records import finished


def report(subject: str, accuracy: float) -> HealthReport:
    metric = MetricValue(name="accuracy", layer="score", value=accuracy, n=8)
    return HealthReport(harness="h", subject=subject, rollouts=8, groups=2, metrics=(metric,), findings=())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two seeds of b1, read at two steps of their training, and a reading of the branch itself."""
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        for s in (1, 2):
            readings = tuple(report(f"b1/{s}@{step} train", s / 10 + step / 100) for step in (2, 4))
            ledger.append("finished", f"b1-s{s}/finished", finished(f"b1-s{s}", health=readings))
        ledger.append("diagnosed", "b1/read", Diagnosed(round=1, health=report("b1@4 search", 0.5)))
    return tmp_path


@pytest.mark.parametrize(("name", "seeds", "first"), [("b1", 2, 0.17), ("b1-s2", 1, 0.22), ("b1-s1", 1, 0.12)])
def test_a_trial_has_a_trend_of_its_own(
    run: Path, name: str, seeds: int, first: float, capsys: pytest.CaptureFixture[str]
) -> None:
    health(run, name, trend=True, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [r["step"] for r in rows] == [2, 4]
    assert [r["seeds"] for r in rows] == [seeds, seeds]
    assert rows[0]["metrics"]["accuracy"] == pytest.approx(first)
