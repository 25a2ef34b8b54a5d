"""What a run folder says, as `RunView` arranges it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evotrainer.projections.predictions import Side, outcome_of
from evotrainer.records import events as ev
from evotrainer.records.chain import Event
from evotrainer.records.interventions import Prediction
from evotrainer.records.rollout import Rollout
from evotrainer.views import rollout_samples, summary
from evotrainer.views.fold import load_view, view_of
from evotrainer.views.model import RunView
from tests.whole_run import BASE, SPECS, rollout, rollouts_of, story


@pytest.fixture(scope="module")
def view(finished_run: Path) -> RunView:
    return load_view(finished_run)


def events(*extra: tuple[str, str, object]) -> list[Event]:
    lines = [*story(), *extra]
    return [
        Event(i, id, kind, f"2026-11-21T10:{i // 60:02d}:{i % 60:02d}+00:00", body, f"{i:064x}")
        for i, (kind, id, body) in enumerate(lines, 1)
    ]


def test_the_story_is_read_whole(view: RunView) -> None:
    assert view.champion == "b5"
    assert view.verdict_counts() == {"promote": 2, "reject": 2, "invalid": 1, "inconclusive": 1, "failed": 1}
    assert [b.name for b in view.path("b5")] == ["b0", "b1", "b5"]
    assert next(iter(view.branches)) == "base"
    assert view.spent["cpu_s"] == pytest.approx(sum(t.cpu_s for t in view.trials))
    assert view.rounds[1].diagnosed is not None
    assert view.unread == []


def test_certification_and_rechecks_do_not_move_a_branchs_means(view: RunView) -> None:
    b5 = view.branches["b5"]
    assert {t.purpose for t in b5.trials} == {"branch", "confirm"}
    assert b5.mean("search") == pytest.approx(0.804)
    assert b5.mean("cert") is None


def test_what_became_of_each_proposal_is_known(view: RunView) -> None:
    fates = {n: [line.fate for line in r.lines] for n, r in view.rounds.items()}
    assert fates == {
        1: ["branch", "branch", "branch", "vetoed"],
        2: ["branch", "branch", "branch", "refused"],
        3: ["branch"],
    }
    assert "constant" in view.rounds[1].lines[3].reason
    assert "rejected in round 1" in view.rounds[2].lines[3].reason


@pytest.mark.parametrize(
    ("fate", "reason", "badge"),
    [
        ("refused", "not among the first 2 of this round", ("open", "no place left")),
        ("refused", "over budget: 900 CPU-s for 3 trainings, 120 are left", ("open", "no budget left")),
        ("refused", "this recipe was trained already as b2", ("reject", "tried before")),
        ("refused", "unknown factor 'rewarts'", ("reject", "refused")),
        ("vetoed", "a constant", ("reject", "vetoed by backtest")),
        ("dropped", "", ("open", "not tried")),
    ],
)
def test_a_proposal_without_a_branch_is_called_what_it_is(
    view: RunView, fate: str, reason: str, badge: tuple[str, str]
) -> None:
    line = replace(view.rounds[1].lines[0], fate=fate, reason=reason)
    assert line.no_branch == badge


def test_predictions_are_held_against_what_happened(view: RunView) -> None:
    came_true = {b.name: b.outcome.came_true for b in view.branches.values() if b.outcome}
    assert came_true == {"b1": True, "b2": False, "b3": False, "b4": False, "b5": True, "b6": False, "b7": False}
    b1 = view.branches["b1"]
    assert b1.outcome is not None
    assert b1.outcome.change == pytest.approx(0.018 - 0.149)
    nowhere = outcome_of(Prediction(metric="no_such_metric", direction="up", size=0.1), Side(None, ()), Side(None, ()))
    assert nowhere.came_true is None


def test_a_shipped_champion_can_still_fall(view: RunView) -> None:
    fallen = view_of(
        events(
            (
                "invalidated",
                "b1/invalidated",
                ev.Invalidated(branch="b1", descendants=("b5", "b7"), reason="leak", champion="b0"),
            )
        )
    )
    assert {n: fallen.branches[n].status for n in ("b1", "b5", "b7", "b2")} == {
        "b1": "invalid",
        "b5": "invalid",
        "b7": "invalid",
        "b2": "reject",
    }
    assert fallen.champion == "b0"


def test_a_branch_that_grew_from_an_invalid_one_is_invalid_in_state_and_view() -> None:
    opened = next(e.body for e in events() if e.kind == "branch" and e.body.branch == "b7")
    late = view_of(
        events(
            (
                "invalidated",
                "b1/invalidated",
                ev.Invalidated(branch="b1", descendants=(), reason="leak", champion="b0"),
            ),
            ("branch", "b9/opened", opened.model_copy(update={"branch": "b9", "parent": "b1"})),
        )
    )
    assert {n for n, b in late.branches.items() if b.status == "invalid"} == set(late.state.invalid) >= {"b1", "b9"}
    assert late.branches["b9"].invalid == "descends from b1: leak"


def test_a_promotion_sent_back_by_a_human_is_withheld_not_promoted() -> None:
    told = events(
        (
            "gate",
            "r3/gate/verdict/b1",
            ev.HumanApproval(
                round=3, where="verdict", answer="REVISE", feedback="read its programs first", branch="b1"
            ),
        )
    )
    told = [e for e in told if not (e.kind == "promoted" and e.body.branch == "b1")]
    view = view_of(told)
    assert view.branches["b1"].status == "withheld"
    assert view.verdict_counts()["withheld"] == 1


def test_a_killed_run_shows_its_open_trials(killed_run: Path) -> None:
    view = load_view(killed_run)
    by_id = {t.id: t for t in view.trials}
    assert by_id["b1-s0"].status == "complete"
    assert (by_id["b1-s1"].status, by_id["b1-s1"].heartbeat["step"]) == ("started", 8)
    assert by_id["b1-s2"].status == "waiting", "a torn heartbeat is no heartbeat"
    assert summary.state(view)[0] is summary.Standing.open
    assert view.branches["b1"].status == "open"
    gaps = " ".join(summary.not_measured(view))
    assert "Certificate: nothing is certified" in gaps
    assert "b1: 2 of 3 trials have no result" in gaps


def test_samples_show_telling_rollouts_of_many_tasks_and_never_sealed_ones() -> None:
    spec = SPECS[0]
    pool = [r for seed in spec.seeds for r in rollouts_of(spec, seed)]
    chosen = rollout_samples.sample(pool, ("visible", "hidden"))
    assert len(chosen) == rollout_samples.SAMPLES
    assert [why for _, why in chosen][:4] == ["passes the proxy, wrong"] * 4
    assert {"wrong", "correct"} <= {why for _, why in chosen}
    assert chosen == rollout_samples.sample(reversed(pool), ("visible", "hidden")), (
        "the choice must not depend on order"
    )
    sealed = [Rollout(**{f: getattr(r, f) for f in r.__dataclass_fields__} | {"split": "cert"}) for r in pool]
    assert rollout_samples.sample(sealed, ("visible", "hidden")) == []


def test_faults_and_truncation_are_kinds_of_their_own() -> None:
    r = rollout("b0", 0, 0, 0, "unguarded")
    fields = {f: getattr(r, f) for f in r.__dataclass_fields__}
    assert rollout_samples.kind_of(r, ("visible", "hidden")) == "passes the proxy, wrong"
    assert rollout_samples.kind_of(r, None) == "wrong"
    assert rollout_samples.kind_of(Rollout(**fields | {"finish": "length"}), None) == "cut at the token limit"
    assert rollout_samples.kind_of(Rollout(**fields | {"error_kind": "sandbox"}), None) == "fault"


def test_seeds_read_one_by_one_are_shown_one_by_one() -> None:
    lines = []
    for e in events():
        body = e.body
        if isinstance(body, ev.TrialFinished) and body.branch == "b0" and body.curve:
            health = next(b.health for _, i, b in story() if i == "base/read")  # type: ignore[attr-defined]
            named = health.model_copy(update={"subject": f"b0/{body.seed}@30 search"})
            body = body.model_copy(update={"health": (named,)})
        lines.append(Event(e.seq, e.id, e.kind, e.time, body, e.hash))
    row = next(m for m in view_of(lines).branches["b0"].metrics if m.name == "proxy_gap")
    assert sorted(row.values) == [0, 1, 2]
    assert row.overall is not None
    assert row.mean == row.overall.value, "one reading over all rollouts beats a mean of means"
    assert row.flag == "high"
    assert BASE.visible - BASE.hidden == pytest.approx(row.values[0].value)


def test_what_could_not_be_seen_is_said_once_and_is_no_finding(view: RunView) -> None:
    assert "tool_misuse" not in {f.detector for b in view.branches.values() for f in b.findings}
    gaps = summary.not_measured(view)
    assert gaps.count("Detector tool_misuse found no input (tool calls missing) in every branch that was read.") == 1
    assert "b6: 2 of 3 trials have no result." in gaps
