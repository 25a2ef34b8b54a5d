"""The page of a comparison of two sets of rollouts: the word, its interval, what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evotrainer.records.verdicts import Effect
from evotrainer.views import report
from evotrainer.views.plots import Axis

KINDS = {"better": "promote", "no worse": "control", "worse": "reject", "undecided": "inconclusive"}
"""Word -> the icon and colour that a verdict of this kind has."""


def write_versus(path: Path, *, word: str, effect: Effect, **context: Any) -> Path:
    """Write the page to `path`: one file that opens offline and runs no script.

    StoreError where it cannot be written.
    """
    axis = Axis.over((effect.low, effect.high), include=(0.0,))
    filled = report.fill(
        "versus.html.j2", {}, (), what="versus", word=word, kind=KINDS[word], effect=effect, axis=axis, **context
    )
    return report.save(filled, path, report.ANOTHER_PATH)
