"""The evolution of a harness as lines of text: versions, gaps, admission tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evotrainer.harness.evolving.authored import describe
from evotrainer.records.chain import Event
from evotrainer.records.detectors import Admission
from evotrainer.records.events import GapSeen, HarnessEvolved


def history_lines(events: Sequence[Event], explained: Mapping[str, str] | None = None) -> list[str]:
    """Every gap, version and audit in the order in which they came; `explained`: gap id -> what explained it since."""
    out: list[str] = []
    for e in events:
        if e.kind == "gap":
            out += gap_lines(e.body)
            if since := (explained or {}).get(e.id):
                out.append(f"     {since}")
        elif e.kind == "harness":
            # the diff without the backtests: a history is read for its order, `version_lines` tells the rest
            out += _head(e.body)
            out += [f"       {line}" for line in _diff(e.body)]
        elif e.kind == "audited":
            a = e.body.audit
            word = "CONFIRMED" if a.confirmed else "not confirmed"
            out.append(f"  audit of {a.branch} with {a.capability} closed, {a.occasion}: {word}")
        elif e.kind == "invalidated":
            out.append(f"  {', '.join((e.body.branch, *e.body.descendants))} invalid; champion {e.body.champion}")
    return out


def _head(v: HarnessEvolved) -> list[str]:
    came = f" from {v.parent}" if v.parent else ""
    when = f"round {v.round}" if v.round else "before the rounds"
    return [f"{v.version}{came} ({v.trigger}, {when}): {v.size}", f"     {v.reason}"]


def _diff(v: HarnessEvolved) -> list[str]:
    return [
        *(
            f"+ {s.name} ({s.standing}): rollouts that {describe(s)}; from {s.warn:.0%} of a reading on"
            for s in v.added
        ),
        *(f"- {name}" for name in v.dropped),
        *(f"~ {name}: {status}" for name, status in v.changed.items()),
        *(f"~ {name} = {x:g}" for name, x in v.thresholds.items()),
    ]


def gap_lines(g: GapSeen) -> list[str]:
    """A gap and what was considered for it."""
    # an agent's proposal needs no gap: nothing moved, so there is no branch to compare with another
    if g.trigger == "agent":
        out = [f"  proposed in round {g.round}: {g.claim}"]
    elif g.trigger == "learned":
        out = [f"  learned from rollouts of {g.branch}: {g.summary}"]
    else:
        out = [f"  gap in {g.branch} against {g.against}: {g.summary}"]
    if g.candidates:
        out.append(f"     {g.candidates} predicates compared on {', '.join(g.mined)}")
    out += [f"     {'admitted' if a.admitted else 'refused '} {a.detector.name}: {a.reason}" for a in g.considered]
    return [*out, f"     {g.reason}"] if g.reason else out


def version_lines(v: HarnessEvolved, events: Sequence[Event], run: object) -> list[str]:
    """One version: diff, reason, backtest of each detector, rollouts, verdicts that would change, what came of it."""
    out = [*_head(v), f"     hash {v.hash}", *(f"  {line}" for line in _diff(v))]
    for a in v.admissions:
        out += ["", *admission_lines(a)]
    if v.quotes:
        out += ["", "  rollouts it speaks of"]
        out += [f"    {q.rollout[:12]}  {q.text!r}" for q in v.quotes]
    if v.added:
        out += ["", "  past verdicts that would change: " + ("none" if not v.flips else "")]
        out += [f"    {f.branch}: {f.was} -> {f.would} ({f.detector}: {f.share:.0%} of its rollouts)" for f in v.flips]
    # what a version did is only known later: it is looked up in all events, not in the version's own
    added = {s.name for s in v.added}
    asked = [e.body.audit for e in events if e.kind == "audited" and e.body.audit.trigger in added]
    out += [f"  audit of {a.branch}, {a.occasion}: {a.reason}" for a in asked]
    diagnosed = [e for e in events if e.kind == "diagnosed"]
    readings = [e for e in diagnosed if any(f.detector in added for f in e.body.health.findings)]
    out += [f"  speaks in {e.id} (`evotrainer health {run} {e.body.health.subject.split('@')[0]}`)" for e in readings]
    return out


def admission_lines(a: Admission) -> list[str]:
    """A detector's backtest."""
    n = a.numbers
    out = [f"  {a.detector.name}: {'admitted' if a.admitted else 'refused'}", f"    {a.reason}"]
    # a detector that was refused before it was tried (it cannot run, it is too slow) has a reason and no shares
    if "share_bad" in n:
        out.append(f"    held out: bad {', '.join(sorted(a.bad))}; clean {', '.join(sorted(a.clean))}")
        mined = f"; when mined {n['mined_bad']:.1%} against {n['mined_clean']:.1%}" if "mined_bad" in n else ""
        share = f"bad {n['share_bad']:.1%}  clean {n['share_clean']:.1%} (at most {n['clean_high']:.1%})"
        out.append(f"    flagged share  {share}{mined}")
        rates = [f"{k} {n[k]:.0%}" for k in ("precision", "recall", "false_positive_rate") if k in n]
        out.append(f"    over {n.get('versions', 0):.0f} held-out versions: {', '.join(rates).replace('_', ' ')}")
        if "overlap" in n:
            out.append(f"    overlap {n['overlap']:.2f}" + (f" with {a.overlaps}" if a.overlaps else ""))
        out.append(f"    {n['cpu_s_per_1000']:.3g} CPU-s per 1,000 rollouts")
    return out
