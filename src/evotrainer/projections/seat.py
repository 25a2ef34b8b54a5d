"""What the seat of a run was asked, what it answered, and what that cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evotrainer.records.events import SeatAnswered


@dataclass(frozen=True)
class SeatSpend:
    """Totals over the answers of a run."""

    requests: int = 0
    """Answers that were waited for."""
    taken: int = 0
    fallbacks: int = 0
    """Steps that went on with the statistical agent's own proposal."""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    wall_s: float = 0.0
    cause: str = ""
    """Of the first fallback."""

    @classmethod
    def of(cls, answers: Iterable[SeatAnswered]) -> SeatSpend:
        """The totals of some answers."""
        seen = list(answers)
        return cls(
            requests=sum(bool(a.key) for a in seen),
            taken=sum(not a.problem for a in seen),
            fallbacks=sum(a.fallback for a in seen),
            input_tokens=sum(a.input_tokens for a in seen),
            output_tokens=sum(a.output_tokens for a in seen),
            dollars=round(sum(a.dollars for a in seen), 6),
            wall_s=round(sum(a.wall_s for a in seen), 3),
            cause=next((a.problem for a in seen if a.fallback), ""),
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def empty(self) -> bool:
        """Was somebody asked, and no answer taken?"""
        return bool(self.fallbacks) and not self.taken

    def summary(self) -> str:
        """One line for status and report; empty where nobody sat."""
        if not self.requests and not self.fallbacks:
            return ""
        tokens = f", {self.tokens:,} tokens" if self.tokens else ""
        dollars = f", ${self.dollars:.4f}" if self.dollars else ""
        return (
            f"{self.requests} requests{tokens}{dollars}, {self.wall_s:.0f} s waited; {self.taken} answers taken, "
            f"{self.fallbacks} fallbacks to the statistical agent" + (f" (first: {self.cause})" if self.cause else "")
        )
