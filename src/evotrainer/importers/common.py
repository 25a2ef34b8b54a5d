"""Shared by all readers of others' logs: classes of faults, safe detail, ids over content,
a net under each record."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Fault, Skipped, imported_id
from evotrainer.importers.lenient_json import number, read_json
from evotrainer.records.rollout import Finish, Outcome, Rollout
from evotrainer.records.text import cause

MAX_DEPTH = 32
"""Levels of foreign nesting kept in `detail`; deeper values are named, not kept."""
MAX_NOTE = 20_000
"""Characters kept of one output or program in `detail` that is not part of the transcript."""

SWE_TASK = {"patch": "gold_patch", "test_patch": "test_patch", "FAIL_TO_PASS": "fail_to_pass",
            "PASS_TO_PASS": "pass_to_pass", "repo": "repo", "base_commit": "base_commit"}  # fmt: skip
"""Fields of a SWE task kept in `detail`, by the names they get there."""

NO = frozenset(
    {"", "none", "null", "no", "false", "0", "unset", "ok", "nan", "n/a", "success", "completed", "[]", "{}"}
)
"""Words by which a field says that nothing happened, in lower case."""

# in this order: a judge that times out is a judge's fault, a container that does is a container's
_KINDS: tuple[tuple[Fault, str], ...] = (
    ("cancelled", r"cancel|keyboardinterrupt|interrupted|sigint|sigterm"),
    ("judge", r"\bjudge|grader|verifier|scorer|reward ?file|reward model|test_?patch failed"),
    (
        "container",
        r"docker|container|sandbox|image|environment|kubernetes|\bpod\b|compose|deployment|\bdaytona|\bmodal\b|agent_?runtime",
    ),
    (
        "model_api",
        r"\bapi|api(error|connection|timeout|status)|rate.?limit|error code: ?[45]\d\d|status code|litellm|openai"
        r"|anthropic|connection|overloaded|context.?window|context.?length|authentication|quota|service ?unavailable"
        r"|internal ?server|bad ?gateway|bad ?request|model_|error_llm",
    ),
    ("timeout", r"time.?out|timed out|time limit|deadline"),
)


_RAN_OVER = re.compile(
    r"context.?(?:window|length)[\w ]{0,20}exceed|exceed[^\n]{0,80}context.?(?:window|length)|maximum context.?length"
    r"|(?:prompt|input|conversation) is too long|longer than the (?:maximum )?model.?s? (?:maximum )?context"
    r"|prompt_too_long|overlong.?prompt|input length[^\n]{0,60}exceed|exceeds? the (?:maximum |model'?s? )*context",
    re.IGNORECASE,
)


def is_context_overflow(words: str) -> bool:
    """Do an error's words say that the context ran over? A policy that has spoken filled it by itself."""
    return _RAN_OVER.search(words[:MAX_NOTE]) is not None


def kind_of(*texts: str, kinds: Sequence[tuple[Fault, str]] = _KINDS) -> Fault:
    """Class of a fault by its own words: the first of `texts` that names one decides; `other` where none does.

    Give messages and exception names, never whole tracebacks: paths in them name everything.
    """
    for words in texts:
        for kind, pattern in kinds:
            if re.search(pattern, words[:MAX_NOTE], re.IGNORECASE):
                return kind
    return "other"


@lru_cache(maxsize=4096)
def words_of(name: str) -> frozenset[str]:
    """Words of a field's name or of a short value, in lower case; spellings of timeout, reward model and rate limit as
    one word."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name[:200])
    low = " ".join(re.findall(r"[a-z0-9]+", spaced.lower()))
    low = re.sub(r"\btime(?:d)? ?out\b", "timeout", low)
    return frozenset(re.sub(r"\b(reward) (model)\b|\b(rate) (limit)\b", r"\1\2\3\4", low).split())


def signals_error(value: Any) -> bool:
    """Does the value of an error's field say that there was one? Numbers: 1 alone."""
    if isinstance(value, str):
        return value.strip().lower() not in NO
    if isinstance(value, bool | int | float):
        return value == 1
    return bool(value)


def last_line(trace: Any) -> str:
    """The last non-empty line of a traceback: exception class and message; empty where there is none."""
    if not isinstance(trace, str):
        return ""
    return next((x.strip() for x in reversed(trace[-MAX_NOTE:].splitlines()) if x.strip()), "")


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A copy of a JSON value that any later step can write again: bounded nesting, keys as strings."""
    if isinstance(value, dict):
        if depth <= 0:
            return "[nested too deeply]"
        return {str(k): plain(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return "[nested too deeply]" if depth <= 0 else [plain(v, depth - 1) for v in value]
    return value


def short(value: Any, limit: int = MAX_NOTE) -> Any:
    """Text cut at `limit` characters with a note of how many are missing; other values as they are."""
    if not isinstance(value, str) or len(value) <= limit:
        return value
    return f"{value[:limit]}\n[{len(value) - limit} more characters left out]"


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def word(*values: Any) -> str:
    """The first value that can name something: non-empty text or a number; empty where none can."""
    for v in values:
        if isinstance(v, str) and v.strip():
            return v
        if isinstance(v, int | float) and not isinstance(v, bool):
            return str(v)
    return ""


def whole_number(value: Any) -> int | None:
    """A count >= 0, or None."""
    x = number(value)
    return int(x) if x is not None and x >= 0 else None


def digest(value: Any) -> str:
    """16 hex digits over a JSON value, blind to the order of keys."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=8).hexdigest()


def ident(path: Path, *parts: Any) -> str:
    """Id of an imported rollout over the file name and what tells the record apart (also its content where file names
    repeat from run to run), so that a second import is a no-op and two runs' files of one name do not collide."""
    return imported_id(path, digest(list(parts)))


Ending = tuple[Finish | None, Fault | None, str | None]
"""How an attempt ended, the class of its fault, and the fault's words."""


def verdict(value: Any) -> Outcome:
    """The outcome of a task that is done (true, 1), not done (false, 0), or of which neither is said."""
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        return "unknown"
    return "correct" if value else "incorrect"


class JsonValueImporter:
    """Importers of files that are one JSON value: `attempts` gives the place of each and what makes its rollout."""

    def attempts(self, path: Path, value: Any) -> Iterator[tuple[str, Callable[[], Rollout | Skipped]] | Skipped]:
        raise NotImplementedError

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """Every attempt of the file; one `Skipped` where it is no JSON."""
        try:
            value = read_json(path)
        except ValueError as e:
            yield Skipped(path.name, str(e))
            return
        for found in self.attempts(path, value):
            yield found if isinstance(found, Skipped) else attempt(*found)


def attempt(where: str, build: Callable[[], Rollout | Skipped]) -> Rollout | Skipped:
    """The record that `build` makes; where something in it is of a shape nobody foresaw, a `Skipped` that says so."""
    try:
        return build()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
        return Skipped(where, f"of an unforeseen shape: {type(e).__name__}: {cause(e)}")
