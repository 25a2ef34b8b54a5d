"""The state of a run: one fold of its events, which loop, `verify`, agents and views read, and only events change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from evotrainer.projections.branches import BASE, Branch, Probe, Trial, ancestors, descendants
from evotrainer.projections.shortcuts import Shortcuts, proxy_pair
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.findings import HealthReport
from evotrainer.records.verdicts import ShortcutAudit, Verdict


class RunState:
    """A run as far as its events were applied. `branches` is in order of opening, a parent before its children.

    Read it freely; `apply` is the only thing that changes it: what it holds is read-only, and setting an attribute from
    outside raises AttributeError.
    """

    _applying = True

    def __init__(self) -> None:
        self.opened: ev.RunOpened | None = None
        self._branches: dict[str, Branch] = {}
        self._trials: dict[str, Trial] = {}
        self.branches: Mapping[str, Branch] = MappingProxyType(self._branches)
        self.trials: Mapping[str, Trial] = MappingProxyType(self._trials)
        self._probes: dict[str, Probe] = {}
        self.probes: Mapping[str, Probe] = MappingProxyType(self._probes)
        self.searched: Sequence[ev.Searched] = ()
        self.versions: Sequence[ev.Promoted] = ()
        self.champion: str | None = None
        """Branch of the last valid version; None before the first promotion, `base` where no version is valid
        or the run ended without a training."""
        self.incumbent: str | None = None
        """The champion that the last round began with, also where it was found invalid since."""
        self.closed: Mapping[str, Any] = MappingProxyType({})
        """Environment knobs closed in every evaluation, since a shortcut was confirmed."""
        self.confirmed: Mapping[str, Any] = MappingProxyType({})
        """Knobs of all confirmed audits, closed: `closed` from the next round on, and in a recipe that starts anew."""
        self.audits: Sequence[ShortcutAudit] = ()
        self.noise: ev.NoiseMeasured | None = None
        self._noises: dict[str, ev.NoiseMeasured] = {}
        self.noises: Mapping[str, ev.NoiseMeasured] = MappingProxyType(self._noises)
        """Event key -> measurement, in order; the last one is `noise`."""
        self._readings: dict[str, HealthReport] = {}
        self.readings: Mapping[str, HealthReport] = MappingProxyType(self._readings)
        """Branch, or `base`, -> its last reading."""
        self.verdicts: Sequence[Verdict] = ()
        self.harness: ev.HarnessEvolved | None = None
        """The last recorded version."""
        self.failures = 0
        """Rounds in a row, before the one that runs, that promoted nothing."""
        self.feedback = ""
        """What a human last sent a step back with."""
        self._fresh: dict[str, str] = {}
        self.reestimated: Mapping[str, str] = MappingProxyType(self._fresh)
        """Branch -> key of its effect on fresh seeds."""
        self._skills: dict[str, ev.SkillDistilled] = {}
        self.taught: Mapping[str, ev.SkillDistilled] = MappingProxyType(self._skills)
        """Branch -> the last thing it taught."""
        self.certified: ev.Certified | None = None
        """The last certificate."""
        self.ends = 0
        """How often the run came to its end; with more rounds it went on."""
        self.closed_by: ev.RunClosed | None = None
        """Its end; None while it runs, or goes on."""
        self.problems: Sequence[str] = ()
        """Events that contradict one another; `verify` reports them."""
        self.last_round = 0
        """Number of the last round that was opened."""
        self._won = False
        self._applying = False

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._applying:
            raise AttributeError(f"{name} follows from a run's events: record one (RunContext.record)")
        object.__setattr__(self, name, value)

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
        if fold is None:
            return
        object.__setattr__(self, "_applying", True)
        try:
            fold(self, event)
        finally:
            self._applying = False

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
        """The environment's (proxy, true) reward components, where it names such a pair."""
        return proxy_pair(self.environment)

    @property
    def base(self) -> ev.TrialFinished | None:
        """The base policy's evaluation on search and gate."""
        known = self.trials.get(keys.BASE_TRIAL)
        return known.finished if known else None

    @property
    def invalid(self) -> dict[str, str]:
        """Invalid branches: name -> reason."""
        return {b.branch: b.invalid for b in self.branches.values() if b.invalid is not None}

    @property
    def leader(self) -> str:
        """The branch that a reader is shown first: the champion, or the first branch where no branch is champion."""
        return self.champion if self.champion and self.champion in self.branches else next(iter(self.branches), "")

    def audits_of(self, branch: str) -> list[ShortcutAudit]:
        """Audits of a branch, the last of each capability: it covers the seeds that were added since the one before."""
        return list({a.capability: a for a in self.audits if a.branch == branch}.values())

    def last_valid(self, lost: Iterable[str] = ()) -> str:
        """Branch of the last valid version, were `lost` invalid as well; `base` where there is none."""
        gone = {*lost, *self.invalid}
        return next((v.branch for v in reversed(self.versions) if v.branch not in gone), BASE)

    def descendants(self, branch: str) -> list[str]:
        """All branches that grew from this one, parents first, without itself."""
        return descendants(self.branches, branch)

    def ancestors(self, branch: str) -> list[str]:
        """Parent, its parent, ... up to the starting recipe."""
        return ancestors(self.branches, branch)

    def _contradicts(self, problem: str) -> None:
        self.problems = (*self.problems, problem)

    def _change(self, branch: str, what: str, change: Callable[[Branch], Branch]) -> None:
        if branch in self.branches:
            self._branches[branch] = change(self.branches[branch])
        else:
            self._contradicts(f"branch {branch} is {what} but was never opened")


