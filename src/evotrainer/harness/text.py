"""Reading rollout text: words, repetition, normalised solutions, safe quoting. Text is hostile until proven
otherwise."""

from __future__ import annotations

import json
import keyword
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

from evotrainer.records.rollout import Turn, turn_text

MAX_TEXT = 20_000
"""Characters read of one completion; the rest is ignored by behaviour metrics."""
MAX_BYTES = 20_000
"""Bytes read of one completion where it is read as bytes."""

QUOTED = 12
"""Characters of a line from which writing it again is quoting it."""
MOST_JSON = 200
"""Places of one text at which JSON is looked for."""
_PRINTED = re.compile(r"<(tool_response|tool_result|function_results?|output|observation|result)>.*?(?:</\1>|\Z)", re.S)
_JSON = re.compile(r"""[\[{]\s*["\[{]""")
_WORD = re.compile(r"\w+|[^\w\s]")
_PYTHON = frozenset({"", "python", "py", "python3"})
KEPT_NAMES = frozenset(keyword.kwlist) | {
    "print", "input", "int", "float", "str", "list", "dict", "set", "tuple", "map", "filter", "range", "len", "sum",
    "max", "min", "sorted", "reversed", "enumerate", "zip", "abs", "any", "all", "round", "divmod", "pow", "ord", "chr",
    "bool", "open", "iter", "next", "isinstance", "sys", "stdin", "stdout", "read", "readline", "split", "join",
}  # fmt: skip
"""Names that are not renamed when programs are compared."""


def words(text: str) -> list[str]:
    """Words and single punctuation marks of the first MAX_TEXT characters."""
    return _WORD.findall(text[:MAX_TEXT])


def fenced(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Span of the last fenced Python block (also one that is not closed) in data[start:end], None without one."""
    found = None
    at = data.find(b"```", start, end)
    while at >= 0:
        line = data.find(b"\n", at, end)
        if line < 0:
            break
        close = data.find(b"```", line, end)
        if data[at + 3 : min(line, at + 40)].strip(b" \t\r").decode("ascii", "replace").lower() in _PYTHON:
            found = (line + 1, close if close >= 0 else end)
        # an unclosed fence is a cut completion: what there is of the program still counts
        if close < 0:
            break
        at = data.find(b"```", close + 3, end)
    return found


def own_texts(turns: Sequence[Turn], calls: bool = False) -> list[str]:
    """What a policy wrote itself in each of its turns, with `calls` also as their arguments: without what tools printed
    into its text, lines that it was shown before, and the keys and signs of JSON."""
    shown: set[str] = set()
    out = []
    for t in turns:
        lines = _PRINTED.sub("\n", turn_text(t)[:MAX_TEXT]).splitlines()
        if t.role != "assistant":
            shown.update(s for x in lines if len(s := x.strip()) >= QUOTED)
            continue
        own = "\n".join(x for x in lines if x.strip() not in shown)
        out.append("\n".join(map(_values, [own, *(c.arguments for c in t.tool_calls)] if calls else [own])))
    return out


def _values(text: str) -> str:
    """A text whose JSON is replaced by the texts and numbers in it."""
    out, at = "", 0
    for _ in range(MOST_JSON):
        if not (begin := _JSON.search(text, at)):
            break
        try:
            value, end = json.JSONDecoder().raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            out, at = out + text[at : begin.end()], begin.end()
            continue
        out, at = f"{out}{text[at : begin.start()]} {_leaves(value)} ", end
    return out + text[at:]


def _leaves(value: object) -> str:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return str(value) if inner is None else " ".join(map(_leaves, inner))


def longest_run(actions: Sequence[str]) -> int:
    """Length of the longest run of equal neighbours."""
    best = run = 0
    previous: str | None = None
    for a in actions:
        run = run + 1 if a == previous else 1
        best, previous = max(best, run), a
    return best


@lru_cache(maxsize=65536)
def bucket(token: str, size: int) -> int:
    """Stable hash bucket of a token (crc32: the built-in hash differs between processes)."""
    return zlib.crc32(token.encode("utf-8", "replace")) % size
