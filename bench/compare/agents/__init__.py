"""Control arms: searches that practice knows, behind the same contract and over the same changes as the statistical
agent's. Each trains on one seed, reads the search split only and proposes nothing: what it settles on is recorded with
its search, and the comparison proves it on fresh seeds."""

from __future__ import annotations

from evotrainer.agents import AGENTS

ARM_AGENTS = {
    "random_recipes": "bench.compare.agents.simple:RANDOM_RECIPES",
    "greedy": "bench.compare.agents.simple:GREEDY",
    "best_of_n": "bench.compare.agents.simple:BEST_OF_N",
    "tpe": "bench.compare.agents.tpe:SPEC",
    "score_only": "bench.compare.agents.score_only:SPEC",
}


def register() -> None:
    """Have `run.agent` know the arms in this process."""
    AGENTS.update(ARM_AGENTS)
