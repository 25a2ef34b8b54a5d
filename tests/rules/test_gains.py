"""`rules.certificate`: which rollouts a certified gain is compared on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evotrainer import api
from evotrainer.harness.columns.features import FeatureView
from evotrainer.records.reading import load
from evotrainer.rules.certificate import Load, gain_of, with_gain_explanations
from tests.leaky_task import HONEST
from tests.leaky_task import TASK as TASK
from tests.paper import Paper, bodies


def stored(run: api.Run, asked: list[str]) -> Load:
    """Search rollouts of a trial; notes who was asked for."""

    def views(trial: str) -> FeatureView:
        asked.append(trial)
        return FeatureView(load([run.folder / "rollouts" / trial], split="search"))

    return views


def test_the_certified_trainings_are_compared_with_the_base_policy(task: Path, tmp_path: Path, acted: Paper) -> None:
    run = acted.start(task, tmp_path / "run", [HONEST])
    (certified,) = bodies(run, "certified")
    row = next(r for r in certified.rows if r.name == "champion")
    asked: list[str] = []
    found = gain_of(row, run.events(), stored(run, asked))
    assert found is not None and found == row.gained
    assert found.trials == tuple(f"b1-s{s}" for s in row.seeds) and found.before == ("base",)
    assert asked == [*found.trials, *found.before], "nothing else is read"
    assert with_gain_explanations(certified, run.events(), stored(run, asked)) == certified


def test_where_the_base_policy_was_searched_under_other_knobs_there_is_no_gain(
    task: Path, tmp_path: Path, acted: Paper
) -> None:
    run = acted.start(task, tmp_path / "run", [HONEST])
    (certified,) = bodies(run, "certified")
    row = next(r for r in certified.rows if r.name == "champion")
    other = [
        replace(e, body=e.body.model_copy(update={"env_knobs": {"key": "other"}}))
        if e.kind == "finished" and e.body.branch == "base"
        else e
        for e in run.events()
    ]
    assert gain_of(row, other, stored(run, [])) is None


def test_trainings_stand_by_seed_in_whatever_order_they_finished(task: Path, tmp_path: Path, acted: Paper) -> None:
    run = acted.start(task, tmp_path / "run", [HONEST])
    (certified,) = bodies(run, "certified")
    row = next(r for r in certified.rows if r.name == "start")
    assert row.gained is not None and len(row.seeds) > 1
    plain = row.model_copy(update={"gained": None})
    asked: list[str] = []
    backwards = sorted(run.events(), key=lambda e: -e.seq if e.kind == "finished" else 0)
    assert gain_of(plain, backwards, stored(run, asked)) == row.gained
