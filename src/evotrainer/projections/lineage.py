"""The lineage: what became of each branch, read from the ledger's events and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from evotrainer.errors import ConfigError
from evotrainer.records.chain import Event
from evotrainer.records.events import (
    Audited,
    BranchOpened,
    Invalidated,
    Judged,
    Promoted,
    TrialFinished,
    TrialIntended,
)
from evotrainer.records.evidence import Audit, BranchRecord, Intervention, Verdict
from evotrainer.records.recipe import Recipe, single_factor

BASE = "base"
"""Branch name of trials that only evaluate the base policy; no branch is opened for it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One seeded training, or evaluation, of a branch. `running` means intended and not finished: it may be waiting."""

    trial: str
    branch: str
    seed: int
    intended: TrialIntended | None = None
    finished: TrialFinished | None = None

    @property
    def status(self) -> Literal["running", "complete", "failed"]:
        return self.finished.status if self.finished else "running"

    @property
    def purpose(self) -> str:
        return self.intended.purpose if self.intended else ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and all that was recorded about it."""

    branch: str
    parent: str | None
    round: int
    recipe: Recipe
    recipe_hash: str
    intervention: Intervention | None = None
    verdicts: tuple[Verdict, ...] = ()
    """One per look, in order; the last one counts."""
    version: str | None = None
    trials: tuple[Trial, ...] = ()
    invalid: str | None = None
    """Why the branch lost its standing, its own shortcut or an ancestor's; None: valid."""

    @property
    def verdict(self) -> Verdict | None:
        return self.verdicts[-1] if self.verdicts else None

    @property
    def trainings(self) -> list[Trial]:
        """The trials that it is judged by, those that were added later last."""
        return [t for t in self.trials if t.purpose in ("noise", "branch") and t.trial == f"{self.branch}-s{t.seed}"]

    def record(self) -> BranchRecord:
        """What agents and views may see: search means, never gate or cert scores of single tasks."""
        return BranchRecord(
            branch=self.branch,
            parent=self.parent,
            round=self.round,
            recipe=self.recipe,
            intervention=self.intervention,
            verdict=self.verdict,
            version=self.version,
            search=search_means([t.finished for t in self.trials if t.finished and t.purpose in ("noise", "branch")]),
        )


def search_means(trials: Iterable[TrialFinished]) -> dict[str, float]:
    """Means over complete trials on the search split, last step: `score` and each reward component."""
    last = []
    for t in trials:
        scores = [s for s in t.scores if s.split == "search"]
        if scores and t.status == "complete":
            last.append(max(scores, key=lambda s: s.step))
    names = {name for s in last for name in s.components}
    values = {n: [s.components[n] for s in last if n in s.components] for n in sorted(names)}
    values["score"] = [s.score for s in last if s.score is not None]
    return {n: sum(v) / len(v) for n, v in values.items() if v}


def last_audits(events: Iterable[Event], branch: str) -> list[Audit]:
    """Audits of a branch, the last of each capability: it covers the seeds that were added since the one before."""
    own = [e.body.audit for e in events if isinstance(e.body, Audited) and e.body.audit.branch == branch]
    return list({a.capability: a for a in own}.values())


@dataclass(frozen=True, slots=True)
class Lineage:
    """The tree of branches. `branches` is in order of opening, a parent before its children."""

    branches: Mapping[str, Branch]
    trials: Mapping[str, Trial]
    versions: tuple[Promoted, ...]
    champion: str | None
    """Branch of the last valid version; None before the first promotion."""
    problems: tuple[str, ...] = field(default=())
    """Events that contradict one another; `verify` reports them."""

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Lineage:
        """Read the tree from all events of a run, in order."""
        builder = _Builder()
        for event in events:
            builder.read(event)
        return builder.lineage()

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

    @property
    def invalid(self) -> dict[str, str]:
        """Branches without standing: name -> reason."""
        return {b.branch: b.invalid for b in self.branches.values() if b.invalid is not None}

    def check_factors(self) -> list[str]:
        """Recompute from the recipes that each branch differs from its parent in the one factor it declares."""
        problems = []
        for b in self.branches.values():
            if (b.parent is None) != (b.intervention is None):
                problems.append(f"branch {b.branch}: a branch has a parent if and only if it has an intervention")
            elif b.parent is not None and b.parent in self.branches:
                problems += _check_factor(self.branches[b.parent].recipe, b)
        return problems


