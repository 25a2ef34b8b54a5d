"""What proposes: agents behind one contract (`base.py`), made by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import ValidationError

from evotrainer.agents.base import Agent, Tools
from evotrainer.errors import ConfigError
from evotrainer.records.frozen import Frozen, explain

__all__ = ["AGENTS", "Agent", "Tools", "make_agent"]

Factory = Callable[[int, Mapping[str, Any]], Agent]
M = TypeVar("M", bound=Frozen)


class _OptionsError(Exception):
    """What is wrong with an agent's options, in the words of a task file."""


def _read(model: type[M], options: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(dict(options))
    except ValidationError as e:
        raise _OptionsError(explain(e, model)) from None


def _statistical(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.pooled import PooledAgent, PooledOptions

    return PooledAgent(seed, _read(PooledOptions, options))


def _one_factor(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.one_factor import OneFactorAgent, Options

    return OneFactorAgent(seed, _read(Options, options))


def _fixed(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.fixed import FixedAgent, FixedOptions

    return FixedAgent(_read(FixedOptions, options))


def _random(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.random_ import RandomAgent

    _read(Frozen, options)
    return RandomAgent(seed)


def _control(arm: str) -> Factory:
    """The factory of a control arm that takes no options."""

    def make(seed: int, options: Mapping[str, Any]) -> Agent:
        from evotrainer.agents.arms import simple

        _read(Frozen, options)
        made: Agent = getattr(simple, arm)(seed)
        return made

    return make


def _map_elites(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.arms.map_elites import MapElites, MapElitesOptions

    return MapElites(seed, _read(MapElitesOptions, options))


def _tpe(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.arms.tpe import Tpe, TpeOptions

    return Tpe(seed, _read(TpeOptions, options))


def _score_only(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.arms.score_only import ScoreOnly
    from evotrainer.agents.pooled import PooledOptions

    return ScoreOnly(seed, _read(PooledOptions, options))


def _seat(seed: int, options: Mapping[str, Any]) -> Agent:
    from evotrainer.agents.seat.agent import SeatAgent
    from evotrainer.agents.seat.options import SeatOptions

    return SeatAgent(seed, _read(SeatOptions, options))


AGENTS: dict[str, Factory] = {
    "statistical": _statistical,
    "one_factor": _one_factor,
    "fixed": _fixed,
    "random": _random,
    "random_recipes": _control("RandomRecipes"),
    "greedy": _control("Greedy"),
    "best_of_n": _control("BestOfN"),
    "tpe": _tpe,
    "map_elites": _map_elites,
    "score_only": _score_only,
    "seat": _seat,
}
"""Name in the task file (`run.agent`) -> factory of (run seed, `run.agent_options`)."""


_SEAT = (
    "a language model or another program sits in the seat: run.agent=seat run.agent_options.carrier={} (docs/seat.md)"
)
MEANT: Mapping[str, str] = {
    **dict.fromkeys(("llm", "openai", "anthropic", "claude", "gpt", "ollama", "vllm"), _SEAT.format("llm")),
    "command": _SEAT.format("command"),
    "mcp": _SEAT.format("mcp"),
    "queue": _SEAT.format("queue"),
    **dict.fromkeys(("optuna", "bayesian", "bayes"), "Optuna's sampler is the agent tpe"),
    "default": "the default is statistical",
}
"""Names that others have for an agent -> what to write."""


def make_agent(name: str, seed: int = 0, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent of that name; ConfigError for an unknown one or for options it does not take."""
    if name not in AGENTS:
        near = get_close_matches(name, AGENTS, 1)
        hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(sorted(AGENTS))}"
        hint = MEANT.get(name.lower(), hint)
        raise ConfigError(f"run.agent: unknown agent {name!r}; {hint}")
    try:
        return AGENTS[name](seed, options or {})
    except _OptionsError as e:
        raise ConfigError(f"run.agent_options of agent {name}: {e}") from None
