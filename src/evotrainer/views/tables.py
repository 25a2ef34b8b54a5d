"""Tables in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from evotrainer.projections.text import one_line

if TYPE_CHECKING:
    from rich.table import Table

LONGEST_WORD, SHORT = 18, 12
"""Columns are wide enough for their words up to this length, where the terminal has room for it; those whose cells are
all short are not broken at all."""


def facts_grid(rows: Iterable[tuple[str, str]]) -> Table:
    """Names beside what is said of them."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name, style="dim"), Text(one_line(text, 600)))
    return grid


def ruled_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """A table with a line under its head."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in head:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell, 400)) for cell in row))
    return table


def word_table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Table:
    """A table without lines whose columns break between words."""
    from rich.table import Table
    from rich.text import Text

    cells = list(rows)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left")
    table.caption = Text(caption) if caption else None
    for i, name in enumerate(head):
        column = [name, *(row[i] for row in cells)]
        word, whole = max(len(w) for text in column for w in text.split()), max(map(len, column))
        table.add_column(Text(name), overflow="fold", min_width=min(word, LONGEST_WORD), no_wrap=whole <= SHORT)
    for row in cells:
        table.add_row(*map(Text, row))
    return table
