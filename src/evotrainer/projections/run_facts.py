"""The facts of a run and of its branches, one sentence a fact.

Of a branch: what it changes, how it was judged, what came of it. Of a run: the result, no stronger than its numbers,
the comparisons of its certificate, its noise floor, what its tasks may be used for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from evotrainer.projections import unmeasured, words
from evotrainer.projections.branches import BASE, START, Branch, describe_start, mean_score
from evotrainer.projections.caveats import caveats, void_start
from evotrainer.projections.facts import Fact, FactList
from evotrainer.projections.harness_lineage import Coevolution
from evotrainer.projections.predictions import PredictionOutcome, outcomes
from evotrainer.projections.reader import UNREAD
from evotrainer.projections.reader import describe as reading_told
from evotrainer.projections.state import RunState
from evotrainer.projections.task_sets import describe as tasks_told
from evotrainer.projections.text import change, confidence, lost_points, number, one_line, percent, point_range, points
from evotrainer.projections.words import kind
from evotrainer.records import keys, written
from evotrainer.records.canaries import flip_line
from evotrainer.records.chain import Event
from evotrainer.records.events import Backtested, Certified, CertRow, Diagnosed, NoiseMeasured, Reestimated, ToppedUp
from evotrainer.records.recipe import Recipe, diff
from evotrainer.records.text import counted, noise_floor
from evotrainer.records.verdicts import GuardRow, ShortcutAudit, Verdict

STATUS = {
    "promote": "promoted",
    "worse": "promoted, but no better on unseen tasks",
    "withheld": "withheld by a human",
    "reject": "rejected",
    "invalid": "invalid",
    "inconclusive": "inconclusive",
    "failed": "failed",
    "control": "control at equal compute",
    "open": "no verdict yet",
    "start": "starting recipe",
    "base": "base policy",
}
"""Status of a branch -> its words."""
VERDICT = {**STATUS, "promote": "passed every gate"}
"""The words of a verdict: what passed may still not be promoted."""
CAME_TRUE = {True: "came true", False: "did not come true", None: "not measured"}
"""The words of a prediction's end."""


def branch_facts(events: Sequence[Event], state: RunState, certificate: Mapping[str, Sequence[Fact]]) -> Iterator[Fact]:
    """Every fact about a branch, the base policy or a search training; `certificate`: branch -> its caveats."""
    ended, lineage = outcomes(events), Coevolution.of(events)
    tested = [e.body for e in events if isinstance(e.body, Backtested)]
    read = {b.branch for b in state.branches.values() if b.readings}
    rows = {r.branch for r in state.certified.rows} if state.certified else set()
    yield Fact(kind="status", about=BASE, text=STATUS["base"])
    yield Fact(kind="changes", about=BASE, text="base policy, before any training")
    yield from unmeasured.of_branch(BASE, state)
    for p in state.probes.values():
        yield Fact(kind="changes", about=p.probe, text=_differs(state, p.incumbent, p.recipe))
        if text := describe_start(state.branches, p.recipe):
            yield Fact(kind="continued", about=p.probe, text=text)
    for b in state.branches.values():
        caveats = certificate.get(b.branch, ())
        for of, text in _of(b, state, tested, ended.get(b.branch), no_better(caveats)):
            if text:
                yield Fact(kind=of, about=b.branch, text=text, numbers=_numbers(of, b))
        yield from unmeasured.of_branch(b.branch, state)
        yield from caveats or _no_caveat(b, state)
        for x in lineage.of_branch(b.branch):
            yield Fact(kind="harness", about=b.branch, text=f"{x.text} (`evotrainer why RUN {x.version}`)")
        for skill in dict.fromkeys(e.body.skill for e in events if e.kind == "skill" and e.body.branch == b.branch):
            yield Fact(kind="taught", about=b.branch, text=f"{skill} (`evotrainer why RUN {skill}`)")
        for gap, text in lineage.open_gaps:
            if gap.branch == b.branch:
                yield Fact(kind="unanswered", about=b.branch, text=text, numbers=dict(gap.numbers))
        if b.branch in read or b.branch in rows:
            text = reading_told(b.readings[-1]) if b.readings else UNREAD
            yield Fact(kind="reader", about=b.branch, text=text)


