"""The harness's lineage and its links to the policy's: which branch made which detector, which detector stopped or
steered which branch. Read from ledger events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evotrainer.projections.caveats import answered as since_explained
from evotrainer.projections.caveats import describe_gap
from evotrainer.projections.text import one_line
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.verdicts import OWN_TRIGGERS

TRIGGERS = {
    "opened": "as the run began",
    "score_move": "the score moved and no finding said why",
    "behaviour_shift": "behaviour shifted and no finding said why",
    "contradiction": "what is paid parted from the outcome and no finding said why",
    "unexplained_gap": "what is wrong was paid and no finding said why",
    "agent": "proposed by the agent",
    "learned": "hacks were confirmed that no detector explained",
    "audit": "settled by audits",
    "retirement": "detectors that told nothing were retired",
}
"""Why a version came about, in words."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link between a branch and a harness version."""

    branch: str
    version: str
    kind: str
    """made (the branch's evidence made the version), steered (a diagnosis was answered by the branch), stopped,
    cleared (what an audit said that a detector asked for), settled (the branch's audit changed a detector's status),
    flips (a detector would change the branch's verdict)."""
    text: str


@dataclass(frozen=True, slots=True)
class HarnessVersionView:
    """A harness version with what led to it and what it did."""

    body: ev.HarnessEvolved
    gap: ev.GapSeen | None
    links: tuple[Link, ...] = ()

    @property
    def name(self) -> str:
        return self.body.version

    @property
    def why(self) -> str:
        return TRIGGERS.get(self.body.trigger, self.body.trigger.replace("_", " "))

    @property
    def own(self) -> list[dict[str, Any]]:
        """Specifications of this version's authored detectors."""
        return list(self.body.harness.get("authored", ()))

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """(+, - or ~, detector, what) of its difference to its parent."""
        out = [("+", s.name, f"{s.standing}: rollouts that {s.does}") for s in self.body.added]
        out += [("-", name, "dropped") for name in self.body.dropped]
        out += [("~", name, standing) for name, standing in self.body.changed.items()]
        return [*out, *(("~", name, f"threshold {x:g}") for name, x in self.body.thresholds.items())]


@dataclass(frozen=True, slots=True)
class Coevolution:
    """Versions, gaps and links of a run."""

    versions: tuple[HarnessVersionView, ...] = ()
    open_gaps: tuple[tuple[ev.GapSeen, str], ...] = ()
    """Gaps that no version answered, and no promoted change explained, each with itself in words."""
    links: tuple[Link, ...] = ()
    origin: dict[str, str] = field(default_factory=dict)
    """Authored detector -> version that admitted it."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> Coevolution:
        """From all events of a run, in order."""
        origin = {s.name: e.body.version for e in events if e.kind == "harness" for s in e.body.added}
        gaps = {e.id: e.body for e in events if e.kind == "gap"}
        links = tuple(_links(events, origin))
        answered = {e.body.gap for e in events if e.kind == "harness"}
        explained = since_explained(events)
        versions = tuple(
            HarnessVersionView(
                e.body,
                gaps.get(e.body.gap),
                tuple(x for x in links if x.version == e.body.version),
            )
            for e in events
            if e.kind == "harness"
        )
        return cls(
            versions,
            tuple((g, describe_gap(events, g)) for i, g in gaps.items() if i not in answered and i not in explained),
            links,
            origin,
        )

    @property
    def current(self) -> HarnessVersionView | None:
        """The current version."""
        return self.versions[-1] if self.versions else None

    def of_branch(self, branch: str) -> list[Link]:
        """The links of a branch to harness versions."""
        return [x for x in self.links if x.branch == branch]

    def line(self) -> str:
        """The state of the harness in one line; empty where no version was recorded."""
        v = self.current
        if v is None:
            return ""
        detectors = [f"{s['name']} ({s.get('standing', '')})" for s in v.own]
        suffix = f": {', '.join(detectors)}" if detectors else ""
        came = (
            f"; {len(self.versions) - 1} change{'' if len(self.versions) == 2 else 's'}, the last: {v.why}"
            if v.body.parent
            else ""
        )
        return one_line(f"{v.name}, {v.body.size}{suffix}{came}", 300)


def _links(events: Sequence[Event], origin: dict[str, str]) -> Iterable[Link]:
    """Every link, in the order of events."""
    in_force = ""
    diagnosis: dict[int, ev.Diagnosed] = {}
    for e in events:
        b = e.body
        if isinstance(b, ev.HarnessEvolved):
            in_force = b.version
            yield from _made(b)
        elif isinstance(b, ev.Diagnosed) and e.id == keys.diagnosed(b.round):
            diagnosis[b.round] = b
        elif isinstance(b, ev.BranchOpened) and b.intervention is not None and b.round in diagnosis:
            yield from _steered(b, diagnosis[b.round])
        elif isinstance(b, ev.Audited) and b.audit.trigger not in OWN_TRIGGERS:
            a = b.audit
            version = origin.get(a.trigger, in_force)
            if version:
                kind = "stopped" if a.confirmed else "cleared"
                end = "the branch is stopped" if a.confirmed else "the branch may go on"
                yield Link(
                    a.branch, version, kind, f"{a.trigger} asked for the audit with {a.capability} closed; {end}"
                )


def _made(h: ev.HarnessEvolved) -> Iterable[Link]:
    named = ", ".join(s.name for s in h.added)
    for branch in h.branches:
        if h.trigger == "audit":
            stand = ", ".join(f"{k} is now {v}" for k, v in h.changed.items())
            yield Link(branch, h.version, "settled", f"its audit made {h.version}: {stand}")
        else:
            yield Link(branch, h.version, "made", f"its evidence made {h.version}" + (f": {named}" if named else ""))
    for f in h.flips:
        text = (
            f"{f.detector} would have changed its verdict from {f.was} to {f.would} ({f.share:.0%} of its "
            "rollouts flagged)"
        )
        yield Link(f.branch, h.version, "flips", text)


def _steered(b: ev.BranchOpened, d: ev.Diagnosed) -> Iterable[Link]:
    """The diagnosis that a branch answers."""
    iv, h = b.intervention, d.health
    found = next((x for x in h.bottlenecks if iv is not None and x.name == iv.bottleneck), None)
    if iv is None or found is None or not h.harness:
        return
    by = [x for x in found.findings if x != found.name]
    who = f" (found by {', '.join(by)})" if by else ""
    yield Link(
        b.branch,
        h.harness,
        "steered",
        f"{h.harness} diagnosed {found.name} (severity {found.score:.2f}){who}; answered by {iv.factor}",
    )
