"""Overrides of a task file, as texts `section.name=value` or as a mapping; which of them a resume takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError

Overrides = Sequence[str] | Mapping[str, Any]
"""`["run.rounds=1"]` or `{"run.rounds": 1}`."""

RESUMABLE = ("budget.", "run.workers=", "run.checkpoint_every=", "run.cache", "executor.", "tracking.", "notify.")
"""Sections that a resume may override: budget, executor, display; nothing that changes results."""
FURTHER = ("run.rounds=", "run.probes=", "run.agent=", "run.agent_options")
"""What a resume may override as well: how long the run goes on, how many search trainings a round may make from now on,
and who proposes."""


def as_texts(overrides: Overrides) -> list[str]:
    """Overrides as texts, as the command line takes them; `{"run": {"rounds": 1}}` is `{"run.rounds": 1}`.

    ConfigError for one text in place of a list, and for a value that TOML does not have.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"overrides is the text {overrides!r}; give a list of texts: [{overrides!r}]")
    if not isinstance(overrides, Mapping):
        given = list(overrides) if isinstance(overrides, Iterable) else [overrides]
        if wrong := [o for o in given if not isinstance(o, str)]:
            raise ConfigError(
                f'overrides holds {wrong[0]!r}, which is no text; give texts, as ["run.rounds=1"], or a dict, as '
                '{"run.rounds": 1}'
            )
        return given
    out = []
    for key, value in overrides.items():
        section = "." not in key and isinstance(value, Mapping)
        out += [f"{key}.{k}={_toml(k, v)}" for k, v in value.items()] if section else [f"{key}={_toml(key, value)}"]
    return out


def check_resumable(overrides: Sequence[str], trainer: Sequence[str] = ()) -> None:
    """ConfigError for what would change the results of a run that began. `trainer`: options that its trainer allows."""
    allowed = (*RESUMABLE, *FURTHER, *(f"trainer.options.{o}=" for o in trainer))
    for o in overrides:
        if not o.startswith(allowed):
            raise ConfigError(
                f"a resume cannot change {o.partition('=')[0]!r}, only {', '.join(allowed)}; start a new run"
            )


def _toml(name: str, value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(str(k))} = {_toml(name, v)}' for k, v in value.items())}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(name, v) for v in value)}]"
    raise ConfigError(f"override {name} is of type {type(value).__name__}; give a text, number, boolean, list or dict")
