"""What passed between a run and whoever sits in its agent's seat. No decision rests on them but the seat's own: no
state is folded from them, and runs of other agents have none."""

from __future__ import annotations

from evotrainer.records.frozen import Frozen
from evotrainer.records.questions import Answered
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


class SeatAnswered(Answered):
    """id `r<n>/answered/<step><number>/<attempt>`: what came of it. Without a request of the same suffix: a cap was
    reached, and nobody was asked."""

    round: int
    step: str
    attempt: int
    carrier: str
    key: str = ""
    """Of its request; empty where nobody was asked."""
    proposal: SeatProposal | None = None
    """The answer as it was read; also where rules refused it."""
    stage: STAGES = ""
    problem: str = ""
    """Why it was refused, in one line; empty: it was taken."""
    fallback: bool = False
    """The step goes on with the statistical agent's own proposal: nobody is asked again."""
