"""The harness's versions: gaps, admissions and versions against the stored rollouts and the versions before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evotrainer.errors import EvoTrainerError
from evotrainer.harness.columns.rollout_reader import named_views
from evotrainer.projections.branches import BASE
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.events import HarnessEvolved
from evotrainer.records.names import read_label
from evotrainer.rules.learned import explaining, labelled, learn, trainings
from evotrainer.sandbox.detector_runner import SandboxRunner
from evotrainer.verify.report import Problem, Record, six_decimals

if TYPE_CHECKING:
    from evotrainer.harness import Harness
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.columns.rollout_reader import RolloutReader


def version_of(body: HarnessEvolved) -> Harness:
    """The harness as it was recorded."""
    from evotrainer.harness import Harness

    return Harness.model_validate(body.harness)


def gap(record: Record, event: Event) -> Iterator[Problem]:
    """A gap names branches and trials there were, under the harness of its time, and admits no name twice."""
    g, before = event.body, record.before(event)
    known = {BASE, "", *(e.body.branch for e in before if e.kind == "branch")}
    for name in {g.branch, g.against} - known:
        yield Problem("gap", f"{event.id}: branch {name} was never opened")
    in_force = [e.body.version for e in before if e.kind == "harness"]
    if in_force and g.harness != in_force[-1]:
        yield Problem("gap", f"{event.id}: names harness {g.harness}; the current one was {in_force[-1]}")
    finished = {e.body.trial for e in before if e.kind == "finished"}
    named = [x for a in g.considered for x in (*a.bad, *a.clean)]
    for text in sorted({*g.mined, *named}):
        if read_label(text).trial not in finished:
            yield Problem("gap", f"{event.id}: looks at {text}, which had not finished")
    names = [a.detector.name for a in g.considered]
    used = {a.detector.name for e in before if e.kind == "gap" for a in e.body.considered if a.admitted}
    for name in sorted({n for n in names if names.count(n) > 1} | (used & set(names))):
        if any(a.detector.name == name and a.admitted for a in g.considered):
            yield Problem("gap", f"{event.id}: the name {name} was used before")
    if {read_label(x).trial for x in named} - finished:
        return
    if g.trigger == "learned":
        yield from (Problem("gap", f"{event.id}: {p}") for p in recheck_learned(record, event))
    else:
        yield from (Problem("gap", f"{event.id}: {p}") for p in gap_problems(record.rollouts, event))


def harness(record: Record, event: Event) -> Iterator[Problem]:
    """A version is its parent with the recorded difference, its hash is that of its content,
    its detectors were admitted."""
    h, earlier = event.body, record.before(event, "harness")
    whole = version_of(h)
    if (whole.hash, whole.version) != (h.hash, h.version):
        yield Problem("harness", f"{h.version}: hash {h.hash} recorded, {whole.hash} computed from {whole.version}")
    if h.version != keys.harness_version(len(earlier)):
        yield Problem("harness", f"{event.id} gives version {h.version}; it is version number {len(earlier)}")
    if not earlier:
        return
    parent = version_of(earlier[-1].body)
    if h.parent != parent.version:
        yield Problem("harness", f"{h.version} follows {h.parent}; the current one was {parent.version}")
        return
    named = {s.name: s for s in parent.authored}
    if gone := sorted(h.changed.keys() - named.keys()):
        yield Problem("harness", f"{h.version} changes {gone[0]}, which {parent.version} has not")
        return
    moved = [named[k].model_copy(update={"standing": v}) for k, v in h.changed.items()]
    fresh = parent.evolve(h.version, drop=h.dropped, authored=[*h.added, *moved])
    if fresh.hash != h.hash:
        yield Problem("harness", f"{h.version} is not {h.parent} with what it says was changed: {fresh.hash} computed")
    gap = next((e.body for e in record.before(event, "gap") if e.id == h.gap), None)
    if h.gap and gap is None:
        yield Problem("harness", f"{h.version} answers {h.gap}, which was not recorded")
    if gap is not None and gap.considered != h.admissions:
        yield Problem("harness", f"{h.version}: its admissions are not those of {h.gap}")
    admitted = [a.detector for a in h.admissions if a.admitted]
    for spec in h.added:
        if spec not in admitted:
            yield Problem("harness", f"{h.version} holds detector {spec.name}, which was not admitted")


def recheck_learned(record: Record, event: Event) -> Iterator[str]:
    """What differs when the detectors that a reading taught are mined and tried again, from the events before and the
    stored rollouts. Words, measured times and what an audit could close are left out."""
    g, before, branches = event.body, record.before(event), record.state_before(event).branches
    read = [e.body for e in before if e.kind == "reader_concluded" and e.body.outcome == "confirmed"]
    if g.branch not in branches or event.id not in {
        keys.learned(g.branch, 0),
        *(keys.learned(r.branch, r.reading) for r in read),
    }:
        yield "no confirmed reading led to it"
        return
    standing: Any = g.considered[0].detector.standing if g.considered else "informational"
    now = learn(before, record.rollouts, branches[g.branch], trainings(branches), standing)
    if now is None:
        yield "detectors of the version before it explain every hack that is known"
        return
    record.checked["detectors mined again"] += len(g.considered)
    for name in ("mined", "candidates", "numbers", "harness"):
        if getattr(g, name) != getattr(now, name):
            yield f"{name} is {getattr(g, name)} in the ledger, {getattr(now, name)} mined again"
    was, again = ([(a.detector, a.admitted, a.bad, a.clean) for a in x.considered] for x in (g, now))
    if was != again:
        recorded = (
            ", ".join(f"{d.name} ({'admitted' if ok else 'refused'})" for d, ok, *_ in x) or "none"
            for x in (was, again)
        )
        yield "its detectors are {} in the ledger, mined again {}".format(*recorded)
        return
    for a, b in zip(g.considered, now.considered, strict=True):
        same = {k: v for k, v in a.numbers.items() if not k.startswith(("cpu_s", "lead"))}
        yield from (
            f"{a.detector.name}: {d}" for k, v in same.items() for d in six_decimals(k, v, b.numbers.get(k, 0.0))
        )


def recheck_admissions(record: Record, event: Event) -> list[tuple[str, list[str]]]:
    """(detector, what differs) of every detector a gap or a version considered and tried: its admission test, run again
    on the stored rollouts of the held-out versions. Measured times are left out.
    """
    from evotrainer.harness.evolving.admission import admit

    considered = event.body.considered if event.kind == "gap" else event.body.admissions
    if not any("share_bad" in a.numbers for a in considered):
        return []
    earlier = record.before(event, "harness")
    if not earlier:  # a run may open with detectors that another run admitted: their rollouts are not here
        return []
    in_force = version_of(earlier[-1].body)
    runner = SandboxRunner(record.task.sandbox.accept_tier_e)
    views: dict[str, Any] = {}
    before = record.before(event)
    learnt = event.kind == "gap" and event.body.trigger == "learned"
    read = labelled(before, record.rollouts, trainings(record.state_before(event).branches)) if learnt else {}
    authored = explaining(before) if learnt else in_force.authored
    out: list[tuple[str, list[str]]] = []
    taken: list[Any] = []
    for a in considered:
        if "share_bad" not in a.numbers:
            continue
        try:
            for name in (*a.bad, *a.clean):
                views.setdefault(name, named_views(record.rollouts, name, read))
        except EvoTrainerError as e:
            out.append((a.detector.name, [f"its test cannot be run again: {e}"]))
            continue
        fresh = admit(
            a.detector,
            {name: views[name] for name in a.bad},
            {name: views[name] for name in a.clean},
            together=round(a.numbers.get("together", 1)),
            builtin=in_force.detectors,
            authored=[*authored, *taken],
            runner=runner,
            spent=lambda: 0.0,  # its cost was measured when it was admitted; a clock would not say the same twice
        )
        taken += [a.detector] if a.admitted else []
        same = {k: v for k, v in a.numbers.items() if not k.startswith(("cpu_s", "mined"))}
        wrong = [d for k, v in same.items() if k in fresh.numbers for d in six_decimals(k, v, fresh.numbers[k])]
        if fresh.admitted != a.admitted:
            wrong.append(f"admitted is {a.admitted} in the ledger, {fresh.admitted} recomputed")
        out.append((a.detector.name, wrong))
    return out


def gap_problems(reader: RolloutReader, event: Event) -> list[str]:
    """Flagged shares of a gap's detectors that the stored rollouts do not give again. Python detectors are left out."""
    from evotrainer.harness.evolving.admission import pooled
    from evotrainer.harness.evolving.authored import flags

    out: list[str] = []
    views: dict[str, FeatureView] = {}
    for a in event.body.considered:
        if a.detector.form == "python" or "share_bad" not in a.numbers:
            continue
        for side, names in (("share_bad", a.bad), ("share_clean", a.clean)):
            for name in names:
                if name not in views:
                    views[name] = named_views(reader, name)
            if empty := [name for name in names if not len(views[name])]:
                out.append(f"{a.detector.name}: no rollouts of {empty[0]}")
                continue
            of = {name: views[name] for name in names}
            share = pooled({name: flags(a.detector, v) for name, v in of.items()}, of)[0]
            if abs(share - a.numbers[side]) > 1e-5:
                out.append(
                    f"{a.detector.name}: {side} is {a.numbers[side]:.4f} in the ledger, {share:.4f} in the rollouts"
                )
    return out
