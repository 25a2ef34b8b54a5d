"""A branch and its trials, as recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.records import keys
from evotrainer.records.briefing import BranchRecord
from evotrainer.records.events import (
    HumanApproval,
    ReaderConcluded,
    Reestimated,
    ToppedUp,
    TrialFinished,
    TrialIntended,
)
from evotrainer.records.findings import Finding, HealthReport
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import ProbeRecord, ProbeSpec
from evotrainer.records.verdicts import Effect, Verdict

BASE = "base"
"""Branch name of trials that only evaluate the base policy; no branch is opened for it."""
START = "b0"
"""The starting recipe's branch."""


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
class Probe:
    """A search training: one recipe, one seed, no verdict."""

    probe: str
    round: int
    incumbent: str
    changes: Mapping[str, Any]
    recipe: Recipe
    seed: int
    trial: Trial | None = None
    health: HealthReport | None = None
    shortcuts: Shortcuts = field(default_factory=Shortcuts)
    spec: ProbeSpec | None = None
    """As it was opened."""

    @property
    def parent(self) -> str:
        """The branch that it differs from."""
        return self.incumbent

    @property
    def complete(self) -> list[TrialFinished]:
        """Its training, once it came to its end."""
        done = self.trial.finished if self.trial else None
        return [done] if done and done.status == "complete" else []

    def record(self) -> ProbeRecord:
        """What agents see of it."""
        done = self.trial.finished if self.trial else None
        failed = (done.label or done.error or "failed") if done and done.status != "complete" else ""
        knobs = done.env_knobs if done and done.status == "complete" else self.recipe.knobs
        found = self.health.findings if self.health else ()
        # as the judge does with branches: commands that would read a fix prove nothing where there is none
        doubts = [f for f in found if f.validity and not f.missing and not self.shortcuts.answered(f.kind, knobs)]
        read = [h for h in (*(t for x in self.complete for t in x.health), self.health) if h]
        return ProbeRecord(
            probe=self.probe,
            round=self.round,
            incumbent=self.incumbent,
            changes=dict(self.changes),
            recipe=self.recipe,
            seed=self.seed,
            score=next(iter(search_scores(self.complete)), None),
            failed=failed,
            invalid=tuple(f.detector for f in doubts),
            metrics={m.name: m.value for h in read for m in h.metrics if m.value is not None},
            **mean_compute(self.complete),
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and all that was recorded about it."""

    branch: str
    """Its name."""
    parent: str | None
    round: int
    recipe: Recipe
    recipe_hash: str
    intervention: Intervention | None = None
    verdicts: tuple[Verdict, ...] = ()
    """One per interim analysis, in order; the last one counts."""
    version: str | None = None
    trials: tuple[Trial, ...] = ()
    invalid: str | None = None
    """Why the branch is invalid: its own shortcut, or an ancestor's; None: valid."""
    health: HealthReport | None = None
    """The last reading of its search rollouts."""
    matches: str = ""
    """The branch whose control at equal compute it is; empty: of none."""
    readings: tuple[ReaderConcluded, ...] = ()
    """What a reader said of its rollouts, in order; the last one counts."""
    topups: tuple[ToppedUp, ...] = ()
    """Further seeds that were asked for, in order."""
    fresh: Reestimated | None = None
    """Its effect on fresh seeds."""
    withheld: HumanApproval | None = None
    """The human's REVISE that kept it from being promoted."""

    @property
    def looks(self) -> int:
        """How often it was judged."""
        return len(self.verdicts)

    @property
    def verdict(self) -> Verdict | None:
        return self.verdicts[-1] if self.verdicts else None

    @property
    def effect(self) -> Effect | None:
        """The effect on gate: on fresh seeds where it was measured again, otherwise as the verdict saw it."""
        if self.fresh:
            return self.fresh.effect
        return self.verdict.effect if self.verdict else None

    @property
    def on_fresh_seeds(self) -> bool:
        """Was `effect` measured on others than the seeds of the verdict?"""
        return self.fresh is not None

    @property
    def trainings(self) -> list[Trial]:
        """The trials that it is judged by, those that were added later last."""
        own = (t for t in self.trials if t.purpose in ("noise", "branch"))
        return [t for t in own if t.trial == keys.training(self.branch, t.seed)]

    @property
    def finished(self) -> list[TrialFinished]:
        """The trainings' results, failed ones included."""
        return [t.finished for t in self.trainings if t.finished]

    @property
    def complete(self) -> list[TrialFinished]:
        """The trainings that came to their end."""
        return [t for t in self.finished if t.status == "complete"]

    @property
    def own_findings(self) -> tuple[Finding, ...]:
        """Findings of its own reading by the harness, and of the last one by a reader."""
        read = self.readings[-1].finding if self.readings else None
        return (*(self.health.findings if self.health else ()), *([read] if read else []))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of its own reading, and what its trials' readings say of validity."""
        return (
            *self.own_findings,
            *(f for t in self.complete for h in t.health for f in h.findings if f.validity),
        )

    def record(self) -> BranchRecord:
        """What agents and views may see: search means, never gate or cert scores of single tasks."""
        return BranchRecord(
            branch=self.branch,
            parent=self.parent,
            round=self.round,
            recipe=self.recipe,
            intervention=self.intervention,
            verdict=self.verdict,
            effect=self.effect,
            on_fresh_seeds=self.on_fresh_seeds,
            version=self.version,
            search=search_means(self.finished),
            scores=tuple(search_scores(self.complete)),
            **mean_compute(self.complete),
        )


def search_scores(trials: Iterable[TrialFinished]) -> list[float]:
    """Search score of each trial that has one, at its last step."""
    out = []
    for t in trials:
        scores = [s for s in t.scores if s.split == "search" and s.score is not None]
        if scores:
            out.append(float(max(scores, key=lambda s: s.step).score or 0.0))
    return out


def mean_score(trials: Iterable[TrialFinished], split: str, component: str = "") -> float | None:
    """Mean over trials of the score, or of one reward component, on a split at the last step; None where none has
    one."""
    last = [max(own, key=lambda s: s.step) for t in trials if (own := [s for s in t.scores if s.split == split])]
    values = [s.components.get(component) if component else s.score for s in last]
    seen = [x for x in values if x is not None]
    return sum(seen) / len(seen) if seen else None


def mean_compute(trials: Sequence[TrialFinished]) -> dict[str, float | None]:
    """`training_s` and `training_tokens`: means over those trainings that measured them; None where none did."""
    names = ("training_s", "training_tokens")
    known = {name: [x for t in trials if (x := getattr(t, name))] for name in names}
    return {name: sum(found) / len(found) if found else None for name, found in known.items()}


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


def describe_start(branches: Mapping[str, Branch], recipe: Recipe) -> str:
    """What a recipe's trainings go on from, for a reader; empty where that is the base policy."""
    if recipe.start is None:
        return ""
    plain = {"deploy_temperature": None}
    names = {b.recipe.model_copy(update=plain).hash: b.branch for b in [*branches.values()][::-1]}
    came = ", then ".join(f"{names.get(r.hash, f'recipe {r.hash}')} ({r.steps} steps)" for r in recipe.chain[:-1])
    return f"continued from {came}, {recipe.steps} steps more; its cost counts from the base policy on"


def descendants(branches: Mapping[str, Branch], branch: str) -> list[str]:
    """All branches that grew from one, parents first, without itself."""
    found = {branch}
    for b in branches.values():
        if b.parent in found:
            found.add(b.branch)
    return [b for b in branches if b in found and b != branch]


def ancestors(branches: Mapping[str, Branch], branch: str) -> list[str]:
    """Parent, its parent, ... up to the starting recipe."""
    out: list[str] = []
    parent = branches[branch].parent if branch in branches else None
    while parent is not None and parent not in out:
        out.append(parent)
        parent = branches[parent].parent if parent in branches else None
    return out
