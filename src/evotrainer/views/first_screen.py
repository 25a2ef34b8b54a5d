"""What a page says first, to somebody who never saw the run: what was found, tried and proven, and what happens now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evotrainer.projections import words
from evotrainer.projections.harness_lineage import HarnessVersionView
from evotrainer.projections.run_facts import STATUS
from evotrainer.projections.text import duration, one_line, percent, point_range, points
from evotrainer.records.text import counted, cut
from evotrainer.views import progress, summary
from evotrainer.views.model import BranchView, RunView, TrialView
from evotrainer.views.story import sentence, started_again
from evotrainer.views.style import PURPOSE
from evotrainer.views.summary import Standing

TEXT = 190
"""Letters of a tile's sentence."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A question of a reader, its answer in a word or a number, and the sentence behind it."""

    title: str
    figure: str
    text: str
    anchor: str
    """Where on the page it is told in full."""


def tiles(view: RunView) -> list[Tile]:
    """Found, tried, proven, now."""
    return [_found(view), _tried(view), _proven(view), _now(view)]


def _found(view: RunView) -> Tile:
    """A shortcut that an audit confirmed, else the last diagnosis, or the gap between what is paid and what counts."""
    shortcut = next((a for a in reversed(view.state.audits) if a.confirmed), None)
    if shortcut is not None:
        lost = f"{percent(shortcut.score_open)} of {shortcut.branch} become {percent(shortcut.score_closed)}"
        about = next((c.about for c in view.state.shortcuts.capabilities if c.name == shortcut.capability), "")
        text = f"With {shortcut.capability} closed {lost}; the policy before training loses less."
        text = sentence(about) + f" {text}" if about else text
        return Tile("Found", "A shortcut in use", cut(one_line(text, 400), TEXT), shortcut.branch)
    worst = [x for b in view.branches.values() for r in b.readings for x in r.report.bottlenecks[:1]]
    start = view.start.facts.of_kinds("proxy_gap") if view.start else ()
    told = (*view.facts.of_kinds("diagnosis")[-1:], *start)
    if not told:
        return Tile("Found", "nothing yet", "No training was read so far.", "rounds")
    figure = words.kind(worst[0].name) if worst else "a gap"
    text = told[0].text.partition(" first: ")[2] or told[0].text
    return Tile("Found", figure.capitalize(), cut(one_line(text, 400), TEXT), "rounds")


def _tried(view: RunView) -> Tile:
    changes = [b for b in view.branches.values() if b.intervention and not b.matches]
    vetoed = sum(p.fate == "vetoed" for r in view.rounds.values() for p in r.lines)
    counts: dict[str, int] = {}
    for b in changes:
        counts[b.status] = counts.get(b.status, 0) + 1
    again = started_again(view)
    said = [f"{sentence(b.facts.text('changes'))[:-1]}, as {b.name}" for b in again]
    said += [f"{n} {'promoted' if s in ('promote', 'worse') else STATUS[s]}" for s, n in counts.items()]
    said += [f"{vetoed} vetoed by a replay before training"] if vetoed else []
    said += [f"{counted(len(view.probes), 'search training')}"] if view.probes else []
    text = "; ".join(said) if said else "The starting recipe is trained under several seeds first, to measure the noise"
    return Tile("Tried", counted(len(changes) + len(again), "change"), f"{text}.", "verdicts")


def _proven(view: RunView) -> Tile:
    """The gain of the certificate, else the champion's effect on the gate split."""
    if not _trained(view):
        return Tile("Proven", "nothing yet", "No branch has a verdict.", "verdicts")
    comparisons = [f for f in view.facts.of_kinds("comparison") if {"mean", "low", "high"} <= f.numbers.keys()]
    if comparisons:
        f = next((f for f in comparisons if f.text.startswith(f"champion minus {gained_over(view)}")), comparisons[0])
        pair, _, read = f.text.partition(": ")
        gain = f"{points(f.numbers['mean'])} points {point_range(f.numbers['low'], f.numbers['high'])}"
        shown = f.numbers["low"] > 0
        what = read.partition("], ")[2].partition(";")[0]
        text = f"{pair}{'' if shown else f': {gain}'}, of unseen tasks, at 95%: {what}."
        return Tile("Proven", gain if shown else "no gain", cut(text, TEXT), "summary")
    champion = view.branches.get(view.champion)
    if champion and champion.effect and champion.status == "promote":
        e = champion.effect
        text = f"{champion.name} against {champion.replaced or 'its parent'} on the gate split; not certified yet."
        return Tile("Proven", f"{points(e.mean)} points {point_range(e.low, e.high)}", text, champion.name)
    return Tile("Proven", "nothing", "No change was shown to be better than the noise between seeds.", "verdicts")


def gained_over(view: RunView) -> str:
    """What a gain is a gain over: the starting recipe, the base policy where that is void."""
    return "base" if view.start and view.start.invalid else "start"


def _trained(view: RunView) -> bool:
    return view.certified is not None or any(b.looks for b in view.branches.values())


def _now(view: RunView) -> Tile:
    state, told = summary.state(view)
    if state is Standing.closed:
        return Tile("Now", "ended", cut(told, TEXT) + ".", "cost")
    if state is Standing.waiting:
        by = "evotrainer answer RUN" if view.question else "evotrainer propose RUN FILE"
        return Tile("Now", state.value[0], f"{cut(told, TEXT)} Answer here, or by {by}.", "question")
    if state is Standing.open:
        return Tile("Now", "stopped", cut(f"{sentence(summary.ALONE)} {told}", TEXT), "summary")
    found = progress.of_view(view)
    left = found.left_s
    doing = ", ".join(doing_now(view)) or "between two trainings: reading, judging or proposing"
    figure = f"about {duration(left)} left" if left else "running"
    return Tile("Now", figure, cut(f"{doing}; {found.line().partition(', about ')[0]}.", TEXT), "now")


TRAINS_NOTHING = ("base", "certify", "audit")
"""Purposes of trials that evaluate."""


def running(view: RunView) -> list[tuple[TrialView, BranchView]]:
    """Trials at work, each with its branch."""
    everyone = (*view.branches.values(), *view.probes.values())
    return [(t, b) for b in everyone for t in b.trials if t.status == "started" and not t.error]


def versions(view: RunView) -> list[tuple[int, list[BranchView], list[HarnessVersionView]]]:
    """Round by round: the policies that were promoted in it, and the versions of the harness that came of it."""
    policies = [view.branches[p.branch] for p in view.versions if p.branch in view.branches]
    harness = view.coevolution.versions
    last = max([*(b.round for b in policies), *(v.body.round or 0 for v in harness), 0])
    return [
        (n, [b for b in policies if b.round == n], [v for v in harness if (v.body.round or 0) == n])
        for n in range(last + 1)
    ]


def doing_now(view: RunView) -> Iterator[str]:
    """`b1-s2 (branch) training 13 of 40`"""
    for t, _ in running(view)[:4] if view.driver is not None else ():
        b = t.heartbeat
        place = f" {b.get('step')} of {b.get('steps')}" if b.get("steps") else ""
        yield one_line(f"{t.id} ({PURPOSE.get(t.purpose, t.purpose)}) {b.get('phase', '')}{place}", 70)