# -- the fold: one function per kind of event -----------------------------------------------------------------------

_Fold = Callable[[RunState, Event], None]
_FOLDS: dict[type, _Fold] = {}


def _folds(*bodies: type) -> Callable[[_Fold], _Fold]:
    """The function takes up events with these bodies."""
    return lambda fold: _FOLDS.update(dict.fromkeys(bodies, fold)) or fold


_LATEST: dict[type, str] = {ev.RunOpened: "opened", ev.HarnessEvolved: "harness", ev.Certified: "certified"}


@_folds(*_LATEST)
def _latest(state: RunState, event: Event) -> None:
    setattr(state, _LATEST[type(event.body)], event.body)


@_folds(ev.BranchOpened)
def _branch(state: RunState, event: Event) -> None:
    body: ev.BranchOpened = event.body
    if body.branch in state.branches:
        state._contradicts(f"branch {body.branch} is opened twice")
        return
    if body.parent is not None and body.parent not in state.branches:
        state._contradicts(f"branch {body.branch} grows from {body.parent}, which was never opened")
    parent = state.branches.get(body.parent or "")
    state._branches[body.branch] = Branch(
        body.branch,
        body.parent,
        body.round,
        body.recipe,
        body.recipe_hash,
        body.intervention,
        matches=body.matches,
        invalid=f"descends from {parent.branch}: {parent.invalid}" if parent and parent.invalid else None,
    )


@_folds(ev.TrialIntended, ev.TrialFinished)
def _trial(state: RunState, event: Event) -> None:
    body: ev.TrialIntended | ev.TrialFinished = event.body
    known = state.trials.get(body.trial, Trial(body.trial, body.branch, body.seed))
    if (known.branch, known.seed) != (body.branch, body.seed):
        state._contradicts(f"trial {body.trial} is recorded with two branches or seeds")
    if isinstance(body, ev.TrialIntended):
        if known.intended is not None:
            state._contradicts(f"trial {body.trial} is intended twice")
        known = replace(known, intended=body)
    else:
        if known.finished is not None:
            state._contradicts(f"trial {body.trial} is finished, and paid for, twice")
        if known.intended is None:
            state._contradicts(f"trial {body.trial} is finished but was never intended")
        known = replace(known, finished=body)
    state._trials[body.trial] = known
    if known.branch in state.probes:
        state._probes[known.branch] = replace(state.probes[known.branch], trial=known)
    elif known.branch in state.branches:
        own = {t.trial: t for t in state.branches[known.branch].trials} | {known.trial: known}
        state._change(known.branch, "tried", lambda b: replace(b, trials=tuple(own.values())))
    elif body.branch != BASE:
        state._contradicts(f"trial {body.trial} belongs to branch {body.branch}, which was never opened")


@_folds(ev.NoiseMeasured)
def _noise(state: RunState, event: Event) -> None:
    state.noise = state._noises[event.id] = event.body


@_folds(ev.Diagnosed)
def _reading(state: RunState, event: Event) -> None:
    branch = keys.branch_read(event.id)
    if branch:
        state._readings[branch] = event.body.health
        if branch in state.probes:
            state._probes[branch] = replace(state.probes[branch], health=event.body.health)
        if branch in state.branches:
            state._change(branch, "read", lambda b: replace(b, health=event.body.health))


@_folds(ev.RoundOpened)
def _opened_round(state: RunState, event: Event) -> None:
    body: ev.RoundOpened = event.body
    state.champion = state.incumbent = body.champion
    state.closed = MappingProxyType(dict(body.closed))
    if state.last_round:
        state.failures = 0 if state._won else state.failures + 1
    state.last_round, state._won = body.round, False


@_folds(ev.Judged)
def _judged(state: RunState, event: Event) -> None:
    verdict: Verdict = event.body.verdict
    state.verdicts = (*state.verdicts, verdict)
    state._change(verdict.branch, "judged", lambda b: replace(b, verdicts=(*b.verdicts, verdict)))


