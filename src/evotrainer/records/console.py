"""The console of all views. Importing it imports rich, so import it inside functions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from evotrainer.records.output import visible

UNBROKEN = 1000
"""Columns where no terminal reads: a line of a pipe or a file is broken by whoever shows it."""


class Console(rich.console.Console):
    """rich's console, whose texts hold no control characters but those of its own styles and cursor movements. Into a
    pipe or a file it writes lines unbroken, unless COLUMNS says otherwise."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not self.is_terminal and kwargs.get("width") is None and not os.environ.get("COLUMNS"):
            self.width = UNBROKEN

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else re.sub(r"(?<! ) +(?=\n|$)", "", text)  # what fills a column

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of a renderable, every text `visible`."""
        for s in super().render(renderable, options):
            yield s if s.control else s._replace(text=visible(s.text))
