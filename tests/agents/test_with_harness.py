"""The statistical agent with the harness's own backtest in its hands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from evotrainer.agents import make_agent
from evotrainer.harness import HarnessContext
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.testing import NoTools
from tests.agents.briefings import START, briefing, health, rollouts

GAP = health({"proxy_gap": 0.8, "dead_groups": 0.3}, proxy_gap=0.15)


class HarnessTools(NoTools):
    """The loop's tools, over given rollouts."""

    def __init__(self, stored: Sequence[Rollout], recipe: Recipe = START) -> None:
        self.stored, self.recipe = stored, recipe

    def backtest(self, intervention: Intervention) -> Backtest:
        context = HarnessContext(recipe=self.recipe, proxy=("shown", "kept_back"))
        return backtest(intervention, self.recipe, self.stored, context)

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return self.stored[:limit]


@pytest.mark.parametrize("seed", range(4))
def test_the_first_proposal_under_a_proxy_gap_is_a_reward_the_replay_supports(seed: int) -> None:
    tools = HarnessTools(rollouts(tasks=120, group=8, seed=seed))
    out = make_agent("statistical", seed).propose(briefing(report=GAP), tools)
    first = out.interventions[0]
    assert first.factor == "rewards"
    assert tools.backtest(first).verdict == "supports"
    assert all(tools.backtest(iv).verdict != "contradicts" for iv in out.interventions)


def test_a_reward_that_is_the_outcome_is_left_alone() -> None:
    tools = HarnessTools(rollouts(tasks=120, group=8, gap=0.0))
    for seed in range(4):
        out = make_agent("statistical", seed).propose(briefing(report=health()), tools)
        assert all(iv.factor != "rewards" for iv in out.interventions[:1])


def test_solved_groups_lead_to_changes_the_replay_supports() -> None:
    recipe = Recipe(rewards={"kept_back": 1.0})
    tools = HarnessTools(rollouts(tasks=150, group=4, gap=0.1, seed=4), recipe)
    report = health({"dead_groups": 0.8, "saturation": 0.6}, dead_pass=0.4, dead_fail=0.1)
    supported = [
        iv.factor
        for seed in range(4)
        for iv in make_agent("statistical", seed).propose(briefing(recipe, report), tools).interventions[:3]
        if tools.backtest(iv).verdict == "supports"
    ]
    assert {"group_filter", "curriculum", "group_size"} & set(supported)
    assert len(supported) >= 4
