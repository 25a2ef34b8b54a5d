"""Keys of endpoints: taken out of the environment, so that no trial, sandbox or worker process inherits them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from evotrainer.agents.carriers import Reply, key_name
from evotrainer.errors import ConfigError
from evotrainer.records.questions import CarrierOptions
from evotrainer.records.text import clean_text

_TAKEN: dict[str, str] = {}


def take_secrets(names: Iterable[str], *, needed: bool = True) -> dict[str, str]:
    """Variable -> value; ConfigError for one that is not set and `needed`. From the first call on this process's
    children do not see them."""
    out = {}
    for name in names:
        if value := os.environ.pop(name, ""):
            _TAKEN[name] = value
        if name in _TAKEN:
            out[name] = _TAKEN[name]
        elif needed:
            raise ConfigError(f"environment variable {name} is not set; export it, or correct run.agent_options")
    return out


def secrets_of(options: CarrierOptions) -> dict[str, str]:
    """Variable -> value of the keys that the carrier needs; ConfigError for one that is not set."""
    return take_secrets((*options.env, *([name] if (name := key_name(options)) else [])))


def redacted(text: str, secrets: dict[str, str]) -> str:
    """The text with each secret's value replaced by its name: these, and all that this process took for anybody who
    sits. The longest first, of which another may be a part."""
    every = {name: value.strip() for name, value in {**_TAKEN, **secrets}.items()}
    for name, value in sorted(every.items(), key=lambda x: -len(x[1])):
        text = text.replace(value, f"[{name}]") if len(value) >= 4 else text
    return text


def recordable(reply: Reply, secrets: dict[str, str]) -> Reply:
    """An answer whose every text is without secrets and without half characters."""
    raw, model, problem = (clean_text(redacted(t, secrets)) for t in (reply.raw, reply.model, reply.problem))
    return replace(reply, raw=raw, model=model[:100], problem=problem)
