"""An agent of one's own: the next lower learning rate, as long as one helps.

evotrainer run TASK 'run.agent=python:examples/my_agent.py:HalveLearningRate'
"""

from __future__ import annotations

from typing import Any

from evotrainer.agents.base import Tools
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention, Prediction


class HalveLearningRate:
    """Called as `HalveLearningRate(seed, options)`, with `run.seed` and `run.agent_options` of the task file."""

    name = "halve_learning_rate"

    def __init__(self, seed: int, options: dict[str, Any]) -> None:
        self.factor = float(options.get("factor", 0.5))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """One change of the champion's recipe, or the advice to stop."""
        champion = briefing.champion
        tried = {b.recipe.lr for b in briefing.branches}
        lr = champion.recipe.lr * self.factor
        if lr in tried:
            return Proposal(agent=self.name, interventions=(), stop=f"learning rate {lr:g} was tried already")
        change = Intervention(
            factor="lr",
            old=champion.recipe.lr,
            new=lr,
            hypothesis=f"steps of {champion.recipe.lr:g} overshoot late in training",
            prediction=Prediction(metric="accuracy", direction="up", size=0.01),
            success_criterion="the judge's lower bound of the gate score is above 0",
            rollback=f"return to {champion.branch}",
            move=self.name,
        )
        backtest = tools.backtest(change)  # seconds, on stored rollouts; an agent may ask as often as it likes
        return Proposal(agent=self.name, interventions=(change,), reasoning=f"backtest: {backtest.verdict}")