@_folds(ev.ReaderConcluded)
def _read_by_reader(state: RunState, event: Event) -> None:
    body: ev.ReaderConcluded = event.body
    state._change(body.branch, "read", lambda b: replace(b, readings=(*b.readings, body)))


@_folds(ev.Audited)
def _audited(state: RunState, event: Event) -> None:
    audit: ShortcutAudit = event.body.audit
    state.audits = (*state.audits, audit)
    if audit.confirmed:
        state.confirmed = MappingProxyType({**state.confirmed, audit.knob: audit.closed})
        if audit.branch in state.invalid:  # no invalidation follows that would close it
            state.closed = MappingProxyType({**state.closed, audit.knob: audit.closed})


@_folds(ev.Promoted)
def _promoted(state: RunState, event: Event) -> None:
    body: ev.Promoted = event.body
    state._change(body.branch, "promoted", lambda b: replace(b, version=body.version))
    if any(v.version == body.version for v in state.versions):
        state._contradicts(f"version {body.version} is given twice")
    branch = state.branches.get(body.branch)
    if branch is not None and branch.invalid is not None:
        state._contradicts(f"branch {body.branch} is promoted although it is invalid")
    if branch is not None and body.previous is not None and (not branch.verdict or branch.verdict.kind != "promote"):
        state._contradicts(f"branch {body.branch} is promoted to {body.version} without a verdict that says so")
    state.versions = (*state.versions, body)
    state.champion = body.branch
    state._won = state._won or body.previous is not None


@_folds(ev.Invalidated)
def _invalidated(state: RunState, event: Event) -> None:
    body: ev.Invalidated = event.body
    grown = state.descendants(body.branch)
    state._change(body.branch, "invalidated", lambda b: replace(b, invalid=body.reason))
    reason = f"descends from {body.branch}: {body.reason}"
    for name in dict.fromkeys((*body.descendants, *grown)):
        state._change(name, "invalidated", lambda b: replace(b, invalid=b.invalid or reason))
    if body.champion in state.branches and state.branches[body.champion].invalid is not None:
        state._contradicts(f"after {body.branch} was invalidated the invalid {body.champion} is champion")
    state.champion = body.champion
    confirmed = {a.knob: a.closed for a in state.audits if a.confirmed and a.branch == body.branch}
    state.closed = MappingProxyType({**state.closed, **confirmed})


@_folds(ev.HumanApproval)
def _gate(state: RunState, event: Event) -> None:
    body: ev.HumanApproval = event.body
    if body.answer == "ABORT":  # the run stopped there, and asks again
        return
    if body.answer == "REVISE" or body.where == "backtest":
        state.feedback = body.feedback if body.answer == "REVISE" else ""
    if body.answer == "REVISE" and body.where == "verdict" and body.branch:
        state._change(body.branch, "withheld", lambda b: replace(b, withheld=body))


@_folds(ev.ToppedUp)
def _topped_up(state: RunState, event: Event) -> None:
    body: ev.ToppedUp = event.body
    state._change(body.branch, "given seeds", lambda b: replace(b, topups=(*b.topups, body)))


@_folds(ev.Reestimated, ev.SkillDistilled)
def _of_branch(state: RunState, event: Event) -> None:
    if isinstance(event.body, ev.Reestimated):
        body: ev.Reestimated = event.body
        state._fresh[body.branch] = event.id
        state._change(body.branch, "measured again", lambda b: replace(b, fresh=body))
    else:
        state._skills[event.body.branch] = event.body


@_folds(ev.ProbesOpened)
def _probes(state: RunState, event: Event) -> None:
    b: ev.ProbesOpened = event.body
    if b.incumbent not in state.branches:
        state._contradicts(f"{event.id} differs from {b.incumbent}, which was never opened")
    for p in b.probes:
        if p.probe in state.probes:
            state._contradicts(f"probe {p.probe} is opened twice")
        facts = (p.probe, b.round, b.incumbent, p.changes, p.recipe, p.seed)
        state._probes[p.probe] = Probe(*facts, shortcuts=state.shortcuts, spec=p)


@_folds(ev.Searched)
def _searched(state: RunState, event: Event) -> None:
    state.searched = (*state.searched, event.body)


@_folds(ev.RunClosed, ev.Resumed)
def _ended(state: RunState, event: Event) -> None:
    if isinstance(event.body, ev.Resumed) and state.opened is not None and event.body.budget is not None:
        given = {"budget": event.body.budget, "price": event.body.price or state.opened.price}
        state.opened = state.opened.model_copy(update=given)
    state.closed_by = event.body if isinstance(event.body, ev.RunClosed) else None
    if state.closed_by is not None:
        state.ends += 1
        state.champion = state.closed_by.champion  # the base policy, where nothing was trained
