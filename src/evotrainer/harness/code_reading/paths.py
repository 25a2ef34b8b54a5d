"""Paths as episodes write them: which ones are of one file, which an action or a task names, and what an episode had
shown of a file before it was changed: that it is there, and its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from evotrainer.harness.code_reading import shell
from evotrainer.harness.code_reading.actions import Action, normal_form

MAX_TASK = 100_000
ABSENT = re.compile(
    r"no such file(?: or directory)?|cannot access|not found|can't open|does not exist|cannot stat|cannot find",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^\s*(\d{1,9})(?:[:|\t-]|\s{2,})(.*)$", re.MULTILINE)
MAX_SHOWN = 100_000


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
        return normal_form(a)[:300]
    return "\n".join(" ".join([*one.words, *one.reads])[:2000] for one in shell.commands(normal_form(a)))


def known(path: str, texts: Sequence[str], own: Sequence[str], visited: Collection[str]) -> bool:
    """Had one of the texts, or of the policy's `own` commands, spoken of this file as of one that is there? visited:
    folders that a command went to."""
    base = base_of(path)
    if not base or "*" in base or "$" in base:
        return False
    word = re.compile(rf"(?:[\w./+@-]*/)?(?<![\w-]){re.escape(base)}(?![\w-])")
    there = []
    for text in (*own, *texts):
        at = [m for m in word.finditer(text) if _means(m[0], path, visited)] if base in text else ()
        lines = [text[text.rfind("\n", 0, m.start()) + 1 : text.find("\n", m.end())][:2000] for m in at]
        there += [not all(map(ABSENT.search, lines))] if lines else []
    # a task may name a file that is not there; only a whole path is surely the one that is missed
    return any(there[-1:] if path.startswith("/") else there)


def _means(mention: str, path: str, visited: Collection[str]) -> bool:
    """Is a path that was shown the one that is meant?"""
    shown = re.sub(r"^[ab]/", "", mention)
    if "/" in path or "/" not in shown:
        return same_file(shown, path)
    # a bare name is of the folder where the command runs: of another one only where the episode had gone there
    return any(same_file(shown.rsplit("/", 1)[0], f) for f in visited)


def shown_of(name: str, actions: Sequence[Action], texts: Sequence[str], piece: str = "") -> str:
    """All that the latest output about the file of that name with this piece shows of it, line numbers apart; empty
    without one. texts: what each action could read; texts[i + 1] is the output of action i."""
    for i in range(min(len(actions), len(texts) - 1) - 1, -1, -1):
        printed = texts[i + 1][:MAX_SHOWN]
        if piece in printed and name in normal_form(actions[i])[:400]:
            # of a failing test the line that fails, and not what it came to
            rows = _NUMBERED.sub(lambda m: m[2], printed).split("\n")
            return "\n".join(x.removeprefix(">") for x in rows if not x.startswith("E "))
    return ""
