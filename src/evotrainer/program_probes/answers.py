"""Answers of a probed program, compared where it cannot reach."""

from __future__ import annotations

import json
import math
from typing import Any

from evotrainer.records.text import clean, shown
from evotrainer.sandbox import decode, same

Answer = dict[str, Any]
"""What `inside.probe` gives of one step."""
UNKNOWN = object()
"""An expected output that nobody knows."""
SKIPS = frozenset({"SkipTest", "Skipped", "Exit", "OutcomeException"})
"""Exceptions that test runners take for a test that need not run."""
TOLERANCE = 1e-6
SHOWN = 200
LONG = 4000
"""Characters of a value's text by which it is compared."""
LARGE = 1e300


def is_well_formed(said: Any, steps: int) -> bool:
    """Is this what `inside.probe` answers to so many steps? The program may have written it."""
    if type(said) is not dict or set(said) != {"answers", "changed", "forks"} or type(said["forks"]) is not bool:
        return False
    answers, changed = said["answers"], said["changed"]
    if type(answers) is not list or len(answers) != steps or type(changed) is not list:
        return False
    texts = [*changed, *(v for a in answers if type(a) is dict for k, v in a.items() if k != "large")]
    return all(type(a) is dict for a in answers) and all(type(x) is str for x in texts)


def value_of(a: Answer) -> Any:
    """The value or printed text; UNKNOWN where there is none, or one of a type that does not travel."""
    if "text" in a and "raised" not in a:
        return a["text"]
    if "value" not in a or '"opaque"' in str(a["value"]):
        return UNKNOWN
    try:
        return decode(json.loads(a["value"]))
    except (ValueError, RecursionError):
        return UNKNOWN


def differ(a: Answer, b: Answer) -> bool:
    """Are two answers surely not the same? Values that cannot be compared are not."""
    if "raised" in a or "raised" in b:
        return (a.get("raised"), "value" in a or "text" in a) != (b.get("raised"), "value" in b or "text" in b)
    x, y = value_of(a), value_of(b)
    return x is not UNKNOWN and y is not UNKNOWN and not same(x, y, TOLERANCE)


def right(a: Answer, wanted: Any) -> bool:
    """Is it what was expected? Printed text line by line; values as JSON has them, or by their text."""
    got = value_of(a)
    if got is UNKNOWN or wanted is UNKNOWN:
        return False
    if "text" in a:
        return _words(got) == _words(str(wanted))
    return _alike(got, wanted) or (
        isinstance(wanted, str) and not isinstance(got, str) and shown(got, LONG) == wanted.strip()
    )


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().split("\n")]


def _alike(got: Any, wanted: Any) -> bool:
    if isinstance(got, list | tuple) and isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(map(_alike, got, wanted))
    if isinstance(got, float) and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return abs(wanted) < LARGE and math.isclose(got, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(got, dict) and isinstance(wanted, dict):
        one, other = ({shown(k, LONG): v for k, v in d.items()} for d in (got, wanted))
        return one.keys() == other.keys() and all(_alike(v, other[k]) for k, v in one.items())
    return type(got) is type(wanted) and bool(got == wanted)


def hollow(a: Answer) -> str:
    """What stands for no answer of its own: an exception, None, or the value itself, by which several are compared."""
    if "raised" in a:
        return f"raises {a['raised']}"
    value = value_of(a)
    return "" if value is UNKNOWN else f"answers {shown(value, SHOWN)}"


def in_words(a: Answer) -> str:
    """An answer as a reader is shown it."""
    if "agrees" in a:
        return f"an object of type {clean(a['agrees'], 100)} that is equal to everything"
    if a.get("raised"):
        return clean(f"{a['raised']}({a.get('code') or a.get('text', '')})", SHOWN)
    value = value_of(a)
    if value is UNKNOWN:
        return "a value that is no plain data"
    return clean(value.rstrip("\n") if isinstance(value, str) and "text" in a else shown(value, SHOWN), SHOWN)


def in_text(value: Any) -> str:
    """An input or expected output as a reader is shown it."""
    return clean(value.rstrip("\n") if isinstance(value, str) else shown(value, SHOWN), SHOWN)
