"""`harness.whatif.backtest`: what a change would have done to crafted groups that exist already."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.algorithm.filters import FilterState, keep_groups
from evotrainer.harness import Batch, HarnessContext
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.harness.whatif.replay import compose, dead_share_at
from evotrainer.records.interventions import Backtest
from evotrainer.records.recipe import GroupFilter, Recipe
from evotrainer.records.rollout import Rollout
from tests.harness_inputs import READ, change, coded, groups, recipe, rollout


def proxy_groups(n: int = 40) -> list[Rollout]:
    """Groups of 8: two honest successes, two that fool the visible test, four failures; further components beside them.

    `format` is always earned, `noise` is a coin without meaning, `brevity` is paid for being wrong, `fraction` grades
    failures and correlates with correctness.
    """
    out = []
    for t in range(n):
        for k in range(8):
            right, fooled = k < 2, k in (2, 3)
            components = {
                "format": 1.0,
                "noise": float((k + t) % 2),
                "brevity": 0.0 if right else 1.0,
                "fraction": 1.0 if right else (0.6 if fooled else 0.1 * (k - 3)),
            }
            out.append(coded(t, k, READ + f"print(sum(xs) + {t})", right or fooled, right, components=components))
    return out


def replay(factor: str, new: object, parent: Recipe | None = None, rollouts: list[Rollout] | None = None) -> Backtest:
    return backtest(change(factor, new), parent or recipe(), proxy_groups() if rollouts is None else rollouts)


class TestRewards:
    def test_swapping_the_proxy_for_what_correlates_with_the_outcome_is_supported(self) -> None:
        b = replay("rewards", {"hidden": 1.0})
        assert b.verdict == "supports"
        assert b.numbers["misranked_before"] == pytest.approx(
            2 / 6 / 2, abs=1e-6
        )  # two of six wrong ones tie with the right ones
        assert b.numbers["misranked_after"] == 0
        assert b.numbers["correlation_after"] == pytest.approx(1.0)
        assert b.numbers["stored_agreement"] == 1.0
        assert b.rollouts == 320

    def test_the_harness_knows_components_by_data_not_by_name(self) -> None:
        """Names swapped, data kept: now `visible` is the component worth having."""
        swapped = [
            coded(t, k, "print(1)", k < 2, k < 4, components={"visible": float(k < 2), "hidden": float(k < 4)})
            for t in range(20)
            for k in range(8)
        ]
        b = replay("rewards", {"visible": 1.0}, recipe(rewards={"hidden": 1.0}), swapped)
        assert b.verdict == "supports"

    def test_a_constant_bonus_is_contradicted(self) -> None:
        b = replay("rewards", {"visible": 1.0, "format": 0.2})
        assert b.verdict == "contradicts"

    def test_a_nearly_constant_bonus_is_contradicted_as_a_constant(self) -> None:
        rs = proxy_groups()
        rs = [
            coded(int(r.task[1:]), r.k, "print(1)", r.components["visible"] == 1, r.outcome == "correct",
                  components={**r.components, "format": float(i % 40 != 0)})
            for i, r in enumerate(rs)
        ]  # fmt: skip
        b = replay("rewards", {"visible": 1.0, "format": 0.2}, rollouts=rs)
        assert b.verdict == "contradicts"
        assert "one value" in b.reason
        assert b.numbers["modal_share.format"] == pytest.approx(0.975)

    def test_a_component_paid_for_being_wrong_is_contradicted(self) -> None:
        b = replay("rewards", {"visible": 1.0, "brevity": 0.5})
        assert b.verdict == "contradicts"
        assert b.numbers["misranked_after"] > b.numbers["misranked_before"]

    def test_variance_from_a_blind_component_is_contradicted(self) -> None:
        b = replay("rewards", {"visible": 1.0, "noise": 3.0})
        assert b.verdict == "contradicts"
        assert b.numbers["variance_share.noise"] > 0.5
        assert abs(b.numbers["correlation.noise"]) < 0.1

    def test_grading_failures_revives_dead_groups(self) -> None:
        hard = [
            rollout(
                f"h{t}", k, reward=0.0, correct=False, components={"visible": 0.0, "hidden": 0.0, "fraction": 0.1 * k}
            )
            for t in range(20)
            for k in range(8)
        ]
        b = replay("rewards", {"visible": 1.0, "fraction": 0.5}, rollouts=proxy_groups(20) + hard)
        assert b.verdict == "supports"
        assert b.numbers["dead_before"] == pytest.approx(0.5)
        assert b.numbers["dead_after"] == 0
        assert b.numbers["revived_groups"] == 20
        assert b.numbers["revived_by.fraction"] == 20

    def test_scaling_the_only_component_changes_nothing_after_group_scaling(self) -> None:
        b = replay("rewards", {"visible": 3.0})
        assert b.verdict == "contradicts"
        assert "scale" in b.reason

    def test_removing_a_blind_component_is_supported(self) -> None:
        parent = recipe(rewards={"visible": 1.0, "noise": 0.2})
        assert replay("rewards", {"visible": 1.0}, parent).verdict == "supports"

    def test_a_component_that_was_never_stored_is_silent(self) -> None:
        b = replay("rewards", {"visible": 1.0, "style": 1.0})
        assert (b.verdict, b.numbers) == ("silent", {})
        assert "style" in b.reason

    def test_without_outcomes_order_is_unknown_and_the_answer_silent(self) -> None:
        rs = [
            rollout(f"t{t}", k, correct=None, components={"visible": float(k < 3), "hidden": float(k < 2)})
            for t in range(10)
            for k in range(8)
        ]
        assert replay("rewards", {"hidden": 1.0}, rollouts=rs).verdict == "silent"

    def test_known_cheats_must_not_be_paid_better(self) -> None:
        """A component on which programs that break out of the grader score high."""

        def make(t: int, k: int) -> Rollout:
            cheat = k == 7
            text = "import os\nos._exit(0)" if cheat else READ + f"print(sum(xs) + {t})"
            bonus = 1.0 if cheat or k < 2 else 0.0
            return coded(t, k, text, k < 4 and not cheat, k < 2, components={"bonus": bonus})

        rs = [make(t, k) for t in range(20) for k in range(8)]
        b = replay("rewards", {"visible": 1.0, "bonus": 1.0}, rollouts=rs)
        assert b.numbers["invalid"] == 20
        assert b.numbers["invalid_paid_after"] == 1.0
        assert b.verdict == "contradicts"
        assert "known-invalid" in b.reason

    def test_infrastructure_faults_take_no_part(self) -> None:
        rs = proxy_groups()
        faults = [rollout(r.task, 100 + r.k, reward=0.0, group=r.group, error_kind="sandbox") for r in rs[:80]]
        assert replay("rewards", {"hidden": 1.0}, rollouts=rs + faults) == replay(
            "rewards", {"hidden": 1.0}, rollouts=rs
        )


class TestShaping:
    def lengths(self, right: int, wrong: int) -> list[Rollout]:
        return [
            rollout(f"t{t}", k, reward=float(k < 4), correct=k < 4, components={"visible": float(k < 4)},
                    tokens=(right if k < 4 else wrong) + k % 2, finish="stop")
            for t in range(20)
            for k in range(8)
        ]  # fmt: skip

    def test_a_token_penalty_that_outweighs_correctness_is_contradicted(self) -> None:
        b = replay("length", {"kind": "token_penalty", "weight": 0.03}, rollouts=self.lengths(80, 10))
        assert b.verdict == "contradicts"
        assert b.numbers["inverted_after"] == 1.0

    def test_a_penalty_that_breaks_ties_between_equals_is_silent(self) -> None:
        assert (
            replay("length", {"kind": "correct_bonus", "weight": 0.1}, rollouts=self.lengths(30, 30)).verdict
            == "silent"
        )

    def test_length_rules_agree_with_their_definition(self) -> None:
        batch = Batch.of([rollout("t", 0, components={"visible": 1.0}, tokens=84, correct=True)])
        parent = recipe(max_tokens=96)

        def reward(**rule: object) -> float:
            return float(compose(batch, parent.with_factor("length", rule))[0])

        assert reward(kind="token_penalty", weight=0.01) == pytest.approx(1 - 0.84)
        assert reward(kind="overlong", weight=0.5, soft=0.75) == pytest.approx(1 - 0.5 * (84 - 72) / 24)
        assert reward(kind="correct_bonus", weight=0.2) == pytest.approx(1 + 0.2 * (1 - 84 / 96))

    def test_a_repetition_penalty_on_wrong_loops_is_supported_where_rewards_tie(self) -> None:
        rs = [
            rollout(f"t{t}", k, text="a b c d " * 6 if k > 3 else f"x{k} = y{k} + z{k} ; w{k}", reward=1.0,
                    correct=k <= 3, components={"visible": 1.0})
            for t in range(20)
            for k in range(8)
        ]  # fmt: skip
        b = replay("repetition_penalty", 0.5, rollouts=rs)
        assert b.verdict == "supports"
        assert b.numbers["misranked_before"] == pytest.approx(0.5)
        assert b.numbers["misranked_after"] == 0


class TestFiltersAndSampling:
    dead = [[0.0] * 4]
    live = [[0.0, 1.0, 0.0, 1.0]]

    def test_dropping_dead_groups_is_supported(self) -> None:
        b = replay("group_filter", {"kind": "zero_variance"}, rollouts=paid(self.dead * 10 + self.live * 20))
        assert b.verdict == "supports"
        assert b.numbers["keep_rate"] == pytest.approx(2 / 3)
        assert b.numbers["lost_variance"] == 0

    def test_a_filter_that_leaves_a_tenth_is_contradicted(self) -> None:
        b = replay("group_filter", {"kind": "zero_variance"}, rollouts=paid(self.dead * 27 + self.live * 3))
        assert b.verdict == "contradicts"

    def test_a_filter_that_throws_the_signal_away_is_contradicted(self) -> None:
        rs = paid(self.live * 20)
        b = replay("group_filter", {"kind": "snr_top_p", "keep": 0.5}, rollouts=rs)
        assert b.verdict == "contradicts"
        assert b.numbers["lost_mixed"] == pytest.approx(0.5)

    def test_nothing_to_drop_is_silent(self) -> None:
        assert replay("group_filter", {"kind": "zero_variance"}, rollouts=paid(self.live * 20)).verdict == "silent"

    def test_resampling_pays_where_a_third_is_dropped_and_not_where_nearly_all_is(self) -> None:
        parent = recipe(group_filter=GroupFilter(kind="zero_variance"))
        b = replay("resample", 2, parent, paid(self.dead * 10 + self.live * 20))
        assert b.verdict == "supports"
        assert b.numbers["filled_after"] == pytest.approx(1 - (1 / 3) ** 3)
        assert replay("resample", 2, parent, paid(self.dead * 27 + self.live * 3)).verdict == "contradicts"
        assert replay("resample", 2, parent, paid(self.live * 20)).verdict == "silent"

    def test_a_curriculum_that_skips_solved_tasks(self) -> None:
        rs = paid([[1.0] * 4] * 10 + self.live * 20)
        b = replay("curriculum", {"kind": "pass_rate_band", "low": 0.05, "high": 0.95}, rollouts=rs)
        assert b.verdict == "supports"
        assert b.numbers["dead_after"] == 0

    def test_a_curriculum_that_cuts_the_data_to_a_tenth(self) -> None:
        rs = paid([[1.0] * 4] * 27 + self.live * 3)
        assert replay("curriculum", {"kind": "pass_rate_band"}, rollouts=rs).verdict == "contradicts"

    def test_larger_groups_find_spread_smaller_ones_lose_it(self) -> None:
        rng = np.random.default_rng(0)
        rs = paid([[float(rng.random() < p) for _ in range(8)] for p in rng.beta(1, 3, 200)])
        assert replay("group_size", 16, rollouts=rs).verdict == "supports"
        assert replay("group_size", 4, rollouts=rs).verdict == "contradicts"

    def test_masking_wrong_truncated_answers_is_supported_correct_ones_contradicted(self) -> None:
        def batch(correct: bool) -> list[Rollout]:
            return [
                rollout(
                    f"t{t}",
                    k,
                    reward=float(k > 0 or correct),
                    correct=k > 0 or correct,
                    finish="length" if k == 0 else "stop",
                )
                for t in range(10)
                for k in range(4)
            ]

        assert replay("mask_truncated", True, rollouts=batch(False)).verdict == "supports"
        assert replay("mask_truncated", True, rollouts=batch(True)).verdict == "contradicts"

    def test_a_budget_below_correct_answers_is_contradicted(self) -> None:
        rs = TestShaping().lengths(80, 10)
        assert replay("max_tokens", 64, rollouts=rs).verdict == "contradicts"
        assert replay("max_tokens", 90, rollouts=rs).verdict == "silent"

    @pytest.mark.parametrize(
        ("cut", "right_if_cut", "verdict"),
        [(2, False, "supports"), (2, True, "silent"), (4, False, "silent"), (0, False, "silent")],
        ids=["ended ones are right", "no difference", "nothing ends", "nothing is cut"],
    )
    def test_a_larger_budget_is_supported_where_ending_goes_with_being_right(
        self, cut: int, right_if_cut: bool, verdict: str
    ) -> None:
        rs = [
            rollout(f"t{t}", k, reward=0.0, correct=k >= cut or right_if_cut, finish="length" if k < cut else "stop")
            for t in range(10)
            for k in range(4)
        ]
        assert replay("max_tokens", 4096, rollouts=rs).verdict == verdict


def paid(rewards: list[list[float]]) -> list[Rollout]:
    """Groups whose only component is `visible`."""
    return [
        rollout(r.task, r.k, reward=r.reward, correct=r.outcome == "correct", components={"visible": r.reward})
        for r in groups(rewards)
    ]


class TestWhatCannotBeReplayed:
    @pytest.mark.parametrize(
        ("factor", "new"), [("lr", 1e-4), ("loss", "dapo"), ("temperature", 0.8), ("knobs.history", "scrubbed")]
    )
    def test_changes_that_act_in_training_are_silent_with_the_reason(self, factor: str, new: object) -> None:
        b = replay(factor, new)
        assert b.verdict == "silent"
        assert "cannot be replayed" in b.reason

    def test_a_change_that_changes_nothing_is_contradicted(self) -> None:
        assert replay("rewards", {"visible": 1.0}).verdict == "contradicts"

    def test_a_value_that_is_no_recipe_is_contradicted_with_the_complaint(self) -> None:
        b = replay("group_filter", {"kind": "bogus"})
        assert b.verdict == "contradicts"
        assert "bogus" in b.reason
        assert replay("no_such_factor", 1).verdict == "contradicts"

    def test_a_handful_of_rollouts_is_too_few_to_judge(self) -> None:
        assert replay("rewards", {"hidden": 1.0}, rollouts=proxy_groups(3)).verdict == "silent"
        assert replay("rewards", {"hidden": 1.0}, rollouts=[]).verdict == "silent"


@settings(max_examples=30, deadline=None)
@given(
    stds=st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5]), min_size=1, max_size=60),
    kind=st.sampled_from(["none", "zero_variance", "ema_std", "snr_top_p"]),
    keep=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_filters_drop_every_dead_group_and_keep_the_strongest(stds: list[float], kind: str, keep: float) -> None:
    mask = keep_groups(np.array(stds), GroupFilter(kind=kind, keep=keep), FilterState())  # type: ignore[arg-type]
    if kind == "none":
        assert mask.all()
        return
    assert not mask[np.array(stds) == 0].any()
    if max(stds) > 0:
        assert mask[int(np.argmax(stds))]
    if keep == 1.0:
        assert mask[np.array(stds) > 0].all()


def test_the_chance_of_a_dead_smaller_group_is_counted_exactly() -> None:
    """One group with 2 of 4 solved: two draws are alike in 2 of 6 cases."""
    batch = Batch.of(groups([[1, 1, 0, 0]]))
    assert dead_share_at(batch, batch.reward, 2) == pytest.approx(2 / 6)
    assert dead_share_at(batch, batch.reward, 4) == 0
    assert math.isnan(dead_share_at(Batch.of([rollout()]), np.array([1.0]), 2))


class TestNegativeWeight:
    def long_failures(self, tokens: int) -> list[Rollout]:
        """Groups of four, one success of 10 tokens, failures of `tokens`: three advantages of -0.58, one of 1.73."""
        return [
            rollout(f"t{t}", k, reward=float(k == 0), correct=k == 0, tokens=10 if k == 0 else tokens)
            for t in range(10)
            for k in range(4)
        ]

    def test_a_lighter_weight_is_supported_where_failures_are_long(self) -> None:
        b = replay("negative_weight", 0.5, recipe(rewards={}), self.long_failures(30))
        assert b.verdict == "supports"
        assert b.numbers["negative_share_before"] == pytest.approx(0.75, abs=1e-6)
        assert b.numbers["negative_share_after"] == pytest.approx(0.6, abs=1e-6)
        assert b.forecast is None, "stored rollouts do not say how far training follows"

    def test_nothing_is_said_where_both_sides_are_even(self) -> None:
        assert replay("negative_weight", 0.5, recipe(rewards={}), self.long_failures(10)).verdict == "silent"
        assert replay("negative_weight", 2.0, recipe(rewards={}), self.long_failures(30)).verdict == "silent"

    def test_a_weight_that_meets_no_negative_advantage_is_contradicted(self) -> None:
        dead = [rollout(f"t{t}", k, reward=1.0, correct=True, tokens=9) for t in range(10) for k in range(4)]
        b = replay("negative_weight", 0.5, recipe(rewards={}), dead)
        assert b.verdict == "contradicts" and "no advantage is negative" in b.reason

    def test_without_token_counts_it_is_silent(self) -> None:
        bare = [rollout(f"t{t}", k, text="", reward=float(k), correct=bool(k)) for t in range(10) for k in range(2)]
        assert replay("negative_weight", 0.5, recipe(rewards={}), bare).verdict == "silent"


class TestSupervisedParts:
    OWN, TAUGHT = ([{"kind": kind, "steps": 2}, {"kind": "rl"}] for kind in ("own", "references"))

    def answers(self, *right: int) -> list[Rollout]:
        """Ten tasks for each number, of whose four attempts so many are right."""
        return [
            rollout(f"{i}-{t}", k, reward=float(k < n), correct=k < n, components={"tests": float(k < n)})
            for i, n in enumerate(right)
            for t in range(10)
            for k in range(4)
        ]

    def test_nothing_can_be_imitated_where_nothing_succeeded(self) -> None:
        parent = recipe(rewards={"tests": 1.0})
        assert replay("phases", self.OWN, parent, self.answers(0)).verdict == "contradicts"
        found = replay("phases", self.OWN, parent, self.answers(0, 2))
        assert found.verdict == "silent" and found.numbers == {"successes": 0.25, "unsolved_tasks": 0.5}

    def test_references_are_supported_where_tasks_are_never_solved(self) -> None:
        parent = recipe(rewards={"tests": 1.0})
        plan = {"phases": self.TAUGHT, "steps": parent.steps + 2}
        assert replay("phase_plan", plan, parent, self.answers(0, 2)).verdict == "supports"
        assert replay("phases", self.TAUGHT, parent, self.answers(1, 2)).verdict == "silent"
        assert replay("phases", self.TAUGHT, parent, self.answers(4)).verdict == "contradicts"
        assert replay("phases", self.TAUGHT, recipe(rewards={"other": 1.0}), self.answers(0)).verdict == "silent"


class TestReplay:
    def test_it_is_supported_where_rare_successes_meet_groups_without_any(self) -> None:
        parent, answers = recipe(rewards={"tests": 1.0}), TestSupervisedParts().answers
        b = replay("replay", {"weight": 0.1}, parent, answers(0, 1, 4))
        assert b.verdict == "supports"
        assert b.numbers == {"kept": pytest.approx(1 / 3, abs=1e-6), "none": pytest.approx(1 / 3, abs=1e-6)}
        assert replay("replay", {"weight": 0.1}, parent, answers(1, 2, 4)).verdict == "silent"
        assert replay("replay", {"weight": 0.1}, parent, answers(0, 4)).verdict == "contradicts"
        assert replay("replay", {"weight": 0.1, "rare": 1.0}, parent, answers(0, 4)).verdict == "supports"


class TestGoingOn:
    ON = {"start": "champion", "steps": 4, "phases": []}

    def replayed(self, rates: tuple[int, ...], scores: list[float] | None = None) -> Backtest:
        context = HarnessContext(curve=tuple({"score": s} for s in scores or ()))
        parent, answers = recipe(rewards={"tests": 1.0}), TestSupervisedParts().answers(*rates)
        return backtest(change("continuation", self.ON), parent, answers, context)

    def test_a_rising_score_supports_it_and_groups_without_a_spread_contradict_it(self) -> None:
        rising = [0.3, 0.3, 0.31, 0.32, 0.34, 0.36, 0.39, 0.41, 0.44, 0.46]
        found = self.replayed((1, 2), rising)
        assert found.verdict == "supports" and found.numbers["late_gain"] == pytest.approx(0.1, abs=0.02)
        assert found.numbers["dead_groups"] == 0.0
        assert self.replayed((1, 2), [0.4, 0.41] * 5).verdict == "silent"
        assert self.replayed((1, 2)).verdict == "silent", "no curve"
        assert self.replayed((0, 4), rising).verdict == "contradicts"

    def test_nothing_is_known_of_another_recipes_policy(self) -> None:
        other = recipe(rewards={"tests": 1.0}, lr=7e-5).model_dump(mode="json")
        b = replay("start", other, recipe(rewards={"tests": 1.0}), TestSupervisedParts().answers(1, 2))
        assert b.verdict == "silent"


class TestCurriculaByTag:
    def kinds(self, rates: dict[str, int], tasks: int = 10) -> list[Rollout]:
        """Ten tasks of each kind, four attempts each, so many of them right."""
        return [
            rollout(f"{kind}-{t}", k, reward=float(k < n), correct=k < n, detail={"tags": {"kind": kind}})
            for kind, n in rates.items()
            for t in range(tasks)
            for k in range(4)
        ]

    def test_a_frontier_is_supported_where_whole_kinds_are_dead(self) -> None:
        b = replay("curriculum", {"kind": "tag_frontier", "tag": "kind"}, recipe(rewards={}), self.kinds(
            {"k0": 0, "k1": 2, "k2": 4}
        ))  # fmt: skip
        assert b.verdict == "supports"
        assert b.numbers["dead_before"] == pytest.approx(2 / 3, abs=1e-6)
        assert b.numbers["dead_after"] == pytest.approx(0.2 / 1.2, abs=1e-6), "weights 0.1, 1, 0.1"
        assert b.numbers["keep_rate"] == pytest.approx(1.2**2 / (3 * 1.02), abs=1e-6)
        assert b.forecast is not None and b.forecast > 0

    def test_a_frontier_that_leaves_too_little_is_contradicted(self) -> None:
        rates = {f"k{i}": 0 for i in range(9)} | {"k9": 2}
        b = replay(
            "curriculum", {"kind": "tag_frontier", "tag": "kind", "floor": 0.01}, recipe(rewards={}), self.kinds(rates)
        )
        assert b.verdict == "contradicts" and "too few tasks" in b.reason

    def test_without_the_tag_nothing_is_said(self) -> None:
        b = replay(
            "curriculum", {"kind": "tag_frontier", "tag": "topic"}, recipe(rewards={}), self.kinds({"k0": 0, "k1": 2})
        )
        assert b.verdict == "silent" and "0 values of tag 'topic'" in b.reason

    def test_difficulty_must_go_with_failing(self) -> None:
        change = {"kind": "difficulty", "tag": "kind"}
        falling = replay("curriculum", change, recipe(rewards={}), self.kinds({"1": 2, "2": 1, "3": 0, "4": 0, "5": 0}))
        assert falling.verdict == "supports" and falling.numbers["dead_after"] == 0.0
        rising = replay("curriculum", change, recipe(rewards={}), self.kinds({"1": 0, "2": 1, "3": 4}))
        assert rising.verdict == "contradicts" and "larger numbers are easier" in rising.reason


class TestBatchShape:
    def shape(self, size: int, right: int, prompts: int, group: int) -> Backtest:
        parent = recipe(rewards={}, prompts_per_step=8, group_size=8, steps=30)
        rows = [rollout(f"t{t}", k, reward=float(k < right), correct=k < right) for t in range(10) for k in range(size)]
        return replay("batch_shape", {"prompts_per_step": prompts, "group_size": group, "steps": 30}, parent, rows)

    def test_halves_of_mixed_groups_are_supported(self) -> None:
        b = self.shape(8, 4, 16, 4)
        dead = 2 / 70  # C(4,4) + C(4,4) of C(8,4) halves are alike
        assert b.numbers["dead_after"] == pytest.approx(dead, abs=1e-6)
        assert b.numbers["live_groups_factor"] == pytest.approx(2 * (1 - dead), abs=1e-6)
        assert b.verdict == "supports" and b.forecast is None

    def test_halves_of_rarely_solved_groups_are_no_gain_by_themselves(self) -> None:
        b = self.shape(8, 1, 16, 4)
        assert b.numbers["dead_after"] == pytest.approx(0.5, abs=1e-6) and b.verdict == "silent"
        assert b.numbers["live_groups_factor"] == pytest.approx(1.0, abs=1e-6)
