"""A round's steps, from what is diagnosed to what is planned."""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.briefing import Proposal
from evotrainer.records.findings import HealthReport
from evotrainer.records.frozen import Frozen
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.recipe import Recipe


class RoundOpened(Frozen):
    """id `r<n>/opened`"""

    round: int
    champion: str
    harness: str
    closed: dict[str, Any] = {}
    """Environment knobs closed in every evaluation since a shortcut was confirmed."""


class Diagnosed(Frozen):
    """id `r<n>/diagnosed`: steps 1 to 4."""

    round: int
    health: HealthReport


class Proposed(Frozen):
    """id `r<n>/proposed`: steps 5 and 6."""

    round: int
    proposal: Proposal
    shown: tuple[str, ...] = ()
    """Trials whose rollouts the agent was shown: those it asked for,
    and the champion's where the briefing quotes them."""


class Backtested(Frozen):
    """id `r<n>/backtested/<i>`."""

    round: int
    index: int
    intervention: Intervention
    backtest: Backtest
    vetoed: bool


class Refused(Frozen):
    """id `r<n>/refused/<i>`: a proposed branch that was not opened (two factors, lint error, repeated, over budget)."""

    round: int
    index: int
    intervention: Intervention
    reason: str


class Planned(Frozen):
    """id `r<n>/planned`: which branches this round trains, or why the run stops here."""

    round: int
    branches: tuple[str, ...]
    stop: str = ""


class BranchOpened(Frozen):
    """id `<branch>/opened`"""

    branch: str
    parent: str | None
    round: int
    recipe: Recipe
    recipe_hash: str
    intervention: Intervention | None = None
    matches: str = ""
    """The branch whose training compute it spends on its parent's recipe, as that branch's control; empty: none."""


class GateAsked(Frozen):
    """id `r<n>/gate/<where>/asked`: the run waits for a human's answer from here on."""

    round: int
    where: Literal["diagnosis", "intervention", "backtest", "verdict"]
    text: str
    """What is to be decided, as markdown."""
    branch: str = ""


class HumanApproval(Frozen):
    """id `r<n>/gate/<where>`, of an ABORT `r<n>/gate/<where>/aborted`; at the verdict gate REVISE withholds the
    promotion of `branch`."""

    round: int
    where: Literal["diagnosis", "intervention", "backtest", "verdict"]
    answer: Literal["APPROVE", "REVISE", "ABORT"]
    feedback: str = ""
    branch: str = ""
    to: str = ""
    """Id of the question."""
    by: str = ""
    """Who answered, as they or their shell say: user@host."""
    given: str = ""
    """When, in UTC, by the clock of where it was given."""


class Escalated(Frozen):
    """id `r<n>/escalated`: what was done after repeated failures."""

    round: int
    failures: int
    actions: tuple[str, ...]
