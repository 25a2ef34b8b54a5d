"""The outcome is not for sale: before a run, in proposals of any agent, in backtests, and when a ledger is verified."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.agents.one_factor import OneFactorAgent
from evotrainer.agents.random_ import RandomAgent
from evotrainer.cli.run import run as run_command
from evotrainer.errors import ConfigError, TaskSetError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.search import ProbePlan, SearchPlan
from tests import leaky_task
from tests.paper import Paper, bodies, complaints
from tests.thinned import thinned
from tests.verify.test_forged_runs import forge, set_

TASK = leaky_task.TASK.replace('payable = ["right"]\n', "").replace(
    "[recipe.rewards]\nright", "[recipe.rewards]\nin_order"
)
"""Pays order, and not what is right."""


def noisy(spec: TrialSpec) -> list[Rollout]:
    """Search rollouts whose paid component says little of the outcome: paying the outcome would look best by far."""
    out = []
    for i in range(160):
        rng = random.Random(f"{spec.trial} {i}")
        right = float(rng.random() < 0.5)
        order = right if rng.random() < 0.6 else 1.0 - right
        said = (Turn("user", f"sort {i // 4}"), Turn("assistant", f"answer {i}"))
        out.append(
            Rollout(
                id=f"{spec.trial}-{i}", task=f"t{i // 4}", turns=said, reward=order, split="search", k=i % 4,
                group=f"{spec.trial}-{i // 4}", components={"right": right, "in_order": order},
                outcome="correct" if right else "incorrect",
            )
        )  # fmt: skip
    return out


def paper() -> Paper:
    return Paper(leaky_task.finish, noisy)


class Briefed:
    """Asks another agent, and keeps what it was told and what it answered."""

    name = "briefed"

    def __init__(self, agent: Any) -> None:
        self.agent, self.told, self.said = agent, [], []

    def propose(self, briefing: Briefing, tools: Any) -> Proposal:
        self.told.append(briefing)
        self.said.append(self.agent.propose(briefing, tools))
        return self.said[-1]


class Greedy:
    """Proposes to pay the outcome, after a search training that does where there may be one."""

    name = "greedy"

    def search(self, briefing: Briefing, tools: Any) -> SearchPlan:
        plan = ProbePlan(changes={"rewards": {"right": 1.0}})
        return SearchPlan(stop="tried") if briefing.probes else SearchPlan(probes=(plan,))

    def propose(self, briefing: Briefing, tools: Any) -> Proposal:
        old = briefing.champion.recipe.rewards
        iv = Intervention(
            factor="rewards", old=dict(old), new={"right": 1.0}, hypothesis="if the outcome is paid, it rises",
            prediction=Prediction(metric="accuracy", direction="up", size=0.01),
            success_criterion="gate score +1 point", rollback="champion",
        )  # fmt: skip
        return Proposal(agent=self.name, interventions=(iv,))


@pytest.mark.parametrize("change", ["recipe.rewards={right=1}", "recipe.rewards={in_order=1,right=0.1}"])
def test_a_recipe_that_pays_the_outcome_is_refused_before_anything_is_spent(
    task: Path, tmp_path: Path, change: str
) -> None:
    quick = paper()
    with pytest.raises(ConfigError, match=r'pays right: the outcome of .*environment.payable = \["right"\]'):
        quick.start(task, tmp_path / "run", [change])
    assert not (tmp_path / "run").exists() and not quick.ran
    with pytest.raises(ConfigError, match="pays right"):
        run_command(task, [change], dry_run=True)


def test_wrong_names_of_payable_and_of_rewards_are_told_together(task: Path, tmp_path: Path) -> None:
    wrong = ['environment.payable=["rigth"]', "recipe.rewards={in_ordr=1}"]
    change = 'run.agent_options.interventions=[{factor="rewards",new={in_odrer=1.0}}]'
    with pytest.raises(TaskSetError) as found:
        paper().start(task, tmp_path / "run", [*wrong, change])
    first, *others = str(found.value).splitlines()
    assert "no reward component 'rigth'; did you mean right?" in first
    assert "also: unknown reward component in_ordr, did you mean in_order?" in others[0]
    assert "also: unknown reward component in_odrer" in others[1] and len(others) == 2
    with pytest.raises(
        TaskSetError, match="is a list of reward components(.|\n)*also: unknown reward component in_ordr"
    ):
        paper().start(task, tmp_path / "run", ['environment.payable="right"', wrong[1]])
    assert not (tmp_path / "run").exists()


def test_a_fixed_list_that_pays_it_is_refused_as_early(task: Path, tmp_path: Path) -> None:
    change = 'run.agent_options.interventions=[{factor="rewards",new={right=1.0}}]'
    with pytest.raises(ConfigError, match="pays right"):
        paper().start(task, tmp_path / "run", [change])


def test_payable_makes_it_a_reward_like_any_other_and_a_ledger_that_pays_it_without_does_not_verify(
    task: Path, tmp_path: Path
) -> None:
    overrides = ['environment.payable=["right"]', "judge.audit=never", "run.probes=1"]
    run = paper().start(task, tmp_path / "run", overrides, agent=Greedy())
    assert run.state.environment["payable"] == ["right"] and run.state.environment["outcome"] == ["right"]
    (replayed,) = bodies(run, "backtested")
    assert "may not be paid" not in replayed.backtest.reason
    assert run.state.branches["b1"].recipe.rewards == {"right": 1.0}
    assert not complaints(run)
    forge(run.folder, "run", set_("environment", "payable", to=[]))
    said = [p.message for p in api.open_run(run.folder).verify().problems]
    paying = [m for m in said if "recipe.rewards pays right" in m]
    assert [m.split()[:2] for m in paying] == [["branch", "b1"], ["p1:", "recipe.rewards"]], said
    assert any("[] is payable in the ledger, not in the task file" in m for m in said), said


def test_a_proposal_that_pays_it_is_refused_by_name_and_its_backtest_says_so(task: Path, tmp_path: Path) -> None:
    run = paper().start(task, tmp_path / "run", ["judge.audit=never"], agent=Greedy())
    (replayed,) = bodies(run, "backtested")
    assert replayed.backtest.verdict == "supports", "it would be the best of rewards"
    assert "right is the outcome and may not be paid" in replayed.backtest.reason
    (refused,) = bodies(run, "refused")
    assert refused.reason.startswith("recipe.rewards pays right: the outcome of ")
    assert list(run.state.branches) == ["b0"]
    assert not complaints(run)


@pytest.mark.parametrize(
    ("agent", "payable"),
    thinned([(a(0), p) for p in (True, False) for a in (OneFactorAgent, RandomAgent)], 3),
)
def test_our_agents_are_not_offered_it(task: Path, tmp_path: Path, agent: Any, payable: bool) -> None:
    asked = Briefed(agent)
    overrides = ["judge.audit=never", "run.branches=6", *(['environment.payable=["right"]'] if payable else [])]
    paper().start(task, tmp_path / "run", overrides, agent=asked)
    for b in asked.told:
        assert ("right" in b.components) is payable and b.unpayable == (() if payable else ("right",))
    paid = {c for p in asked.said for iv in p.interventions if iv.factor == "rewards" for c in iv.new}
    assert payable or "right" not in paid
    if payable and isinstance(agent, OneFactorAgent):
        assert "right" in paid, "the same agent takes it where it is for sale, so its absence is no accident"


def test_a_run_of_an_earlier_version_goes_on_paying_it(task: Path, tmp_path: Path) -> None:
    """Its first event says nothing of an outcome: what it began with, it resumes, verifies and may propose."""
    quick = paper()
    with quick.stopped(lambda spec: spec.train):
        quick.start(task, tmp_path / "run", ['environment.payable=["right"]', "judge.audit=never"], agent=Greedy())

    def old(body: dict[str, Any]) -> None:
        del body["environment"]["outcome"], body["environment"]["payable"]

    forge(tmp_path / "run", "run", old)
    run = quick.resume(tmp_path / "run", agent=Greedy())
    assert run.state.branches["b1"].recipe.rewards == {"right": 1.0}
    assert not complaints(run)