def _no_caveat(b: Branch, state: RunState) -> Iterator[Fact]:
    if state.certified and b.branch == state.certified.champion and b.invalid is None:
        yield Fact(kind="no_caveat", about=b.branch, text="the certificate carries no caveat")


def no_better(caveats: Sequence[Fact]) -> str:
    """What a branch's certificate holds against it: worse than what it began with, or the same; empty elsewhere."""
    worst = next((f for f in caveats if f.severity == "critical"), None)
    return worst.text.partition(":")[0] if worst else ""


def status_of(b: Branch, state: RunState, worse: bool) -> str:
    """A key of `STATUS`; `worse`: is `no_better` said of it?"""
    if b.invalid is not None:
        return "invalid"
    if b.withheld:
        return "withheld"
    if b.verdict:
        return "worse" if worse and b.verdict.kind == "promote" else b.verdict.kind
    if b.matches:
        return "control"
    return "start" if b.intervention is None else "open"


def replaced_by(b: Branch, state: RunState) -> tuple[str, str]:
    """(branch over which it was promoted, branch that was promoted next); empty where there is none."""
    own = {v.version: v.branch for v in state.versions}
    over = next((own.get(v.previous or "", v.previous or "") for v in state.versions if v.branch == b.branch), "")
    return over, next((v.branch for v in state.versions if b.version and v.previous == b.version), "")


def _numbers(kind: str, b: Branch) -> dict[str, float]:
    e = (
        b.fresh.effect
        if kind == "effect" and b.fresh
        else b.verdict.effect
        if kind == "verdict" and b.verdict
        else None
    )
    return {"mean": e.mean, "low": e.low, "high": e.high} if e else {}


def _of(
    b: Branch, state: RunState, tested: Sequence[Backtested], ended: PredictionOutcome | None, worse: str
) -> Iterator[tuple[str, str]]:
    """(kind, sentence) in the order of a reader; empty sentences are no facts."""
    v = b.verdict
    yield "status", _status(b, state, worse)
    yield "changes", change_of(b, state)
    yield "continued", describe_start(state.branches, b.recipe)
    yield "control", _control(b, state)
    if (i := b.intervention) and not b.matches:  # else it predicts what the change does that it serves
        p = i.prediction
        yield "hypothesis", i.hypothesis
        yield "prediction", f"{words.metric(p.metric)} {p.direction} by at least {number(p.size)}"
        yield "success", i.success_criterion
        yield "outcome", _outcome(ended) if ended else ""
        test = next((t.backtest for t in tested if t.round == b.round and t.intervention == i), None)
        yield "backtest", f"{test.verdict}: {test.reason}" if test else ""
    yield from (("analysis", f"{n}: {_without_gates(x)}{_spent(x)}") for n, x in enumerate(b.verdicts[:-1], 1))
    yield from (("seeds", _seeds(t)) for t in b.topups)
    if v:
        yield "verdict", f"{_without_gates(v)}{_spent(v)}"
    yield "withheld", f"a human sent the promotion back: {b.withheld.feedback}" if b.withheld else ""
    yield "effect", _fresh(b.fresh) if b.fresh else ""
    yield "measured", _measured(v) if v else ""
    yield from (("audit", audit_text(a)) for a in state.audits if a.branch == b.branch)
    yield "invalid", b.invalid or ""
    yield "proxy_gap", _proxy_gap(b, state) if b.branch == START else ""
    yield from (("grading", flip_line(t.trial, f)) for t in b.finished for f in t.canary_flips)


