"""`run.certify`: who is certified by which trials, and what happens when one of them fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from evotrainer import api
from evotrainer.errors import TrainerError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.rules.certificate import policies
from evotrainer.views.fold import load_view
from tests.leaky_task import HONEST
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper


def cert_readers(paper: Paper) -> list[TrialSpec]:
    return [s for s in paper.ran if any(p.split == "cert" for p in s.evals)]


def test_the_champion_is_trained_on_fresh_seeds_and_base_and_start_are_only_evaluated(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", [HONEST])
    readers = cert_readers(quick)
    assert {s.trial: s.train for s in readers} == {
        "b1-s101": True,
        "b1-s102": True,
        "base-cert": False,
        "b0-s1-cert": False,
        "b0-s2-cert": False,
    }
    assert {s.purpose for s in readers if s.train} == {"confirm"} and quick.ran[-5:] == readers, "at the very end"
    assert run.certification is not None
    rows = {r.name: (r.branch, r.seeds) for r in run.certification.rows}
    assert rows == {"base": ("base", (0,)), "start": ("b0", (1, 2)), "champion": ("b1", (101, 102))}


def test_a_certification_that_failed_is_tried_again_and_reads_cert_once(task: Path, tmp_path: Path) -> None:
    broken = True

    def result(spec: TrialSpec) -> TrialFinished:
        t = finish(spec)
        if broken and spec.trial == "b1-s102":
            return t.model_copy(update={"status": "failed", "error": "the disk is full", "scores": ()})
        return t

    paper = Paper(result)
    with pytest.raises(TrainerError, match="b1-s102 .*the disk is full.*evotrainer resume"):
        paper.start(task, tmp_path / "run", [HONEST])
    assert api.open_run(tmp_path / "run").certification is None
    broken = False
    run = paper.resume(tmp_path / "run")
    whole = Paper(finish).start(task, tmp_path / "whole", [HONEST])
    assert run.certification == whole.certification
    read = [s.trial for s in cert_readers(paper)]
    assert [t for t in sorted(set(read)) if read.count(t) > 1] == ["b1-s102"], "what had finished is not read again"


def test_a_start_that_learnt_nothing_differs_from_its_base_by_nothing(task: Path, tmp_path: Path) -> None:
    """Its evaluations differ by the attempts' luck, which a certificate called better in one run of twenty."""
    paper = Paper(lambda spec: finish(spec).model_copy(update={"policy_sha256": "5" * 64}))
    run = paper.start(task, tmp_path / "run", ["run.rounds=0"])
    assert run.certification is not None
    c = run.certification.comparisons["start-base"]
    assert (c["mean"], c["low"], c["high"], c["p"]) == (0.0, 0.0, 0.0, 1.0)
    assert run.certification.rows[0].score != run.certification.rows[1].score
    assert not [p for p in run.verify().problems if p.area == "certified"]
    assert ", the same weights, p = 1" in load_view(run.folder).facts.text("comparison")
    plain = Paper(finish).start(task, tmp_path / "plain", ["run.rounds=0"])
    assert plain.certification is not None and plain.certification.comparisons["start-base"]["mean"] != 0


def test_the_same_weights_at_another_temperature_of_use_are_another_policy() -> None:
    trials = [TrialFinished.model_construct(policy_sha256="5" * 64)]
    start = Recipe(rewards={"a": 1.0})

    def read(recipe: Recipe) -> frozenset[str]:
        branches = {"b0": SimpleNamespace(recipe=start), "b1": SimpleNamespace(recipe=recipe)}
        return policies(SimpleNamespace(branches=branches), "b1", trials)  # type: ignore[arg-type]

    same = read(start)
    assert read(start.with_factor("deploy_temperature", 0.4)) != same
    for trained in ({"temperature": 0.5}, {"max_tokens": 7}, {"repetition_penalty": 0.2}, {"lr": 1e-4}):
        assert read(start.model_copy(update=trained)) == same, "evaluated under the run's protocol"
