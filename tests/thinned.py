"""Long series of costly cases, of which `make test` runs a part and `python -m bench.slow` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int, *kept: Any) -> list[Any]:
    """The cases as parameters, tuples as several; all but the first of every so many, and `kept`, are marked slow.

    Take all of a kind that nothing else of `make test` covers into `kept`."""
    return [
        case
        if n % every == 0 or case in kept
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for n, case in enumerate(cases)
    ]
