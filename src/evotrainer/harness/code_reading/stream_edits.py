"""Edits by programs that work on a stream of lines: sed, Perl, and editors run with a script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evotrainer.harness.code_reading.change import Change
from evotrainer.harness.code_reading.shell import Simple

_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*+/)"
_COMMAND = re.compile(
    rf"[\s;%]*(?P<from>{_ADDRESS})?\s*(?:,\s*(?P<to>{_ADDRESS}|\+\d+))?\s*!?\s*(?:s(?P<d>[^\w\s\\])"
    r"(?P<old>(?:\\.|(?!(?P=d)).)*+)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*+)(?P=d)[gIipmMeE\d]*"
    r"|(?P<text>[aicr])\s*\\?\n?(?P<rest>.*)|(?P<verb>[dpqnghGHNDPx{}bt]))",
    re.DOTALL,
)
MOST = 64
_EDITORS = ("ex", "vi", "vim", "ed")


def stream_edits(one: Simple) -> Iterator[Change]:
    """What a command changes in place."""
    script, paths, in_place, words = [], [], one.name in _EDITORS, iter(one.words[1:])
    for w in words:
        if w.startswith("-") and len(w) > 1:
            in_place |= w.startswith("--in-place") or (not w.startswith("--") and "i" in w)
            if re.fullmatch(r"-\w*[ec]|--expression", w):
                script.append(next(words, ""))
            elif w.startswith("--expression="):
                script.append(w.partition("=")[2])
            elif w in ("-i", "-inplace") and one.name in ("awk", "gawk"):
                next(words, "")
        elif not script and one.name not in _EDITORS:
            script.append(w)
        elif not w.startswith("+"):
            paths.append(w)
    script += [one.given] if one.given and one.name in ("ed", "ex") else []
    if in_place:
        edits = [e for s in script for e in _script(s, one.name)]
        yield from (
            Change(p, "change" if how else "add", old, new, one.line, source, lines)
            for p in paths
            for how, old, new, lines, source in edits
        )


Edit = tuple[bool, str, str | None, tuple[int, int] | None, str]
"""(in place, what goes, what comes, lines, file that comes)"""


def _script(script: str, program: str) -> Iterator[Edit]:
    """The edits of a script of sed, or of Perl and the editors where they are substitutions."""
    at, found = 0, 0
    while found < MOST and (m := _COMMAND.match(script, at)):
        at, found = m.end(), found + 1
        if m["d"]:
            yield True, _unescaped(m["old"]), _unescaped(m["new"]), None, ""
        elif m["verb"] == "d" or m["text"] == "c":
            start, end = m["from"] or "", m["to"] or m["from"] or ""
            numbers = start.isdecimal() and (end.isdecimal() or end == "$")
            lines = (int(start), int(end) if end.isdecimal() else 1 << 30) if numbers else None
            yield True, "" if numbers else _unescaped(start.strip("/")), _inserted(m["rest"] or ""), lines, ""
        elif m["text"] == "r":
            yield False, "", None, None, m["rest"].strip()
        elif m["text"]:
            yield False, "", _inserted(m["rest"]), None, ""
    if not found and program not in ("sed", "gsed"):
        # a program that nobody reads here: its words tell
        yield True, script, "", None, ""


def _inserted(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\ ", " ")


def _unescaped(pattern: str) -> str:
    """About the text that a pattern matches."""
    return re.sub(r"\\([^\w\n])", r"\1", pattern).replace("\\n", "\n").lstrip("^").removesuffix("$")