def _status(b: Branch, state: RunState, worse: str) -> str:
    """The status in words: of a promotion over which branch, and what came of it."""
    status = status_of(b, state, bool(worse))
    if status not in ("promote", "worse"):
        return STATUS[status]
    over, next_one = replaced_by(b, state)
    text = f"promoted over {over} in round {b.round}" if b.version else VERDICT["promote"]
    return text + (f", later replaced by {next_one}" if next_one else "") + (f", but {worse}" if worse else "")


def change_of(b: Branch, state: RunState) -> str:
    """`factor: old → new`, or what the branch is instead."""
    if b.intervention:
        return change(b.intervention.factor, b.intervention.old, b.intervention.new)
    if not b.round:
        return "starting recipe"
    found = [a for a in state.audits if a.confirmed and str(b.recipe.knobs.get(a.knob)) == str(a.closed)]
    closed = dict.fromkeys(f" {a.capability} closed ({a.open} → {a.closed})" for a in found)
    return f"starting recipe trained again, the shortcut{','.join(closed) or ' closed'}"


def _differs(state: RunState, parent: str, recipe: Recipe) -> str:
    old = state.branches[parent].recipe if parent in state.branches else Recipe()
    return "; ".join(change(f, a, z) for f, (a, z) in diff(old, recipe).items()) or "the champion's recipe"


def _control(b: Branch, state: RunState) -> str:
    """What a branch was judged against, where that is not its parent: the parent trained for as long, and why; of such
    a control whose it is."""
    if b.matches:
        return f"control of {b.matches}, which takes as much compute; a control gets no verdict"
    name = b.verdict.control if b.verdict else ""
    control = next((x for x in state.branches.values() if x.matches == b.branch and name in ("", x.branch)), None)
    if control is None or control.intervention is None:
        return ""
    gate = next((g for g in b.verdict.gates if g.gate == "compute"), None) if b.verdict else None
    return (
        f"{control.branch}: {control.parent} trained for as long as {b.branch} ({change_of(control, state)}), as "
        f"{b.branch} took more compute" + (f"; beside it {b.branch} {gate.message}" if gate else "")
    )


def verdict_text(v: Verdict) -> str:
    """What the judge says of a branch."""
    return f"{VERDICT[v.kind]}: {v.reason}"


def _without_gates(v: Verdict) -> str:
    """The same without what each gate says by itself, beside which it is shown."""
    text = verdict_text(v)
    for g in v.gates:
        text = text.replace(f"; {g.message}", "")
    return text


def _spent(v: Verdict) -> str:
    return f" (interim analysis {v.look} of the run, error probability {v.alpha:.3g})" if v.look and v.alpha else ""


def _outcome(o: PredictionOutcome) -> str:
    if o.change is None:
        return CAME_TRUE[None]
    a, z = (counted(n, "seed") for n in o.seeds)
    return f"{CAME_TRUE[o.came_true]}: {number(o.parent)} ({a}) → {number(o.branch)} ({z}); {o.source}"


def _seeds(t: ToppedUp) -> str:
    if t.refused:
        return f"{t.wanted} asked for: {t.refused}"
    own, control = (", ".join(map(str, x)) or "none" for x in (t.seeds, t.control_seeds))
    return f"{t.wanted} asked for: {t.branch} + {own}, {t.control} + {control}"


def _fresh(r: Reestimated) -> str:
    text = f"{r.effect.points} at {confidence(r.effect.confidence)} against {r.control} on fresh seeds"
    if not r.control_fresh:
        text += f" ({r.control}'s seeds are those of the selection)"
    if r.start:
        text += f"; {r.start.points} against the starting recipe"
    return text + (f"; selected by {points(r.selected.mean)} points, too large on average" if r.selected else "")


def _measured(v: Verdict) -> str:
    if (e := v.effect) is None:
        return ""
    return (
        f"{e.points} at {confidence(e.confidence)} against {v.control}, {counted(e.seeds, 'seed')}, "
        f"{counted(e.tasks, 'task')}; {words.LOOK_FLOOR} {noise_floor(e.noise_floor)} (at that "
        f"confidence {words.FLOOR_MEANS})"
    )


