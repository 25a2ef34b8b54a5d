"""What a run knows: one fold of its events.
The loop, `verify`, agents and views all read this, and only events change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from evotrainer.projections.branches import BASE, Branch, Trial
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.events import (
    Audited,
    BranchOpened,
    Certified,
    Diagnosed,
    HarnessEvolved,
    HumanApproval,
    Invalidated,
    Judged,
    NoiseMeasured,
    Promoted,
    Reestimated,
    RoundOpened,
    RunOpened,
    SkillDistilled,
    TrialFinished,
    TrialIntended,
)
from evotrainer.records.findings import HealthReport
from evotrainer.records.verdicts import ShortcutAudit, Verdict


class RunState:
    """A run as far as its events were applied. `branches` is in order of opening, a parent before its children.

    Read it freely; `apply` is the only thing that changes it.
    """

    def __init__(self) -> None:
        self.opened: RunOpened | None = None
        self.branches: dict[str, Branch] = {}
        self.trials: dict[str, Trial] = {}
        self.versions: list[Promoted] = []
        self.champion: str | None = None
        """Branch of the last valid version; None before the first promotion, `base` where no version is valid."""
        self.closed: dict[str, Any] = {}
        """Environment knobs closed in every evaluation, since a shortcut was confirmed."""
        self.confirmed: dict[str, Any] = {}
        """Knobs of all confirmed audits, closed: those of `closed` from the next round on."""
        self.audits: list[ShortcutAudit] = []
        self.noise: NoiseMeasured | None = None
        self.noises: dict[str, NoiseMeasured] = {}
        """Event key -> measurement, in order; the last one is `noise`."""
        self.readings: dict[str, HealthReport] = {}
        """Branch, or `base`, -> its last reading."""
        self.verdicts: list[Verdict] = []
        self.harness: HarnessEvolved | None = None
        """The last recorded version."""
        self.failures = 0
        """Rounds in a row, before the one that runs, that promoted nothing."""
        self.feedback = ""
        """What a human last sent a step back with."""
        self.reestimated: dict[str, str] = {}
        """Branch -> key of its effect on fresh seeds."""
        self.taught: dict[str, SkillDistilled] = {}
        """Branch -> the last thing it taught."""
        self.certified: Certified | None = None
        self.problems: list[str] = []
        """Events that contradict one another; `verify` reports them."""
        self._round = 0
        self._won = False

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunState:
        """The state after some events: all of a run's, or those before one of them."""
        state = cls()
        for event in events:
            state.apply(event)
        return state

    def apply(self, event: Event) -> None:
        """Take up the next event."""
        fold = _FOLDS.get(type(event.body))
        if fold is not None:
            fold(self, event)

    # -- what follows from it --------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, Any]:
        """The environment as the first event describes it."""
        return self.opened.environment if self.opened else {}

    @property
    def shortcuts(self) -> Shortcuts:
        """What the environment declares as closable."""
        return Shortcuts.of(self.environment)

    @property
    def proxy(self) -> tuple[str, str] | None:
        """The environment's (proxy, true) reward components."""
        p = self.environment.get("proxy")
        return (p[0], p[1]) if p else None

    @property
    def base(self) -> TrialFinished | None:
        """The base policy's evaluation on search and gate."""
        known = self.trials.get(keys.BASE_TRIAL)
        return known.finished if known else None

    @property
    def invalid(self) -> dict[str, str]:
        """Invalid branches: name -> reason."""
        return {b.branch: b.invalid for b in self.branches.values() if b.invalid is not None}

    def audits_of(self, branch: str) -> list[ShortcutAudit]:
        """Audits of a branch, the last of each capability: it covers the seeds that were added since the one before."""
        return list({a.capability: a for a in self.audits if a.branch == branch}.values())

    def last_valid(self, lost: Iterable[str] = ()) -> str:
        """Branch of the last valid version, were `lost` invalid as well; `base` where there is none."""
        gone = {*lost, *self.invalid}
        return next((v.branch for v in reversed(self.versions) if v.branch not in gone), BASE)

    def children(self, branch: str) -> list[str]:
        """Branches opened from this one."""
        return [b.branch for b in self.branches.values() if b.parent == branch]

    def descendants(self, branch: str) -> list[str]:
        """All branches that grew from this one, parents first, without itself."""
        found = {branch}
        for b in self.branches.values():
            if b.parent in found:
                found.add(b.branch)
        return [b for b in self.branches if b in found and b != branch]

    def ancestors(self, branch: str) -> list[str]:
        """Parent, its parent, ... up to the starting recipe."""
        out: list[str] = []
        parent = self.branches[branch].parent if branch in self.branches else None
        while parent is not None and parent not in out:
            out.append(parent)
            parent = self.branches[parent].parent if parent in self.branches else None
        return out

    # -- the fold --------------------------------------------------------------------------------------------------

    def _change(self, branch: str, what: str, change: Callable[[Branch], Branch]) -> None:
        if branch in self.branches:
            self.branches[branch] = change(self.branches[branch])
        else:
            self.problems.append(f"branch {branch} is {what} but was never opened")

    def _run(self, event: Event) -> None:
        self.opened = event.body

    def _branch(self, event: Event) -> None:
        body: BranchOpened = event.body
        if body.branch in self.branches:
            self.problems.append(f"branch {body.branch} is opened twice")
            return
        if body.parent is not None and body.parent not in self.branches:
            self.problems.append(f"branch {body.branch} grows from {body.parent}, which was never opened")
        parent = self.branches.get(body.parent or "")
        self.branches[body.branch] = Branch(
            body.branch,
            body.parent,
            body.round,
            body.recipe,
            body.recipe_hash,
            body.intervention,
            invalid=f"descends from {parent.branch}: {parent.invalid}" if parent and parent.invalid else None,
        )

    def _trial(self, event: Event) -> None:
        body: TrialIntended | TrialFinished = event.body
        known = self.trials.get(body.trial, Trial(body.trial, body.branch, body.seed))
        if (known.branch, known.seed) != (body.branch, body.seed):
            self.problems.append(f"trial {body.trial} is recorded with two branches or seeds")
        if isinstance(body, TrialIntended):
            if known.intended is not None:
                self.problems.append(f"trial {body.trial} is intended twice")
            known = replace(known, intended=body)
        else:
            if known.finished is not None:
                self.problems.append(f"trial {body.trial} is finished, and paid for, twice")
            if known.intended is None:
                self.problems.append(f"trial {body.trial} is finished but was never intended")
            known = replace(known, finished=body)
        self.trials[body.trial] = known
        if known.branch in self.branches:
            own = {t.trial: t for t in self.branches[known.branch].trials} | {known.trial: known}
            self._change(known.branch, "tried", lambda b: replace(b, trials=tuple(own.values())))
        elif body.branch != BASE:
            self.problems.append(f"trial {body.trial} belongs to branch {body.branch}, which was never opened")

    def _noise(self, event: Event) -> None:
        self.noise = self.noises[event.id] = event.body

    def _reading(self, event: Event) -> None:
        branch = keys.branch_read(event.id)
        if branch:
            self.readings[branch] = event.body.health
            if branch in self.branches:
                self._change(branch, "read", lambda b: replace(b, health=event.body.health))

    def _opened_round(self, event: Event) -> None:
        body: RoundOpened = event.body
        self.champion, self.closed = body.champion, dict(body.closed)
        if self._round:
            self.failures = 0 if self._won else self.failures + 1
        self._round, self._won = body.round, False

    def _judged(self, event: Event) -> None:
        verdict: Verdict = event.body.verdict
        self.verdicts.append(verdict)
        self._change(verdict.branch, "judged", lambda b: replace(b, verdicts=(*b.verdicts, verdict)))

    def _audited(self, event: Event) -> None:
        audit: ShortcutAudit = event.body.audit
        self.audits.append(audit)
        if audit.confirmed:
            self.confirmed[audit.knob] = audit.closed
            if audit.branch in self.invalid:  # no invalidation follows that would close it
                self.closed[audit.knob] = audit.closed

    def _promoted(self, event: Event) -> None:
        body: Promoted = event.body
        self._change(body.branch, "promoted", lambda b: replace(b, version=body.version))
        if any(v.version == body.version for v in self.versions):
            self.problems.append(f"version {body.version} is given twice")
        branch = self.branches.get(body.branch)
        if branch is not None and branch.invalid is not None:
            self.problems.append(f"branch {body.branch} is promoted although it is invalid")
        if (
            branch is not None
            and body.previous is not None
            and (not branch.verdict or branch.verdict.kind != "promote")
        ):
            self.problems.append(f"branch {body.branch} is promoted to {body.version} without a verdict that says so")
        self.versions.append(body)
        self.champion = body.branch
        self._won = self._won or body.previous is not None

    def _invalidated(self, event: Event) -> None:
        body: Invalidated = event.body
        grown = self.descendants(body.branch)
        self._change(body.branch, "invalidated", lambda b: replace(b, invalid=body.reason))
        reason = f"descends from {body.branch}: {body.reason}"
        for name in dict.fromkeys((*body.descendants, *grown)):
            self._change(name, "invalidated", lambda b: replace(b, invalid=b.invalid or reason))
        if body.champion in self.branches and self.branches[body.champion].invalid is not None:
            self.problems.append(f"after {body.branch} was invalidated the invalid {body.champion} is champion")
        self.champion = body.champion
        self.closed |= {a.knob: a.closed for a in self.audits if a.confirmed and a.branch == body.branch}

    def _harness(self, event: Event) -> None:
        self.harness = event.body

    def _gate(self, event: Event) -> None:
        body: HumanApproval = event.body
        if body.answer == "REVISE":
            self.feedback = body.feedback
        elif body.where == "backtest":
            self.feedback = ""

    def _reestimated(self, event: Event) -> None:
        self.reestimated[event.body.branch] = event.id

    def _taught(self, event: Event) -> None:
        self.taught[event.body.branch] = event.body

    def _certified(self, event: Event) -> None:
        self.certified = event.body


_FOLDS: dict[type, Callable[[RunState, Event], None]] = {
    RunOpened: RunState._run,
    BranchOpened: RunState._branch,
    TrialIntended: RunState._trial,
    TrialFinished: RunState._trial,
    NoiseMeasured: RunState._noise,
    Diagnosed: RunState._reading,
    RoundOpened: RunState._opened_round,
    Judged: RunState._judged,
    Audited: RunState._audited,
    Promoted: RunState._promoted,
    Invalidated: RunState._invalidated,
    HarnessEvolved: RunState._harness,
    HumanApproval: RunState._gate,
    Reestimated: RunState._reestimated,
    SkillDistilled: RunState._taught,
    Certified: RunState._certified,
}
