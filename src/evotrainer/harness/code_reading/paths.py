"""Paths as episodes write them: which ones are of one file, and which an action or a task names."""

from __future__ import annotations

import re

from evotrainer.harness.code_reading import shell
from evotrainer.harness.code_reading.actions import Action, normal

MAX_TASK = 100_000


def base_of(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def cleaned(path: str) -> str:
    """Without a dot before it and a slash behind it."""
    return re.sub(r"^(?:\./)+", "", path).rstrip("/")


def pattern_of(path: str) -> str:
    """A path with `*` where a variable stands."""
    return re.sub(r"\$\{?\w+\}?|\{\w*\}", "*", cleaned(path))


def same_file(a: str, b: str) -> bool:
    """May two paths be of one file, where one may begin higher up than the other?"""
    x, y = cleaned(a), cleaned(b)
    return x == y or x.endswith("/" + y) or y.endswith("/" + x)


def within(path: str, folder: str) -> bool:
    """Does a path lie in this folder, wherever that is?"""
    x, f = cleaned(path), cleaned(folder)
    return bool(f) and (x.startswith(f + "/") or f"/{f}/" in x)


def names(task: str, path: str) -> bool:
    """Does the task's text name this file, or this folder by its path?"""
    base = base_of(path)
    return len(base) > 2 and re.search(rf"(?<![\w-]){re.escape(base)}(?![\w-])", task[:MAX_TASK]) is not None


def mentioned(a: Action) -> str:
    """Files that an action names, texts that it writes apart."""
    if a.text.lstrip().startswith("{"):
        return normal(a)[:300]
    return "\n".join(" ".join([*one.words, *one.reads])[:2000] for one in shell.commands(normal(a)))
