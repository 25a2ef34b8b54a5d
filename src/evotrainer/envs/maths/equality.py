"""Whether two answers are the same number, by math-verify, made safe for threads, workers and hostile text.

math-verify guards itself by SIGALRM, which works in a main thread only. Here its timeouts are off, and what could take
long never reaches it: long texts, powers, factorials, long numbers, deep brackets.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from evotrainer.envs.maths.answers import one_number
from evotrainer.envs.maths.expressions import evaluate
from evotrainer.errors import MissingDependencyError, install

ANSWER_CHARS = 300
"""Characters of an answer that are read, from its end."""
_COSTLY = re.compile(r"\*\*|\^|!|\\binom|\\sum|\\prod|\\int|\\lim|factorial|[({\[]{6}|\d{25}|(?:[-+*/(]\s*){8}|[eE]\d")
_OPERATORS = re.compile(r"[-+*/()\\{}]")
MANY = 24
"""Operators and brackets in an answer; more is no answer."""


@cache
def _library() -> tuple[ModuleType, Any]:
    try:
        import math_verify
        from math_verify import grader, parser
    except ImportError as e:
        raise MissingDependencyError(f"comparing answers needs math-verify; {install('math')} ({e})") from None
    for module in (parser, grader):  # we know that its timeouts are off: no warning in every process
        module.TIMEOUT_WARNING_SHOWN = True
    config = [math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()]
    return math_verify, config


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...]:
    library, config = _library()
    return tuple(library.parse(text, extraction_config=config, parsing_timeout=None))


def harmless(text: str) -> bool:
    """False for a text that could keep a computer algebra system busy."""
    return not _COSTLY.search(text) and len(_OPERATORS.findall(text)) <= MANY


def same_number(gold: str, answer: str) -> bool:
    """True where the answer is one number and math-verify finds it equal to the gold one; never hangs, uses no signal.

    math-verify evaluates `9*2` and picks from `17, 18`;
    so the one number that an answer says has to be the gold one, too.
    """
    text = answer[-ANSWER_CHARS:].strip()
    if not text or not harmless(text):
        return False
    answered, true = one_number(text), evaluate(gold)
    if answered is None or true is None or round(answered, 6) != round(true, 6):
        return False
    library, _ = _library()
    want, got = list(_parsed(gold)), list(_parsed(text))
    return bool(got) and bool(library.verify(want, got, timeout_seconds=None))
