"""What passed between a run and whoever sits in its agent's seat. No decision rests on them but the seat's own: no
state is folded from them, and runs of other agents have none."""

from __future__ import annotations

from evotrainer.records.frozen import Frozen
from evotrainer.records.seat import STAGES, SeatBriefing, SeatProposal


class SeatAsked(Frozen):
    """id `r<n>/asked/<step><number>/<attempt>`: a request."""

    round: int
    step: str
    """`search` or `proposal`, with its number."""
    attempt: int
    carrier: str
    request: SeatBriefing
    key: str
    """Of the request (`SeatBriefing.key`): what a replay finds the answer by, with its occurrence."""


class SeatAnswered(Frozen):
    """id `r<n>/answered/<step><number>/<attempt>`: what came of it. Without a request of the same suffix: a cap was
    reached, and nobody was asked."""

    round: int
    step: str
    attempt: int
    carrier: str
    key: str = ""
    """Of its request; empty where nobody was asked."""
    raw: str = ""
    """The answer as it came, secrets struck out."""
    model: str = ""
    """Who answered, as far as the carrier knows."""
    by: str = ""
    """Of carrier queue: who handed it over (`user@host`, `in the browser` where it was there) ..."""
    at: str = ""
    """... and when: UTC, ISO 8601."""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    wall_s: float = 0.0
    """Seconds until the answer was there, waiting for a person included."""
    proposal: SeatProposal | None = None
    """The answer as it was read; also where rules refused it."""
    stage: STAGES = ""
    problem: str = ""
    """Why it was refused, in one line; empty: it was taken."""
    fallback: bool = False
    """The step goes on with the statistical agent's own proposal: nobody is asked again."""