def audit_text(a: ShortcutAudit) -> str:
    """What a counterfactual audit of a branch found."""
    where = f"{f' by {a.measure}' if a.measure else ''} on the gate split"
    share = "" if a.gain_lost is None else f"{a.gain_lost:.0%}" if round(a.gain_lost, 2) > 0 else "none"
    gone = f"; {share} of its gain over {a.reference} goes" if share else ""
    seeds = ", ".join(f"seed {s} {points(x)}" for s, x in a.per_seed.items())
    return (
        f"{'shortcut' if a.confirmed else 'no shortcut'} confirmed: with {a.capability} closed ({a.knob}: {a.open} → "
        f"{a.closed}), {a.occasion}, {a.branch} goes from {percent(a.score_open)} to {percent(a.score_closed)}"
        f"{where}, {a.reference} from {percent(a.reference_open)} to {percent(a.reference_closed)} "
        f"({counted(a.tasks, 'task')}); lost beyond {a.reference}: {lost_points(a.excess, a.low, a.high)}{gone}"
        + (f"; {seeds}" if seeds else "")
    )


def _proxy_gap(b: Branch, state: RunState) -> str:
    """What the starting recipe pays, and how little of it counts."""
    if not state.proxy:
        return ""
    got, true = (mean_score(b.finished, "search", c) for c in state.proxy)
    if got is None or true is None or got <= true:
        return ""
    paid, meant = (component_told(state, c) for c in state.proxy)
    pays = "pays" if b.recipe.rewards.get(state.proxy[0]) else "does not pay, but watches,"
    return (
        f"the starting recipe {pays} {paid}; after training, {percent(got)} of its attempts at search tasks earn that, "
        f"but only {percent(true)} earn {meant}, which is what counts: a gap of {points(got - true, sign=False)} points"
    )


def component_told(state: RunState, component: str) -> str:
    """A reward component by name and by what it measures, as its environment or its own source says."""
    offered = state.environment.get("components")
    about = offered.get(component) if isinstance(offered, Mapping) else ""
    source = next((w[component] for b in state.branches.values() if component in (w := b.recipe.written)), "")
    text = one_line(about or written.about(source), 160).rstrip(".")
    return f"`{one_line(component, 60)}`" + (f" ({text})" if text else "")


NAMES = {"champion": "the champion", "start": "the starting recipe", BASE: "the base policy"}
"""Row of a certificate -> what it is called."""
WIDE = " (wide: how far trainings differ when decoded greedily is known from these alone)"
"""Said once of greedy intervals on cert: one attempt a task, and no other trainings read so lend their spread."""


def facts_of(events: Sequence[Event], state: RunState | None = None) -> FactList:
    """All facts of a run with these events; those of the run first, then branch by branch."""
    state = state or RunState.of(events)
    return FactList((*_of_run(events, state), *branch_facts(events, state, caveats(events))))


def _of_run(events: Sequence[Event], state: RunState) -> Iterator[Fact]:
    yield Fact(kind="result", text=_result(state))
    if state.certified:
        yield from _comparisons(state.certified, void_start(state, state.certified))
        yield from (Fact(kind="comparison", text=guard_text(g), numbers=g.difference) for g in state.certified.guards)
        yield from _measured_closed(state)
    for e in events:
        if isinstance(e.body, Diagnosed) and e.id == keys.diagnosed(e.body.round) and e.body.health.bottlenecks:
            yield Fact(kind="diagnosis", text=_diagnosis(e.body))
    yield Fact(kind="noise" if state.noise else "no_noise", text=_noise(events, state))
    if text := tasks_told(state.opened):
        yield Fact(kind="tasks", text=text)
    yield from unmeasured.of_run(state)


# -- the result --------------------------------------------------------------------------------------------------------


