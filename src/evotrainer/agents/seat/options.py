"""What a task file may set under `run.agent_options` of the agent `seat`, and the carrier that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from evotrainer.agents.pooled import PooledOptions
from evotrainer.agents.seat.carriers.base import Carrier
from evotrainer.agents.seat.secrets import take
from evotrainer.records.asking import CarrierOptions

if TYPE_CHECKING:
    from evotrainer.agents.seat.carriers.command import CommandCarrier
    from evotrainer.agents.seat.carriers.llm import LlmCarrier

NEEDS = {"llm": "model", "command": "command", "replay": "run", "queue": ""}
"""Carrier -> the option that it cannot do without."""


class SeatOptions(CarrierOptions, PooledOptions):
    """Those of the statistical agent, which fills the other places, and:"""

    carrier: Literal["llm", "command", "queue", "replay"]
    """Who is asked: a model behind an endpoint, a program, whoever answers by `evotrainer propose`, the recorded
    answers of a run."""
    share: float = Field(0.3, ge=0, le=1)
    """Share of the trainings that the seat names; the statistical agent names the others and learns from all."""
    requests: int = Field(200, ge=0)
    """Answers in the whole run at most."""
    wall_s: float | None = Field(None, ge=0)
    """Seconds of waiting, all requests together."""
    run: str = ""
    """Of carrier replay: the run whose answers are played."""

    @model_validator(mode="after")
    def _complete(self) -> SeatOptions:
        need = NEEDS[self.carrier]
        if need and not getattr(self, need):
            raise ValueError(f"carrier {self.carrier} needs run.agent_options.{need}")
        return self

    @property
    def statistical(self) -> PooledOptions:
        """The part for the statistical agent."""
        return PooledOptions.model_validate({k: getattr(self, k) for k in PooledOptions.model_fields})


def secrets_of(options: CarrierOptions) -> dict[str, str]:
    """Variable -> value of the keys that the carrier needs; ConfigError for one that is not set."""
    return take((*options.env, *([name] if (name := key_name(options)) else [])))


def key_name(options: CarrierOptions) -> str:
    """Variable of the endpoint's key; empty: it needs none."""
    if not options.model or getattr(options, "carrier", "llm") != "llm" or (options.endpoint and not options.key_env):
        return ""
    return options.key_env or {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}[options.protocol]


def make_carrier(options: SeatOptions, secrets: dict[str, str]) -> Carrier:
    """The carrier that the options name."""
    if options.carrier == "llm":
        return make_llm(options, secrets)
    if options.carrier == "command":
        return make_command(options, secrets)
    if options.carrier == "replay":
        from evotrainer.agents.seat.carriers.replay import ReplayCarrier

        return ReplayCarrier(options.run)
    from evotrainer.agents.seat.carriers.queue import QueueCarrier

    return QueueCarrier()


def make_llm(options: CarrierOptions, secrets: dict[str, str]) -> LlmCarrier:
    """The model behind the endpoint."""
    from evotrainer.agents.seat.carriers.llm import LlmCarrier

    return LlmCarrier(
        options.model,
        options.protocol,
        options.endpoint,
        secrets.get(key_name(options), "").strip(),
        options.most_tokens,
        options.output_mode,
        (options.price_in, options.price_out),
    )


def make_command(options: CarrierOptions, secrets: dict[str, str]) -> CommandCarrier:
    """The program."""
    from evotrainer.agents.seat.carriers.command import CommandCarrier

    return CommandCarrier(options.command, secrets, options.mount, options.sandbox)
