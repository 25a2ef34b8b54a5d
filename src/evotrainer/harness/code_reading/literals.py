"""Texts as the tokens that tests are compared by."""

from __future__ import annotations

import re

_GAPS = re.compile(r"[\s\[\](){},'\":;]+")
_DECIMAL = re.compile(r"-?\d+\.\d*")


def tokens_in(text: str) -> list[str]:
    """What stands between blanks, brackets, quotes and commas: `[1, 'ab']` and `1 ab` have the same tokens."""
    return [_short(t) if "." in t else t for t in _GAPS.split(text) if t]


def _short(token: str) -> str:
    """A decimal without the zeros at its end: judges print `2.500000`."""
    return token.rstrip("0").removesuffix(".") if _DECIMAL.fullmatch(token) else token
