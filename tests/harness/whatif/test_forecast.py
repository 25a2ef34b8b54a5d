"""`harness.whatif.forecast`: what a replay says before training, on groups whose answer is known by construction."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.harness import Batch
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.whatif.backtest import backtest, quality, shift
from evotrainer.harness.whatif.replay import ReplayInput, lost, trained_groups
from evotrainer.records.interventions import Backtest, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from tests.harness.whatif.test_backtest import proxy_groups
from tests.harness_inputs import change, coded, recipe, rollout


def predicted(
    factor: str, new: object, metric: str, direction: str, size: float, rollouts: list[Rollout], parent: Recipe
) -> Backtest:
    iv = change(factor, new).model_copy(
        update={"prediction": Prediction.model_validate({"metric": metric, "direction": direction, "size": size})}
    )
    return backtest(iv, parent, rollouts)


def mixed(n: int = 30, dead: int = 10) -> list[Rollout]:
    """`n` groups with 3 of 8 correct and `dead` ones in which all fail; `visible` is the truth, `noise` a coin."""
    out = []
    for t in range(n + dead):
        for k in range(8):
            right = t < n and k < 3
            out.append(coded(t, k, "print(1)", right, right, components={"noise": float((3 * k + t) % 2)}))
    return out


class TestForecast:
    def test_the_truth_as_reward_is_the_unit(self) -> None:
        b = Batch.of(mixed())
        assert quality(b, b.truth, Recipe(rewards={"visible": 1.0})) == pytest.approx(
            np.sqrt(30 / 40 * 3 / 8 * 5 / 8), rel=1e-3
        )  # sum(A y) / sqrt(n sum(A^2)), A proportional to the centred outcome: its root mean square over all rollouts

    def test_scale_changes_nothing_and_noise_costs(self) -> None:
        b = Batch.of(mixed())
        r = Recipe(rewards={"visible": 1.0})
        assert quality(b, 5 * b.truth, r) == pytest.approx(quality(b, b.truth, r), rel=1e-3)
        assert quality(b, b.truth + b.component("noise"), r) < 0.9 * quality(b, b.truth, r)
        assert quality(b, -b.truth, r) < 0

    def test_better_rewards_are_forecast_above_worse_ones(self) -> None:
        options: list[dict[str, float]] = [
            {"hidden": 1.0},
            {"visible": 1.0, "fraction": 0.3},
            {"visible": 1.0, "noise": 0.5},
            {"visible": 1.0, "brevity": 1.0},
        ]
        said = [backtest(change("rewards", r), recipe(), proxy_groups()).forecast for r in options]
        assert all(f is not None for f in said)
        assert said == sorted(said, key=lambda f: -(f or 0.0))
        assert (said[0] or 0) > 0 > (said[-1] or 0)

    def test_dropping_dead_groups_alone_changes_no_gradient(self) -> None:
        b = backtest(change("group_filter", {"kind": "zero_variance"}), recipe(rewards={"visible": 1.0}), mixed())
        assert b.forecast == pytest.approx(0.0, abs=1e-9)

    def test_more_attempts_and_resampling_promise_more_and_a_narrow_band_of_hopeless_tasks_less(self) -> None:
        parent = recipe(rewards={"visible": 1.0}, group_size=8, group_filter={"kind": "zero_variance"})
        assert (backtest(change("group_size", 16), parent, mixed()).forecast or 0) > 0
        assert (backtest(change("group_size", 4), parent, mixed()).forecast or 0) < 0
        assert (backtest(change("resample", 2), parent, mixed()).forecast or 0) > 0
        easy = {"kind": "pass_rate_band", "low": 0.1, "high": 0.9}
        assert (backtest(change("curriculum", easy), parent, mixed()).forecast or 0) > 0

    def test_what_cannot_be_replayed_has_no_forecast(self) -> None:
        assert backtest(change("lr", 1e-4), recipe(), mixed()).forecast is None
        blind = [
            rollout(f"t{t}", k, reward=float(k < 2), components={"visible": float(k < 2), "hidden": float(k < 1)})
            for t in range(20)
            for k in range(8)
        ]
        assert backtest(change("rewards", {"hidden": 1.0}), recipe(), blind).forecast is None

    def test_reward_scaling_has_a_forecast_without_a_verdict(self) -> None:
        b = backtest(change("reward_scaling", "none"), recipe(rewards={"visible": 1.0}), mixed())
        assert b.verdict == "silent" and b.forecast is not None


class TestPrediction:
    def test_a_predicted_fall_that_is_a_rise_contradicts(self) -> None:
        parent = recipe(rewards={"visible": 1.0, "noise": 0.1})
        b = predicted("rewards", {"visible": 1.0}, "frac_reward_zero_std", "down", 0.1, mixed(), parent)
        assert (b.verdict, b.prediction) == ("contradicts", "contradicts")
        assert "the other way" in b.reason
        assert (b.numbers["predicted_before"], b.numbers["predicted_after"]) == (0.0, 0.25)

    def test_a_size_there_is_no_room_for_contradicts(self) -> None:
        b = predicted("group_filter", {"kind": "zero_variance"}, "frac_reward_zero_std", "down", 0.9, mixed(), recipe())
        assert b.prediction == "contradicts" and "no room" in b.reason

    def test_a_missed_size_contradicts_nothing(self) -> None:
        rs = mixed(n=20, dead=20)
        for r in rs:
            r.components["noise"] = float(int(r.task[1:]) >= 36 and r.k % 2 == 0)  # type: ignore[index]
        b = predicted("rewards", {"visible": 1.0, "noise": 0.1}, "frac_reward_zero_std", "down", 0.3, rs, recipe())
        assert b.prediction == "open"
        assert b.numbers["predicted_after"] == pytest.approx(0.4)

    def test_a_prediction_the_replay_reaches_agrees(self) -> None:
        b = predicted("group_filter", {"kind": "zero_variance"}, "frac_reward_zero_std", "down", 0.2, mixed(), recipe())
        assert (b.verdict, b.prediction) == ("supports", "agrees")

    def test_a_metric_that_no_replay_sees_stays_open_to_training(self) -> None:
        b = predicted("rewards", {"hidden": 1.0}, "entropy", "up", 5.0, proxy_groups(), recipe())
        assert b.prediction == "" and b.verdict == "supports"

    def test_the_error_of_a_shift_is_that_of_a_paired_difference(self) -> None:
        """Against a bootstrap over tasks."""
        rs = mixed()
        x = ReplayInput(
            Batch.of(rs),
            Recipe(rewards={"visible": 1.0}),
            Recipe(rewards={"visible": 1.0, "noise": 1.0}),
            HarnessContext(),
        )
        s = shift(x, "reward_std", {}, "rewards")
        assert s is not None
        by_task = {t: [r for r in rs if r.task == t] for t in dict.fromkeys(r.task for r in rs)}
        rng = np.random.default_rng(0)
        changes = []
        for _ in range(60):
            drawn = [
                r if n == 0 else type(r)(**{f: getattr(r, f) for f in r.__slots__}
                                         | {"id": f"{r.id}/{n}", "group": f"{r.group}/{n}", "task": f"{r.task}/{n}"})
                for n, t in enumerate(rng.choice(list(by_task), len(by_task)))
                for r in by_task[t]
            ]  # fmt: skip
            again = shift(ReplayInput(Batch.of(drawn), x.old, x.new, x.context), "reward_std", {}, "rewards")
            assert again is not None
            changes.append(again.change)
        assert s.se == pytest.approx(float(np.std(changes)), rel=0.35)


class TestLost:
    def test_what_a_curriculum_takes_out_is_counted(self) -> None:
        rs = mixed(n=30, dead=10) + [
            coded(100 + t, k, "print(1)", k < 7, k < 7, components={"noise": 0.0}) for t in range(10) for k in range(8)
        ]
        b = Batch.of(rs)
        narrow = {"kind": "pass_rate_band", "low": 0.1, "high": 0.5}
        x = ReplayInput(b, Recipe(rewards={"visible": 1.0}),
                        Recipe.model_validate({"rewards": {"visible": 1.0}, "curriculum": narrow}),
                        HarnessContext())  # fmt: skip
        m = lost(x)[1]
        assert m["lost_tasks"] == 20 and m["tasks_before"] == 50
        assert m["lost_correct"] == pytest.approx(70 / (70 + 90))
        assert m["lost_signal"] == pytest.approx(10 * 7 / 8 / (10 * 7 / 8 + 30 * 15 / 8))
        assert int(trained_groups(b, x.new, b.reward).sum()) == 30
        numbers = backtest(change("curriculum", narrow), x.old, rs).numbers
        assert {k: numbers[k] for k in m} == pytest.approx(m, abs=1e-6)
