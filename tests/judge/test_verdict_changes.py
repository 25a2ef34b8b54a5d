"""`judge.verdict_changes`: verdicts of simulated trials given again under other rules."""

from __future__ import annotations

from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.judge import InterimAnalysis, JudgeConfig, JudgeInput, judge, measure_noise, scores_of
from evotrainer.judge.verdict_changes import GATES, SCORE_ONLY, Basis, flips
from evotrainer.records.events import TrialFinished
from tests.judge.scored_trials import leak, planted, with_components

BASE = JudgeConfig()


def basis(
    branch: list[TrialFinished], control: list[TrialFinished], name: str = "b1", round_: int = 1, **more: Any
) -> Basis:
    noise = measure_noise("b0", scores_of(control, "gate"))
    given = JudgeInput(name, "b0", branch, control, noise, BASE, **more)
    return Basis(round_, judge(given, InterimAnalysis(number=round_, alpha=0.019)), given)


def only(b: Basis, config: JudgeConfig = BASE, drop: tuple[str, ...] = ()) -> Any:
    return flips([b], config, drop)[0]


def test_the_same_rule_flips_nothing() -> None:
    rows = [basis(*planted(e, seed=i), name=f"b{i + 1}", round_=i + 1) for i, e in enumerate((0.12, 0.0, -0.15, 0.03))]
    assert [f.flipped for f in flips(rows, BASE)] == [False] * 4
    assert [f.now for f in flips(rows, BASE)] == [b.stored.kind for b in rows]


def test_a_stricter_alpha_turns_a_promotion_away_and_names_the_gate() -> None:
    b = next(x for s in range(30) if (x := basis(*planted(0.05, seed=s))).stored.kind == "promote")
    f = only(b, BASE.model_copy(update={"alpha": 1e-6}))
    assert f.flipped and f.was == "promote" and f.now != "promote"
    assert "effect" in f.because and f.mean == b.stored.effect.mean  # type: ignore[union-attr]


def test_a_larger_minimum_rejects_what_was_promoted() -> None:
    f = only(basis(*planted(0.12)), BASE.model_copy(update={"min_effect": 0.5}))
    assert (f.was, f.now) == ("promote", "reject") and "min_effect" in f.because


def test_score_only_promotes_luck_and_shortcuts_that_the_judge_did_not() -> None:
    branch, control = planted(0.12)
    suspected = basis(branch, control, findings=[leak("critical")])
    assert suspected.stored.kind == "invalid"
    f = only(suspected, drop=SCORE_ONLY)
    assert f.now == "promote" and "validity dropped" in f.because
    lucky = next(
        x for s in range(40)
        if (x := basis(*planted(0.0, seed=s))).stored.kind != "promote" and x.stored.effect and x.stored.effect.mean > 0
    )  # fmt: skip
    assert only(lucky, drop=SCORE_ONLY).now == "promote"
    worse = basis(*planted(-0.15))
    assert only(worse, drop=SCORE_ONLY).now == "reject"


def test_an_identical_branch_is_promoted_by_no_rule() -> None:
    _, control = planted()
    twin = [t.model_copy(update={"trial": t.trial.replace("b0", "b1"), "branch": "b1"}) for t in control]
    b = basis(twin, control)
    assert b.stored.kind == "reject"
    assert only(b, drop=SCORE_ONLY).now == "reject"


def test_dropping_the_proxy_gate_alone_does_not_promote() -> None:
    branch, control = planted(0.0, seed=3)
    branch = with_components(branch, visible=[0.80, 0.81, 0.79], hidden=[0.6, 0.6, 0.6])
    control = with_components(control, visible=[0.68, 0.69, 0.67], hidden=[0.6, 0.6, 0.6])
    wide = JudgeConfig(min_effect=0.05)
    noise = measure_noise("b0", scores_of(control, "gate"))
    given = JudgeInput("b1", "b0", branch, control, noise, wide, proxy=("visible", "hidden"))
    stored = judge(given, InterimAnalysis(number=1, alpha=0.019))
    assert any(g.gate == "proxy" and g.passed is False for g in stored.gates)
    f = only(Basis(1, stored, given), wide, drop=("proxy",))
    assert f.now != "promote" and "proxy dropped" in f.because


def test_one_champion_a_round_unless_that_gate_is_dropped() -> None:
    first = basis(*planted(0.15, seed=1), name="b1")
    second = basis(*planted(0.12, seed=1), name="b2", ahead="b1")
    assert [f.now for f in flips([first, second], BASE)] == ["promote", "reject"]
    assert [f.now for f in flips([first, second], BASE, ("best_of_round",))] == ["promote", "promote"]
    stricter = [first, basis(*planted(0.02, seed=1), name="b2", ahead="b1")]
    assert flips(stricter, BASE)[1].now != "promote"


def test_a_gate_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="no gate luck to drop; there are: validity"):
        flips([], BASE, ["luck"])
    assert set(SCORE_ONLY) == set(GATES)
