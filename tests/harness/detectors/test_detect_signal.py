"""Signal and score detectors: each with a case it must see, one it must not, and one just short of its threshold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from evotrainer.harness import HarnessContext
from evotrainer.records.rollout import Rollout
from tests.harness_inputs import READ, code_batch, coded, curve, found, groups, reading, recipe, rollout

PROXY = ("visible", "hidden")


def fails(n: int) -> list[list[float]]:
    return [[0, 0, 0, 0]] * n


def mixed(n: int) -> list[list[float]]:
    return [[0, 1, 0, 1]] * n


class TestDeadGroups:
    def test_groups_that_all_fail_are_found_and_quoted(self) -> None:
        (f,) = found("dead_groups", groups(fails(6) + mixed(4)))
        assert (f.kind, f.severity) == ("dead_groups", "warn"), "6 of 10 are no proof of more than half"
        assert found("dead_groups", groups(fails(24) + mixed(16)))[0].severity == "warn"
        assert found("dead_groups", groups(fails(30) + mixed(16)))[0].severity == "critical"
        assert f.numbers["dead"] == pytest.approx(0.6)
        assert f.numbers["fail"] == pytest.approx(0.6)
        assert f.thresholds["critical"] == 0.5
        assert [q.rollout for q in f.quotes] == ["t0-0", "t1-0"]

    def test_groups_that_all_pass_are_saturation(self) -> None:
        (f,) = found("dead_groups", groups([[1, 1, 1]] * 4 + mixed(6)))
        assert (f.kind, f.severity) == ("saturation", "warn")

    def test_a_few_dead_groups_are_normal(self) -> None:
        assert found("dead_groups", groups(fails(3) + mixed(7))) == []

    def test_just_above_the_threshold_is_a_warning(self) -> None:
        (f,) = found("dead_groups", groups(fails(31) + mixed(69)))
        assert f.severity == "warn"

    def test_without_rewards_it_says_what_it_could_not_see(self) -> None:
        (f,) = found("dead_groups", [rollout(reward=None), rollout(k=1, reward=None)])
        assert (f.severity, f.missing) == ("info", ("reward",))


class TestLowSpread:
    def test_live_groups_with_tiny_differences(self) -> None:
        assert found("low_spread", groups([[0.5, 0.52, 0.5, 0.52]] * 6))[0].kind == "low_spread"

    def test_dead_groups_are_not_its_business(self) -> None:
        assert found("low_spread", groups(fails(6) + mixed(6))) == []

    def test_a_spread_of_six_hundredths_is_enough(self) -> None:
        assert found("low_spread", groups([[0.5, 0.62, 0.5, 0.62]] * 6)) == []


def weighted(noise: float, n: int = 12) -> list:  # type: ignore[type-arg]
    """Correctness alternates; a style component is independent of it."""
    return [
        rollout(f"t{t}", k, correct=bool(k % 2), components={"truth": float(k % 2), "style": noise * (k // 2)})
        for t in range(n)
        for k in range(4)
    ]


class TestFalseRevival:
    context = HarnessContext(recipe=recipe(rewards={"truth": 1.0, "style": 1.0}))

    def test_spread_from_a_component_blind_to_correctness(self) -> None:
        (f,) = found("false_revival", weighted(2.0), self.context)
        assert f.severity == "critical"
        assert f.numbers["variance_share"] == pytest.approx(0.8)
        assert abs(f.numbers["correlation"]) < 0.1
        assert "style" in f.claim

    def test_a_small_side_reward_is_fine(self) -> None:
        assert found("false_revival", weighted(0.5), self.context) == []

    def test_a_component_that_tracks_correctness_may_carry_the_variance(self) -> None:
        rs = [
            rollout(f"t{t}", k, correct=k > 1, components={"truth": float(k > 1), "style": float(k > 0)})
            for t in range(12)
            for k in range(4)
        ]
        assert found("false_revival", rs, self.context) == []

    def test_a_single_paid_component_cannot_revive_falsely(self) -> None:
        assert found("false_revival", weighted(2.0), HarnessContext(recipe=recipe(rewards={"style": 1.0}))) == []


class TestConstantBonus:
    def batch(self, missing: int) -> list:  # type: ignore[type-arg]
        return [
            rollout(f"t{t}", k, correct=bool(k % 2), components={"format": 0.0 if 4 * t + k < missing else 1.0})
            for t in range(25)
            for k in range(4)
        ]

    def test_a_bonus_that_nearly_everybody_earns(self) -> None:
        (f,) = found("constant_bonus", self.batch(3), HarnessContext(recipe=recipe(rewards={"format": 0.2})))
        assert f.numbers["coverage"] == pytest.approx(0.97)

    def test_a_bonus_that_one_in_ten_misses_still_gives_signal(self) -> None:
        assert found("constant_bonus", self.batch(10), HarnessContext(recipe=recipe(rewards={"format": 0.2}))) == []

    def test_an_unpaid_constant_is_nobodys_problem(self) -> None:
        assert found("constant_bonus", self.batch(0), HarnessContext(recipe=recipe(rewards={"truth": 1.0}))) == []

    def test_a_solved_task_set_is_not_a_bonus(self) -> None:
        rs = [rollout(f"t{t}", k, correct=True, components={"truth": 1.0}) for t in range(25) for k in range(4)]
        assert found("constant_bonus", rs, HarnessContext(recipe=recipe(rewards={"truth": 1.0}))) == []


class TestDeadTraining:
    def test_advantages_that_are_all_zero(self) -> None:
        (f,) = found("dead_training", groups(fails(5), advantage=0.0))
        assert (f.severity, f.numbers["zero_advantage"]) == ("critical", 1.0)

    def test_a_curve_on_which_every_group_is_dead(self) -> None:
        context = HarnessContext(curve=tuple({"frac_reward_zero_std": 1.0} for _ in range(3)))
        assert found("dead_training", groups(mixed(4)), context)[0].severity == "critical"

    def test_many_zero_advantages_are_not_dead_training(self) -> None:
        rs = groups(fails(9), advantage=0.0)
        rs += [rollout("live", k, reward=float(k % 2), advantage=1.0 - 2 * (k % 2)) for k in range(4)]
        assert found("dead_training", rs) == []

    def test_rollouts_outside_training_have_no_advantage_and_say_nothing(self) -> None:
        assert found("dead_training", groups(fails(9))) == []


class TestInfrastructure:
    def batch(self, faults: int, n: int = 100) -> list:  # type: ignore[type-arg]
        return [
            rollout(f"t{i // 4}", i, reward=1.0, error_kind="sandbox" if i < faults else None, error="no slot \x1b[31m")
            for i in range(n)
        ]

    def test_one_in_five_rollouts_lost(self) -> None:
        (f,) = found("infrastructure", self.batch(20))
        assert f.severity == "critical"
        assert "20x sandbox" in f.claim
        assert "\x1b" not in f.quotes[0].text

    def test_no_faults(self) -> None:
        assert found("infrastructure", self.batch(0)) == []

    def test_two_in_a_hundred_are_tolerated(self) -> None:
        assert found("infrastructure", self.batch(2)) == []
        assert found("infrastructure", self.batch(3))[0].severity == "warn"


class TestVoidGradings:
    def batch(self, void: Sequence[tuple[int, int]]) -> list[Rollout]:
        """60 groups of 8; those at (group, k) could not be graded."""
        return [
            rollout(f"t{g}", k, error_kind="sandbox", error="no verdict", reward=None)
            if (g, k) in void
            else rollout(f"t{g}", k)
            for g in range(60)
            for k in range(8)
        ]

    def test_voids_that_stand_together_are_the_policys(self) -> None:
        (f,) = found("void_gradings", self.batch([(3, 1), (3, 4), (3, 6), (40, 0), (40, 7)]))
        assert f.severity == "warn" and f.kind == "infrastructure"
        assert "5 of 480 gradings are void, 100% of them beside another one of the same group (2 tasks" in f.claim
        assert "by chance 7%" in f.claim

    def test_scattered_voids_are_the_machines(self) -> None:
        assert found("void_gradings", self.batch([(3, 1), (14, 4), (27, 6), (40, 0), (55, 7)])) == []
        assert found("void_gradings", self.batch([(3, 1), (3, 4), (27, 6), (40, 0), (55, 7)])) == []

    def test_a_machine_that_fails_everywhere_is_no_ones_doing(self) -> None:
        assert found("void_gradings", self.batch([(g, k) for g in range(60) for k in range(4)])) == []

    def test_two_are_too_few_and_faults_of_other_kinds_do_not_count(self) -> None:
        assert found("void_gradings", self.batch([(3, 1), (3, 4)])) == []
        other = [rollout(f"t{g}", k, error_kind="trainer" if g == 3 else None) for g in range(60) for k in range(8)]
        assert found("void_gradings", other) == []


def gap_batch(fooled_of_20: int, hidden_error: str = "wrong") -> list:  # type: ignore[type-arg]
    """40 tasks x 4; three of four pass the visible test, a share of them fails the hidden one."""

    def make(t: int, k: int) -> object:
        visible = k != 3
        fooled = visible and (3 * t + 5 * k) % 20 < fooled_of_20
        crash = "ValueError: max() arg is an empty sequence" if hidden_error == "crash" else None
        return coded(t, k, READ + f"print(max(xs) + {t})", visible, visible and not fooled, error=crash)

    return code_batch(40, 4, make)  # type: ignore[arg-type]


class TestProxyDivergence:
    def test_a_gap_of_fifteen_points_is_critical_and_quoted_with_the_failing_test(self) -> None:
        context = HarnessContext(recipe=recipe(), proxy=PROXY)
        (f,) = found("proxy_divergence", gap_batch(4), context)
        assert (f.kind, f.severity) == ("proxy_gap", "critical")
        assert f.numbers["gap"] == pytest.approx(24 / 160, abs=0.02)
        assert f.numbers["low"] > f.thresholds["critical"]
        assert 1 <= len(f.quotes) <= 4
        assert "hidden test: input '' expects '0', got 9" in f.quotes[0].note

    def test_no_gap_no_finding(self) -> None:
        assert found("proxy_divergence", gap_batch(0), HarnessContext(proxy=PROXY)) == []

    def test_a_gap_within_its_error_is_no_evidence(self) -> None:
        """Two fooled rollouts of 40: 5 points, but two standard errors are more than 3."""
        rs = [coded(t, 0, "print(max([1]))", True, hidden=t not in (3, 7), reward=1.0) for t in range(40)]
        assert found("proxy_divergence", rs, HarnessContext(proxy=PROXY)) == []

    def test_an_unpaid_proxy_is_only_a_warning(self) -> None:
        context = HarnessContext(recipe=recipe(rewards={"hidden": 1.0}), proxy=PROXY)
        assert found("proxy_divergence", gap_batch(4), context)[0].severity == "warn"

    def test_without_a_declared_pair_a_paid_component_is_compared_with_the_outcome(self) -> None:
        (f,) = found("proxy_divergence", gap_batch(4), HarnessContext(recipe=recipe()))
        assert "visible" in f.claim
        assert "outcome" in f.claim

    def test_a_necessary_part_of_what_is_paid_is_critical_only_where_the_whole_pay_is_fooled_too(self) -> None:
        """`robust` is earned by nearly all; it asks for less than correctness, and is paid beside `visible`."""

        def paid(fooled_of_20: int) -> list[Rollout]:
            out = gap_batch(fooled_of_20)
            return [replace(r, components={**r.components, "robust": float(i % 25 != 0)}) for i, r in enumerate(out)]

        both = HarnessContext(recipe=recipe(rewards={"visible": 1.0, "robust": 1.0}), proxy=PROXY)
        (robust,) = [f for f in found("proxy_divergence", paid(0), both) if f.claim.startswith("robust")]
        assert robust.severity == "warn" and robust.numbers["low"] > robust.thresholds["critical"]
        (robust,) = [f for f in found("proxy_divergence", paid(5), both) if f.claim.startswith("robust")]
        assert robust.severity == "critical", "what earns all of the pay is wrong, too"
        alone = HarnessContext(recipe=recipe(rewards={"robust": 1.0}), proxy=PROXY)
        (robust,) = [f for f in found("proxy_divergence", paid(0), alone) if f.claim.startswith("robust")]
        assert robust.severity == "critical", "where nothing else is paid it is the whole pay"

    def test_without_pair_recipe_or_outcome_there_is_nothing_to_compare(self) -> None:
        assert found("proxy_divergence", gap_batch(4)) == []


class TestProxySlopes:
    def at(self, visible: tuple[float, float], hidden: tuple[float, float]) -> list:  # type: ignore[type-arg]
        lines = curve(rewards_per_visible_per_mean=visible, rewards_per_hidden_per_mean=hidden)
        return found("proxy_slopes", groups(mixed(2)), HarnessContext(proxy=PROXY, curve=lines))

    def test_the_proxy_rises_while_the_truth_stands_still(self) -> None:
        (f,) = self.at((0.66, 0.81), (0.54, 0.53))
        assert (f.kind, f.severity) == ("proxy_gap", "critical")

    def test_both_rise_together(self) -> None:
        assert self.at((0.6, 0.8), (0.5, 0.7)) == []

    def test_a_truth_that_gains_most_of_the_way_is_learning(self) -> None:
        assert self.at((0.6, 0.8), (0.5, 0.62)) == []

    def test_three_points_are_no_trend(self) -> None:
        lines = curve(3, rewards_per_visible_per_mean=(0.6, 0.8), rewards_per_hidden_per_mean=(0.5, 0.4))
        assert found("proxy_slopes", groups(mixed(2)), HarnessContext(proxy=PROXY, curve=lines)) == []

    def unnamed(self, n: int = 30, **lines: tuple[float, float]) -> list:  # type: ignore[type-arg]
        return found("proxy_slopes", groups(mixed(2)), HarnessContext(curve=curve(n, **lines)))

    def test_reward_rises_over_a_flat_score_without_named_components(self) -> None:
        (f,) = self.unnamed(reward=(0.2, 0.9), score=(0.5, 0.505))
        assert (f.kind, f.severity) == ("proxy_gap", "critical")
        assert self.unnamed(reward=(2.0, 9.0), score=(0.5, 0.45))[0].severity == "critical"
        assert self.unnamed(reward=(2.0, 9.0), score=(0.5, 0.5))[0].severity == "warn"
        assert self.unnamed(reward=(2.0, 9.0), score=(50.0, 50.0))[0].severity == "warn"
        assert self.unnamed(reward=(2.0, 9.0), score=(150.0, 150.0))[0].severity == "warn"
        assert not self.unnamed(reward=(2.0, 9.0), score=(0.97, 0.97)), "at its ceiling"

    def test_reward_that_rises_with_the_score_is_learning(self) -> None:
        assert self.unnamed(reward=(0.2, 0.9), score=(0.2, 0.7)) == []
        assert self.unnamed(n=7, reward=(0.2, 0.9), score=(0.5, 0.5)) == []
        assert self.unnamed(reward=(0.2, 0.9)) == []

    def test_a_reward_that_is_the_score_on_another_scale_has_no_gap(self) -> None:
        assert self.unnamed(reward=(0.3, 0.5), score=(0.3, 0.5)) == []
        signed = [replace(r, reward=2 * (r.reward or 0.0) - 1) for r in groups(mixed(2))]
        context = HarnessContext(curve=curve(30, reward=(-0.4, 0.0), score=(0.3, 0.5)))
        assert found("proxy_slopes", signed, context) == []

    @pytest.mark.parametrize(("a", "b"), [(3.0, 0.0), (100.0, 0.0), (2.0, -1.0), (50.0, -40.0), (0.01, 5.0)])
    def test_a_reward_on_another_scale_is_compared_by_its_direction(self, a: float, b: float) -> None:
        rng = random.Random(3)
        score = [0.3 + 0.012 * i + rng.gauss(0, 0.02) for i in range(36)]

        def told(reward: list[float], of: list[float]) -> list[str]:
            rows = tuple(
                {"step": float(i), "reward": p, "score": t} for i, (p, t) in enumerate(zip(reward, of, strict=True))
            )
            return [f.severity for f in found("proxy_slopes", [], HarnessContext(curve=rows))]

        assert told([a * v + b for v in score], score) == []
        assert told([a * v + b for v in score], [100 * v for v in score]) == []
        noisy = [a * (v + rng.gauss(0, 0.02)) + b for v in score]
        assert told(noisy, [0.3 + 0.15 * (v - 0.3) + rng.gauss(0, 0.03) for v in score]) == [], "too noisy to tell"
        assert told([10 * a * v + b + 5 for v in score], [0.5 + rng.gauss(0, 0.01) for _ in score]) == ["warn"]
        assert told([10 * a * v + b + 5 for v in score], [0.9 - 0.5 * v for v in score]) == ["critical"]
        turned = [*score[:18], *(score[17] - 0.01 * i + rng.gauss(0, 0.01) for i in range(18))]
        assert told([10 * a * v + b + 5 for v in score], turned) == ["critical"]


class TestEdgeCrash:
    def test_programs_that_crash_on_the_empty_input(self) -> None:
        (f,) = found("edge_crash", gap_batch(4, "crash"))
        assert f.kind == "edge_crash"
        assert f.severity == "critical"
        assert f.numbers["explains"] == 1.0
        assert f.numbers["empty_inputs"] == 1.0
        assert "ValueError" in f.quotes[0].note

    def test_wrong_answers_are_not_crashes(self) -> None:
        assert found("edge_crash", gap_batch(4)) == []

    def test_programs_that_crash_everywhere_are_just_wrong(self) -> None:
        rs = code_batch(20, 4, lambda t, k: coded(t, k, "print(1/0)", False, False, error="ZeroDivisionError"))
        assert found("edge_crash", rs) == []

    def test_two_crashes_in_a_hundred_and_sixty_are_noise(self) -> None:
        rs = code_batch(
            40,
            4,
            lambda t, k: coded(t, k, READ + "print(max(xs))", True, (t, k) not in ((1, 1), (2, 2)), error="ValueError"),
        )
        assert found("edge_crash", rs) == []

    def test_without_recorded_tests_it_says_so(self) -> None:
        assert found("edge_crash", groups(mixed(4)))[0].missing == ("detail.tests",)


class TestPolicyCollapse:
    def test_far_below_the_start_policy(self) -> None:
        context = HarnessContext(base=reading(accuracy=(0.5, 0.02)))
        assert found("policy_collapse", groups([[0, 0, 0, 1]] * 20 + fails(20)), context)[0].severity == "critical"

    def test_above_the_start_policy(self) -> None:
        assert found("policy_collapse", groups(mixed(20)), HarnessContext(base=reading(accuracy=(0.4, 0.02)))) == []

    def test_a_drop_within_the_noise(self) -> None:
        context = HarnessContext(base=reading(accuracy=(0.6, 0.05)))
        assert found("policy_collapse", groups(mixed(20)), context) == []

    def test_without_a_base_reading_there_is_nothing_to_compare(self) -> None:
        assert found("policy_collapse", groups(fails(20))) == []


class TestEntropyCollapse:
    def at(self, entropy: tuple[float, float], **context: object) -> list:  # type: ignore[type-arg]
        rs = groups(mixed(4), entropy=entropy[1])
        return found("entropy_collapse", rs, HarnessContext(curve=curve(entropy=entropy), **context))  # type: ignore[arg-type]

    def test_entropy_at_a_tenth_of_its_start(self) -> None:
        assert self.at((0.5, 0.05))[0].severity == "critical"

    def test_entropy_that_halves_is_learning(self) -> None:
        assert self.at((0.28, 0.13)) == []

    def test_low_entropy_with_a_better_score_is_competence(self) -> None:
        assert self.at((0.5, 0.05), base=reading(accuracy=0.3, entropy=0.5)) == []

    def test_without_any_start_it_is_silent(self) -> None:
        assert found("entropy_collapse", groups(mixed(4), entropy=0.01)) == []


class TestExplorationCollapse:
    def same(self, logprob: float, distinct: int) -> list:  # type: ignore[type-arg]
        rs = [
            rollout(f"t{t}", k, text=f"print({k % distinct})", reward=float(k % 2), mean_logprob=logprob)
            for t in range(8)
            for k in range(8)
        ]
        return found("exploration_collapse", rs)

    def test_certain_of_every_token_and_always_the_same_answer(self) -> None:
        assert self.same(-0.02, 1)[0].severity == "critical"

    def test_a_policy_that_still_varies_its_answers(self) -> None:
        assert self.same(-0.02, 6) == []

    def test_few_answers_at_a_moderate_log_probability(self) -> None:
        assert self.same(-0.08, 3)[0].severity == "warn"
        assert self.same(-0.02, 3)[0].severity == "critical"
        assert self.same(-0.11, 3) == []

    def test_without_log_probabilities_it_says_so(self) -> None:
        assert found("exploration_collapse", groups(mixed(4)))[0].missing == ("mean_logprob",)


class TestOffPolicyDrift:
    def at(self, **lines: tuple[float, float]) -> list:  # type: ignore[type-arg]
        return found("off_policy_drift", groups(mixed(2)), HarnessContext(curve=curve(**lines)))

    def test_a_huge_ratio(self) -> None:
        assert self.at(ratio_max=(1.0, 400.0))[0].severity == "critical"

    def test_ratios_near_one(self) -> None:
        assert self.at(ratio_max=(1.0, 1.3), kl=(0.0, 0.2)) == []

    def test_a_large_kl_that_no_longer_rises_is_where_the_policy_is(self) -> None:
        assert self.at(kl=(0.8, 0.7)) == []
        assert self.at(kl=(0.0, 0.8))[0].severity == "warn"
