"""The console of all views. Importing it imports rich, so import it inside functions."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from evotrainer.records.output import visible


class Console(rich.console.Console):
    """rich's console, whose texts hold no control characters but those of its own styles and cursor movements."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of a renderable, every text `visible`."""
        for s in super().render(renderable, options):
            yield s if s.control else s._replace(text=visible(s.text))
