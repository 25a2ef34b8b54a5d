"""Problems, and the contract of their generators."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class MathsProblem:
    """One verified problem with its reference working."""

    generator: str
    question: str
    answer: str
    steps: tuple[str, ...]
    """Equations that lead to the answer, each true; the last one yields it."""
    template: str
    """Form of the problem, without its numbers."""
    level: int
    """Difficulty; 1 is the easiest."""
    entry: Mapping[str, Any] = field(default_factory=dict)
    """What the scorer needs in addition to the answer."""


def level_of(steps: Sequence[str], bounds: Sequence[int]) -> int:
    """Difficulty by size: 1 + the number of bounds that the largest number in the working exceeds,
    at most len(bounds)."""
    largest = max(int(n) for step in steps for n in re.findall(r"\d+", step))
    return min(len(bounds), 1 + sum(largest > b for b in bounds))


class Generator(Protocol):
    """A stream of problems that follows from its seed alone."""

    name: str
    version: str
    held_by: tuple[str, ...]
    """What held-out problems differ by: template, level or both."""

    def problems(self, rng: random.Random) -> Iterator[MathsProblem]:
        """Problems without end, drawn with `rng`."""
        ...

    def held_template(self, p: MathsProblem) -> bool:
        """True where the problem's form never occurs in training."""
        ...

    def held_level(self, p: MathsProblem) -> bool:
        """True where the problem is harder than any in training."""
        ...

    def reworded(self, question: str, template: str, rng: random.Random) -> str:
        """The question of a train problem in other words: same answer, same working, no held-out template."""
        ...

    def correct(self, answer: str, p_answer: str, entry: Mapping[str, Any]) -> bool:
        """Whether an answer (plain arithmetic, bounded) is right."""
        ...
