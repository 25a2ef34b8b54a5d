"""Edits by programs that work on a stream of lines: sed, Perl, and editors run with a script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evotrainer.harness.code_reading.change import Change
from evotrainer.harness.code_reading.shell import Simple

_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*+/)"
_COMMAND = re.compile(
    rf"[\s;%]*(?P<from>{_ADDRESS})?(?:,(?P<to>{_ADDRESS}))?\s*(?:s(?P<d>[^\w\s\\])"
    r"(?P<old>(?:\\.|(?!(?P=d)).)*+)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*+)(?P=d)\w*"
    r"|(?P<text>[aicr])\s*\\?\n?(?P<rest>.*)|(?P<verb>[dpq]))",
    re.DOTALL,
)
MOST = 64
_EDITORS = ("ex", "vi", "vim", "ed")


def stream_edits(one: Simple) -> Iterator[Change]:
    """What a command changes in place."""
    editor = one.name in _EDITORS
    options = [w for w in one.words[1:] if re.match(r"-\w|--\w", w)]
    given = [w for w in one.words[1:] if w not in options and w not in ("-", "inplace") and w[:1] != "+"]
    scripts = [b for a, b in zip(one.words, one.words[1:], strict=False) if re.fullmatch(r"-\w*[ec]|--expression", a)]
    scripts += [w.partition("=")[2] for w in options if w.startswith("--expression=")] or (
        [] if scripts or editor else given[:1]
    )
    if one.given and editor:
        scripts.append(one.given)
    if editor or any(re.match(r"--in-place|-\w*i", w) for w in options):
        for path in (w for w in given if w not in scripts):
            for script in scripts:
                yield from _script(script, one, path)


def _script(script: str, one: Simple, path: str) -> Iterator[Change]:
    """The edits of a script of sed, or of Perl and the editors where they are substitutions."""
    at, found = 0, 0
    while found < MOST and (m := _COMMAND.match(script, at)):
        at, found = m.end(), found + 1
        new = (m["rest"] or "").replace("\\n", "\n").replace("\\ ", " ")
        if m["d"]:
            yield Change(path, "change", _unescaped(m["old"]), _unescaped(m["new"]), one.line)
        elif m["verb"] == "d" or m["text"] == "c":
            start, end = m["from"] or "", m["to"] or m["from"] or ""
            numbers = start.isdecimal() and (end.isdecimal() or end == "$")
            lines = (int(start), int(end) if end.isdecimal() else 1 << 30) if numbers else None
            yield Change(path, "change", "" if numbers else _unescaped(start.strip("/")), new, one.line, lines=lines)
        elif m["text"]:
            inserted = (None, m["rest"].strip()) if m["text"] == "r" else (new, "")
            yield Change(path, "add", "", inserted[0], one.line, inserted[1])
    if not found and one.name not in ("sed", "gsed"):
        # a program that nobody reads here: its words tell
        yield Change(path, "change", script, "", one.line)


def _unescaped(pattern: str) -> str:
    """About the text that a pattern matches."""
    return re.sub(r"\\([^\w\n])", r"\1", pattern).replace("\\n", "\n").lstrip("^").removesuffix("$")
