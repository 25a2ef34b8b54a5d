"""What a patch changes, file by file: a unified diff, or the form with `*** Update File`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evotrainer.harness.code_reading.change import Change, short

_PATH = r"[\w@+./~$*{}-]+"
_SECTION = re.compile(rf"^\*\*\* (Update|Add|Delete) File: ({_PATH})[ \t]*$|^\*\*\* Move to: ({_PATH})", re.MULTILINE)
_PLAIN = re.compile(r"^(?=--- [^\n]*\n\+\+\+ [^\n]*\n@@ )", re.MULTILINE)


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
