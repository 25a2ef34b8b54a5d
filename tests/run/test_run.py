"""`run.loop`: a whole run with a real small policy, what it records and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.records.reading import load
from evotrainer.verify.chain_and_files import refused_branches
from tests.paper import Paper
from tests.run.kill_driver import finish
from tests.small_run import TINY

pytestmark = pytest.mark.xdist_group("loop")


def kinds(run: api.Run) -> list[str]:
    return [e.kind for e in run.events()]


def test_a_run_goes_from_base_to_certification(finished: api.Run) -> None:
    seen = kinds(finished)
    for kind in ("run", "branch", "noise", "promoted", "round", "diagnosed", "proposed", "backtested", "planned"):
        assert kind in seen, f"no {kind} event"
    assert seen[-2:] == ["certified", "closed"]
    cert = finished.certification
    assert cert is not None
    assert [r.name for r in cert.rows][:2] == ["base", "start"]
    assert len(cert.rows[1].per_seed) >= 3, "as many as b0 was given"
    assert finished.closed is not None
    assert finished.closed.cpu_s > 0


def test_rl_on_the_real_policy_learns_something(finished: api.Run) -> None:
    """The starting recipe pays for the right letters: that component must rise above the base policy's."""
    events = finished.events()
    base = next(e.body for e in events if e.kind == "finished" and e.body.trial == "base")
    before = next(s.components["right_letters"] for s in base.scores if s.split == "search")
    trials = [e.body for e in events if e.kind == "finished" and e.body.trial in ("b0-s1", "b0-s2", "b0-s3")]
    after = [s.components["right_letters"] for t in trials for s in t.scores if s.split == "search"]
    assert sum(after) / len(after) > before


def test_every_branch_changes_exactly_one_factor(finished: api.Run) -> None:
    lineage = finished.state
    assert len(lineage.branches) > 1
    assert not list(refused_branches(lineage))


def test_agents_and_harness_saw_no_gate_or_cert_rollout(finished: api.Run) -> None:
    trials = list((finished.folder / "rollouts").iterdir())
    assert {r.split for t in trials for r in load([t])} == {"train", "search", "search-greedy"}
    sealed = list((finished.folder / "sealed").iterdir())
    assert {r.split for t in sealed for r in load([t])} == {"gate", "gate-greedy", "cert", "cert-greedy"}
    named = {t for e in finished.events() if e.kind == "diagnosed" for f in e.body.health.findings for t in f.quotes}
    ids = {r.id for t in trials for r in load([t])}
    assert named and {q.rollout for q in named} <= ids


def test_a_budget_that_runs_out_ends_in_certification(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    quick = Paper(finish)
    overrides = [*TINY, f"policy.base={trained_base}", "budget.trials=5", "run.rounds=3"]
    run = quick.start(task_file, tmp_path / "run", overrides)
    assert run.certification is not None
    assert run.closed is not None
    trained = [e for e in run.events() if e.kind == "intended" and e.body.train]
    assert 4 <= len(trained) <= 5
    assert any("over budget: 3 trials asked, 1 left" in e.body.reason for e in run.events() if e.kind == "refused")
    assert run.closed.reason == "the budget holds no further branch"


def test_the_report_of_a_real_run_shows_every_branch(finished: api.Run, tmp_path: Path) -> None:
    html = finished.report(tmp_path / "r.html").read_text(encoding="utf-8")
    for name in finished.state.branches:
        assert html.count(f' id="{name}"') == 1, name


def test_every_evaluation_is_read_twice_and_no_reader_mixes_the_readings(finished: api.Run) -> None:
    trials = [e.body for e in finished.events() if e.kind == "finished"]
    for s in (s for t in trials for s in t.scores):
        assert s.greedy_per_task.keys() == s.per_task.keys() and set(s.greedy_per_task.values()) <= {0.0, 1.0}
    read = RolloutReader(finished.folder).search("b0-s1")
    assert read.n == sum(r.split == "search" for r in load([finished.folder / "rollouts" / "b0-s1"]))
    health = next(e.body.health for e in finished.events() if e.id.startswith("r1/") and e.kind == "diagnosed")
    gap = health.metric("greedy_minus_sampled")
    own = [s for t in trials if t.branch == "b0" and t.trial in ("b0-s1", "b0-s2", "b0-s3") for s in t.scores]
    search = [s for s in own if s.split == "search"]
    by_hand = sum((s.greedy or 0.0) - (s.score or 0.0) for s in search) / len(search)
    assert gap == pytest.approx(by_hand, abs=1e-9)
    assert finished.certification is not None and "start-base" in finished.certification.greedy
