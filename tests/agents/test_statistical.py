"""What the embedded statistical agent proposes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.agents import make_agent
from evotrainer.agents.catalogue import candidates
from evotrainer.agents.changes import reward_changes
from evotrainer.agents.one_factor import OneFactorAgent
from evotrainer.agents.pool import situation
from evotrainer.agents.rewards import reward_candidates
from evotrainer.agents.symptoms import RewardEvidence
from evotrainer.factors import FACTORS
from evotrainer.factors.cost import relative_cost
from evotrainer.factors.data import reference_plans
from evotrainer.factors.lint import lint
from evotrainer.records.briefing import Briefing, WrittenOffer
from evotrainer.records.interventions import Intervention
from evotrainer.records.one_factor import single_factor
from evotrainer.records.recipe import Curriculum, GroupFilter, Recipe
from evotrainer.records.rollout import groups_of
from evotrainer.records.written import content_name
from tests.agents.briefings import COMPONENTS, START, FakeTools, briefing, health, record, rollouts

MOVES = [m for row in FACTORS.values() for m in row.all_moves()]
GAP = health({"proxy_gap": 0.8, "dead_groups": 0.3}, proxy_gap=0.15)
DEAD = health({"dead_groups": 0.9}, frac_reward_zero_std=0.6, dead_fail=0.1, dead_pass=0.5)


def propose(b: Briefing, tools: FakeTools | None = None, seed: int = 0, **options: Any) -> tuple[Intervention, ...]:
    """The interventions of the statistical agent."""
    return make_agent("statistical", seed, options).propose(b, tools or FakeTools(rollouts())).interventions


@pytest.mark.parametrize("seed", range(6))
def test_a_proxy_gap_leads_to_a_reward_that_follows_the_outcome(seed: int) -> None:
    first = propose(briefing(report=GAP), seed=seed)[0]
    assert first.factor == "rewards"
    before = RewardEvidence(rollouts(), list(COMPONENTS))
    assert before.fit(first.new).aligned > before.fit(START.rewards).aligned + 0.05
    assert first.bottleneck == "proxy_gap"
    assert (first.prediction.metric, first.prediction.direction) == ("proxy_gap", "down")


def test_component_names_mean_nothing_only_their_behaviour_does() -> None:
    swap = dict(zip(COMPONENTS, ["e", "d", "c", "b", "a"], strict=True))

    def renamed(rewards: Mapping[str, float]) -> dict[str, float]:
        return {swap[k]: v for k, v in rewards.items()}

    stored = rollouts()
    other = [
        type(r)(id=r.id, task=r.task, turns=r.turns, reward=r.reward, outcome=r.outcome, group=r.group,
                components={swap[k]: v for k, v in r.components.items()})
        for r in stored
    ]  # fmt: skip
    a, b = RewardEvidence(stored, list(COMPONENTS)), RewardEvidence(other, list(swap.values()))
    for new in reward_changes(START.rewards, COMPONENTS).values():
        assert a.fit(new).aligned == pytest.approx(b.fit(renamed(new)).aligned)
    known = briefing(
        Recipe(rewards=renamed(START.rewards)), GAP, components={swap[k]: v for k, v in COMPONENTS.items()}
    )
    chosen = propose(known, FakeTools(other))[0].new
    assert b.fit(chosen).aligned > b.fit(renamed(START.rewards)).aligned + 0.05


def test_where_the_paid_component_is_the_outcome_no_other_is_worth_more() -> None:
    stored = rollouts(gap=0.0)
    evidence = RewardEvidence(stored, list(COMPONENTS))
    assert evidence.fit({"shown": 1.0}).aligned == pytest.approx(1.0)
    assert all(
        evidence.gain({"shown": 1.0}, new)[0] < 1e-3 for new in reward_changes(START.rewards, COMPONENTS).values()
    )


def test_a_bonus_that_everyone_earns_or_that_is_noise_is_no_better_reward() -> None:
    evidence = RewardEvidence(rollouts(), list(COMPONENTS))
    for useless in ("brevity", "format"):
        assert evidence.gain({"shown": 1.0}, {useless: 1.0})[0] < -0.3
    assert abs(evidence.correlation("brevity")) < 0.15
    assert evidence.coverage("format") > 0.9


def test_a_change_the_backtest_contradicts_is_never_proposed() -> None:
    tools = FakeTools(rollouts(), lambda iv: "contradicts" if iv.factor == "rewards" else "silent")
    out = make_agent("statistical", 0).propose(briefing(report=GAP), tools)
    assert any(iv.factor == "rewards" for iv in tools.asked)
    assert out.interventions
    assert all(iv.factor != "rewards" for iv in out.interventions)
    assert "vetoed" in out.reasoning


def test_where_every_backtest_contradicts_the_agent_says_so_instead_of_proposing() -> None:
    out = make_agent("statistical", 0).propose(briefing(report=GAP), FakeTools(rollouts(), lambda _: "contradicts"))
    assert not out.interventions
    assert "contradict" in out.stop


def test_a_supporting_backtest_raises_a_change_in_the_order() -> None:
    plain = [iv.move for iv in propose(briefing(report=DEAD), FakeTools())]
    last = plain[2]
    raised = [
        iv.move
        for iv in propose(
            briefing(report=DEAD), FakeTools(replay=lambda iv: "supports" if iv.move == last else "silent")
        )
    ]
    assert raised.index(last) <= plain.index(last)


@pytest.mark.parametrize("seed", range(5))
def test_dead_groups_lead_to_filter_resampling_curriculum_or_larger_groups(seed: int) -> None:
    fine = list(rollouts(gap=0.0))
    first = propose(briefing(START.with_factor("loss", "bnpo"), DEAD), FakeTools(fine), seed=seed)[:3]
    remedies = {
        "group_filter",
        "resample",
        "curriculum",
        "group_size",
        "temperature",
        "prompts_per_step",
        "batch_shape",
    }
    assert len({iv.factor for iv in first} & remedies) >= 2
    # where dropping groups without a spread changes no gradient, one remedy less is on offer
    usual = propose(briefing(report=DEAD), FakeTools(fine), seed=seed)[:3]
    assert {iv.factor for iv in usual} & remedies and not [iv for iv in usual if iv.move == "filter_dead"]


def test_dead_groups_that_are_solved_are_dropped_from_the_easy_side() -> None:
    chosen = [
        iv for s in range(12) for iv in propose(briefing(report=DEAD), FakeTools(), seed=s) if iv.factor == "curriculum"
    ]
    assert chosen
    assert all(iv.new["high"] < 1 for iv in chosen)


def test_one_round_tries_different_factors() -> None:
    for seed in range(8):
        first = propose(briefing(report=GAP), seed=seed)[:3]
        assert len({iv.factor for iv in first}) == 3


def test_the_same_seed_and_round_propose_the_same() -> None:
    b = briefing(report=GAP)
    assert propose(b, seed=3) == propose(b, seed=3)
    different = {tuple(iv.move for iv in propose(b, seed=s)) for s in range(6)}
    assert len(different) > 1


def test_every_intervention_is_falsifiable_and_can_be_rolled_back() -> None:
    proposed = propose(briefing(report=GAP))
    assert proposed
    for iv in proposed:
        assert iv.hypothesis.startswith(f"if {iv.factor} changes from ")
        assert ", because " in iv.hypothesis
        assert iv.prediction.metric in iv.hypothesis
        assert "lower bound" in iv.success_criterion
        assert "b0" in iv.rollback
        assert iv.old == START.value(iv.factor)


def test_changes_that_cannot_act_are_not_proposed() -> None:
    drift = health({"off_policy_drift": 0.9, "exploration_collapse": 0.9})
    for seed in range(6):
        for iv in propose(briefing(report=drift), FakeTools(), seed=seed):
            assert iv.factor != "clip", "one pass per step never leaves ratio 1"
            assert not (iv.factor == "loss" and iv.new in ("gspo", "cispo"))
    many = Recipe(rewards={"shown": 1.0}, updates_per_step=4)
    moves = {iv.factor for s in range(6) for iv in propose(briefing(many, drift), FakeTools(), seed=s)}
    assert moves & {"clip", "is_cap", "updates_per_step"}


def rejected_rounds(rounds: int, mean: float = -0.01) -> tuple[Briefing, list[list[Intervention]]]:
    """A run in which nothing works: the agent proposes, everything is rejected."""
    b, history = briefing(report=GAP), []
    for n in range(1, rounds + 1):
        b = b.model_copy(update={"round": n, "failures_in_a_row": n - 1})
        chosen = list(propose(b)[:3])
        history.append(chosen)
        branches = list(b.branches)
        for iv in chosen:
            recipe = START.with_factor(iv.factor, iv.new)
            branches.append(record(f"b{len(branches)}", recipe, "b0", n, iv, "reject", mean))
        b = b.model_copy(update={"branches": tuple(branches)})
    return b, history


def test_no_branch_is_ever_proposed_twice() -> None:
    b, history = rejected_rounds(6)
    hashes = [x.recipe.hash for x in b.branches]
    assert sum(len(h) for h in history) >= 9
    assert len(hashes) == len(set(hashes))


def test_a_factor_that_differs_from_the_start_may_be_reverted() -> None:
    start = record("b0", START, None, 0, version="v0")
    grown = START.with_factor("rewards", {"kept_back": 1.0}).with_factor("entropy_bonus", 0.01)
    champion = record("b5", grown, "b3", 3, version="v2")
    b = briefing(grown, champion=champion, branches=(start, champion), round=7, failures_in_a_row=3)
    out = [iv for s in range(12) for iv in propose(b, FakeTools(), seed=s)]
    assert any(iv.factor == "entropy_bonus" and iv.new == 0 for iv in out)
    assert all(iv.old == grown.value(iv.factor) for iv in out)


def test_a_verdict_against_a_move_lowers_its_like_and_one_for_it_raises_them() -> None:
    b = briefing(report=DEAD)
    agent = OneFactorAgent(0)

    def belief(branches: tuple[Any, ...]) -> dict[str, float]:
        changed = b.model_copy(update={"branches": branches})
        ranked = agent.rank(changed, FakeTools(), situation(changed, FakeTools(), agent.options.rollouts))
        return {r.candidate.name: r.mean for r in ranked}

    before = belief((b.champion,))
    tried = next(iv for s in range(20) for iv in propose(b, FakeTools(), seed=s) if iv.move.startswith("hotter"))
    recipe = START.with_factor(tried.factor, tried.new)
    after = {
        kind: belief((b.champion, record("b1", recipe, "b0", 1, tried, kind, mean)))
        for kind, mean in (("reject", -0.08), ("promote", 0.1))
    }
    like = next(n for n in before if n.startswith("hotter") and n != tried.move)
    assert after["reject"][like] < before[like] < after["promote"][like]
    other = next(n for n in before if n.startswith(("resample", "curriculum")))
    assert after["reject"][other] == before[other]


def test_an_invalid_branch_counts_against_its_move_even_if_it_scored() -> None:
    from evotrainer.agents.belief import observations

    iv = propose(briefing(report=GAP))[0]
    invalid = record("b1", START.with_factor(iv.factor, iv.new), "b0", 1, iv, "invalid", 0.3)
    assert observations([invalid])[0].gain < 0


def test_near_the_ceiling_the_agent_advises_to_stop() -> None:
    b = briefing()
    done = b.champion.model_copy(update={"search": {"score": 0.985}})
    out = make_agent("statistical").propose(b.model_copy(update={"champion": done}), FakeTools())
    assert "ceiling" in out.stop
    assert not out.interventions


def test_after_enough_failures_the_agent_calls_the_run_saturated() -> None:
    b, n = briefing(), 0
    for n in range(1, 60):
        out = make_agent("statistical").propose(b.model_copy(update={"round": n}), FakeTools())
        if out.stop:
            break
        branches = list(b.branches)
        for iv in out.interventions:
            recipe = START.with_factor(iv.factor, iv.new)
            branches.append(record(f"b{len(branches)}", recipe, "b0", n, iv, "reject", -0.06))
        b = b.model_copy(update={"branches": tuple(branches)})
    assert out.stop.startswith(("saturated", "every change"))
    assert 2 <= n < 59


def test_a_human_steers_by_two_forms_of_words() -> None:
    only = briefing(report=GAP, feedback="please try the lr")
    assert {iv.factor for iv in propose(only)} == {"lr"}
    rateless = briefing(report=GAP, feedback="no change of lr, please")
    assert not {iv.factor for n in range(8) for iv in propose(rateless, seed=n)} & {"lr", "lr_schedule"}
    without = briefing(report=GAP, feedback="no change of the rewards")
    others = {iv.factor for iv in propose(without)}
    assert others and "rewards" not in others
    unread = briefing(report=GAP, feedback="leave the rewards alone")
    assert propose(unread) == propose(briefing(report=GAP, feedback="hm")), "what is not understood is not turned round"


def test_without_stored_outcomes_the_agent_still_answers_the_diagnosis() -> None:
    out = [propose(briefing(report=GAP), FakeTools(), seed=s)[:3] for s in range(10)]
    assert sum(any(iv.factor == "rewards" for iv in ivs) for ivs in out) >= 6


def test_closing_a_shortcut_is_offered_where_a_leak_is_diagnosed() -> None:
    leak = health({"answer_leak": 1.0})
    b = briefing(report=leak, knobs={"history": "full, scrubbed"})
    assert propose(b, FakeTools())[0].factor == "knobs.history"


def test_lighter_negatives_are_offered_only_where_most_of_the_mass_pushes_down() -> None:
    def offered(share: float, recipe: Recipe = START) -> list[Any]:
        report = health({}, negative_share=share)
        agent = OneFactorAgent(0)
        b = briefing(recipe, report=report)
        s = situation(b, FakeTools(rollouts()), 3000)
        return [
            r.candidate.variant.value for r in agent.rank(b, FakeTools(), s) if r.candidate.factor == "negative_weight"
        ]

    assert offered(0.45) == [] and offered(0.55) == offered(0.64) == [0.5] and sorted(offered(0.75)) == [0.33, 0.5]
    assert offered(0.75, START.with_factor("negative_weight", 0.5)) == [1.0], "only back"


def moves(
    factor: str, recipe: Recipe = START, offers: tuple[str, ...] = (), score: float = 0.62, **metrics: float
) -> list[Any]:
    """Values of the moves of a factor that are offered, whatever their rank."""
    named = {k.replace("_per_", "/").replace("_is_", "="): v for k, v in metrics.items()}
    champion = record("b0", recipe, None, 0, version="v0", search={"score": score})
    b = briefing(recipe, report=health({}, **named), offers=offers, champion=champion)
    agent = OneFactorAgent(0)
    s = situation(b, FakeTools(rollouts()), 3000)
    return [r.candidate.variant.value for r in agent.rank(b, FakeTools(), s) if r.candidate.factor == factor]


def test_a_frontier_of_tags_is_offered_where_groups_are_dead_and_kinds_of_tasks_differ() -> None:
    kinds = {"pass_rate_per_kind_is_a": 0.02, "pass_rate_per_kind_is_b": 0.5, "pass_rate_per_kind_is_c": 0.99}
    flat = {"pass_rate_per_part_is_x": 0.4, "pass_rate_per_part_is_y": 0.45}
    wanted = {"kind": "tag_frontier", "tag": "kind"}
    assert wanted in moves("curriculum", frac_reward_zero_std=0.7, dead_fail=0.1, **kinds, **flat)
    assert wanted not in moves("curriculum", frac_reward_zero_std=0.2, dead_fail=0.1, **kinds)
    flat_only = moves("curriculum", frac_reward_zero_std=0.7, dead_pass=0.7, **flat)
    assert {v["kind"] for v in flat_only} == {"pass_rate_band"}


def test_easy_first_is_offered_where_failing_goes_with_a_number() -> None:
    falling = {f"pass_rate_per_level_is_Level {i}": p for i, p in enumerate((0.9, 0.6, 0.3, 0.05))}
    wanted = {"kind": "difficulty", "tag": "level"}
    assert wanted in moves("curriculum", dead_fail=0.4, **falling)
    assert wanted not in moves("curriculum", dead_fail=0.1, **falling)
    rising = dict(zip(falling, reversed(falling.values()), strict=True))
    assert wanted not in moves("curriculum", dead_fail=0.4, **rising)


def test_references_are_offered_where_the_form_is_there_and_the_answers_are_not() -> None:
    seen = {"rewards_per_format_per_coverage": 0.95}
    offered = moves("phase_plan", offers=("references",), **seen)
    assert all([p["kind"] for p in v["phases"]] == ["references", "rl"] for v in offered)
    assert {p["lr"] for v in offered for p in v["phases"][1:]} == {float(f"{START.lr / 3:.2g}")}
    assert {v["phases"][0].get("lr") for v in offered} == {None, 2.5 * START.lr}
    assert moves("phase_plan", **seen) == [], "the environment has none"
    assert moves("phase_plan", offers=("references",), score=0.85, **seen) == []
    assert moves("phase_plan", offers=("references",), rewards_per_format_per_coverage=0.5) == []
    assert len(moves("phase_plan", offers=("references",), dead_fail=0.3)) == 6, "those within the usual limit of cost"


def test_a_plan_that_changes_one_field_of_its_factor_is_a_change_of_that_field() -> None:
    small = START.with_changes({"prompts_per_step": 8, "group_size": 8, "max_turns": 1})  # a text costs no step apart
    offered = {f: moves(f, small, offers=("references",), dead_fail=0.3) for f in ("phases", "phase_plan")}
    assert {sum(p["steps"] for p in v[:1]) for v in offered["phases"]} == {18, 27}, "at equal compute"
    assert offered["phase_plan"] and all(v["steps"] > small.steps for v in offered["phase_plan"])
    for value in offered["phases"]:
        assert single_factor(small, small.with_factor("phases", value)) == "phases"


def test_a_short_search_begins_with_what_answers_a_finding() -> None:
    b = briefing(report=health({"dead_groups": 0.9}, frac_reward_zero_std=0.6, dead_fail=0.5), probes_left=8)
    for seed in range(4):
        plan = make_agent("statistical", seed, {}).search(
            b.model_copy(update={"notes": {**b.notes, "workers": "6"}}), FakeTools(list(rollouts(gap=0.0)))
        )
        answers = {m.name for m in MOVES if "dead_groups" in m.symptoms()}
        named = [m.partition(" ")[0] for p in plan.probes for m in p.moves]
        assert len(named) == 6 and all(n in answers or n.endswith("_reward") for n in named), named


def test_what_answers_a_symptom_in_part_promises_accuracy_not_its_metric() -> None:
    for iv in propose(briefing(report=DEAD), FakeTools(list(rollouts(gap=0.0))), spare=40):
        whole = next((m.symptoms().get("dead_groups") for m in MOVES if m.name == iv.move.partition(" ")[0]), None)
        if iv.bottleneck == "dead_groups" and whole is False:
            assert iv.prediction.metric == "accuracy", iv.move


def test_plans_with_references_spend_what_they_say() -> None:
    costs = []
    for plan in reference_plans(START):
        child = START.with_factor("phase_plan", plan)
        assert plan["phases"][1]["kind"] == "rl" and child.steps == plan["steps"]
        assert not list(reference_plans(child))
        costs.append(relative_cost(START, child))
    assert costs == pytest.approx([x for x in (1.0, 1.0, 1.3, 2.0, 4.0) for _ in range(2)], rel=0.05)


def test_own_successes_are_offered_where_few_attempts_are_right_and_most_mass_pushes_down() -> None:
    offered = moves("phases", negative_share=0.7)
    assert sorted(v[0]["steps"] for v in offered) == [5, 10] and all(v[0]["kind"] == "own" for v in offered)
    assert moves("phases", negative_share=0.45) == [] == moves("phases", score=0.01, negative_share=0.7)
    assert moves("phases", START.with_factor("phases", offered[0]), negative_share=0.7) == [[]]


def test_rare_successes_are_replayed_where_many_groups_hold_none() -> None:
    seen = {"frac_reward_zero_std": 0.6, "dead_fail": 0.4}
    assert sorted(v["weight"] for v in moves("replay", score=0.3, **seen)) == [0.1, 0.3]
    assert moves("replay", score=0.6, **seen) == [] == moves("replay", score=0.0, **seen)
    assert moves("replay", score=0.3, frac_reward_zero_std=0.6, dead_fail=0.1) == []
    assert moves("replay", START.with_factor("replay", {"weight": 0.1}), score=0.3, **seen) == [START.value("replay")]


def test_an_anchor_is_offered_where_there_are_demonstrations() -> None:
    assert sorted(moves("sft_anchor", offers=("demonstrations",))) == [0.05, 0.2] and moves("sft_anchor") == []
    assert moves("sft_anchor", START.with_factor("sft_anchor", 0.1)) == [0.0], "what is there can be left out"


def test_other_words_are_offered_where_training_tasks_are_known_better_than_others() -> None:
    assert sorted(moves("prompt_noise", offers=("wordings",), train_minus_search=0.3)) == [0.5, 1.0]
    assert moves("prompt_noise", offers=("wordings",), train_minus_search=0.02) == []
    assert moves("prompt_noise", train_minus_search=0.3) == [], "the environment has one wording"


def test_turns_are_credited_where_episodes_are_long_and_end_alike() -> None:
    long = START.with_factor("max_turns", 8)
    offers = ("turn_rewards",)
    assert sorted(v["weight"] for v in moves("credit", long, offers, reward_std=0.1)) == [0.1, 0.3]
    assert len(moves("credit", long, offers, reward_std=0.5, frac_reward_zero_std=0.5)) == 2
    assert moves("credit", long, offers, reward_std=0.5) == [] == moves("credit", START, offers, reward_std=0.1)
    assert moves("credit", long, (), reward_std=0.1) == [], "the environment gives none"


def test_averages_are_offered_where_the_score_no_longer_rises() -> None:
    assert [v["kind"] for v in moves("averaging", late_gain=0.01)].count("tail_mean") == 2
    assert moves("averaging", late_gain=0.2) == [] == moves("averaging")
    assert moves("averaging", START.with_factor("averaging", {"kind": "ema"}), late_gain=0.01) == [
        START.value("averaging")
    ]


def test_going_on_is_offered_where_the_champion_was_still_learning() -> None:
    from evotrainer.agents.catalogue import candidates

    rising = {"late_gain": 0.05, "frac_reward_zero_std": 0.4}
    assert moves("continuation", **rising) == [{"start": "champion", "steps": 12, "phases": []}]
    assert moves("start", **rising) == [], "as many steps again are twice the cost, for somebody to allow"
    champion = record("b0", START, None, 0, version="v0", search={"score": 0.6})
    s = situation(briefing(START, report=health({}, **rising), champion=champion), FakeTools(rollouts()), 3000)
    assert [(c.name, c.cost) for c in candidates(s, set()) if c.factor == "start"] == [("go_on_as_long +30", 2.0)]
    for bad in ({"late_gain": 0.01}, {"frac_reward_zero_std": 0.9}, {}):
        seen = {**rising, **bad} if bad else {}
        assert moves("continuation", **seen) == [] == moves("start", **seen)
    went_on = START.with_factor("continuation", {"start": "champion", "steps": 12, "phases": []})
    assert moves("continuation", went_on, **rising) == [{"start": "champion", "steps": 16, "phases": []}]
    assert moves("start", went_on) == [None], "taken back by itself"


def test_a_change_of_nothing_but_the_size_of_a_gradient_is_not_offered() -> None:
    """Dropped groups without spread, and one divisor for another of a whole step: AdamW divides it out again."""
    dropped = {"kind": "zero_variance", "keep": 0.9, "decay": 0.1}
    none = {**dropped, "kind": "none"}
    plain = START.with_changes({"kl_beta": 0.0, "sft_anchor": 0.0, "entropy_bonus": 0.0})
    anchored = [plain.with_changes(x) for x in ({"sft_anchor": 0.1}, {"entropy_bonus": 0.01})]
    kl = plain.with_factor("kl_beta", 0.02)
    filtered = plain.with_factor("group_filter", {"kind": "zero_variance"})
    assert dropped not in moves("group_filter", plain, frac_reward_zero_std=0.5)
    assert none not in moves("group_filter", filtered)
    assert not any(i.factor == "group_filter" for i in lint(plain))
    assert [i.level for i in lint(filtered) if i.factor == "group_filter"] == ["warning"]
    for acts in (*anchored, kl, plain.with_factor("loss", "bnpo")):
        assert dropped in moves("group_filter", acts, frac_reward_zero_std=0.5)
        assert dropped not in moves("group_filter", acts, frac_reward_zero_std=0.0), "there is nothing to drop"
        assert none in moves("group_filter", acts.with_factor("group_filter", {"kind": "zero_variance"}))
        assert not lint(acts.with_factor("group_filter", {"kind": "zero_variance"}))
    assert not [i for i in lint(filtered.with_factor("resample", 1)) if i.factor == "group_filter"]
    batch, tokens = {"reward_scaling": "batch"}, {"loss": "dapo"}
    assert moves("reward_scaling", plain.with_changes(batch)) == ["group"]
    assert "none" in moves("reward_scaling", kl.with_changes(batch)) and "none" in moves("reward_scaling", plain)
    assert "dr_grpo" not in moves("loss", plain.with_changes(tokens)) + moves("loss", kl.with_changes(tokens))
    assert all("dr_grpo" in moves("loss", x.with_changes(tokens)) for x in anchored)
    assert "dr_grpo" in moves("loss", plain.with_factor("loss", "grpo"))


def test_composite_moves_change_fields_that_belong_together() -> None:
    rates = moves("lr_schedule")
    assert {v["lr"] for v in rates} == {4e-4, 6e-4} and all(v["schedule"]["kind"] == "linear" for v in rates)
    assert moves("lr_schedule", START.with_factor("schedule", {"kind": "cosine"})) == []
    fewer_prompts = {"prompts_per_step": 16, "group_size": 8, "steps": 60}
    shapes = moves("batch_shape", frac_reward_zero_std=0.3)
    assert sorted(tuple(x.values()) for x in shapes) == [(16, 8, 60), (32, 4, 60), (64, 4, 30)]
    assert moves("batch_shape", frac_reward_zero_std=0.9) == [fewer_prompts], "nearly all groups are dead already"
    parts = [{"kind": "references", "steps": 10}, {"kind": "rl"}]
    assert fewer_prompts not in moves("batch_shape", START.with_changes({"phases": parts, "steps": 40}))


def test_a_composite_change_is_taken_back_as_one() -> None:
    from evotrainer.agents.catalogue import reverts

    shaped = START.with_factor("batch_shape", {"prompts_per_step": 64, "group_size": 4, "steps": 30})
    start, champion = record("b0", START, None, 0, version="v0"), record("b2", shaped, "b0", 2, version="v1")
    s = situation(briefing(shaped, champion=champion, branches=(start, champion)), FakeTools(), 3000)
    back = {c.factor: c.child for c in reverts(s, set())}
    assert back["batch_shape"] == START and back.keys() == {"batch_shape", "prompts_per_step", "group_size"}


def test_what_an_invalid_start_was_replaced_for_is_not_taken_back() -> None:
    """A revert to the leak is refused, and with it the agent's whole plan: a run of the default agent ended so."""
    from evotrainer.agents.catalogue import reverts

    leaky = START.with_changes({"knobs.history": "full"})
    closed = START.with_changes({"knobs.history": "scrubbed"})
    first, second = record("b0", leaky, None, 0), record("b1", closed, None, 1, version="v0")
    s = situation(briefing(closed, champion=second, branches=(first, second)), FakeTools(), 3000)
    assert s.start == closed and not list(reverts(s, set()))


