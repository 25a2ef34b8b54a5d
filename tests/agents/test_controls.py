"""The control agents, the registry and the rendered briefing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evotrainer.agents import AGENTS, make_agent
from evotrainer.agents.briefing import render
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.errors import AgentError, ConfigError
from evotrainer.factors.harness import knob_values
from evotrainer.factors.lint import lint
from evotrainer.records.findings import Finding, Quote
from evotrainer.records.one_factor import single_factor
from evotrainer.records.recipe import Recipe
from tests.agents.briefings import START, FakeTools, briefing, health, record

OFFERS = ("references", "wordings", "turn_rewards")

LIST = {"interventions": [{"factor": "lr", "new": 1e-4}, {"factor": "rewards", "new": {"share": 1.0}}]}


def test_the_fixed_agent_follows_its_list_and_then_stops() -> None:
    agent = make_agent("fixed", 0, LIST)
    b = briefing(branches_wanted=1)
    first = agent.propose(b, FakeTools()).interventions
    assert [iv.factor for iv in first] == ["lr"]
    tried = record("b1", START.with_factor("lr", 1e-4), "b0", 1, first[0], "reject")
    later = b.model_copy(update={"branches": (b.champion, tried), "round": 2})
    second = agent.propose(later, FakeTools()).interventions
    assert [(iv.factor, iv.new) for iv in second] == [("rewards", {"share": 1.0})]
    done = record("b2", START.with_factor("rewards", {"share": 1.0}), "b0", 2, second[0], "reject")
    end = agent.propose(later.model_copy(update={"branches": (*later.branches, done)}), FakeTools())
    assert (end.interventions, end.stop) == ((), "no change that run.agent_options.interventions lists is left to try")


def test_the_fixed_agent_needs_no_list_where_a_start_alone_is_certified() -> None:
    end = make_agent("fixed", 0, {}).propose(briefing(), FakeTools())
    assert not end.interventions and end.stop.startswith("no change that run.agent_options.interventions lists")


def test_the_fixed_agent_names_an_entry_it_cannot_use() -> None:
    agent = make_agent("fixed", 0, {"interventions": [{"factor": "learning_rate", "new": 1}]})
    with pytest.raises(AgentError, match=r"learning_rate = 1 .* correct run.agent_options"):
        agent.propose(briefing(), FakeTools())


def test_the_random_agent_reaches_every_factor_and_never_repeats() -> None:
    recipe = Recipe(rewards={"shown": 1.0}, max_turns=6, group_filter={"kind": "zero_variance"})
    b = briefing(recipe, branches_wanted=4, offers=(*OFFERS, "demonstrations"))
    seen = set()
    for seed in range(60):
        out = make_agent("random", seed).propose(b, FakeTools()).interventions
        assert len({iv.factor for iv in out}) == 4
        for iv in out:
            child = recipe.with_factor(iv.factor, iv.new)
            assert single_factor(recipe, child) == iv.factor
            assert not [i for i in lint(child) if i.level == "error"]
            seen.add(iv.factor)
    tools = FakeTools()
    assert seen == {c.factor for c in candidate_pool(b, tools, situation(b, tools, 0), math.inf)} and len(seen) > 20


def test_the_random_agent_runs_out_of_changes_some_day() -> None:
    b = briefing(branches_wanted=50)
    for n in range(1, 40):
        out = make_agent("random", 5).propose(b.model_copy(update={"round": n}), FakeTools())
        if out.stop:
            break
        done = [
            record(f"b{n}-{i}", START.with_factor(iv.factor, iv.new), "b0", n, iv)
            for i, iv in enumerate(out.interventions)
        ]
        b = b.model_copy(update={"branches": (*b.branches, *done)})
    hashes = [x.recipe.hash for x in b.branches]
    assert len(hashes) == len(set(hashes)) > 40
    assert "has been tried" in out.stop


def test_the_random_agent_is_deterministic_given_seed_and_round() -> None:
    def draw(seed: int, round_: int) -> Any:
        return make_agent("random", seed).propose(briefing(round=round_), FakeTools())

    assert draw(1, 1) == draw(1, 1)
    assert draw(1, 1) != draw(2, 1)
    assert draw(1, 1).interventions != draw(1, 2).interventions


def test_an_unknown_agent_or_option_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown agent 'clever'; one of: statistical, one_factor, fixed, random, "):
        make_agent("clever")
    with pytest.raises(ConfigError, match="run.agent=seat run.agent_options.carrier=llm"):
        make_agent("LLM")
    with pytest.raises(ConfigError, match="bench.compare"):
        make_agent("optuna")
    for name in AGENTS:
        with pytest.raises(ConfigError, match=f"agent {name}.*lucky"):
            make_agent(name, 0, {"lucky": True, **(LIST if name == "fixed" else {})})
    with pytest.raises(ConfigError, match=r"confrim: unknown name, did you mean confirm\?"):
        make_agent("statistical", 0, {"confrim": 3})
    with pytest.raises(ConfigError, match=r"lucky: unknown name; there are none to set"):
        make_agent("random", 0, {"lucky": 3})


def test_knob_values_are_read_as_what_they_are() -> None:
    assert knob_values("full, scrubbed") == ["full", "scrubbed"]
    assert knob_values("True, False") == [True, False]
    assert knob_values("2, 1, 0.5: how many examples are shown") == [2, 1, 0.5]


def test_the_rendered_briefing_tells_the_whole_story() -> None:
    finding = Finding(
        detector="gap",
        kind="proxy_gap",
        severity="critical",
        claim="12 points of the shown score are not real",
        numbers={"gap": 0.12},
        thresholds={"gap": 0.05},
        quotes=(Quote(rollout="r17", text="```\nprint(max(xs))\n```", note="no guard for the empty list"),),
    )
    report = health({"proxy_gap": 0.8}, frac_reward_zero_std=0.41).model_copy(update={"findings": (finding,)})
    b = briefing(report=report, failures_in_a_row=2, knobs={"examples": "2, 1"}, feedback="smaller steps")
    iv = make_agent("statistical").propose(b, FakeTools()).interventions[0]
    tried = record("b1", START.with_factor(iv.factor, iv.new), "b0", 1, iv, "reject", -0.02)
    text = render(b.model_copy(update={"branches": (b.champion, tried)}))
    for part in (
        "Champion: b0 (v0)", "score 0.620", "proxy_gap** (severity 0.80)", "| frac_reward_zero_std | 0.41 |",
        "12 points of the shown score", "gap 0.12 (threshold 0.05)", "Rollout r17 (no guard for the empty list)",
        "-2.0 points [-6.0, +2.0]", iv.hypothesis, "reject for a reason", "cpu_s 2000", "`kept_back`:",
        "`knobs.examples`: 2, 1", "Rounds without a promotion: 2", "smaller steps",
    ):  # fmt: skip
        assert part in text
    assert "````\n```\nprint(max(xs))\n```\n````" in text, "a quoted rollout must not close its own fence"
