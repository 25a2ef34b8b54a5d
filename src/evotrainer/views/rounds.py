"""The rounds of a run, as readers see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from evotrainer.records import events as ev
from evotrainer.records.interventions import Intervention
from evotrainer.records.verdicts import Verdict


@dataclass(slots=True)
class ProposalLine:
    """One proposed intervention and what became of it."""

    intervention: Intervention
    fate: str = "dropped"
    """branch, vetoed, refused or dropped (never opened)."""
    branch: str = ""
    reason: str = ""
    backtest: ev.Backtested | None = None


@dataclass(slots=True)
class RoundView:
    number: int
    opened: ev.RoundOpened | None = None
    diagnosed: ev.Diagnosed | None = None
    proposed: ev.Proposed | None = None
    lines: list[ProposalLine] = field(default_factory=list)
    gates: list[ev.HumanApproval] = field(default_factory=list)
    escalated: list[ev.Escalated] = field(default_factory=list)
    judged: list[Verdict] = field(default_factory=list)
    promoted: list[ev.Promoted] = field(default_factory=list)
    stop: str = ""
    """Why the run stopped here."""
