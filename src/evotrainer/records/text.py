"""Text as it comes from policies and programs, made storable."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot hold, replaced by U+FFFD."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
