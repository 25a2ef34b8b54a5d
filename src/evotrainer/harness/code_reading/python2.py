"""Programs of Python 2, line by line in the words of Python 3; it is never run, so only what parses matters."""

from __future__ import annotations

import re

_OLD = re.compile(
    r"\bprint[ \t]+[^\s(=.]|\bprint$|\bprint[ \t]*>>|\bexcept [\w., ()]+, ?\w+:|\braise \w+, ", re.MULTILINE
)
_CHANGES = tuple(
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (r"^([ \t]*(?:[^\n#'\"]*[:;][ \t]*)?)print[ \t]*>>[^\n]*", r"\1pass"),
        (r"^([ \t]*(?:[^\n#'\"]*[:;][ \t]*)?)print[ \t]+(?![(=])([^\n]*?)[ \t]*$", r"\1print(\2)"),
        (r"^([ \t]*)print[ \t]*$", r"\1print()"),
        (r"^([ \t]*except [\w. ()]+(?:, ?\w+\))?), ?(\w+):", r"\1 as \2:"),
        (r"^([ \t]*(?:[^\n#'\"]*:[ \t]*)?raise [\w.]+), ?([^\n]+)$", r"\1(\2)"),
    )
)


def translated(text: str) -> str:
    """The text with the statements that Python 3 no longer has written as it has them; empty where there are none."""
    if not _OLD.search(text):
        return ""
    for pattern, new in _CHANGES:
        text = pattern.sub(new, text)
    return text
