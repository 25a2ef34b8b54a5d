"""More seeds for an undecided bundle: never at the price of the knock-outs without which it cannot be promoted."""

from __future__ import annotations

import random
from pathlib import Path

from evotrainer.executors.paper import draw_result
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from tests.paper import Paper, bodies, set_in
from tests.run.test_search import TASK as TASK
from tests.run.test_search import WHOLE, Scripted

SALT = 3
"""Chosen so that three seeds leave the bundle undecided and twelve promote it."""


def finish(spec: TrialSpec) -> TrialFinished:
    """Both changes together gain 4 points, under 2 points of noise between seeds."""
    r = spec.recipe
    p = 0.45 + 0.02 * (r.lr > 1e-5) + 0.02 * (r.prompts_per_step > 16)
    p += random.Random(f"{SALT}{r.lr > 1e-5}-{r.prompts_per_step}-{spec.seed}").gauss(0, 0.02)
    return draw_result(spec, p - 0.2 * (spec.branch == "base"), lambda plan: f"{set_in(r)}-{spec.seed}-{plan.split}")


def test_a_bundle_gets_more_seeds_where_its_knock_outs_are_still_paid(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "rich", ["judge.max_seeds=12"], agent=Scripted(WHOLE))
    (given,) = [t for t in bodies(run, "topup") if t.branch == "b1"]
    assert len(given.seeds) == len(given.control_seeds) == 9
    assert run.state.branches["b1"].verdict.kind == "promote" and bodies(run, "knockout")  # type: ignore[union-attr]
    # by then 3 of the start, 2 of the search, 3 of the bundle; 22 are left, and hold the 18 more and 3 of the
    # certificate, yet not the 12 for the proof of two factors and of what is left of them
    poor = quick.start(task, tmp_path / "poor", ["judge.max_seeds=12", "budget.trials=30"], agent=Scripted(WHOLE))
    refused = [t for t in bodies(poor, "topup") if t.branch == "b1"]
    assert refused and all("over budget" in t.refused and not t.seeds for t in refused)
    assert poor.closed is not None and poor.champion == "b0", "it ends, undecided and certified"
