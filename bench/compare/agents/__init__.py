"""Control arms: searches that practice knows, behind the same contract and over the same changes as the statistical
agent's. Each trains on one seed, reads the search split only and proposes nothing: what it settles on is recorded with
its search, and `python -m bench.compare` proves it on fresh seeds. In a process that imports this, `run.agent` names
them."""

from __future__ import annotations

from bench.compare.agents.score_only import ScoreOnly
from bench.compare.agents.simple import BestOfN, Greedy, RandomRecipes
from bench.compare.agents.tpe import Tpe, TpeOptions
from evotrainer.agents import AGENTS
from evotrainer.agents.base import AgentSpec
from evotrainer.agents.pooled import PooledOptions

AGENTS.update(
    {
        "random_recipes": AgentSpec(lambda seed, _: RandomRecipes(seed)),
        "greedy": AgentSpec(lambda seed, _: Greedy(seed)),
        "best_of_n": AgentSpec(lambda seed, _: BestOfN(seed)),
        "tpe": AgentSpec(Tpe, TpeOptions),
        "score_only": AgentSpec(ScoreOnly, PooledOptions),
    }
)
