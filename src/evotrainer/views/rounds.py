"""The rounds of a run, as readers see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from evotrainer.projections.labels import label_of_refusal
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.chain import Event
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
    """What was seen, proposed and decided in a round."""

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

    def line(self, intervention: Intervention) -> ProposalLine:
        """The proposal's line of this intervention; a revised one that was never listed gets a line of its own."""
        found = next((x for x in reversed(self.lines) if x.intervention == intervention), None)
        if found is None:
            self.lines.append(found := ProposalLine(intervention))
        return found


def rounds_of(events: Iterable[Event]) -> dict[int, RoundView]:
    """Number -> round, in the order in which they began."""
    rounds: dict[int, RoundView] = {}
    for e in events:
        b = e.body
        if isinstance(b, ev.Promoted) and rounds:
            rounds[max(rounds)].promoted.append(b)
        if isinstance(b, _OF_ROUND) and b.round:
            _take(rounds.setdefault(b.round, RoundView(b.round)), e.id, b)
    return rounds


_OF_ROUND = (
    ev.RoundOpened, ev.Diagnosed, ev.Proposed, ev.Backtested, ev.Refused, ev.BranchOpened, ev.Planned,
    ev.HumanApproval, ev.Escalated, ev.Judged,
)  # fmt: skip


def _take(r: RoundView, id: str, body: object) -> None:
    match body:
        case ev.RoundOpened():
            r.opened = body
        case ev.Diagnosed() if id == keys.diagnosed(body.round):
            r.diagnosed = body
        case ev.Proposed():
            r.proposed = body
            r.lines.extend(ProposalLine(i) for i in body.proposal.interventions)
        case ev.Backtested():
            line = r.line(body.intervention)
            line.backtest = body
            if body.vetoed:
                line.fate, line.reason = "vetoed", body.backtest.reason
        case ev.Refused():
            line = r.line(body.intervention)
            line.fate, line.reason = "refused", body.reason
        case ev.BranchOpened() if body.intervention:
            line = r.line(body.intervention)
            line.fate, line.branch = "branch", body.branch
        case ev.Planned():
            r.stop = body.stop
        case ev.HumanApproval():
            r.gates.append(body)
        case ev.Escalated():
            r.escalated.append(body)
        case ev.Judged():
            r.judged.append(body.verdict)
