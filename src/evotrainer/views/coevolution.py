"""The harness's lineage and the policy's, side by side: which branch made which detector,
which detector stopped or steered which branch.

Everything here is read from ledger events; the report draws it as two lanes, `why` and `status` tell it in lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evotrainer.projections.caveats import answered as since_explained
from evotrainer.projections.gap_words import gap_told
from evotrainer.projections.predictions import subject_branch
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.text import counted
from evotrainer.records.verdicts import OWN_TRIGGERS, ShortcutAudit
from evotrainer.views.text import change, lost_points, one_line, points

TRIGGERS = {
    "opened": "as the run began",
    "score_move": "the score moved and no finding said why",
    "behaviour_shift": "behaviour shifted and no finding said why",
    "contradiction": "what is paid parted from the outcome and no finding said why",
    "standing_gap": "what is wrong was paid and no finding said why",
    "agent": "proposed by the agent",
    "learned": "hacks were confirmed that no detector explained",
    "audit": "settled by audits",
    "retirement": "detectors that told nothing were retired",
}
"""Why a version came about, in words."""
WORDS = {"promote": "passes", "reject": "rejected"}
"""Names of verdicts that differ from their kind."""


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
class StoryStep:
    """One line of the story, in the lane of the policy or of the harness."""

    lane: str
    """policy, harness or round (a heading)."""
    kind: str
    """Status that picks the mark: promote, reject, invalid, ..., start, open."""
    title: str
    href: str
    text: str
    refs: tuple[tuple[str, str], ...] = ()
    """(label, href) of what it points to, usually in the other lane."""


@dataclass(frozen=True, slots=True)
class HarnessVersionView:
    """A harness version with what led to it and what it did."""

    body: ev.HarnessEvolved
    gap: ev.GapSeen | None
    links: tuple[Link, ...] = ()
    speaks: tuple[tuple[str, str], ...] = ()
    """(branch, detector) of readings in which its new detectors have a finding."""

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
    """Versions, gaps, links and the story of a run."""

    versions: tuple[HarnessVersionView, ...] = ()
    open_gaps: tuple[tuple[ev.GapSeen, str], ...] = ()
    """Gaps that no version answered, and no promoted change explained, each with itself in words."""
    links: tuple[Link, ...] = ()
    steps: tuple[StoryStep, ...] = ()
    origin: dict[str, str] = field(default_factory=dict)
    """Authored detector -> version that admitted it."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> Coevolution:
        """Read the story from all events of a run, in order."""
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
                tuple(_speaks(events, {s.name for s in e.body.added})),
            )
            for e in events
            if e.kind == "harness"
        )
        return cls(
            versions,
            tuple((g, gap_told(events, g)) for i, g in gaps.items() if i not in answered and i not in explained),
            links,
            tuple(_steps(events, origin)),
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
        stands = [f"{s['name']} ({s.get('standing', '')})" for s in v.own]
        told = f": {', '.join(stands)}" if stands else ""
        came = (
            f"; {len(self.versions) - 1} change{'' if len(self.versions) == 2 else 's'}, the last: {v.why}"
            if v.body.parent
            else ""
        )
        return one_line(f"{v.name}, {v.body.size}{told}{came}", 300)


def _audit_text(a: ShortcutAudit) -> str:
    return f"{a.capability} closed: lost beyond {a.reference} {lost_points(a.excess, a.low)}"


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
                yield Link(a.branch, version, kind, f"{a.trigger} asked for the audit with {_audit_text(a)}; {end}")


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


def _speaks(events: Sequence[Event], added: set[str]) -> Iterable[tuple[str, str]]:
    seen: dict[tuple[str, str], None] = {}
    for e in events:
        if isinstance(e.body, ev.Diagnosed):
            branch = subject_branch(e.body.health.subject)
            for f in e.body.health.findings:
                if f.detector in added and not f.missing:
                    seen[branch, f.detector] = None
    return seen


def _steps(events: Sequence[Event], origin: dict[str, str]) -> Iterable[StoryStep]:
    """The two lanes, in order: one line per decision."""
    opened: dict[str, ev.BranchOpened] = {}
    in_force = ""
    for e in events:
        b = e.body
        match b:
            case ev.BranchOpened():
                opened[b.branch] = b
                if b.intervention is None:
                    text = "starting recipe" + (" again, shortcuts closed" if b.round else "")
                    yield _policy("start", b.branch, b.branch, text)
            case ev.RoundOpened():
                refs = ((b.harness, f"#harness-{b.harness}"),) if in_force else ()
                text = f"champion {b.champion}, read by"
                yield StoryStep("round", "open", f"Round {b.round}", f"#round-{b.round}", text, refs)
            case ev.HarnessEvolved():
                in_force = b.version
                yield _version_step(b)
            case ev.GapSeen():
                yield _gap_step(b)
            case ev.Audited():
                yield _audit_step(b.audit, origin, in_force)
            case ev.Judged():
                v, of = b.verdict, opened.get(b.verdict.branch)
                iv = of.intervention if of else None
                what = change(iv.factor, iv.old, iv.new) if iv else ""
                gain = f"; {points(v.effect.mean)} points" if v.effect else ""
                text = f"{WORDS.get(v.kind, v.kind)}: {one_line(what, 90)}{gain}"
                yield _policy(v.kind, v.branch, v.branch, text)
            case ev.Promoted() if b.previous is not None:
                yield _policy("promote", b.version, b.branch, f"{b.branch} is champion")
            case ev.Invalidated():
                text = f"invalid since; {b.capability or 'the shortcut'} stays closed, champion {b.champion}"
                yield _policy("invalid", ", ".join((b.branch, *b.descendants)), b.branch, text)
            case ev.Certified():
                yield _policy("start", "certified", "summary", f"champion {b.champion}")


def _policy(kind: str, title: str, place: str, text: str, refs: tuple[tuple[str, str], ...] = ()) -> StoryStep:
    return StoryStep("policy", kind, title, f"#{place}", text, refs)


def _version_step(h: ev.HarnessEvolved) -> StoryStep:
    v = HarnessVersionView(h, None)
    what = "; ".join(f"{sign} {name} ({text.partition(':')[0]})" for sign, name, text in v.changes) or h.size
    refs = tuple((b, f"#{b}") for b in h.branches)
    return StoryStep("harness", "start" if not h.parent else "promote", h.version, f"#harness-{h.version}", what, refs)


def _gap_step(g: ev.GapSeen) -> StoryStep:
    admitted = sum(a.admitted for a in g.considered)
    tried = f"{counted(g.candidates, 'predicate')} compared, " if g.candidates else ""
    end = (
        f"{tried}{admitted} of {counted(len(g.considered), 'detector')} admitted"
        if g.considered
        else (g.reason or "nothing mined")
    )
    title = "proposal" if g.trigger == "agent" else "gap"
    return StoryStep(
        "harness", "open", title, "#harness", f"{one_line(g.told, 200)}; {end}", ((g.branch, f"#{g.branch}"),)
    )


def _audit_step(a: ShortcutAudit, origin: dict[str, str], in_force: str) -> StoryStep:
    version = origin.get(a.trigger, in_force)
    asked = ((f"{a.trigger} ({version})", f"#harness-{version}"),) if a.trigger not in OWN_TRIGGERS and version else ()
    word = "shortcut confirmed" if a.confirmed else "no shortcut"
    text = f"{word}: {_audit_text(a)}" + ("" if asked else f", {a.occasion}")
    return _policy("invalid" if a.confirmed else "inconclusive", f"audit of {a.branch}", a.branch, text, asked)
