"""Fixed vocabularies of the generated domains, one file of `assets` each.

A shipped policy's weights are tied to its list: a changed list is a new version. Single characters are the tokenizer's
own.
"""

from __future__ import annotations

import json
from pathlib import Path


def vocabulary(version: str) -> tuple[str, ...]:
    """Multi-character tokens in the order of their ids. `version`: code-v1, math-v1 or swe-v1."""
    path = Path(__file__).parent / "assets" / f"{version}.json"
    return tuple(json.loads(path.read_text(encoding="utf-8"))["tokens"])
