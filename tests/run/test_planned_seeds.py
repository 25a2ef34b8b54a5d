"""`rules.planned_seeds`: a branch has the seeds that its gain asks for before it is judged first."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.why import why
from evotrainer.judge.planned_seeds import seeds_for, threshold
from evotrainer.records.events import NoiseMeasured
from evotrainer.verify import Record
from tests.paper import Paper, bodies, ids, stopped_before_each
from tests.small_gains_task import ONE
from tests.small_gains_task import TASK as TASK
from tests.small_gains_task import finish as finish
from tests.verify.test_claims import forged, problems

FIVE = [*ONE, "judge.worthwhile=0.05"]
"""Five points are to be found, under two points of noise between seeds."""


def noise(sd: float, df: float) -> NoiseMeasured:
    """A measured spread between seeds."""
    return NoiseMeasured(
        branch="b0", seeds=(1, 2, 3), score_mean=0.5, seed_sd=sd, task_sd=0.0, noise_floor=0.0,
        numbers={"v_trial": sd**2, "df": df},
    )  # fmt: skip


def searched_at_first(run: api.Run, branch: str) -> float:
    """Mean search score of a branch's first three seeds."""
    done = [t for t in run.state.branches[branch].complete if t.seed in (1, 2, 3)]
    scores = [s.score or 0.0 for t in done for s in t.scores if s.split == "search"]
    return sum(scores) / len(scores)


def test_more_seeds_for_smaller_gains_and_the_most_where_none_would_do() -> None:
    ask = partial(seeds_for, noise=noise(0.03, 4), verdicts=[], alpha=0.02, first=3, most=12)
    wanted = [ask(gain) for gain in (0.30, 0.10, 0.07, 0.05)]
    assert wanted == sorted(wanted) and wanted[0] == 3 < wanted[2] < 12
    assert ask(0.005) == 12, "the spread of a few seeds may be their luck"
    for n in (3, 6, 12):
        at = threshold(noise(0.03, 4), [], 0.02, 3, n, 0.01)
        assert at is not None and at.se == pytest.approx(0.03 * (2 / n) ** 0.5)
    assert threshold(None, [], 0.02, 3, 3, 0.01) is None


def test_the_seeds_come_before_the_first_look_and_no_level_is_spent_on_them(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", FIVE)
    story = ids(run)
    assert story.index("b1/topup/1") < story.index("b1/judged")
    (first,) = [t for t in bodies(run, "topup") if t.branch == "b1"]
    (verdict,) = [v for v in run.verdicts if v.branch == "b1"]
    assert verdict.kind == "promote" and verdict.effect is not None and verdict.look
    assert verdict.effect.seeds == first.wanted == 3 + len(first.seeds) > 3
    assert 5 not in first.seeds, "certification keeps its seeds"
    mean = {b: searched_at_first(run, b) for b in ("b0", "b1", "b2")}
    assert {t.branch for t in bodies(run, "topup")} == {b for b in mean if mean[b] >= mean["b0"] + 0.01}
    why(run.folder, "b1")
    told = capsys.readouterr().out
    assert "seeds" in told and "recomputed from the ledger: the same verdict, every number" in told
    assert problems(Record(run.folder, run.events())) == []
    (at,) = [e.id for e in run.events() if e.kind == "topup" and e.body.branch == "b1"]
    assert "were to be had" in problems(forged(run, at, wanted=first.wanted + 1))[0]


def test_a_poor_budget_gives_as_many_as_it_pays_and_says_so(task: Path, tmp_path: Path, quick: Paper) -> None:
    whole = quick.start(task, tmp_path / "whole", FIVE)
    (all_,) = [t for t in bodies(whole, "topup") if t.branch == "b1"]
    poor = quick.start(task, tmp_path / "poor", [*FIVE, "budget.trials=17"])
    (some,) = [t for t in bodies(poor, "topup") if t.branch == "b1" and t.wanted == all_.wanted]
    assert 0 < len(some.seeds) < len(all_.seeds) or "over budget" in some.refused
    assert poor.closed is not None


def test_stopped_before_any_event_it_goes_on_with_the_same_seeds(task: Path, tmp_path: Path, quick: Paper) -> None:
    whole = quick.start(task, tmp_path / "whole" / "run", FIVE)
    story = ids(whole)
    points = [x for x in story[story.index("r1/planned") :] if "topup" in x or "judged" in x or "noise" in x]
    run = stopped_before_each(
        points,
        partial(quick.start, task, tmp_path / "cut" / "run", FIVE),
        partial(quick.resume, tmp_path / "cut" / "run"),
    )
    assert sorted(ids(run)) == sorted(story)
    assert [t.seeds for t in bodies(run, "topup")] == [t.seeds for t in bodies(whole, "topup")]
