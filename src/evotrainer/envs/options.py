"""Options of an environment: `[environment]` of a task file, validated by a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen, explain

M = TypeVar("M", bound=Frozen)


def parse_options(model: type[M], config: Mapping[str, Any], name: str) -> M:
    """The options as a model; TaskSetError names the environment, each bad option and what it allows."""
    try:
        return model.model_validate(dict(config))
    except ValidationError as e:
        raise TaskSetError(f"environment {name}: {explain(e, model)}") from None