def _result(state: RunState) -> str:
    """The result in one sentence, without its caveat."""
    cert = state.certified
    if cert is None:
        return _so_far(state)
    rows = {r.name: r for r in cert.rows}
    champion = state.branches.get(cert.champion)
    if "champion" in rows and champion and champion.invalid:
        return (
            f"The certified champion {cert.champion} was invalidated afterwards ({champion.invalid}); the last valid "
            f"version is {state.champion}"
        )
    if lost := _worse(state, cert, rows):
        return lost
    void = void_start(state, cert)
    solved = {k: f"{name} {percent(rows[k].score)}" for k, name in NAMES.items() if k in rows}
    if void:
        solved["start"] += f" ({void})"
    if "champion" not in rows:
        each = " and ".join(f"{NAMES[k]} solves {percent(rows[k].score)}" for k in solved)
        return f"No branch was promoted: of unseen tasks {each}" if each else "Certified"
    row, others = rows["champion"], [text for k, text in solved.items() if k != "champion"]
    at = "" if row.temperature is None else f" at deployment temperature {row.temperature:g}"
    sentence = f"The champion solves {percent(row.score)} of unseen tasks{at}"
    if "start" in rows and cert.gain and not cert.gain_shown:
        than = "worse than" if cert.gain["high"] < 0 else "not shown to be better than"
        sentence += f", {than} the starting recipe ({percent(rows['start'].score)}{void and f'; {void}'})"
        others = others[1:]
    return f"{sentence}; {', '.join(others)}" if others else sentence


def _worse(state: RunState, cert: Certified, rows: Mapping[str, CertRow]) -> str:
    """That training made the policy worse than its base, by the certificate; empty where it did not."""
    row = rows.get("champion") or rows.get("start")
    lost = cert.below_base(row.branch) if row and row.branch not in state.invalid else None
    if not lost or not row or BASE not in rows:
        return ""
    what = f"the champion {row.branch}" if row.name == "champion" else f"{row.branch}, the starting recipe,"
    return (
        f"Worse than before training: {what} solves {percent(row.score)} of unseen tasks, the base policy "
        f"{percent(rows[BASE].score)} ({points(lost['mean'])} points {point_range(lost['low'], lost['high'])})"
    )


def _so_far(state: RunState) -> str:
    """Of a run that is not certified."""
    leader = state.champion or state.leader
    base = [state.base] if state.base else []
    score = mean_score(state.branches[leader].finished if leader in state.branches else base, "search")
    read = [(s, mean_score(base, s)) for s in ("search", "gate", "cert")]
    scores = ", ".join(f"{percent(x)} on {s}" for s, x in read if x is not None)
    if scores and state.noise is None and not any(b.trials for b in state.branches.values()):
        return f"The policy solves {scores}"
    if score is None or not leader:
        return "No training has a result yet" + (f"; the base policy solves {scores}" if scores else "")
    return f"Champion so far: {leader}, {percent(score)} on the search split; not certified"


# -- the certificate ---------------------------------------------------------------------------------------------------


def _comparisons(cert: Certified, void: str) -> Iterator[Fact]:
    """Every certified comparison: the difference with its interval, and how to read it; `void`: why one with the
    starting recipe means little."""
    wide = False
    rows = {r.name: r for r in cert.rows}
    for name, c in cert.comparisons.items():
        a, _, b = name.partition("-")
        low, high = c.get("low"), c.get("high")
        text = f"{a} minus {b}: {points(c.get('mean'))} points {point_range(low, high)}, "
        text += _reading(c, "before training" if b == BASE else rows[b].branch if b in rows else b)
        text += f" ({void})" if void and "start" in (a, b) else ""
        if (p := c.get("p")) is not None:
            text += f", p = {p:.2g}"
        if g := cert.greedy.get(name):
            text += f"; greedy {points(g['mean'])} points {point_range(g['low'], g['high'])}"
            if low is not None and high is not None and g["high"] - g["low"] > 2 * (high - low):
                text, wide = text + ("" if wide else WIDE), True
        chosen = cert.chosen.get(name)
        if chosen and not any(_same(chosen, x) for x in (c, g)):
            text += (
                f"; each decoded as search prefers ({a} {rows[a].decoding}, {b} {rows[b].decoding}) "
                f"{points(chosen['mean'])} points {point_range(chosen['low'], chosen['high'])}"
            )
        yield Fact(kind="comparison", text=text, numbers=dict(c))


