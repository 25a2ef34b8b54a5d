"""A start is the champion's recipe or one that it went on from: in proposals, in searches, and in what is verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents import Tools
from evotrainer.agents.fixed import plain
from evotrainer.errors import AgentError
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.search import ProbePlan, SearchPlan
from evotrainer.verify import chain_and_files
from tests.paper import Paper, bodies
from tests.run.test_search import TASK as TASK
from tests.run.test_search import finish as finish


def elsewhere(briefing: Briefing) -> dict[str, Any]:
    """Another recipe as the start."""
    return {**briefing.champion.recipe.model_dump(mode="json"), "lr": 9e-4}


class Proposes:
    """A branch that goes on from another recipe."""

    name = "proposes"

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        if briefing.round > 1:
            return Proposal(agent=self.name, interventions=(), stop="done")
        iv = plain(briefing.champion.recipe.start, "start", elsewhere(briefing), "try", "b0", self.name)
        return Proposal(agent=self.name, interventions=(iv,))


class Searches(Proposes):
    """A search training that does."""

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        if briefing.round > 1 or briefing.probes:
            return SearchPlan(stop="done")
        return SearchPlan(probes=(ProbePlan(changes={"start": elsewhere(briefing)}),))


def test_a_branch_from_another_recipe_is_refused_and_no_run_verifies_with_one(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quick.start(task, tmp_path / "run", ["run.rounds=1"], agent=Proposes())
    (reason,) = (r.reason for r in bodies(run, "refused"))
    assert reason.startswith("start names another recipe than") and "b1" not in run.state.branches
    assert not list(chain_and_files.refused_branches(run.state))
    with monkeypatch.context() as m:
        m.setattr("evotrainer.factors.change_rules.check_start", lambda parent, recipe: None)
        forged = quick.start(task, tmp_path / "forged", ["run.rounds=1"], agent=Proposes())
    (problem,) = chain_and_files.refused_branches(forged.state)
    assert "start names another recipe than the champion's" in problem


def test_a_search_training_from_another_recipe_is_refused(task: Path, tmp_path: Path, quick: Paper) -> None:
    with pytest.raises(AgentError, match="start names another recipe than the champion's"):
        quick.start(task, tmp_path / "run", ["run.rounds=1", "run.search_only=true"], agent=Searches())
