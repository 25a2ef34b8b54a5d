"""One file that an action changes, in the one form that every tool and program is brought to, and what a patch changes:
a unified diff, or the form with `*** Update File`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Way = Literal["write", "add", "change", "remove", "folder", "restore"]
"""write: a whole file, new or old; add: lines are only added; change: in place; remove: deleted or moved away; folder:
a folder that was not there is made with all that is in it; restore: put back as the repository has it."""
OPENED = "\0opened"
"""Path of a change by an editor that works on the file it has open."""
_PATH = r"[\w@+./~$*{}-]+"
_SECTION = re.compile(rf"^\*\*\* (Update|Add|Delete) File: ({_PATH})[ \t]*$|^\*\*\* Move to: ({_PATH})", re.MULTILINE)
_PLAIN = re.compile(r"^(?=--- [^\n]*\n\+\+\+ [^\n]*\n@@ )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """One file that an action changes."""

    path: str
    way: Way
    old: str = ""
    """What goes, where that is known; a piece of it for a substitution"""
    new: str | None = None
    """What comes, None where that is unknown"""
    line: str = ""
    """The command or call, about as it was written"""
    source: str = ""
    """File that it is a copy of"""
    lines: tuple[int, int] | None = None
    """Lines that go, where only their numbers are known"""
    last: bool = True
    """It is the last thing the action does, so that its outcome is the action's"""
    shell: bool = False
    """A shell did it, which goes on after a failure"""


def short(text: str) -> str:
    """The beginning of a text in one line, for a quote."""
    return " ".join(text[:1000].split())[:120]


def patched(text: str, line: str) -> Iterator[Change]:
    """Of a patch, unified or in the form with `*** Update File`: what goes and what comes, file by file."""
    marks = list(_SECTION.finditer(text))
    line = short(line)
    for i, m in enumerate(marks):
        body = text[m.end() : marks[i + 1].start() if i + 1 < len(marks) else len(text)]
        if m[3]:
            if i:
                yield Change(marks[i - 1][2] or "", "remove", line=line)
        elif m[1] == "Delete":
            yield Change(m[2], "remove", line=line)
        elif m[1] == "Add":
            yield Change(m[2], "write", new=_side(body, "+"), line=line)
        else:
            yield _two_sides(m[2], body, line)
    if not marks:
        for _, part in file_parts(text):
            yield from _of_diff(part, line)


def file_parts(patch: str) -> Iterator[tuple[int, str]]:
    """(lines before it, text) of each file's part of a unified diff, with or without headers of git."""
    at = 0
    # git's header starts a file; a plain diff has none and is split where `---`, `+++` and `@@` lines follow
    for n, part in enumerate(f"\n{patch}".split("\ndiff --git ")):
        for one in [p for p in _PLAIN.split(part[1:]) if p] if n == 0 else [part]:
            yield at, one
            at += one.count("\n")
        at += 1 if n or part else 0


def _of_diff(part: str, line: str) -> Iterator[Change]:
    before, after = re.search(r"(?m)^--- ([^\t\n]+)", part), re.search(r"(?m)^\+\+\+ ([^\t\n]+)", part)
    if not before or not after:
        return
    old, new = before[1].strip().removeprefix("a/"), after[1].strip().removeprefix("b/")
    if new == "/dev/null":
        yield Change(old, "remove", line=line)
    elif old == "/dev/null":
        yield Change(new, "write", new=_side(part[after.end() :], "+"), line=line)
    else:
        yield _two_sides(new, part[after.end() :], line)


def _two_sides(path: str, body: str, line: str) -> Change:
    old, new = _side(body, "-"), _side(body, "+")
    return Change(path, "change" if old.strip() else "add", old, new, f"{line} {path}: {short(old)} -> {short(new)}")


def _side(body: str, sign: str) -> str:
    return "\n".join(ln[1:] for ln in body.split("\n") if ln[:1] == sign)
