"""The memory of a run, read from its ledger alone: its cases, and what changed since.

A case is a branch: what was diagnosed, what was tried, what was expected, what happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evotrainer.projections.predictions import outcomes
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.briefing import Case
from evotrainer.records.chain import Event
from evotrainer.records.events import (
    BranchOpened,
    Diagnosed,
    HarnessEvolved,
    NoiseMeasured,
    RoundOpened,
)
from evotrainer.records.findings import HealthReport
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import Recipe, fields_of

NOISE_RATIO = 1.25
"""Change of the standard deviation between seeds that is worth citing, either way."""


def fingerprint(health: HealthReport | None) -> dict[str, float]:
    """Bottleneck -> severity, worst first: what a diagnosis is recognised by."""
    return {b.name: round(b.score, 3) for b in health.bottlenecks} if health else {}


def likeness(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Overlap of two diagnoses: sum of smaller severities over sum of larger; 1 where both are sound."""
    names = a.keys() | b.keys()
    top = sum(max(a.get(n, 0.0), b.get(n, 0.0)) for n in names)
    return round(sum(min(a.get(n, 0.0), b.get(n, 0.0)) for n in names) / top, 4) if top else 1.0


def cases(events: Sequence[Event], now: HealthReport | None = None) -> list[Case]:
    """Every branch with an intervention, in order of opening; `now` adds the likeness to a present diagnosis."""
    tree = RunState.of(events)
    readings = {e.id: e.body.health for e in events if isinstance(e.body, Diagnosed)}
    here, found = fingerprint(now), outcomes(events)
    out = []
    for b in tree.branches.values():
        iv = b.intervention
        if iv is None:
            continue
        seen = fingerprint(readings.get(keys.diagnosed(b.round)))
        v = b.verdict
        kind = "invalid" if b.invalid is not None else v.kind if v else ""
        out.append(
            Case(
                branch=b.branch,
                parent=b.parent or "",
                round=b.round,
                seen=seen,
                factor=iv.factor,
                old=iv.old,
                new=iv.new,
                bottleneck=iv.bottleneck,
                move=iv.move,
                forecast=iv.forecast,
                prediction=iv.prediction,
                kind=kind,
                effect=b.effect,
                on_fresh_seeds=b.on_fresh_seeds,
                came_true=found[b.branch].came_true,
                reason=b.invalid or (v.reason if v else ""),
                skills=tuple(dict.fromkeys(u.skill for u in iv.skills)),
                reopens=iv.reopens,
                likeness=likeness(seen, here) if now else None,
            )
        )
    return out


# -- no branch twice -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PresentSituation:
    """What a new branch would rest on."""

    recipe: Recipe
    """The champion's."""
    closed: Mapping[str, Any]
    """Environment knobs closed in every evaluation."""
    harness: str
    seeds: int
    """Seeds per branch."""


def changed_since(events: Iterable[Event], branch: str, now: PresentSituation, factor: str = "") -> tuple[str, ...]:
    """Assumptions of an earlier branch that no longer hold; `factor`, the one that is changed itself, aside."""
    seen = list(events)
    opened = {e.body.branch: e for e in seen if isinstance(e.body, BranchOpened)}
    if branch not in opened:
        return ()
    then = opened[branch]
    parent = opened.get(then.body.parent or "")
    factor = factor or (then.body.intervention.factor if then.body.intervention else "")
    out = []
    if parent is not None:
        a, b, own = parent.body.recipe.factors(), now.recipe.factors(), fields_of(factor)
        out += [f"recipe.{f}" for f in sorted(a.keys() | b.keys()) if f not in own and a.get(f) != b.get(f)]
    then_opened = [e.body for e in seen if isinstance(e.body, RoundOpened) and e.body.round == then.body.round]
    if then_opened:
        c = then_opened[0].closed
        out += [f"closed.{k}" for k in sorted(c.keys() | now.closed.keys()) if c.get(k) != now.closed.get(k)]
        out += ["harness"] if _reads_otherwise(seen, branch, then_opened[0].harness, now.harness) else []
    verdict = RunState.of(seen).branches[branch].verdict
    if verdict is not None and verdict.effect is not None:
        if now.seeds > verdict.effect.seeds:
            out.append("seeds")
        if verdict.effect.low < 0 < verdict.effect.high and _noise_moved(seen, branch):
            out.append("noise")
    return tuple(out)


def _reads_otherwise(events: Sequence[Event], branch: str, then: str, now: str) -> bool:
    """Was a detector added or dropped since a branch was read, that questions validity or that fired on the branch?

    `then`: the version at the opening of the branch's round, where no reading says otherwise.
    """
    read = [e.body.health for e in events if isinstance(e.body, Diagnosed) and keys.branch_read(e.id) == branch]
    then = read[-1].harness if read else then
    if then == now:
        return False
    versions = {e.body.version: e.body.harness for e in events if isinstance(e.body, HarnessEvolved)}
    old, new = (_standings(versions[v]) for v in (then, now))
    moved = old.keys() ^ new.keys()
    fired = {f.detector for h in read for f in h.findings if not f.missing}
    return any(name in fired or {**old, **new}[name] != "informational" for name in moved)


def _standings(harness: Mapping[str, Any]) -> dict[str, str]:
    """Detector -> its status. Built-in ones are informational; no agent retires those of validity."""
    own = {s["name"]: s["standing"] for s in harness.get("authored", ())}
    return {**dict.fromkeys(harness.get("detectors", ()), "informational"), **own}


def _noise_moved(events: Sequence[Event], branch: str) -> bool:
    """Is the spread between seeds another than when the branch was judged?"""
    judged = max((e.seq for e in events if e.kind == "judged" and e.body.verdict.branch == branch), default=0)
    noise = [(e.seq, e.body.seed_sd) for e in events if isinstance(e.body, NoiseMeasured)]
    then = [sd for seq, sd in noise if seq < judged]
    if not then or not noise or min(then[-1], noise[-1][1]) <= 0:
        return False
    ratio = noise[-1][1] / then[-1]
    return max(ratio, 1 / ratio) >= NOISE_RATIO


def tried_before(events: Iterable[Event], factor: str, value: Any) -> list[str]:
    """Branches that set the factor to this value by an intervention, oldest first."""
    return [
        e.body.branch
        for e in events
        if isinstance(e.body, BranchOpened)
        and e.body.intervention is not None
        and e.body.intervention.factor == factor
        and _same(e.body.recipe.value(factor), value)
    ]


def _same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def repetition(events: Sequence[Event], iv: Intervention, now: PresentSituation) -> str:
    """Why a change that was tried before may not be tried again;
    empty where it is new, or what it cites has changed."""
    value = now.recipe.with_factor(iv.factor, iv.new).value(iv.factor)
    earlier = tried_before(events, iv.factor, value)
    if not earlier:
        return f"cites {iv.reopens}, which did not try this value of {iv.factor}" if iv.reopens else ""
    last = earlier[-1]
    verdict = RunState.of(events).branches[last].verdict
    kind = f" ({verdict.kind})" if verdict else ""
    if not iv.reopens:
        return (
            f"tried before as {last}{kind}; to try it again, cite it in `reopens` and what changed since in `changed`"
        )
    if iv.reopens != last:
        return f"cites {iv.reopens}, but {last} tried it last{kind}"
    since = changed_since(events, last, now, iv.factor)
    if iv.changed not in since:
        return (
            f"reopens {last}{kind} because {iv.changed or 'nothing'} changed, which the ledger does not bear out; "
            f"changed since: {', '.join(since) or 'nothing'}"
        )
    return ""