def test_every_factor_but_code_and_decoding_has_a_move() -> None:
    covered = {name for name, row in FACTORS.items() if row.all_moves()} | {"rewards", "written_reward"}
    # code alone pays nothing: it comes with its weight, as `written_reward`
    assert set(FACTORS) - covered == {"deploy_temperature", "written", "hooks", "scaffold"}
    assert len({m.name for m in MOVES}) == len(MOVES)


recipes = st.builds(
    Recipe,
    loss=st.sampled_from(["grpo", "dapo", "dr_grpo", "bnpo", "gspo", "cispo"]),
    kl_beta=st.sampled_from([0.0, 0.04]),
    reward_scaling=st.sampled_from(["group", "batch", "none"]),
    lr=st.sampled_from([1e-6, 2e-4, 9e-4, 2e-3]),
    steps=st.integers(1, 60),
    prompts_per_step=st.integers(1, 64),
    group_size=st.integers(2, 32),
    updates_per_step=st.integers(1, 4),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_p=st.sampled_from([0.9, 1.0]),
    max_tokens=st.integers(1, 256),
    max_turns=st.integers(1, 10),
    rewards=st.dictionaries(st.sampled_from(sorted(COMPONENTS)), st.sampled_from([0.1, 0.5, 1.0]), min_size=1),
    repetition_penalty=st.sampled_from([0.0, 0.2]),
    group_filter=st.sampled_from([GroupFilter(), GroupFilter(kind="zero_variance"), GroupFilter(kind="ema_std")]),
    curriculum=st.sampled_from([Curriculum(), Curriculum(kind="pass_rate_band")]),
    sft_anchor=st.sampled_from([0.0, 0.1]),
    entropy_bonus=st.sampled_from([0.0, 0.01]),
    is_cap=st.sampled_from([None, 2.0]),
    mask_truncated=st.booleans(),
    knobs=st.sampled_from([{}, {"history": "full"}]),
)
names = sorted({b for m in MOVES for b in m.symptoms()} | {"proxy_gap", "constant_bonus"})
diagnoses = st.dictionaries(st.sampled_from(names), st.floats(0, 1), max_size=4)


