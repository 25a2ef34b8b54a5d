"""A pytest plugin: nothing can be imported but what some extras of pyproject.toml install, and what runs tests.

`EVOTRAINER_ONLY=local,gguf python -m pytest -p tests.only_extras ...`: the environment of somebody who installed
`evotrainer[local,gguf]`, as far as imports tell. What an extra forgot to name is missing here as it is there, while the
environment that all tests share has it by way of another extra.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNS_TESTS = ("pytest", "packaging")


def wanted(extras: Iterable[str]) -> set[str]:
    """Distributions that the project and some of its extras install, what they need in turn among them."""
    own = [*PROJECT["dependencies"], *(r for e in extras for r in PROJECT["optional-dependencies"][e])]
    todo, seen, found = [Requirement(r) for r in (*own, *RUNS_TESTS)], set(), {"evotrainer"}
    while todo:
        r = todo.pop()
        name = canonical(r.name)
        for extra in ("", *r.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                needs = [Requirement(x) for x in metadata.requires(name) or ()]
            except metadata.PackageNotFoundError:
                continue
            found.add(name)
            todo += [n for n in needs if n.marker is None or n.marker.evaluate({"extra": extra})]
    return found


def canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def hidden(extras: Iterable[str]) -> frozenset[str]:
    """Top-level modules that only other distributions bring."""
    known = wanted(extras)
    brought = metadata.packages_distributions()
    return frozenset(m for m, by in brought.items() if not known & {canonical(d) for d in by})


class OnlyThese(PathFinder):
    """Finds modules as Python does, without the hidden ones."""

    names: frozenset[str] = frozenset()

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in cls.names else super().find_spec(fullname, path, target)


if extras := os.environ.get("EVOTRAINER_ONLY", ""):
    OnlyThese.names = hidden(extras.split(","))
    sys.meta_path[sys.meta_path.index(PathFinder)] = OnlyThese
