"""The fixed vocabulary of the maths domain: integers 0 to 99, the wordings' pieces, signs of working.

A policy's weights are tied to this list, so it is checked in (`math-v1.json`); a change needs a new version.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from evotrainer.envs.maths.gym import RULES, WORDINGS
from evotrainer.envs.maths.holdout import ASK
from evotrainer.envs.maths.stories import CLOSING, EVENTS, NAMES, OPENING, THINGS

VOCABULARY_VERSION = "math-v1"
VOCABULARY_FILE = Path(__file__).parent / f"{VOCABULARY_VERSION}.json"
LARGEST = 99

GYM_PIECES = (
    "State the final answer to the following arithmetic problem: ",
    "Find the Greatest Common Divisor (GCD) of these numbers: ",
    ". Give only the GCD as your final answer.",
    "Find the value of ",
    " in the equation: ",
    "Solve for ",
    "Determine the value of ",
    " that satisfies: ",
)
SIGNS = (" + ", " - ", " = ", " =", ", ", "#### ", "check:", "maybe ", " or ", ". ", "; ")


def _pieces(template: str) -> list[str]:
    """Text between the fields of a template."""
    return [p for p in re.split(r"\{\w+\}", template) if p]


def derive() -> tuple[str, ...]:
    """The vocabulary as the present wordings yield it, line by line; single characters left out."""
    out = [str(n) for n in range(LARGEST + 1)] + [ASK, RULES, *GYM_PIECES, *SIGNS]
    for template in (*WORDINGS, OPENING, "{x}. " + CLOSING):
        out += _pieces(template)
    for event in EVENTS.values():
        for phrase in event.phrases:
            out += _pieces("; " + phrase)
    out += [*NAMES, *THINGS]
    return tuple(dict.fromkeys(line for t in out for line in t.split("\n") if len(line) > 1))


def vocabulary() -> tuple[str, ...]:
    """The checked-in vocabulary, multi-character tokens only, in the order of their ids."""
    return tuple(json.loads(VOCABULARY_FILE.read_text(encoding="utf-8"))["tokens"])


def write(path: Path = VOCABULARY_FILE) -> None:
    """Write the derived vocabulary; only when a new version is made."""
    body = {"version": VOCABULARY_VERSION, "tokens": list(derive())}
    path.write_text(json.dumps(body, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")