@given(recipes, diagnoses, st.integers(0, 4), st.sampled_from(["statistical", "random"]), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_whatever_the_briefing_every_proposal_is_one_clean_factor(
    recipe: Recipe, diagnosis: dict[str, float], failures: int, name: str, seed: int
) -> None:
    b = briefing(
        recipe,
        health(diagnosis),
        failures_in_a_row=failures,
        round=failures + 1,
        knobs={"history": "full, scrubbed", "examples": "2, 1"},
    )
    stored = rollouts(tasks=8, seed=seed % 5) if seed % 2 else []
    out = make_agent(name, seed).propose(b, FakeTools(stored))
    assert bool(out.interventions) != bool(out.stop), "proposals, or why there are none"
    children = []
    for iv in out.interventions:
        child = recipe.with_factor(iv.factor, iv.new)
        assert single_factor(recipe, child) == iv.factor
        assert not [i for i in lint(child) if i.level == "error"]
        assert iv.old == recipe.value(iv.factor)
        children.append(child.hash)
    assert len(children) == len(set(children))


def test_reward_evidence_ignores_faults_and_unknown_outcomes() -> None:
    stored = rollouts(tasks=30)
    broken = [
        type(r)(id=r.id + "x", task=r.task, turns=r.turns, reward=None, outcome="unknown", group=r.group)
        for r in stored
    ]
    a, b = RewardEvidence(stored, list(COMPONENTS)), RewardEvidence([*broken, *stored], list(COMPONENTS))
    assert a.rollouts == b.rollouts == len(stored)
    assert a.fit({"share": 1.0}) == b.fit({"share": 1.0})
    assert not RewardEvidence(broken, list(COMPONENTS))


def test_spread_in_hopeless_groups_counts_as_hope_only_if_it_follows_correctness() -> None:
    stored = rollouts(tasks=200, gap=0.5, seed=2)
    evidence = RewardEvidence(stored, list(COMPONENTS))
    honest, noise = evidence.fit({"share": 1.0}), evidence.fit({"brevity": 1.0})
    assert honest.hopeful > 0.02
    alike = [len({r.outcome for r in g}) == 1 for g in groups_of(stored)]
    assert noise.hopeful < 0.3 * np.mean(alike)


def test_groups_of_different_sizes_are_compared_fairly() -> None:
    """A group that lost a rollout to a fault is scored on what is left."""
    full = rollouts(tasks=60, group=4, seed=3)
    cut = [r for r in full if not (r.k == 3 and int(r.task[1:]) % 2)]
    only = [r for r in cut if int(r.task[1:]) % 2]
    mixed, odd = RewardEvidence(cut, list(COMPONENTS)), RewardEvidence(only, list(COMPONENTS))
    even = RewardEvidence([r for r in cut if int(r.task[1:]) % 2 == 0], list(COMPONENTS))
    assert mixed.rollouts == len(cut) < len(full)
    for rewards in ({"shown": 1.0}, {"format": 1.0}, {"share": 1.0, "brevity": 0.3}):
        whole, a, b = (x.fit(rewards) for x in (mixed, odd, even))
        assert whole.dead == pytest.approx((a.dead + b.dead) / 2)
        assert min(a.aligned, b.aligned) <= whole.aligned <= max(a.aligned, b.aligned)


def test_a_change_that_costs_more_than_the_budget_holds_is_not_proposed() -> None:
    poor = briefing(report=DEAD, budget_left={"cpu_s": 100.0}, trial_cost=80.0)
    for seed in range(6):
        for iv in propose(poor, FakeTools(), seed=seed):
            assert iv.factor != "steps"
            assert not (iv.factor == "group_size" and iv.new >= 12)
    out = make_agent("statistical").propose(poor.model_copy(update={"budget_left": {"cpu_s": 10.0}}), FakeTools())
    assert "costs more than is left" in out.stop


def test_no_branch_is_spent_on_how_policies_are_decoded() -> None:
    """The certificate offers it to every policy alike; a branch for it would sharpen one side only."""
    ahead = health({"sharpening": 0.9}, greedy_minus_sampled=0.2)
    found = candidates(situation(briefing(report=ahead), FakeTools(rollouts()), 3000), set())
    assert "deploy_temperature" not in {x.factor for x in found}


def test_what_the_harness_wrote_is_a_reward_change_like_any_other() -> None:
    source = "def reward(rollout):\n    return 1.0\n"
    offer = WrittenOffer(
        name=content_name("safe", source), source=source, about="1 when no run failed.",
        correlation=0.8, best_on_offer=0.1, compared=30,
    )  # fmt: skip
    told = [replace(r, components={**r.components, offer.name: float(r.outcome == "correct")}) for r in rollouts()]
    s = situation(briefing(START, written=(offer,)), FakeTools(told), 3000)
    found = [c for c in reward_candidates(s, set()) if c.factor == "written_reward"]
    assert found and all(dict(c.child.written) == {offer.name: source} for c in found)
    assert all(single_factor(START, c.child) == "written_reward" for c in found)
    best = max(found, key=lambda c: c.mean)
    assert best.mean > 0 and offer.about in best.move.why
    paid = best.child
    again = situation(briefing(paid, written=(offer,)), FakeTools(told), 3000)
    assert not [c for c in reward_candidates(again, set()) if c.factor == "written_reward"], "it is paid already"