def guard_text(g: GuardRow) -> str:
    """What the certificate says of a guard."""
    if g.held is None:
        return f"guard {g.name}: cannot be told, too much of it was lost"
    d = g.difference
    change = f"{points(d['mean'])} points {point_range(d['low'], d['high'])}"
    verdict = "held" if g.held else "a larger loss is not excluded" if d["high"] >= 0 else "LOST"
    told = f"{percent(g.champion)} against {percent(g.base)} of the base policy, {change}"
    return f"guard {g.name}: {told}; at most {100 * g.margin:g} may be lost: {verdict}"


def _measured_closed(state: RunState) -> Iterator[Fact]:
    """What the certificate's scores would be without a shortcut that an audit closed: by both graders."""
    read = [
        t.finished for t in state.trials.values() if t.finished and any(s.split == "cert" for s in t.finished.scores)
    ]
    for a in {a.capability: a for a in state.audits if a.confirmed}.values():
        if read and str(read[-1].env_knobs.get(a.knob)) == str(a.closed):
            text = (
                f"{a.capability} closed: every score of the certificate is with {a.knob} {a.closed}; with {a.open}, "
                f"on gate {a.branch} had {percent(a.score_open)} and {a.reference} {percent(a.reference_open)} instead "
                f"of {percent(a.score_closed)} and {percent(a.reference_closed)}"
            )
            yield Fact(kind="comparison", text=text, numbers={"open": a.score_open, "closed": a.score_closed})


def _reading(c: Mapping[str, float], than: str) -> str:
    if "low" not in c or "high" not in c:
        return "no interval"
    if "same_weights" in c:
        return "the same weights"
    if c["low"] > 0 or c["high"] < 0:
        return f"{'better' if c['low'] > 0 else 'worse'} than {than}"
    return "no difference shown: the interval holds 0"


def _same(a: Mapping[str, float], b: Mapping[str, float] | None) -> bool:
    """Are both the same difference with the same interval?"""
    return b is not None and all(a.get(k) == b.get(k) for k in ("mean", "low", "high"))


def _diagnosis(d: Diagnosed) -> str:
    """What a round's reading of its champion ranks first, and what its detectors say of it."""
    worst = d.health.bottlenecks[0]
    claims = [f.claim for f in d.health.findings if f.detector in worst.findings and not f.missing][:2]
    claims_text = re.sub(r" \(from \d+% on it speaks\)", "", "; ".join(claims) or worst.explanation)
    return (
        f"the diagnosis of round {d.round} ranks the {kind(worst.name)} first: {one_line(claims_text, 300).rstrip('.')}"
    )


# -- how sure ----------------------------------------------------------------------------------------------------------


def _noise(events: Sequence[Event], state: RunState) -> str:
    """The noise floor as it is now, and what it was measured on: the A/A trials, and the branches so far with them."""
    if state.noise is None:
        return "not measured: no A/A trials finished, so no difference can be told from seed noise"
    joined = dict.fromkeys(keys.noise_branch(e.id, e.body.branch) for e in events if isinstance(e.body, NoiseMeasured))
    pooled = [state.branches[b] for b in joined if b in state.branches and b != START]
    own = sum(1 for b in pooled if b.matches)
    text = f"{noise_floor(state.noise.noise_floor)}, from the A/A trials"
    also = f", {counted(len(pooled) - own, 'branch')} and {counted(own, 'control')} so far"
    return text + (also if own else f" and {counted(len(pooled), 'branch')} so far" if pooled else "")
