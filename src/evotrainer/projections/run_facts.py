"""What is known of a run, one sentence a fact, and the list of all facts: the result, no stronger than its numbers, the
comparisons of its certificate, its noise floor, what its tasks may be used for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from evotrainer.projections.branch_facts import branch_facts
from evotrainer.projections.branches import BASE, START, mean_score
from evotrainer.projections.caveats import caveats
from evotrainer.projections.facts import Fact, FactList
from evotrainer.projections.state import RunState
from evotrainer.projections.task_sets import describe as tasks_told
from evotrainer.projections.text import one_line, percent, point_range, points
from evotrainer.projections.words import kind
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.events import Certified, CertRow, Diagnosed, NoiseMeasured
from evotrainer.records.text import counted

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
        yield from _comparisons(state.certified)
    for e in events:
        if isinstance(e.body, Diagnosed) and e.id == keys.diagnosed(e.body.round) and e.body.health.bottlenecks:
            yield Fact(kind="diagnosis", text=_diagnosis(e.body))
    yield Fact(kind="noise", text=_noise(events, state))
    if text := tasks_told(state.opened):
        yield Fact(kind="tasks", text=text)


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
    solved = {k: f"{name} {percent(rows[k].score)}" for k, name in NAMES.items() if k in rows}
    if "champion" not in rows:
        each = " and ".join(f"{NAMES[k]} solves {percent(rows[k].score)}" for k in solved)
        return f"No branch was promoted: of unseen tasks {each}" if each else "Certified"
    row, others = rows["champion"], [text for k, text in solved.items() if k != "champion"]
    at = "" if row.temperature is None else f" at deployment temperature {row.temperature:g}"
    sentence = f"The champion solves {percent(row.score)} of unseen tasks{at}"
    if "start" in rows and cert.gain and not cert.gain_shown:
        than = "worse than" if cert.gain["high"] < 0 else "not shown to be better than"
        sentence += f", {than} the starting recipe ({percent(rows['start'].score)})"
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


def _comparisons(cert: Certified) -> Iterator[Fact]:
    """Every certified comparison: the difference with its interval, and how to read it."""
    wide = False
    rows = {r.name: r for r in cert.rows}
    for name, c in cert.comparisons.items():
        a, _, b = name.partition("-")
        low, high = c.get("low"), c.get("high")
        text = f"{a} minus {b}: {points(c.get('mean'))} points {point_range(low, high)}, "
        text += _reading(c, "before training" if b == BASE else rows[b].branch if b in rows else b)
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
        return "not measured"
    joined = dict.fromkeys(keys.noise_branch(e.id, e.body.branch) for e in events if isinstance(e.body, NoiseMeasured))
    pooled = [state.branches[b] for b in joined if b in state.branches and b != START]
    own = sum(1 for b in pooled if b.matches)
    text = f"{points(state.noise.noise_floor, sign=False)} points, from the A/A trials"
    also = f", {counted(len(pooled) - own, 'branch')} and {counted(own, 'control')} so far"
    return text + (also if own else f" and {counted(len(pooled), 'branch')} so far" if pooled else "")
