"""Answers of a probed program, compared where it cannot reach."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from evotrainer.records.text import clean, shown
from evotrainer.sandbox import Limits, RunResult, decode, same

Answer = dict[str, Any]
"""What `inside.probe` gives of one step."""
UNKNOWN = object()
"""An expected output that nobody knows."""
TOLERANCE = 1e-6
SHOWN = 200
LONG = 4000
"""Characters of a value's text by which it is compared."""
LARGE = 1e300


@dataclass(slots=True)
class Answers:
    """Of one child, step by step; none where `why` says why it could not be looked at."""

    steps: list[Answer] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Names that are another function than before."""
    why: str = ""
    exits: bool = False
    """Its process ended as if all were well, without an answer."""

    @classmethod
    def of(cls, done: RunResult, steps: int, limits: Limits) -> Answers:
        case = done.cases[0]
        if case.ok and _is_well_formed(case.value, steps):
            a, changed = case.value["answers"], case.value["changed"]
            missing = next((x["missing"] for x in a if "missing" in x), "")
            why = "starts processes" if case.value["forks"] else f"needs {missing}" if missing else ""
            why = why or ("prints or answers more than is read" if any(x.get("large") for x in a) else "")
            return cls(why=why) if why else cls(a, changed)
        note = ": ".join(case.error or ())
        why = {
            "timeout": f"does not end within its CPU limit of {limits.cpu_s:g} s, or sleeps",
            "memory": f"needs more than {limits.memory_mb} MB of memory",
            "output": f"answers more than {limits.output_kb} KB",
            "sandbox": f"the sandbox broke ({note[:120]}); try again",
        }.get(case.status, f"no answer came back ({note[:120]})")
        return cls(why=why, exits=case.status == "error" and "exit code 0)" in note)


def _is_well_formed(answer: Any, steps: int) -> bool:
    """Is this what `inside.probe` answers to so many steps? The program may have written it."""
    if type(answer) is not dict or set(answer) != {"answers", "changed", "forks"} or type(answer["forks"]) is not bool:
        return False
    answers, changed = answer["answers"], answer["changed"]
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
        return [x.split() for x in got.strip().split("\n")] == [x.split() for x in str(wanted).strip().split("\n")]
    by_text = isinstance(wanted, str) and not isinstance(got, str) and shown(got, LONG) == wanted.strip()
    return by_text or _alike(got, wanted)


def _alike(got: Any, wanted: Any) -> bool:
    if isinstance(got, list | tuple) and isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(map(_alike, got, wanted))
    if isinstance(got, float) and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return abs(wanted) < LARGE and math.isclose(got, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(got, dict) and isinstance(wanted, dict):
        one, other = ({shown(k, LONG): v for k, v in d.items()} for d in (got, wanted))
        return one.keys() == other.keys() and all(_alike(v, other[k]) for k, v in one.items())
    return type(got) is type(wanted) and bool(got == wanted)


def in_words(a: Answer) -> str:
    """An answer as a reader is shown it."""
    if "agrees" in a:
        return f"an object of type {clean(a['agrees'], 100)} that is equal to everything"
    if a.get("raised"):
        return clean(f"{a['raised']}({a.get('code') or a.get('text', '')})", SHOWN)
    value = value_of(a)
    return "a value that is no plain data" if value is UNKNOWN else in_text(value, "text" in a)


def in_text(value: Any, printed: bool = True) -> str:
    """An input or output as a reader is shown it."""
    return clean(value.rstrip("\n") if isinstance(value, str) and printed else shown(value, SHOWN), SHOWN)
