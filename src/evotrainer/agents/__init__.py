"""Agents, which propose changes, behind one contract (`base.py`), made by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.agents.base import Agent, AgentSpec, Tools
from evotrainer.agents.fixed import FixedAgent, FixedOptions
from evotrainer.agents.one_factor import OneFactorAgent, Options
from evotrainer.agents.pooled import PooledAgent, PooledOptions
from evotrainer.records.frozen import parsed
from evotrainer.registry import Registry

_SEAT = (
    "a language model or another program sits in the seat: run.agent=seat run.agent_options.carrier={} (docs/seat.md)"
)
AGENTS: Registry[AgentSpec] = Registry(
    "agent",
    "run.agent",
    {
        "statistical": AgentSpec(PooledAgent, PooledOptions),
        "one_factor": AgentSpec(OneFactorAgent, Options),
        "fixed": AgentSpec(lambda seed, options: FixedAgent(options), FixedOptions),
        "random": "evotrainer.agents.random_:SPEC",
        "seat": "evotrainer.agents.seat.agent:SPEC",
    },
    hints={
        **dict.fromkeys(("llm", "openai", "anthropic", "claude", "gpt", "ollama", "vllm"), _SEAT.format("llm")),
        "command": _SEAT.format("command"),
        "mcp": _SEAT.format("mcp"),
        "queue": _SEAT.format("queue"),
        **dict.fromkeys(("optuna", "bayesian", "bayes"), "Optuna's sampler is the arm tpe of python -m bench.compare"),
        **dict.fromkeys(
            ("tpe", "greedy", "best_of_n", "random_recipes"),
            "it is an arm of python -m bench.compare TASK --arms ... (bench/compare/README.md)",
        ),
        "default": "the default is statistical",
    },
)
"""Name in the task file (`run.agent`) -> what makes the agent."""


def make_agent(name: str, seed: int = 0, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent of that name; ConfigError for an unknown one or for options it does not take."""
    spec = AGENTS[name]
    return spec.make(seed, parsed(spec.options, options or {}, f"run.agent_options of agent {name}"))
