"""One list operation of the code domain's grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Ints = list[int]


@dataclass(frozen=True, slots=True)
class ListOp:
    """A list -> list step. `{k}` in phrases and code is the constant, drawn from `constants` (inclusive)."""

    name: str
    phrases: tuple[str, ...]
    variants: tuple[str, ...]
    apply: Callable[[Ints, int], Ints]
    constants: tuple[int, int] | None = None
    slips: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()
    grows: bool = False
