"""Names of a trainer's package, imported when they are asked for:
the package itself loads no machine-learning library."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from evotrainer.errors import MissingDependencyError


def attribute(package: str, name: str, home: Mapping[str, str], needs: str) -> Any:
    """`name` of the module of `package` that `home` names for it;
    a missing library ends in `needs` with its name in {}."""
    if name not in home:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        module = import_module(f"{package}.{home[name]}")
    except ModuleNotFoundError as e:
        # a missing module of ours is a bug, not a missing library; the remedy "pip install" would mislead
        if (e.name or "").startswith("evotrainer"):
            raise
        raise MissingDependencyError(needs.format(e.name)) from e
    return getattr(module, name)


def installed(library: str) -> bool:
    """Whether a library could be imported."""
    from importlib.util import find_spec

    try:
        # find_spec imports nothing: torch alone takes seconds, which `--help` and a config check must not pay
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False
