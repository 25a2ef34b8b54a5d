"""`run.extra_seeds`: undecided branches get seeds by themselves, and every look is an event."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.status import status
from evotrainer.cli.why import why
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.trials import LabelledTrial, labelled
from evotrainer.records.events import TrialFinished
from evotrainer.views.fold import load_view
from evotrainer.views.report import render
from tests.leaky_task import some_read_history
from tests.paper import Paper, bodies, ids, stopped_before_each
from tests.small_gains_task import ONE
from tests.small_gains_task import TASK as TASK
from tests.small_gains_task import finish as finish


def after(run: api.Run, n: int, branch: str = "b1") -> LabelledTrial:
    """A branch with its label, after the first n events."""
    return next(t for t in labelled(run.events()[:n]) if t.trial == branch)


def test_an_undecided_branch_gets_the_seeds_it_asks_for_and_is_judged_again(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    looks = [v for v in run.verdicts if v.branch == "b1"]
    assert [v.kind for v in looks] == ["inconclusive", "promote"]
    assert looks[1].effect is not None and looks[0].effect is not None
    assert looks[1].effect.seeds > looks[0].effect.seeds == 3
    spent = [v for v in run.verdicts if v.look]
    assert len({v.look for v in spent}) == len(spent), "every look has a number of its own"
    assert sum(v.alpha or 0 for v in spent if v.kind != "promote") < 0.05
    (top,) = [t for t in bodies(run, "topup") if t.branch == "b1"]
    assert top.seeds and top.control_seeds == top.seeds
    assert 5 not in top.seeds and min(top.seeds) == 4, "certification keeps its seeds"
    trained = {s.trial for s in quick.ran if s.train}
    assert {f"b{i}-s{s}" for i in (0, 1) for s in top.seeds} <= trained
    assert "b1/judged" in ids(run) and "b1/judged/2" in ids(run)
    first, last = (next(i for i, e in enumerate(run.events()) if e.id == x) for x in ("b1/judged", "b1/judged/2"))
    meanwhile = [after(run, n) for n in range(first + 1, last + 1)]
    assert {t.label for t in meanwhile} == {"open"}, "no verdict is told before the last one"
    causes = {t.cause for t in meanwhile}
    assert f"inconclusive so far: {top.wanted} seeds are asked for" in causes
    assert "inconclusive so far: 1 trial waits or runs" in causes
    assert after(run, len(run.events())).label == "keep"
    assert not run.state.problems and run.state.branches["b1"].verdict == looks[1] and run.champion == "b1"
    why(run.folder, "b1")
    told = capsys.readouterr().out
    assert "b1 against b0: PROMOTED" in told and "1: inconclusive" in told and "more seeds" in told
    assert "recomputed from the ledger: the same verdict, every number" in told
    status(run.folder)
    assert "at selection" in capsys.readouterr().out
    page = render(load_view(run.folder))
    assert "More seeds" in page and "on fresh seeds" in page


def test_seeds_are_refused_where_the_budget_or_the_limit_holds_none(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "few", [*ONE, "judge.max_seeds=3"])
    assert not bodies(run, "topup") and run.champion == "b0"
    run = quick.start(task, tmp_path / "poor", [*ONE, "budget.trials=13"])
    refused = [t for t in bodies(run, "topup") if t.refused]
    assert refused and "over budget" in refused[0].refused and not refused[0].seeds
    assert run.champion == "b0" and run.closed is not None, "the run ends, undecided"
    at, name = next(
        (n, e.body.branch) for n, e in enumerate(run.events()) if e.kind == "topup" and e.id.endswith("/topup/2")
    )
    assert [after(run, n, name).label for n in (at, at + 1)] == ["open", "discard"], "refused: settled"


def test_stopped_before_any_event_the_story_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    overrides = [*ONE, "judge.reestimate=promotions"]
    whole = quick.start(task, tmp_path / "whole" / "run", overrides)
    story = ids(whole)
    assert story.index("b1/judged/2") < story.index("b1/reestimated") < story.index("certified")
    told = {e.id: e.body for e in whole.events()}
    first = story.index("b1/judged")
    # every decision on the way to the last one; of trials and skills between them some
    often = ("/intended", "/finished", "/skill", "skills")
    points = [x for i, x in enumerate(story[first:]) if not x.endswith(often) or i % 8 == 0]

    for cuts in (points, *([x] for x in points[3::6])):
        folder = tmp_path / f"cut-{cuts[0].replace('/', '-')}-{len(cuts)}" / "run"
        run = stopped_before_each(cuts, partial(quick.start, task, folder, overrides), partial(quick.resume, folder))
        assert sorted(ids(run)) == sorted(story), cuts
        again = {e.id: e.body for e in run.events()}
        assert {x for x in story if again[x] != told[x] and not x.endswith("/skill")} <= {"run", "closed"}, cuts
        assert not run.state.problems


def test_a_run_taken_up_for_an_audit_knows_the_seeds_that_were_added(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    (top,) = [t for t in bodies(run, "topup") if t.branch == "b1"]
    audits, _ = quick.audit_branch(run.folder, "b1")
    assert set(audits[0].per_seed) == {str(s) for s in (1, 2, 3, *top.seeds)}


def test_seeds_that_were_added_are_audited_too(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def later_seeds_cheat(spec: TrialSpec) -> TrialFinished:
        done = finish(spec)
        if spec.recipe.lr == 1e-5 or spec.seed < 4 or done.env_knobs.get("key") != "other":
            return done
        nothing = [s.model_copy(update={"per_task": dict.fromkeys(s.per_task, 0.0), "score": 0.0}) for s in done.scores]
        return done.model_copy(update={"scores": tuple(nothing)})

    quick = Paper(later_seeds_cheat, some_read_history)
    run = quick.start(task, tmp_path / "run", ["run.rounds=1", "judge.audit=suspects"])
    first, second = [a.audit for a in bodies(run, "audited") if a.audit.branch == "b1"]
    assert not first.confirmed and set(first.per_seed) == {"1", "2", "3"}
    assert second.confirmed and set(second.per_seed) > set(first.per_seed)
    order = [x for x in ids(run) if x.startswith("b1/") and ("audited" in x or "judged" in x)]
    assert order == ["b1/audited/key", "b1/judged", "b1/audited/key/2", "b1/judged/2"]
    assert [v.kind for v in run.verdicts if v.branch == "b1"] == ["inconclusive", "invalid"]
    assert "b1" in run.state.invalid and run.state.audits_of("b1") == [second]
    why(run.folder, "b1")
    assert "recomputed from the ledger: the same verdict" in capsys.readouterr().out
    before = ids(run)
    quick.audit_branch(run.folder, "b1")
    assert ids(api.open_run(run.folder)) == before, "it is not paid for twice"
