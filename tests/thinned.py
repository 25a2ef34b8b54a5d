"""Long series of costly cases, of which `make test` runs a part and `python -m bench.slow` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases as parameters, tuples as several; all but the first of every so many are marked slow."""
    return [
        case
        if n % every == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for n, case in enumerate(cases)
    ]
