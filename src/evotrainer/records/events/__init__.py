"""Kinds and bodies of the ledger's events. Events are only appended: a correction is a new event naming the old one.

An event's id is its idempotency key (`r2/b3/s1/finished`): writing the same id twice with the same body is a no-op.
"""

from __future__ import annotations

from evotrainer.records.events.harness import GapSeen, HarnessEvolved
from evotrainer.records.events.reader import ReaderAnswered, ReaderAsked, ReaderConcluded, ReaderOpened, ReaderPick
from evotrainer.records.events.rounds import (
    Backtested,
    BranchOpened,
    Diagnosed,
    Escalated,
    GateAsked,
    HumanApproval,
    Planned,
    Proposed,
    Refused,
    RoundOpened,
)
from evotrainer.records.events.run import (
    Certified,
    CertRow,
    LibraryOpened,
    Resumed,
    RunClosed,
    RunOpened,
    SkillDistilled,
    TaskDraw,
    TaskSet,
)
from evotrainer.records.events.search import ProbesOpened, Searched
from evotrainer.records.events.seat import SeatAnswered, SeatAsked
from evotrainer.records.events.trials import (
    CanaryFlip,
    FailureLabel,
    FromCache,
    NoiseMeasured,
    SplitScore,
    TrialFinished,
    TrialIntended,
)
from evotrainer.records.events.verdicts import Audited, Invalidated, Judged, Promoted, Reestimated, ToppedUp
from evotrainer.records.frozen import Frozen

BODIES: dict[str, type[Frozen]] = {
    "run": RunOpened,
    "branch": BranchOpened,
    "intended": TrialIntended,
    "finished": TrialFinished,
    "noise": NoiseMeasured,
    "round": RoundOpened,
    "diagnosed": Diagnosed,
    "proposed": Proposed,
    "backtested": Backtested,
    "refused": Refused,
    "planned": Planned,
    "judged": Judged,
    "topup": ToppedUp,
    "reestimated": Reestimated,
    "audited": Audited,
    "gap": GapSeen,
    "harness": HarnessEvolved,
    "promoted": Promoted,
    "invalidated": Invalidated,
    "gate_asked": GateAsked,
    "gate": HumanApproval,
    "probes": ProbesOpened,
    "searched": Searched,
    "library": LibraryOpened,
    "skill": SkillDistilled,
    "escalated": Escalated,
    "certified": Certified,
    "asked": SeatAsked,
    "answered": SeatAnswered,
    "reader": ReaderOpened,
    "reader_asked": ReaderAsked,
    "reader_answered": ReaderAnswered,
    "reader_concluded": ReaderConcluded,
    "resumed": Resumed,
    "closed": RunClosed,
}
"""Event kind -> body model."""
