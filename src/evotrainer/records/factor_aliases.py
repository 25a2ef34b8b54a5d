"""What TRL, verl and others call the factors of a recipe, for whoever writes those names. The names themselves are in
the rows of `evotrainer.factors`."""

from __future__ import annotations

from collections.abc import Container

NAMES: dict[str, str] = {}
"""Name elsewhere -> what does the same here; in parentheses what it counts where that is something else."""
VALUES: dict[tuple[str, str], str] = {}
"""(Field, value elsewhere) -> what to write instead."""


def value_hint(field: str, value: object) -> str:
    """`; ` and what to write for a value that others have; empty where that is not known."""
    meant = VALUES.get((field, str(value).lower().replace("-", "_")))
    return f"; {meant}" if meant else ""


def name_hint(name: str, known: Container[str], place: str = "") -> str:
    """`, did you mean lr?` for a name elsewhere of what is known here (`place` before it); empty where it is none."""
    meant, _, counts = NAMES.get(name, name).partition(" ")
    return f", did you mean {place}{meant}{counts and f' {counts}'}?" if meant.partition(".")[0] in known else ""
