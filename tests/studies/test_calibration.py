"""`studies.calibration` and `evotrainer calibrate`: a run's own trials, those of further runs, no cert."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evotrainer.cli.calibrate import calibrate
from evotrainer.errors import ConfigError
from evotrainer.studies.calibration import calibrate_run
from tests.paper import Paper
from tests.small_gains_task import ONE
from tests.small_gains_task import TASK as TASK
from tests.small_gains_task import finish as finish


@pytest.mark.slow
def test_a_run_is_calibrated_from_its_own_trials_and_further_ones(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    before = [e.hash for e in run.events()]
    alone = calibrate_run(run.folder, runs=20)
    assert alone.real.groups["b1"] >= 4, "top-ups and the champion's fresh trainings are repeats as well"
    assert alone.costs.training == 1.0 and alone.shape.looks == 2

    more = quick.start(task, tmp_path / "more", [*ONE, "run.seeds=[11,12,13,14,15]", "run.rounds=0"])
    grown = calibrate_run(run.folder, [more.folder], runs=20)
    assert grown.real.groups["more/b0"] == 5 and [e.hash for e in run.events()] == before
    assert grown.real.comparisons >= 20 and grown.measured.tasks == 120

    calibrate(run.folder, runs=20, also=[more.folder])
    told = capsys.readouterr().out
    assert "real A/A comparisons" in told and "<- judge.worthwhile" in told and "targets: " in told
    assert not re.search(r"of \d+\.\d%", told), "the columns of the power table keep apart"
    moved = grown.model_copy(
        update={"false_promotions_moving": grown.false_promotions_moving.model_copy(update={"value": 0.085})}
    )
    assert any("8.5% where useless branches move single tasks, 3.5 points above 5%" in p for p in moved.problems)
    calibrate(run.folder, runs=20, also=[more.folder], as_json=True)
    assert json.loads(capsys.readouterr().out)["real"]["comparisons"] == grown.real.comparisons


def test_another_gate_on_the_same_noise(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.rounds=0"])
    found = calibrate_run(run.folder, runs=20, overrides=["run.rounds=2", "run.branches=1", "judge.max_seeds=3"])
    assert (found.shape.rounds, found.shape.branches, found.shape.config.max_seeds) == (2, 1, 3)
    for wrong, why in (("recipe.lr=1", "does not change the gate"), ("b9", "is no override, and branches share one")):
        with pytest.raises(ConfigError, match=f"{wrong} {why}.*; give judge.NAME=VALUE, or one of run.seeds"):
            calibrate_run(run.folder, runs=20, overrides=[wrong])


def test_a_run_that_shares_its_gate_tasks_is_calibrated_at_its_own_alpha(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quick.start(task, tmp_path / "run", ["run.rounds=0"])
    monkeypatch.setattr("evotrainer.studies.calibration.share", lambda state: 0.25)
    found = calibrate_run(run.folder, runs=20, overrides=["judge.alpha=0.04"])
    assert found.shape.config.alpha == pytest.approx(0.01)


def test_a_run_without_noise_has_nothing_to_calibrate(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.evaluate_only=true"])
    with pytest.raises(ConfigError, match="its noise is not measured yet"):
        calibrate_run(run.folder)
