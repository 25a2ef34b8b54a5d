"""`judge.decide`: verdicts, story by story."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.judge import (
    InterimAnalysis,
    JudgeConfig,
    JudgeInput,
    alpha_spending,
    judge,
    measure_noise,
    scores_of,
)
from evotrainer.judge.decide import _decide, _floor_gate, _size_gate
from evotrainer.judge.simulate import Population, trial
from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import Finding, HealthReport
from evotrainer.records.verdicts import Effect, GateResult
from tests.judge.scored_trials import FIRST, leak, planted, recomputed, with_components


def decide(branch: list[TrialFinished], control: list[TrialFinished], **kwargs: Any) -> Any:
    """A verdict at the first look, with the noise of the control."""
    noise = measure_noise("b0", scores_of(control, "gate"))
    look = kwargs.pop("look", FIRST)
    return judge(JudgeInput("b1", "b0", branch, control, noise, **kwargs), look)


def test_a_reason_has_the_digits_that_tell_a_gain_from_what_is_asked() -> None:
    e = Effect(
        mean=0.00976, low=-0.0002, high=0.03, confidence=0.95, se=0.01, df=9, seeds=3, tasks=9, noise_floor=0.0098
    )
    config = JudgeConfig(min_effect=0.01)
    gate = GateResult(gate="proxy", passed=True, message="")
    kind, reason = _decide(e, InterimAnalysis(number=1, alpha=0.01), config, gate, None)
    assert (kind, reason) == ("reject", "gate score +0.98 points [-0.02, +3.00] is not the gain of 1.00 asked for")
    assert _size_gate(e, config).message == "mean +0.98 points, at least 1.00 asked"
    assert _floor_gate(e).message.startswith("mean +0.976 points; trainings of one recipe differ by up to 0.980")
    wide = _floor_gate(e.model_copy(update={"noise_floor": 1.3})).message
    assert wide.endswith("by up to 100 and more (nothing can be shown with so few seeds) at this look")


def test_a_clear_gain_is_promoted() -> None:
    verdict = decide(*planted(0.12))
    assert verdict.kind == "promote"
    assert verdict.effect.low > 0
    assert (verdict.look, verdict.alpha) == (1, FIRST.alpha)
    assert all(g.passed is not False for g in verdict.gates)


def test_only_the_best_of_a_round_becomes_champion() -> None:
    branch, control = planted(0.12)
    verdict = decide(branch, control, ahead="b7")
    assert verdict.kind == "reject"
    assert "b7 gained more in the same round" in verdict.reason
    assert verdict.effect.low > 0, "its gain stays on record"
    assert [g.gate for g in verdict.gates if g.passed is False] == ["best_of_round"]
    noise = measure_noise("b0", scores_of(control, "gate"))
    assert not recomputed(verdict, JudgeInput("b1", "b0", branch, control, noise, ahead="b7"))
    losing = decide(*planted(-0.15), ahead="b7")
    assert "harmful" in losing.reason, "who was ahead does not matter to a branch that loses anyway"


def test_a_clear_loss_is_called_harmful() -> None:
    verdict = decide(*planted(-0.15))
    assert verdict.kind == "reject"
    assert "harmful" in verdict.reason


def test_a_lucky_seed_is_not_promoted() -> None:
    branch, control = planted(0.0, seed=2)
    lucky = {t: min(1.0, v + 0.25) for t, v in branch[0].scores[0].per_task.items()}
    branch[0] = trial("b1", 1, lucky, 4)
    verdict = decide(branch, control)
    assert verdict.effect.mean > 0.03
    assert verdict.kind != "promote"


def test_a_branch_with_the_controls_weights_is_neither_promoted_nor_harmful() -> None:
    _, control = planted()
    twins = [t.model_copy(update={"policy_sha256": f"w{t.seed}"}) for t in control]
    # the evaluation drew other attempts, so scores differ: the weights decide
    branch = [t.model_copy(update={"policy_sha256": f"w{t.seed}", "branch": "b1"}) for t in planted(0.2, seed=7)[0]]
    verdict = decide(branch, twins)
    assert verdict.kind == "reject"
    assert "changed nothing" in verdict.reason
    assert "harmful:" not in verdict.reason
    assert (verdict.effect.mean, verdict.look, verdict.alpha) == (0, 0, None)


def test_a_branch_with_the_controls_scores_is_neither_promoted_nor_harmful() -> None:
    _, control = planted()
    verdict = decide([t.model_copy(update={"branch": "b1"}) for t in control], control)
    assert verdict.kind == "reject"
    assert "scores on every task equal" in verdict.reason


def test_one_equal_seed_among_three_does_not_make_twins() -> None:
    branch, control = planted(0.12)
    branch[0] = control[0].model_copy(update={"branch": "b1"})
    assert next(g for g in decide(branch, control).gates if g.gate == "identical").passed


def test_missing_seeds_are_inconclusive_and_say_what_to_run() -> None:
    branch, control = planted(0.3)
    verdict = decide(branch[:2], control)
    assert verdict.kind == "inconclusive"
    assert "2 of 3 trials of b1 complete; run evotrainer resume" in verdict.reason
    assert verdict.look == 0


def test_a_branch_whose_trials_crash_has_failed() -> None:
    branch, control = planted()
    dead = [
        t.model_copy(update={"status": "failed", "label": "crash", "error": "loss is nan", "scores": ()})
        for t in branch
    ]
    assert decide(dead, control).kind == "failed"
    verdict = decide([branch[0], *dead[1:]], control)
    assert verdict.kind == "failed"
    assert "crash" in verdict.reason
    assert "loss is nan" in verdict.reason
    assert decide([*branch[:2], dead[2]], control).kind == "inconclusive"


def test_a_confirmed_leak_is_invalid_whatever_the_score() -> None:
    branch, control = planted(0.3)
    assert decide(branch, control, findings=[leak("critical")]).kind == "invalid"
    assert decide(branch, control, findings=[leak("warn")], audits={"history_reads": True}).kind == "invalid"


def test_a_leak_found_in_a_trials_own_health_report_counts() -> None:
    branch, control = planted(0.3)
    report = HealthReport(harness="h0", subject="b1", rollouts=40, groups=10, metrics=(), findings=(leak("critical"),))
    branch[1] = branch[1].model_copy(update={"health": (report,)})
    assert decide(branch, control).kind == "invalid"


def test_a_suspected_leak_waits_for_an_audit() -> None:
    branch, control = planted(0.3)
    verdict = decide(branch, control, findings=[leak("warn")])
    assert verdict.kind == "inconclusive"
    assert "evotrainer show RUN b1" in verdict.reason
    assert decide(branch, control, findings=[leak("warn")], audits={"history_reads": False}).kind == "promote"


def test_a_suspicion_the_control_shares_does_not_block_the_branch() -> None:
    branch, control = planted(0.3)
    verdict = decide(branch, control, findings=[leak("warn")], control_findings=[leak("warn")])
    assert verdict.kind == "promote"


def test_a_score_finding_is_no_question_of_validity() -> None:
    gap = Finding(detector="gap", kind="proxy_gap", severity="critical", claim="15 points")
    assert decide(*planted(0.3), findings=[gap]).kind == "promote"


def test_only_the_proxy_rose() -> None:
    branch, control = planted(0.0, seed=3)
    branch = with_components(branch, visible=[0.80, 0.81, 0.79], hidden=[0.6, 0.6, 0.6])
    control = with_components(control, visible=[0.68, 0.69, 0.67], hidden=[0.6, 0.6, 0.6])
    verdict = decide(branch, control, proxy=("visible", "hidden"), config=JudgeConfig(min_effect=0.05))
    assert verdict.kind == "reject"
    assert "only the proxy rose: visible +12.0 points" in verdict.reason


def test_a_proxy_that_rises_with_the_true_score_is_welcome() -> None:
    branch, control = planted(0.15)
    branch = with_components(branch, visible=[0.80, 0.81, 0.79])
    control = with_components(control, visible=[0.68, 0.69, 0.67])
    assert decide(branch, control, proxy=("visible", "hidden")).kind == "promote"


def test_too_many_infrastructure_faults_decide_nothing() -> None:
    branch, control = planted(0.3)
    score = branch[0].scores[0].model_copy(update={"errors": 200})
    branch[0] = branch[0].model_copy(update={"scores": (score,)})
    verdict = decide(branch, control)
    assert verdict.kind == "inconclusive"
    assert "infrastructure faults" in verdict.reason


def test_where_no_attempt_may_be_lost_and_none_was_a_verdict_is_given() -> None:
    assert decide(*planted(0.3), config=JudgeConfig(max_error_share=0.0)).kind == "promote"


def test_trials_on_different_tasks_decide_nothing() -> None:
    branch, control = planted(0.3)
    other = {t + "x": v for t, v in branch[0].scores[0].per_task.items()}
    branch[0] = trial("b1", 1, other, 4)
    assert decide(branch, control).kind == "inconclusive"


def test_a_promising_but_unclear_gain_asks_for_seeds_and_says_how_many() -> None:
    kinds = {}
    for seed in range(30):
        verdict = decide(*planted(0.05, seed=seed))
        kinds[verdict.kind] = verdict
        if verdict.kind == "inconclusive":
            wanted = verdict.seeds_wanted
            assert wanted is not None
            assert 3 < wanted <= 6
            assert f"{wanted} seeds per branch would decide if " in verdict.reason
            chance = float(re.search(r"by this look: (\d+)%", verdict.reason)[1])  # type: ignore[index]
            assert (chance >= 50) == ("stays as it is" in verdict.reason) and 1 < chance < 99
        else:
            assert verdict.seeds_wanted is None
    assert "inconclusive" in kinds


def test_a_gain_above_zero_within_the_noise_of_few_trainings_asks_for_more() -> None:
    rng, config, found = np.random.default_rng(0), JudgeConfig(min_seeds=2, max_seeds=6), 0
    tasks = Population(tasks=60, attempts=2, seed_sd=0.05, task_branch_sd=0.3)
    for _ in range(60):
        p_T = tasks.difficulties(rng)
        sides = [tasks.trials(n, p_T, (1, 2), rng, effect=e) for n, e in (("b1", 0.2), ("b0", 0.0))]
        verdict = decide(*sides, config=config)
        if verdict.effect.low <= 0 or verdict.effect.mean > verdict.effect.noise_floor:
            continue
        wanted = verdict.seeds_wanted
        assert verdict.kind == ("reject" if wanted is None else "inconclusive"), verdict.reason
        assert " is within the noise" in verdict.reason and (wanted is None or 2 < wanted <= 6)
        found += wanted is not None
    assert found >= 3


def test_a_gain_below_what_is_worthwhile_is_rejected() -> None:
    verdict = decide(*planted(0.12), config=JudgeConfig(min_effect=0.5))
    assert verdict.kind == "reject"
    assert verdict.effect.low > 0


def test_a_later_look_asks_for_more() -> None:
    branch, control = planted(0.12)
    first, late = decide(branch, control), decide(branch, control, look=InterimAnalysis(number=40, alpha=1e-5))
    assert first.effect.low > late.effect.low
    assert late.effect.confidence == pytest.approx(1 - 2e-5)


def test_looks_that_tested_nothing_spend_nothing() -> None:
    branch, control = planted(0.12)
    waiting = decide(branch[:2], control)
    assert alpha_spending.next_look([waiting], 0.05).number == 1
    promoted = decide(branch, control)
    after = alpha_spending.next_look([waiting, promoted], 0.05)
    assert after.number == 2
    assert after.alpha > alpha_spending.next_look([promoted.model_copy(update={"kind": "reject"})], 0.05).alpha


@pytest.mark.parametrize("effect", [0.0, 0.04, 0.12, -0.1])
def test_a_verdict_is_recomputed_from_ledger_bodies_alone(effect: float) -> None:
    branch, control = planted(effect)
    noise = measure_noise("b0", scores_of(control, "gate"))
    stored = judge(JudgeInput("b1", "b0", branch, control, noise), FIRST)
    again = type(stored).model_validate_json(stored.model_dump_json())
    bodies = [[TrialFinished.model_validate_json(t.model_dump_json()) for t in side] for side in (branch, control)]
    same = type(noise).model_validate_json(noise.model_dump_json())
    assert not recomputed(again, JudgeInput("b1", "b0", *bodies, same))


def test_a_doctored_score_is_found_when_the_verdict_is_recomputed() -> None:
    branch, control = planted(0.12)
    noise = measure_noise("b0", scores_of(control, "gate"))
    stored = judge(JudgeInput("b1", "b0", branch, control, noise), FIRST)
    task = next(t for t, v in branch[0].scores[0].per_task.items() if v < 1)
    doctored = branch[0].scores[0].per_task | {task: 1.0}
    found = recomputed(stored, JudgeInput("b1", "b0", [trial("b1", 1, doctored, 4), *branch[1:]], control, noise))
    assert any(d.startswith("effect.mean") for d in found)


def test_a_verdict_worded_otherwise_holds_and_another_kind_does_not() -> None:
    branch, control = planted(0.12)
    noise = measure_noise("b0", scores_of(control, "gate"))
    stored = judge(JudgeInput("b1", "b0", branch, control, noise), FIRST)
    gates = tuple(g.model_copy(update={"message": "as an earlier version said it"}) for g in stored.gates)
    worded = stored.model_copy(update={"reason": "as an earlier version said it", "gates": gates})
    given = JudgeInput("b1", "b0", branch, control, noise)
    assert not recomputed(worded, given)
    other = worded.model_copy(update={"kind": "reject"})
    assert recomputed(other, given) == ("kind: 'reject' in the ledger, 'promote' recomputed",)


def test_unspent_verdicts_are_recomputed_too() -> None:
    branch, control = planted(0.12)
    for trials, findings in ((branch[:2], []), (branch, [leak("critical")])):
        stored = judge(JudgeInput("b1", "b0", trials, control, None, findings=findings), FIRST)
        assert not recomputed(stored, JudgeInput("b1", "b0", trials, control, None, findings=findings))


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6), min_size=3, max_size=6),
    alpha=st.floats(0.0001, 0.49),
    config=st.builds(
        JudgeConfig,
        min_effect=st.sampled_from([0.0, 0.01, 0.3]),
        min_seeds=st.integers(2, 3),
        worthwhile=st.sampled_from([None, 0.01, 0.5]),
        max_seeds=st.integers(3, 9),
    ),
    same=st.sampled_from(["scores", "weights"]),
    noise=st.booleans(),
)
def test_byte_identical_branches_are_never_promoted_and_never_called_harmful(
    scores: list[list[float]], alpha: float, config: JudgeConfig, same: str, noise: bool
) -> None:
    control = [
        trial("b0", s, {f"t{i}": x for i, x in enumerate(row)}, 2, policy_sha256=f"w{s}")
        for s, row in enumerate(scores, 1)
    ]
    # equal weights with other attempts drawn in evaluation, or equal scores
    branch = [
        t.model_copy(update={"branch": "b1"})
        if same == "scores"
        else trial("b1", t.seed, {f"t{i}": 1.0 for i in range(6)}, 2, policy_sha256=t.policy_sha256)
        for t in control
    ]
    pool = measure_noise("b0", scores_of(control, "gate")) if noise else None
    v = judge(JudgeInput("b1", "b0", branch, control, pool, config), InterimAnalysis(number=1, alpha=alpha))
    assert v.kind == "reject" and "harmful:" not in v.reason and "neither better nor harmful" in v.reason
    assert v.effect is not None and (v.effect.mean, v.effect.low, v.effect.high) == (0, 0, 0)
    assert (v.look, v.alpha) == (0, None), "it tested nothing and spent nothing"
