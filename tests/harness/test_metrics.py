"""`harness.metrics` and `harness.layers`: hand-computed values, and properties that must hold for any rewards."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch, HarnessContext, measure
from evotrainer.harness.columns.numerics import clustered_mean, pair_order
from evotrainer.harness.columns.source import InMemoryRollouts
from evotrainer.harness.layers.score import pass_at_k
from evotrainer.harness.metrics import METRICS
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from tests.harness_inputs import READ, acting, coded, groups, metrics, reading, recipe, rollout


def test_accuracy_reward_and_avg_at_n_by_hand() -> None:
    m = metrics(groups([[1, 1, 0, 0], [1, 0]]))
    assert m["accuracy"].value == pytest.approx(3 / 6)
    assert m["reward"].value == pytest.approx(0.5)
    assert m["avg@n"].value == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert m["accuracy"].n == 6


def test_the_standard_error_is_clustered_by_task() -> None:
    """Two tasks, one always solved, one never: eight rollouts carry two independent facts."""
    values, tasks = np.array([1.0] * 4 + [0.0] * 4), np.array([0] * 4 + [1] * 4)
    mean, se, n = clustered_mean(values, tasks)
    assert (mean, n) == (0.5, 8)
    assert se == pytest.approx(math.sqrt(2 / 1 * (2.0**2 + 2.0**2)) / 8)  # = 0.5; the naive one would be 0.19
    assert clustered_mean(values, np.zeros(8, dtype=np.int64))[1] is None


def test_pass_at_k_equals_the_average_over_all_subsets() -> None:
    outcomes = [1, 0, 0, 1, 0]
    for k in range(1, 6):
        picks = list(combinations(outcomes, k))
        assert pass_at_k(5, 2, k) == pytest.approx(sum(any(p) for p in picks) / len(picks))


@given(n=st.integers(1, 12), data=st.data())
def test_pass_at_k_grows_with_k_and_with_solutions(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    values = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(c / n)
    assert all(pass_at_k(n, c, k) <= pass_at_k(n, min(n, c + 1), k) + 1e-12 for k in range(1, n + 1))


@settings(max_examples=25, deadline=None)
@given(
    rewards=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=5), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_the_order_of_rollouts_does_not_matter(rewards: list[list[float]], seed: int) -> None:
    rs = groups(rewards)
    shuffled = rs[:]
    random.Random(seed).shuffle(shuffled)
    names = (
        "accuracy",
        "avg@n",
        "reward_std",
        "frac_reward_zero_std",
        "dead_pass",
        "misranked_pairs",
        "distinct_solutions",
    )
    a, b = ({name: m[name].value for name in names} for m in (metrics(rs), metrics(shuffled)))
    assert a == pytest.approx(b)
    assert a["accuracy"] is not None and a["avg@n"] is not None


def test_dead_groups_are_split_by_how_they_died() -> None:
    m = metrics(groups([[0, 0], [1, 1], [1, 1], [0, 1]]))
    assert m["frac_reward_zero_std"].value == pytest.approx(3 / 4)
    assert m["dead_fail"].value == pytest.approx(1 / 4)
    assert m["dead_pass"].value == pytest.approx(2 / 4)
    assert m["dead_other"].value == 0
    assert m["reward_std"].value == pytest.approx(0.5 / 4)
    assert m["effective_groups"].value == pytest.approx(1 / 4)


def test_dead_groups_are_those_of_the_training_where_an_evaluation_has_smaller_ones() -> None:
    trained = tuple({"step": i, "frac_reward_zero_std": 0.4, "dead_fail": 0.3, "dead_pass": 0.1} for i in (1, 2))
    pairs = groups([[0, 0], [1, 1]])
    small = metrics(pairs, HarnessContext(recipe=recipe(group_size=8, prompts_per_step=5), curve=trained))
    read = {k: small[k].value for k in ("frac_reward_zero_std", "dead_fail", "dead_pass", "dead_other")}
    assert read == pytest.approx({"frac_reward_zero_std": 0.4, "dead_fail": 0.3, "dead_pass": 0.1, "dead_other": 0.0})
    assert small["frac_reward_zero_std"].n == 10 and small["frac_reward_zero_std"].se == pytest.approx(
        (0.24 / 10) ** 0.5
    )
    for other in (
        HarnessContext(recipe=recipe(group_size=2), curve=trained),
        HarnessContext(recipe=recipe(group_size=8), curve=({"step": 1, "frac_reward_zero_std": 0.4},)),
        HarnessContext(curve=trained),
    ):
        assert metrics(pairs, other)["frac_reward_zero_std"].value == 1.0


def test_a_group_that_fooled_the_reward_is_dead_but_not_all_pass() -> None:
    rs = [rollout("t0", 0, reward=1.0, correct=True), rollout("t0", 1, reward=1.0, correct=False)]
    m = metrics(rs + groups([[0, 1]])[:0] + [rollout("t1", k, reward=float(k), correct=bool(k)) for k in range(2)])
    assert m["dead_other"].value == pytest.approx(1 / 2)
    assert m["dead_pass"].value == 0


def test_groups_of_one_rollout_have_no_spread_and_are_not_dead() -> None:
    m = metrics(groups([[1], [0], [0, 1]]))
    assert m["frac_reward_zero_std"].value == 0
    assert m["frac_reward_zero_std"].n == 1


def test_variance_shares_sum_to_one_and_name_the_noisy_component() -> None:
    rs = [
        rollout(f"t{t}", k, reward=0.0, correct=bool(k % 2), components={"truth": float(k % 2), "noise": float(k // 2)})
        for t in range(3)
        for k in range(4)
    ]
    m = metrics(rs, HarnessContext(recipe=recipe(rewards={"truth": 1.0, "noise": 3.0})))
    assert m["rewards/truth/variance_share"].value == pytest.approx(1 / 10)
    assert m["rewards/noise/variance_share"].value == pytest.approx(9 / 10)
    assert m["rewards/truth/correlation"].value == pytest.approx(1.0)
    assert m["rewards/noise/correlation"].value == pytest.approx(0.0)
    assert m["rewards/noise/coverage"].value == pytest.approx(0.5)


def test_the_proxy_gap_is_paired_and_wants_the_environments_pair() -> None:
    rs = [coded(t, k, "print(sum([1]))", visible=True, hidden=k == 0) for t in range(2) for k in range(4)]
    assert metrics(rs, HarnessContext(proxy=("visible", "hidden")))["proxy_gap"].value == pytest.approx(0.75)
    assert metrics(rs)["proxy_gap"].missing == ("context.proxy",)
    unknown = metrics(rs, HarnessContext(proxy=("visible", "absent")))["proxy_gap"]
    assert unknown.value is None
    assert "components.absent" in unknown.missing


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 1.0]), st.booleans()), min_size=1, max_size=20)
)
def test_misranked_pairs_equal_a_count_over_all_pairs(rows: list[tuple[int, float, bool]]) -> None:
    group = np.array([g for g, _, _ in rows])
    reward, truth = np.array([r for _, r, _ in rows]), np.array([float(t) for _, _, t in rows])
    pairs, inverted, tied = pair_order(reward, truth, group, 3)
    for g in range(3):
        right = [r for (h, r, t) in rows if h == g and t]
        wrong = [r for (h, r, t) in rows if h == g and not t]
        assert pairs[g] == len(right) * len(wrong)
        assert inverted[g] == sum(b > a for a in right for b in wrong)
        assert tied[g] == sum(b == a for a in right for b in wrong)


def test_infrastructure_faults_are_in_no_rate_and_counted_apart() -> None:
    healthy = groups([[1, 0], [1, 0]])
    faults = [rollout("t0", 10 + i, reward=0.0, correct=False, error_kind="sandbox") for i in range(4)]
    a, b = metrics(healthy), metrics(healthy + faults)
    assert b["error_rate"].value == pytest.approx(4 / 8)
    assert b["error_rate"].n == 8
    for name, m in a.items():
        if name != "error_rate":
            assert b[name] == m


def test_missing_fields_are_named_and_nothing_is_invented() -> None:
    m = metrics([Rollout(id="a", task="t", turns=(), reward=None), Rollout(id="b", task="t", turns=(), reward=None)])
    assert m["reward"].value is None
    assert m["reward"].missing == ("reward",)
    assert m["accuracy"].missing == ("outcome",)
    assert m["entropy"].missing == ("entropy",)
    assert m["tool_failure_rate"].missing == ("tool_ok",)
    assert m["completions/mean_length"].missing == ("tokens",)


def test_no_rollouts_at_all_give_no_numbers() -> None:
    m = metrics([])
    assert all(v.value is None for v in m.values()), [v for v in m.values() if v.value is not None]


def test_a_rollout_recorded_twice_counts_once() -> None:
    rs = groups([[1, 0]])
    assert Batch.of(rs + rs).n == 2


def test_rewards_that_are_not_finite_count_as_missing() -> None:
    m = metrics(
        [*groups([[1.0, 0.0]]), rollout("t0", 7, reward=math.inf, correct=None), rollout("t0", 8, reward=math.nan)]
    )
    assert m["reward"].value == pytest.approx(0.5)
    assert m["reward"].n == 2


def test_solutions_that_differ_in_names_and_comments_are_one_solution() -> None:
    same = ["a = input()\nprint(len(a))", "# count\nname = input()\nprint(len(name))"]
    other = "b = input()\nprint(b[0])"
    rs = [rollout("t", k, text=t) for k, t in enumerate([*same, other, same[0]])]
    assert metrics(rs)["distinct_solutions"].value == pytest.approx(2 / 4)


def test_repetition_and_runs_are_those_counted_by_hand() -> None:
    m = metrics([rollout("t", 0, text="a b c d a b c d")])
    assert m["ngram_repetition"].value == pytest.approx(1 - 4 / 5)
    assert metrics([rollout("t", 0, text="x\ny\ny\ny\nz")])["action_run"].value == 3


def test_output_that_ignores_its_input_has_no_dependence() -> None:
    def text(t: int) -> str:
        return f"print(sum(x * {t + 30} for x in xs if x > {t * 3 + 100}))"

    answers = [rollout(f"t{t}", k, text=text(t), prompt=f"scale by {t}") for t in range(12) for k in range(2)]
    template = [rollout(f"t{t}", k, text="print(sum(xs))", prompt=f"scale by {t}") for t in range(12) for k in range(2)]
    assert metrics(answers)["io_dependence"].value == pytest.approx(1.0)
    assert metrics(template)["io_dependence"].value == pytest.approx(0.0)


def test_tool_calls_are_counted_by_kind() -> None:
    rs = [
        acting(0, 0, ["ls", ("cat a.py", False), "sed -i s/1/2/ a.py", ("pytest -q", False)], True),
        acting(0, 1, ["grep x a.py", "cat a.py"], False),
    ]
    m = metrics(rs)
    assert m["tool_calls"].value == pytest.approx(3.0)
    assert m["tool_failure_rate"].value == pytest.approx(1 / 6)  # tests that ran and failed are no failed call
    assert m["edit_ratio"].value == pytest.approx((1 / 4 + 0) / 2)
    assert m["self_test_rate"].value == pytest.approx(0.5)
    assert m["search_ratio"].value == pytest.approx((2 / 4 + 1) / 2)
    assert m["turns"].value == pytest.approx(3.0)


def test_tokens_fall_back_to_those_of_the_turns() -> None:
    turns = (
        Turn("user", "hi", tokens=5),
        Turn("assistant", "a", tokens=3),
        Turn("assistant", "b", (ToolCall("x"),), 4),
    )
    assert metrics([rollout(turns=turns)])["completions/mean_length"].value == pytest.approx(7)


def test_layers_come_in_order_and_every_metric_is_documented() -> None:
    layers = [m.layer for m in metrics(groups([[1, 0]])).values()]
    assert layers == sorted(layers, key=["score", "signal", "behaviour"].index)
    assert all((m.function.__doc__ or "").strip() for m in METRICS.values())


def test_an_unknown_metric_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="unknown metric bogus"):
        measure(Batch.of([]), names=["bogus"])


REPOSITORY = ("edit_ratio", "edit_coverage", "self_test_rate", "first_effective_edit")


@pytest.mark.parametrize("name", REPOSITORY)
def test_only_repository_work_is_judged_by_its_edits_and_tests(name: str) -> None:
    chat = [acting(t, k, ["find_user_id", "get_order 12"], True) for t in range(4) for k in range(4)]
    unseen = metrics(chat)[name]
    assert (unseen.value, unseen.missing) == (None, ("edits or tests",))
    work = [acting(t, k, ["ls", "sed -i s/1/2/ a.py", "pytest"], True) for t in range(4) for k in range(4)]
    assert metrics(work)[name].value is not None
    before = HarnessContext(base=reading(edit_ratio=0.3))
    if name in REPOSITORY[:3]:
        assert metrics(chat, before)[name].value == 0.0


def test_a_components_correlation_counts_the_rollouts_that_have_both() -> None:
    rs = [
        rollout(f"t{i // 4}", i, reward=1.0, correct=None if i == 1 else i % 2 == 0, components=c)
        for i in range(16)
        for c in [{"hidden": float(i % 2 == 0)} if i < 10 else {}]
    ]
    assert metrics(rs)["rewards/hidden/correlation"].n == 9


def test_a_rate_of_too_small_a_sample_is_not_said() -> None:
    rs = [coded(i % 8, i, READ + "print(sum(xs))", True, True) for i in range(40)]
    whole = InMemoryRollouts(rs).read()
    assert measure(Batch.over(InMemoryRollouts(rs), whole))["reads_input"].n == 40
    for column in ("is_code", "reads_input"):
        whole.columns[column][5:] = math.nan  # type: ignore[index]
    few = measure(Batch.over(InMemoryRollouts(rs), whole))["reads_input"]
    assert (few.value, few.n, few.missing) == (None, 5, ("sampled programs",))


def test_the_negative_share_by_hand_and_from_the_curve() -> None:
    """Two tasks: |A| x tokens is 10 up and 30 down in one, 8 up and 8 down in the other."""
    rows = [
        rollout("a", 0, advantage=1.0, tokens=10),
        rollout("a", 1, advantage=-1.0, tokens=30),
        rollout("b", 0, advantage=2.0, tokens=4),
        rollout("b", 1, advantage=-0.5, tokens=16),
        rollout("b", 2, advantage=None, tokens=1000),
    ]
    m = metrics(rows)["negative_share"]
    share = 38 / 56
    # by task, what a ratio of sums leaves over: 30 - 40 share and 8 - 16 share
    assert m.value == pytest.approx(share) and m.n == 4
    assert m.se == pytest.approx(math.sqrt(2 * ((30 - 40 * share) ** 2 + (8 - 16 * share) ** 2)) / 56)
    search = [rollout("a", 0, tokens=5), rollout("a", 1, tokens=5)]
    curve = ({"step": 1.0, "negative_share": 0.5}, {"step": 2.0}, {"step": 3.0, "negative_share": 0.7})
    from_curve = metrics(search, HarnessContext(curve=curve))["negative_share"]
    assert from_curve.value == pytest.approx(0.6) and from_curve.n == 2
    assert metrics(search)["negative_share"].missing == ("advantage and tokens, or curve.negative_share",)


def tagged(task: int, kind: str, right: int, of: int = 4) -> list[Rollout]:
    detail = {"tags": {"kind": kind, "name": f"n{task}"}}
    return [rollout(f"t{task}", k, reward=float(k < right), correct=k < right, detail=detail) for k in range(of)]


def test_pass_rates_by_tag_by_hand() -> None:
    rows = [r for t, n in enumerate((4, 3, 4)) for r in tagged(t, "easy", n)]
    rows += [r for t, n in enumerate((0, 0, 1, 0), 3) for r in tagged(t, "hard", n)]
    rows += tagged(9, "once", 2)
    m = {k: v for k, v in metrics(rows).items() if k.startswith("pass_rate")}
    assert m.keys() == {"pass_rate/kind=easy", "pass_rate/kind=hard"}, "no tag of one task each, no value of one task"
    easy = m["pass_rate/kind=easy"]
    assert (easy.value, easy.n) == (pytest.approx(11 / 12), 12)
    p = 11 / 12
    assert easy.se == pytest.approx(math.sqrt(3 / 2 * (2 * (4 - 4 * p) ** 2 + (3 - 4 * p) ** 2)) / 12)
    assert m["pass_rate/kind=hard"].value == pytest.approx(1 / 16)
    assert not any(k.startswith("pass_rate") for k in metrics(groups([[1, 0], [1, 1]])))


def test_the_tags_of_an_environments_own_tasks_are_told_apart() -> None:
    """Tasks that this test did not write: those of the maths environment, right where they are not countdown's."""
    from evotrainer.envs.registry import open_environment

    env = open_environment({"name": "math"}, accept_tier_e=True)
    tasks = env.tasks("search")
    rows = []
    for t in tasks:
        right = t.tags["generator"] != "countdown"
        rows += [rollout(t.id, k, reward=1.0, correct=right, detail={"tags": dict(t.tags)}) for k in (0, 1)]
    rates = {k: v.value for k, v in metrics(rows).items() if k.startswith("pass_rate/generator=")}
    assert rates.pop("pass_rate/generator=countdown") == 0.0
    assert len(rates) >= 2 and set(rates.values()) == {1.0}


def test_late_gain_is_the_slope_of_the_last_half() -> None:
    curve = tuple({"step": float(i), "score": s} for i, s in enumerate([0.9, 0.1, 0.5, 0.3, 0.4, 0.5, 0.6, 0.7]))
    assert metrics([rollout()], HarnessContext(curve=curve))["late_gain"].value == pytest.approx(0.3)
    assert metrics([rollout()], HarnessContext(curve=curve[:5]))["late_gain"].value is None


def test_train_minus_search_compares_the_end_of_training_with_search_tasks() -> None:
    curve = tuple({"score": x} for x in [0.1] * 8 + [0.8, 0.9])
    stored = [rollout(f"t{t}", k, correct=k == 0, split="search") for t in range(4) for k in range(4)]
    found = metrics(stored, HarnessContext(curve=curve))["train_minus_search"]
    assert found.value == pytest.approx(0.85 - 0.25)
    assert metrics(stored, HarnessContext(curve=curve[:4]))["train_minus_search"].value is None
    trained = [rollout(f"t{t}", k, correct=k == 0, split="train") for t in range(4) for k in range(4)]
    assert metrics(trained, HarnessContext(curve=curve))["train_minus_search"].value is None
