"""Lines of a file by their numbers, as an episode had shown them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evotrainer.harness.code_reading.actions import Action, normal

_NUMBERED = re.compile(r"^\s*(\d+)(?:[:|\t-]|\s{2,})(.*)$", re.MULTILINE)
_CAT = re.compile(r"^\s*(?:cd\s+\S+\s*(?:&&|;)\s*)?cat\s+[^\s|;&>]+\s*$")
MOST = 400
_ASSERTS = re.compile(r"\bassert\w*\b|\bexpect\s*\(|\b(?:EXPECT|ASSERT|REQUIRE|CHECK)_?\w*\s*\(|\brequire\.\w+\(")
_QUOTED = re.compile(r"^\s*(?:[>+ -]\s|E\s|[\w./-]+:\d+[:-]|\d+[:|\t-])?\s*")
_VALUES = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])|'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"")
_FAILED = re.compile(r"FAIL|Error\b|✕|\bfailed\b|panicked")
_TOLD = re.compile(r"^E\s|assert|Error|[Rr]eceived|\bgot\b|\bactual|!=|^\s*left:|^[-+] |✕")
LEAST = 3
"""Characters of a piece from which the line that holds it is looked for."""


def shown_lines(name: str, lines: tuple[int, int], actions: Sequence[Action], said: Sequence[str]) -> str:
    """The text of these lines (both included) of the file of that name, from the latest output that shows them; empty
    where none does. said: what each action could read, so that the output of action i is said[i + 1]."""
    first, last = lines
    for i in range(len(actions) - 1, -1, -1):
        printed = said[i + 1] if i + 1 < len(said) else ""
        text = normal(actions[i])[:400]
        if not printed or (name not in text and name not in printed[:400]):
            continue
        if _CAT.match(text):
            rows = printed.split("\n")
            return "\n".join(rows[first - 1 : min(last, first + MOST)])
        numbered = {int(m[1][:9]): m[2] for m in _NUMBERED.finditer(printed[:100_000])}
        if first in numbered:
            return "\n".join(numbered.get(n, "") for n in range(first, min(last, first + MOST) + 1))
    return ""


def asserting_line(piece: str, new: str, name: str, said: Sequence[str]) -> str:
    """The assertion of which a substitution changes this piece, as an output about the file of that name had shown it;
    empty where none was shown, or the new value is not what a failing test had said that the code gives: names and
    versions change in assertions as they do elsewhere."""
    text = piece.strip()
    came = set(_VALUES.findall(new)) - set(_VALUES.findall(text))
    if len(text) < LEAST or "\n" in text or not came:
        return ""
    for shown in reversed(said):
        if name not in shown or text not in shown or not _FAILED.search(shown):
            continue
        rows = [x for x in shown.split("\n") if len(x) < 2000]
        gave = any(_TOLD.search(x) and all(_holds(x, v) for v in came) for x in rows)
        # where the value is compared, and not in the call before it
        tests = (x for x in rows if text in x and _ASSERTS.search(x) and x.find(text) > x.find("assert"))
        line = next(tests, "") if gave else ""
        if line:
            return _QUOTED.sub("", line)
    return ""


def _holds(row: str, value: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value.strip(chr(34) + chr(39)))}(?![\w.])", row) is not None
