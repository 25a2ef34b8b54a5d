"""The rounds of a run, as readers see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from evotrainer.projections.labels import label_of_refusal
from evotrainer.records import events as ev
from evotrainer.records.interventions import Intervention
from evotrainer.records.verdicts import Verdict

NO_BRANCH = {"not_taken": "no place left", "repeated": "tried before", "disqualified": "not allowed"}
"""Label of a refused proposal -> what readers are told; the others are refused for what they are."""


@dataclass(slots=True)
class ProposalLine:
    """One proposed intervention and what became of it."""

    intervention: Intervention
    fate: str = "dropped"
    """branch, vetoed, refused or dropped (never opened)."""
    branch: str = ""
    reason: str = ""
    backtest: ev.Backtested | None = None

    @property
    def no_branch(self) -> tuple[str, str]:
        """(kind of badge, its words) of a proposal that became no branch."""
        if self.fate == "vetoed":
            return "reject", "vetoed by backtest"
        if self.fate == "dropped":
            return "open", "not tried"
        if self.reason.startswith("over budget"):
            return "open", "no budget left"
        label = label_of_refusal(self.reason)
        return "open" if label == "not_taken" else "reject", NO_BRANCH.get(label, "refused")


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
