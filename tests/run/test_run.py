"""A whole run with a real small policy: what it records, what it refuses, what it can prove afterwards."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.health import health
from evotrainer.cli.lineage import lineage as lineage_command
from evotrainer.cli.show import show
from evotrainer.cli.status import status
from evotrainer.cli.verify import verify
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError, IntegrityError, StoreError
from evotrainer.projections.branches import check_factors
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.store import load
from tests.paper import Paper, rejudged

from .conftest import TINY
from .kill_driver import finish

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
    assert len(cert.rows[1].per_seed) == 3
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
    assert check_factors(lineage.branches) == []


def test_everything_recorded_holds(finished: api.Run) -> None:
    report = finished.verify()
    assert report.ok, report.problems
    assert report.checked["rollouts"] > 500


def test_every_verdict_follows_from_the_ledger(finished: api.Run) -> None:
    assert finished.verdicts
    for v in finished.verdicts:
        assert rejudged(finished, v.branch).holds


def test_agents_and_harness_saw_no_gate_or_cert_rollout(finished: api.Run) -> None:
    trials = list((finished.folder / "rollouts").iterdir())
    assert {r.split for t in trials for r in load([t])} == {"train", "search"}
    sealed = list((finished.folder / "sealed").iterdir())
    assert {r.split for t in sealed for r in load([t])} == {"gate", "cert"}
    named = {t for e in finished.events() if e.kind == "diagnosed" for f in e.body.health.findings for t in f.quotes}
    ids = {r.id for t in trials for r in load([t])}
    assert all(q.rollout in ids for q in named)


def test_a_changed_event_is_found(copy: Callable[[], api.Run]) -> None:
    run = copy()
    db = sqlite3.connect(run.folder / "ledger.db")
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
        db.execute(f'DROP TRIGGER "{name}"')
    db.execute("UPDATE event SET body = replace(body, '\"reject\"', '\"promote\"') WHERE kind = 'judged'")
    db.execute("UPDATE event SET body = replace(body, '\"cpu_s\":', '\"cpu_s\": 1') WHERE kind = 'closed'")
    db.commit()
    db.close()
    with pytest.raises(IntegrityError):
        verify(run.folder)


def test_a_changed_policy_is_found(copy: Callable[[], api.Run]) -> None:
    run = copy()
    weights = run.folder / "trials" / "b0-s1" / "policy" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    assert any("b0-s1" in p.message for p in run.verify().problems)


def test_why_of_an_unknown_branch_names_the_known_ones(finished: api.Run) -> None:
    with pytest.raises(ConfigError, match="there are branches: b0, b1"):
        why(finished.folder, "b77")


class Stubborn:
    """Proposes what must be refused, each for another reason, and one thing that may pass."""

    name = "stubborn"

    def propose(self, briefing: Briefing, tools: object) -> Proposal:
        old = briefing.champion.recipe

        def iv(factor: str, new: object) -> Intervention:
            return Intervention(
                factor=factor,
                old=old.factors().get(factor),
                new=new,
                hypothesis="if this changes, the score rises, because we say so",
                prediction=Prediction(metric="accuracy", direction="up", size=0.01),
                success_criterion="gate score +1 point",
                rollback="champion",
            )

        return Proposal(
            agent=self.name,
            interventions=(
                iv("rewards", {"sorted_word": 1.0, "brevity": 0.5}),  # two moves
                iv("learning_rate", 1e-3),  # no such factor
                iv("lr", old.lr),  # no change
                iv("resample", 2),  # silent: no filter
                iv("rewards", {"kindness": 1.0}),  # no such component
                iv("temperature", 0.4),
                iv("kl_beta", 0.05),
            ),
        )


def test_bad_branches_are_refused_with_the_reason(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    quick = Paper(finish)
    overrides = [*TINY, f"policy.base={trained_base}", "run.branches=2"]
    run = quick.start(task_file, tmp_path / "run", overrides, agent=Stubborn())
    vetoed = {e.body.index: e.body.backtest.reason for e in run.events() if e.kind == "backtested" and e.body.vetoed}
    refused = {e.body.index: e.body.reason for e in run.events() if e.kind == "refused"} | vetoed
    assert refused.keys() == {0, 1, 2, 3, 4}
    assert "2 moves in the reward composition" in refused[0]
    assert "learning_rate" in refused[1]
    assert refused[2] == "lr already has this value: nothing would change"
    assert "group_filter" in refused[3]
    assert "kindness" in refused[4]
    opened = [e.body for e in run.events() if e.kind == "branch"]
    assert [b.intervention.factor for b in opened if b.intervention] == ["temperature", "kl_beta"]
    colder = next(s for s in quick.ran if s.trial == "b1-s1")
    assert colder.recipe.temperature == 0.4
    assert colder.protocol.temperature == 1.0, "a branch that samples colder is evaluated like all others"
    assert {v.control for v in run.verdicts} == {"b0"}, "each branch is judged against what it was branched from"


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


def test_a_corrupt_ledger_is_one_clear_line(copy: Callable[[], api.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = copy()
    (run.folder / "ledger.db").write_bytes(b"this is not a database, it is a poem" * 100)
    for wal in run.folder.glob("ledger.db-*"):
        wal.unlink()
    for command in (lambda: status(run.folder, as_json=True), lambda: api.resume(run.folder)):
        with pytest.raises(StoreError, match="ledger"):
            command()
    assert (run.folder / "ledger.db").read_bytes().startswith(b"this is not a database"), "left as it was found"


def test_a_damaged_rollout_part_is_named(copy: Callable[[], api.Run]) -> None:
    run = copy()
    part = next((run.folder / "rollouts" / "b0-s2").glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)
    assert any(part.name in p.message for p in run.verify().problems)


def test_status_lineage_health_and_show_tell_the_story(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    status(finished.folder, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "closed"
    assert set(told["trials"].values()) == {"complete"}
    assert told["verdicts"].keys() == {"b1", "b2"}
    lineage_command(finished.folder)
    assert "b1" in capsys.readouterr().out
    health(finished.folder, "b1")
    assert "Diagnosis" in capsys.readouterr().out
    rollout = load([finished.folder / "rollouts" / "b1-s1"], split="search", limit=1)[0]
    for what, expect in (("b1", "rewards"), ("b1-s1", "complete"), (rollout.id[:12], rollout.task)):
        show(finished.folder, what)
        assert expect in capsys.readouterr().out
    with pytest.raises(ConfigError):
        show(finished.folder, "nothing-of-that-name")


def test_every_trial_is_read_during_training_and_at_its_evaluation(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [e.body for e in finished.events() if e.kind == "finished" and e.body.steps]
    steps = finished.task.recipe.steps
    for t in trials:
        subjects = [h.subject for h in t.health]
        trained = [f"{t.branch}/{t.seed}@{s} train" for s in sorted({*range(2, steps + 1, 2), steps})]
        assert subjects == [*trained, f"{t.branch}/{t.seed}@{steps} search"]
        assert all(h.rollouts for h in t.health)
        search = next(s for s in t.scores if s.split == "search")
        assert t.health[-1].metric("accuracy") == pytest.approx(search.score)
    (b1,) = [e.body.health for e in finished.events() if e.id == "b1/read"]
    moved = [b1.metric(f"transition/{k}") for k in ("kept", "lost", "gained", "unsolved")]
    assert None not in moved
    assert sum(x or 0.0 for x in moved) == pytest.approx(1.0), "every search task, against the parent"
    health(finished.folder, "b1", trend=True, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [r["step"] for r in rows] == sorted({*range(2, steps + 1, 2), steps})
    assert all(r["seeds"] == len(finished.task.run.seeds) for r in rows)
    health(finished.folder, "b1-s1", step=2)
    assert "# Health of b1/1@2 train" in capsys.readouterr().out
    health(finished.folder, "b1", trend=True)
    assert "accuracy" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="nothing was read of b1-s1 at step 99"):
        health(finished.folder, "b1-s1", step=99)


def test_the_report_of_a_real_run_shows_every_branch(finished: api.Run, tmp_path: Path) -> None:
    html = finished.report(tmp_path / "r.html").read_text(encoding="utf-8")
    for name in finished.state.branches:
        assert html.count(f' id="{name}"') == 1, name
