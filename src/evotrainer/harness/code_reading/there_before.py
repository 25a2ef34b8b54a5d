"""What an episode had shown of a file before it was changed: that it is there, and its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from evotrainer.harness.code_reading.actions import Action, normal
from evotrainer.harness.code_reading.paths import base_of, same_file

ABSENT = re.compile(
    r"no such file(?: or directory)?|cannot access|not found|can't open|does not exist|cannot stat|cannot find",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^\s*(\d{1,9})(?:[:|\t-]|\s{2,})(.*)$", re.MULTILINE)
MAX_SHOWN = 100_000


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


def shown_of(name: str, actions: Sequence[Action], said: Sequence[str], piece: str = "") -> str:
    """All that the latest output about the file of that name with this piece shows of it, line numbers apart; empty
    without one. said: what each action could read, so that the output of action i is said[i + 1]."""
    for i in range(min(len(actions), len(said) - 1) - 1, -1, -1):
        printed = said[i + 1][:MAX_SHOWN]
        if piece in printed and name in normal(actions[i])[:400]:
            # of a failing test the line that fails, and not what it came to
            rows = _NUMBERED.sub(lambda m: m[2], printed).split("\n")
            return "\n".join(x.removeprefix(">") for x in rows if not x.startswith("E "))
    return ""
