"""`views.search`: search trainings in status, lineage, show and report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.show import show
from evotrainer.cli.status import status_json
from evotrainer.projections.text import percent, value
from evotrainer.records.recipe import diff
from evotrainer.records.search import FactorEffect
from evotrainer.views.fold import load_view
from evotrainer.views.report import render
from evotrainer.views.search import belief_axis, believed, search_line, search_rounds
from evotrainer.views.status import render_status
from tests.paper import Paper
from tests.run.test_search import TASK as TASK
from tests.run.test_search import finish as finish
from tests.views.test_terminal import rendered

SEARCHED = ["run.search_only=true", "run.rounds=2", "run.probes=4", "evaluation.greedy=false"]


@pytest.fixture
def run(task: Path, tmp_path: Path, quick: Paper) -> api.Run:
    """A search of the statistical agent: two rounds of four trainings at most."""
    return quick.start(task, tmp_path / "run", SEARCHED)


def test_an_effect_is_told_by_whether_its_interval_holds_nothing() -> None:
    def kind(mean: float, sd: float) -> str:
        return believed(FactorEffect(factor="lr", value=1e-4, mean=mean, sd=sd, trainings=3)).kind

    assert [kind(0.05, 0.02), kind(0.03, 0.02), kind(-0.05, 0.02)] == ["promote", "inconclusive", "reject"]
    e = believed(FactorEffect(factor="lr", value=1e-4, mean=0.05, sd=0.02, trainings=3))
    assert e.what == "lr = 0.0001" and (e.low, e.high) == pytest.approx((0.0108, 0.0892))


def test_trainings_are_no_branches_and_are_paid_all_the_same(run: api.Run) -> None:
    view = load_view(run.folder, rollouts=False)
    state = run.state
    assert set(view.branches) == {"base", "b0"} and set(view.probes) == set(state.probes) and len(view.probes) >= 4
    assert view.cpu_by_purpose()["probe"] > 0
    assert sum(t.cpu_s for t in view.trials) == pytest.approx(view.cpu_s, rel=0.2)
    rounds = search_rounds(view)
    assert [len(r.trainings) for r in rounds] == [len(s.probes) for s in state.searched if s.probes]
    axis = belief_axis(rounds)
    for r, told in zip(rounds, (s for s in state.searched if s.probes), strict=True):
        assert [e.mean for e in r.effects] == [e.mean for e in told.effects]
        assert all(axis.low < e.low <= e.high < axis.high for e in r.effects) and axis.low < 0 < axis.high


def test_status_and_lineage_say_what_the_search_believes(run: api.Run) -> None:
    view = load_view(run.folder, rollouts=False)
    line = search_line(view)
    best = run.state.searched[-1].effects[0]
    assert line.startswith(f"{len(view.probes)} search trainings in ")
    assert "; best, " not in line or re.search(r"points \(\d+ trainings?\)", line)
    assert (
        f"best, estimated from all of them: {best.factor} = " in line
        and f"ended since {run.state.searched[-1].stop}" in line
    )
    assert "search trainings in" in rendered(render_status(run.folder))
    top = max(p.record().score or 0.0 for p in run.state.probes.values() if p.round == 1)
    assert f"search trainings of round 1, best {percent(top)} on search" in " ".join(
        rendered(render_status(run.folder)).split()
    )
    assert status_json(run)["search"][0]["effects"][0]["factor"] == run.state.searched[0].effects[0].factor


def test_show_shows_a_search_training(run: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    show(run.folder, "p2")
    said = capsys.readouterr().out
    assert "p2" in said and "p2-s1002" in said
    start = run.task.recipe
    for name, (_, new) in diff(start, run.state.probes["p2"].recipe).items():
        assert name in said and (isinstance(new, dict) or value(new) in said)


def test_the_report_draws_every_effect_with_its_interval(run: api.Run) -> None:
    page = render(load_view(run.folder))
    section = re.search(r'<section id="search">.*?</section>', page, re.S)
    assert section is not None and 'href="#search"' in page
    effects = [e for s in run.state.searched if s.probes for e in s.effects]
    assert section[0].count("<circle") == len(effects) > 0
    assert section[0].count("<tbody>") == 2 * len(search_rounds(load_view(run.folder, rollouts=False)))
    for p in run.state.probes.values():
        assert f'<th scope="row">{p.probe}</th>' in section[0] and percent(p.record().score) in section[0]


def test_a_run_without_search_has_no_such_section(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=0", "run.rounds=0", "evaluation.greedy=false"])
    view = load_view(run.folder)
    assert search_line(view) == "" and 'id="search"' not in render(view)