def _check_factor(parent: Recipe, b: Branch) -> list[str]:
    """What the recipes say against the branch's intervention."""
    assert b.intervention is not None
    name, i = f"branch {b.branch}", b.intervention
    try:
        factor = single_factor(parent, b.recipe)
        if factor != i.factor:
            return [f"{name}: declares factor {i.factor!r}, its recipe changes {factor!r}"]
        if parent.with_factor(factor, i.new).hash != b.recipe.hash:
            return [f"{name}: declares {factor} = {i.new!r}, its recipe has {b.recipe.factors().get(factor)!r}"]
        if parent.with_factor(factor, i.old).hash != parent.hash:
            return [f"{name}: declares that {factor} was {i.old!r}, its parent has {parent.factors().get(factor)!r}"]
    except ConfigError as e:
        return [f"{name}: {e}"]
    return []


class _Builder:
    """Folds events, in order, into a lineage."""

    def __init__(self) -> None:
        self.branches: dict[str, Branch] = {}
        self.trials: dict[str, Trial] = {}
        self.versions: list[Promoted] = []
        self.champion: str | None = None
        self.problems: list[str] = []

    def read(self, event: Event) -> None:
        body = event.body
        if isinstance(body, BranchOpened):
            self.opened(body)
        elif isinstance(body, TrialIntended | TrialFinished):
            self.trial(body)
        elif isinstance(body, Judged):
            self.update(body.verdict.branch, "judged", lambda b: replace(b, verdicts=(*b.verdicts, body.verdict)))
        elif isinstance(body, Promoted):
            self.promoted(body)
        elif isinstance(body, Invalidated):
            self.invalidated(body)

    def opened(self, body: BranchOpened) -> None:
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

    def trial(self, body: TrialIntended | TrialFinished) -> None:
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
        if body.branch not in self.branches and body.branch != BASE:
            self.problems.append(f"trial {body.trial} belongs to branch {body.branch}, which was never opened")

    def promoted(self, body: Promoted) -> None:
        self.update(body.branch, "promoted", lambda b: replace(b, version=body.version))
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

    def invalidated(self, body: Invalidated) -> None:
        self.update(body.branch, "invalidated", lambda b: replace(b, invalid=body.reason))
        grown = Lineage(self.branches, {}, (), None).descendants(body.branch)
        reason = f"descends from {body.branch}: {body.reason}"
        for name in dict.fromkeys((*body.descendants, *grown)):
            self.update(name, "invalidated", lambda b: replace(b, invalid=b.invalid or reason))
        if body.champion in self.branches and self.branches[body.champion].invalid is not None:
            self.problems.append(f"after {body.branch} was invalidated the invalid {body.champion} is champion")
        self.champion = body.champion

    def update(self, branch: str, what: str, change: Callable[[Branch], Branch]) -> None:
        if branch in self.branches:
            self.branches[branch] = change(self.branches[branch])
        else:
            self.problems.append(f"branch {branch} is {what} but was never opened")

    def lineage(self) -> Lineage:
        of_branch: dict[str, list[Trial]] = {}
        for t in self.trials.values():
            of_branch.setdefault(t.branch, []).append(t)
        branches = {name: replace(b, trials=tuple(of_branch.get(name, ()))) for name, b in self.branches.items()}
        return Lineage(branches, dict(self.trials), tuple(self.versions), self.champion, tuple(self.problems))
