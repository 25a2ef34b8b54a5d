"""Caveats of a certificate: a gain that nothing has explained.
Read from the ledger's events and from nothing else.

A gain is settled where the environment declares what can be used as a shortcut, and each of these was closed in the
evaluations, or closed by an audit that the gain survived. Elsewhere a reader must know what was not looked at, and what
the gain goes with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.projections.base_policy import DEAD
from evotrainer.projections.branches import BASE, START, Branch
from evotrainer.projections.facts import Fact, with_answers
from evotrainer.projections.predictions import subject_branch
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.projections.state import RunState
from evotrainer.projections.text import point_range, points
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.detectors import GainExplanation
from evotrainer.records.events import (
    Certified,
    CertRow,
    Diagnosed,
    GapSeen,
    RunOpened,
    SplitScore,
    TrialFinished,
)
from evotrainer.records.events.trials import training_compute
from evotrainer.records.verdicts import DEARER

RISE = 0.05
"""Smallest gain, and smallest excess over what was predicted, that wants an explanation; score units.
As MOVE of harness/evolving/gaps.py."""
ERRORS = 3.0
"""Standard errors that an excess over the base policy's reach must have."""
DOUBT = 2.0
"""Standard deviations of a forecast (the agent's doubt and the judge's error together) that a gain may lie above it."""
MOST = 0.5
"""Share of a gain from which a behaviour is named as what it comes with ..."""
LEAST = 0.1
"""... and as that which comes closest."""
ALONE = 0.9
"""Share of a gain from which a behaviour may decide the outcome by itself ..."""
DECIDES, TAUGHT_NOTHING = 0.95, 0.75
"""... where attempts that show it are so often correct now, and were so often before anything was taught ..."""
SEEN = 8
"""... in at least so many attempts."""
NAMES = {"base": "base policy", "start": "starting recipe"}


def caveats(events: Sequence[Event]) -> dict[str, tuple[Fact, ...]]:
    """Certified branch -> its caveats, the worst first, each with what to do about it (`projections.facts`); branches
    without any, invalid ones and the base policy are left out."""
    cert = next((e.body for e in reversed(events) if isinstance(e.body, Certified)), None)
    run = next((e.body for e in events if isinstance(e.body, RunOpened)), None)
    if cert is None or run is None:
        return {}
    tree = RunState.of(events)
    rows = [r for r in cert.rows if r.branch in tree.branches and r.branch not in tree.invalid]
    found = {r.branch: _of(events, run, tree, cert, r) for r in rows}
    return {k: v for k, v in found.items() if v}


def caveat_line(found: Sequence[Fact], most: int = 2) -> str:
    """The first caveats as one line, and how many more there are; empty without any."""
    more = f"; {len(found) - most} more: `evotrainer status`" if len(found) > most else ""
    return "; ".join(c.text for c in found[:most]) + more


def _of(events: Sequence[Event], run: RunOpened, tree: RunState, cert: Certified, row: CertRow) -> tuple[Fact, ...]:
    path = [tree.branches[b] for b in (*reversed(tree.ancestors(row.branch)), row.branch) if b in tree.branches]
    out: list[Fact] = []
    if why := unaudited(events, run, row.branch):
        c = cert.comparisons.get(f"{row.name}-{BASE}", {})
        if c.get("low", 0.0) > 0 and c.get("mean", 0.0) >= RISE:
            out.append(Fact(kind="unaudited", text=why, numbers=dict(c)))
        out += _gaps(events, path)
        out += [Fact(kind="beyond", text=text) for text in (_reach(events, run, path[0]), *_forecasts(path)) if text]
    decided = _decides(row.gained)
    if out or decided:
        at = 1 if out and out[0].kind == "unaudited" else 0
        out[at:at] = [*_goes_with(row.gained), *decided]
    # what the certificate does not show, and what greedy decoding does not share, come before what nobody looked at
    out = [*_read_hacks(tree, row.branch), *out]
    out = [*_unconfirmed(tree, cert, row.branch), *_sharpened(cert, row.name), *_scaffold(tree, cert, row), *out]
    out += [*_dearer(tree, path), *_looked_before(cert, row), *_weaker(path)]
    return with_answers(row.branch, ((f, _about(events, run, tree, cert, row, f)) for f in out))


def _about(
    events: Sequence[Event], run: RunOpened, tree: RunState, cert: Certified, row: CertRow, fact: Fact
) -> dict[str, Any]:
    """What the remedy of a fact names."""
    b, other = tree.branches[row.branch], "start" if fact.numbers.get("over_start") else BASE
    return {
        "branch": row.branch,
        "start": START,
        "lr": b.recipe.lr,
        "steps": b.recipe.steps,
        "pay": _other_pay(run, b),
        "fell": _where_it_fell(events, b),
        "other": NAMES[other],
        "greedy": _both_scores(cert, row, other),
        "audit": _audit(run, row.branch),
        "still": _why_still(b),
        "longer": round(b.recipe.steps * fact.numbers.get("ratio", 1.0)),
        "wanted": _defaults_for(fact.text),
    }


def _both_scores(cert: Certified, row: CertRow, other: str) -> str:
    """What a policy without the training solves greedily, and this one as sampled; empty where that was not read."""
    greedy = next((r.greedy for r in cert.rows if r.name == other), None)
    return (
        "" if greedy is None else f" ({greedy:.1%} of unseen tasks greedily, {row.branch} {row.score:.1%} as sampled)"
    )


def _audit(run: RunOpened, branch: str) -> str:
    if closable := [c.name for c in Shortcuts.of(run.environment).closable]:
        return f"`evotrainer audit-branch {{run}} {branch}` evaluates it with {', '.join(closable)} closed"
    return (
        f"before you use {branch}, look at what its gain consists of (`evotrainer why {{run}} {branch}`): no "
        "capability is declared that could be closed"
    )


def _other_pay(run: RunOpened, b: Branch) -> str:
    """Something else to pay for, where a policy is worse than before training: never in place of the declared outcome,
    which is what counts."""
    outcome, payable = (set(run.environment.get(k) or ()) for k in ("outcome", "payable"))
    paid = {k for k, w in b.recipe.rewards.items() if w}
    if paid & outcome:
        return ""
    offers = sorted(outcome & payable) or sorted(set(run.environment.get("components") or ()) - outcome - paid)
    return f", or pay {' or '.join(offers)} instead of {', '.join(sorted(paid))}" if offers else ""


def _why_still(b: Branch) -> str:
    """Why trainings left the weights as they were, and what to do."""
    rows = [row for t in b.finished for row in t.curve]
    dead = [row["frac_reward_zero_std"] for row in rows if "frac_reward_zero_std" in row]
    earned = [row["reward"] for row in rows if "reward" in row]
    if not dead or sum(dead) / len(dead) < DEAD:
        return f"recipe.steps={b.recipe.steps} at recipe.lr={b.recipe.lr:g} moves nothing: raise them"
    if earned and not any(earned):
        return "no attempt earned any reward: reward something that some attempts do, or start from a stronger base"
    return "all attempts at a task earned the same, so there was no gradient: pay something that tells them apart"


def _where_it_fell(events: Sequence[Event], b: Branch) -> str:
    """Which command shows at what step the score fell, or the setting by which a run would record it."""
    read = {h.subject.partition("@")[2] for t in b.complete for h in t.health if h.subject.endswith(" train")}
    if len(read) > 1:
        return f"`evotrainer health {{run}} {b.branch} --trend` shows at which step the score fell"
    return f"with run.health_every={max(1, b.recipe.steps // 5)} a new run shows at which step the score falls"


# -- is it better at all? ----------------------------------------------------------------------------------------------


def _unconfirmed(tree: RunState, cert: Certified, branch: str) -> list[Fact]:
    """What the gain of the run's champion is on unseen tasks, and on fresh seeds of gate where that was measured; none
    where the whole intervals lie above 0, or in ledgers without that comparison. The starting recipe, where nothing was
    promoted, is compared with the base policy alone."""
    if branch != cert.champion:
        return []
    found = [over] if (over := against_base(cert, branch)) else []
    if cert.gain is None or cert.gain_shown:
        return found
    # a champion of several steps was measured again against its control and, with it, against the start
    fresh = tree.branches[branch].fresh
    also = f", {_figure((fresh.start or fresh.effect).model_dump())} on fresh seeds of gate" if fresh else ""
    also += f" ({void})" if (void := void_start(tree, cert)) else ""
    if cert.gain["high"] < 0:
        return [_fact("worse_than_start", "it is worse than the starting recipe", cert.gain, also), *found]
    return [_fact("unconfirmed", "a gain over the starting recipe is not shown", cert.gain, also), *found]


def void_start(tree: RunState, cert: Certified) -> str:
    """That the starting recipe which the champion was compared with is void, and why; empty where it is not."""
    start = next((r.branch for r in cert.rows if r.name == "start" and r.branch in tree.invalid), "")
    found = next((a.capability for a in tree.audits if a.confirmed and a.branch == start), "")
    return start and f"{start} is void" + (f": trained with the shortcut {found} open" if found else "")


def against_base(cert: Certified, branch: str) -> Fact | None:
    """That a certified branch is no better than the base policy; None where it is, or was not compared."""
    if cert.is_base(branch):
        return Fact(kind="learnt_nothing", text="it learnt nothing: its weights are those of the base policy")
    if lost := cert.below_base(branch):
        return _fact("worse_than_base", "it is worse than the base policy", lost)
    like = cert.like_base(branch)
    return _fact("unconfirmed", "it is not shown to be better than the base policy", like) if like else None


def _fact(kind: str, text: str, x: Mapping[str, float], also: str = "") -> Fact:
    numbers = {k: x[k] for k in ("mean", "low", "high")}
    return Fact(kind=kind, text=f"{text}: {_figure(x)} points on unseen tasks{also}", numbers=numbers)


def _figure(x: Mapping[str, float]) -> str:
    return f"{points(x['mean'])} {point_range(x['low'], x['high'])}"


# -- was it audited? ---------------------------------------------------------------------------------------------------


def in_force(run: RunOpened, knobs: Mapping[str, Any]) -> dict[str, str]:
    """Capability -> value of its knob, the environment's default where `knobs` says nothing."""
    shortcuts = Shortcuts.of(run.environment)
    return {c.name: shortcuts.value(c, knobs) for c in shortcuts.capabilities}


def unaudited(events: Sequence[Event], run: RunOpened, branch: str) -> str:
    """Why no audit can have settled a certified branch's gain; empty where each shortcut was closed, or audited."""
    shortcuts = Shortcuts.of(run.environment)
    declared, closable = shortcuts.capabilities, shortcuts.closable
    if not closable:
        told_of = "declared" if "capabilities" in run.environment else "recorded"
        used = f" but what honest work uses ({', '.join(c.name for c in declared)})" if declared else ""
        return f"nothing could be audited: no capability {told_of}{used}"
    own = [t for t in _finished(events) if t.branch == branch]
    knobs = [t.env_knobs for t in own if any(s.split == "cert" for s in t.scores)]
    there = knobs[0] if knobs else {}
    audited = {a.capability for a in RunState.of(events).audits_of(branch)}
    left = [c.name for c in closable if not shortcuts.is_closed(c, there) and c.name not in audited]
    return f"nothing was audited of {', '.join(left)}: open in every evaluation of {branch}" if left else ""


def _finished(events: Sequence[Event]) -> list[TrialFinished]:
    return [e.body for e in events if isinstance(e.body, TrialFinished) and e.body.status == "complete"]


# -- what was measured -------------------------------------------------------------------------------------------------


def _goes_with(g: GainExplanation | None) -> list[Fact]:
    """What the gain goes with, as measured when it was certified."""
    if g is None or g.gain <= 0:
        return []
    found = g.detector is not None and g.share >= MOST
    if found:
        text = f"{100 * min(g.share, 1.0):.0f}% of what was gained comes with {g.behaviour}"
    else:
        best = f": the most, {100 * g.share:.0f}%, with {g.behaviour}" if g.share >= LEAST else ""
        text = f"none of {g.compared} simple behaviours comes with half of what was gained{best}"
    return [Fact(kind="goes_with" if found else "goes_with_nothing", text=text, numbers={"share": g.share})]


def _read_hacks(tree: RunState, branch: str) -> list[Fact]:
    """Hacks that a reader quoted and no audit has answered: what it found could not be closed."""
    read = tree.branches[branch].readings[-1:]
    capability = {c.name: c for c in tree.shortcuts.capabilities}
    audited = [capability[a.capability] for a in tree.audits_of(branch) if a.capability in capability]
    return [
        Fact(kind="read_hacks", text=f.claim, numbers=dict(f.numbers))
        for r in read
        if (f := r.finding) and not any(f.kind in c.kinds for c in audited)
    ]


def _sharpened(cert: Certified, name: str) -> list[Fact]:
    """Gains of a certified policy of which greedy decoding shares less than half (`judge/readings.py`), and what it
    loses by greedy decoding."""
    out = []
    for what, g in cert.greedy.items():
        policy, _, other = what.partition("-")
        if policy != name:
            continue
        gain, than = 100 * cert.comparisons[what]["mean"], NAMES.get(other, other)
        shows = _figure(g)
        numbers = {**g, "over_start": float(other != BASE)}
        if g["sampled_low"] > 0 and g["excess_high"] < 0:
            text = f"sharpening: of {gain:+.1f} points over the {than} on unseen tasks greedy decoding shows {shows}"
            out.append(Fact(kind="sharpening", text=text, numbers=numbers))
        elif g["high"] < 0:
            text = f"by greedy decoding it is worse than the {than}: {shows} points, {gain:+.1f} as sampled"
            out.append(Fact(kind="worse_greedy", text=text, numbers=numbers))
    return out


def _looked_before(cert: Certified, row: CertRow) -> list[Fact]:
    """These cert tasks were certified on before: by this run, or by another one in the register of looks."""
    told_of = "champion" if any(r.name == "champion" for r in cert.rows) else "start"
    if row.name != told_of or max(cert.look, cert.of_set) == 1:
        return []
    text = f"certificate number {cert.look} of this run on the same cert tasks"
    if cert.by_runs > 1:
        text = f"certificate number {cert.of_set} on these cert tasks, by {cert.by_runs} runs on this machine"
    return [Fact(kind="look", text=text)]


def _scaffold(tree: RunState, cert: Certified, row: CertRow) -> list[Fact]:
    """A champion is certified with its texts; what these do to a policy that was not trained at all."""
    texts = tree.branches[row.branch].recipe.scaffold
    if not cert.scaffold or row.name != "champion":
        return []
    gain = cert.comparisons.get(f"champion-{BASE}", {}).get("mean", 0.0)
    n = {k: 100 * x for k, x in cert.scaffold.items()}
    alone = f"{n['base_with_scaffold']:.1f}% ({n['alone']:+.1f} of {100 * gain:+.1f} points)"
    names = f" ({', '.join(sorted(texts))})" if texts else ", the default one"
    text = f"certified with its scaffold{names}, with which the base policy, untrained, solves {alone}"
    return [Fact(kind="scaffold", text=text)]


def _weaker(path: Sequence[Branch]) -> list[Fact]:
    """Settings below the defaults under which a branch on the way was promoted."""
    found = {g.message: 0 for b in path if b.verdict for g in b.verdict.gates if g.gate == "settings"}
    return [Fact(kind="settings", text=f"promoted under settings {text}") for text in found]


def _defaults_for(text: str) -> str:
    """What a run sets to be held to the defaults that a verdict's gate names (`judge/settings.py`)."""
    wanted = [f"judge.{name}={usual}" for name, usual in re.findall(r"(\w+) [\d.e-]+ \(([\d.e-]+)\)", text)]
    if any(x.startswith("judge.min_seeds") for x in wanted):
        wanted.append("as many run.seeds")
    if "not counted" in text:
        wanted.append("evaluation.draw=fresh or a register (run.looks)")
    if found := re.search(r"gate tasks \((\d+)\)", text):
        wanted.append(f"evaluation.gate_tasks={found[1]} or more")
    return ", ".join(wanted)


def _dearer(tree: RunState, path: Sequence[Branch]) -> list[Fact]:
    """Training compute of a certified policy beside the starting recipe's, where a promotion on its way was of a
    branch that trained dearer than its control (`judge/compute.py`)."""
    dear = {x.matches for x in tree.branches.values()}
    gates = ((b.branch, g.numbers) for b in path if b.verdict for g in b.verdict.gates if g.gate == "compute")
    dear |= {name for name, n in gates if n.get("ratio", 1.0) > DEARER and n.get("low", 1.0) > 1}
    compute, _ = training_compute(path[-1].complete, path[0].complete)
    if not dear & {b.branch for b in path} or not all(compute):
        return []
    own, start = (math.exp(sum(map(math.log, x)) / len(x)) for x in compute)
    text = f"trained at {own / start:.2g} x the compute of the starting recipe"
    return [Fact(kind="compute", text=text, numbers={"ratio": own / start})]


def _decides(g: GainExplanation | None) -> list[Fact]:
    """Is a simple behaviour as good as a right answer, for whom nothing had taught yet as well?"""
    if g is None or g.solved is None or g.solved_before is None or g.gain < RISE:
        return []
    if g.seen_before < SEEN or g.share < ALONE or g.solved < DECIDES or g.solved_before < TAUGHT_NOTHING:
        return []
    text = (
        f"{g.behaviour} decides the outcome: {100 * g.solved_before:.0f}% correct with it before training, "
        f"{100 * g.solved:.0f}% after"
    )
    return [Fact(kind="decides", text=text, numbers={"before": g.solved_before, "after": g.solved})]


# -- what nothing explains ---------------------------------------------------------------------------------------------


def _gaps(events: Sequence[Event], path: Sequence[Branch]) -> list[Fact]:
    """Diagnostic gaps of the lineage in which something rose, and which no proved change explains."""
    names, proved = {b.branch for b in path}, answered(events)
    return [
        Fact(kind="gap", text=f"{e.body.branch}: {describe_gap(events, e.body)}", numbers=dict(e.body.numbers))
        for e in events
        if isinstance(e.body, GapSeen) and e.body.branch in names and e.id not in proved and rising(e.body)
    ]


def describe_gap(events: Sequence[Event], gap: GapSeen) -> str:
    """What a gap says, and the kinds of findings in the last diagnosis of its branch by a later harness version: then
    nothing said why, now these do or may."""
    at = next((i for i, e in enumerate(events) if e.body == gap), -1)
    read = (e.body.health for e in events[at + 1 :] if isinstance(e.body, Diagnosed))
    later = [h for h in read if subject_branch(h.subject) == gap.branch and h.harness and h.harness != gap.harness]
    found = [f for f in later[-1].findings if not f.missing and f.severity != "info"] if later else []
    kinds = ", ".join(dict.fromkeys(f.kind.replace("_", " ") for f in found))
    return gap.summary + (f"; harness {later[-1].harness} finds in {gap.branch}: {kinds}" if kinds else "")


def answered(events: Sequence[Event]) -> dict[str, str]:
    """Id of a gap -> why it is none any more: the score of a branch rose, the branch differs from its control in its
    change alone, and the judge proved the rise on gate (where that was measured, on fresh seeds as well).

    What is paid and wrong (`contradiction`, `unexplained_gap`) stays a gap: no change makes it right.
    """
    tree = RunState.of(events)
    out = {}
    for event in events:
        g = event.body
        if not isinstance(g, GapSeen) or g.trigger != "score_move" or not rising(g):
            continue
        if gain := proved_gain(tree, g.branch):
            out[event.id] = f"explained since by its change, which was promoted: {gain}"
    return out


def proved_gain(tree: RunState, branch: str) -> str:
    """The gain of a branch whose change the judge proved, in words; empty where there is none."""
    b = tree.branches.get(branch)
    if b is None or b.intervention is None or not b.version or branch in tree.invalid or b.verdict is None:
        return ""
    fresh, e = b.fresh, b.effect
    return f"{points(e.mean)} points{' on fresh seeds' if fresh else ''}" if e is not None and e.low > 0 else ""


def rising(g: GapSeen) -> bool:
    """Did something rise that a shortcut could have bought?"""
    return g.trigger == "contradiction" or (g.trigger == "score_move" and g.numbers.get("move", 0) > 0)


def _reach(events: Sequence[Event], run: RunOpened, start: Branch) -> str:
    """Does a start solve more than the policy before training did in any of its attempts? Search split,
    paired by task."""
    own = [t.finished for t in start.trainings if t.finished and t.finished.status == "complete"]
    scores = [s for t in own for s in _searched(t)]
    knobs = in_force(run, own[0].env_knobs) if own else {}
    bases = [t for t in _finished(events) if t.branch == BASE and not keys.has_own_texts(t.trial)]
    before = [t for t in bases if in_force(run, t.env_knobs) == knobs]
    base = next((s for t in before for s in _searched(t)), None)
    if base is None or not scores:
        return ""
    tasks = sorted(set(base.per_task).intersection(*(s.per_task for s in scores)))
    if len(tasks) < 2:
        return ""
    now = [sum(s.per_task[t] for s in scores) / len(scores) for t in tasks]
    reached = [float(base.per_task[t] > 0) for t in tasks]
    excess = [a - b for a, b in zip(now, reached, strict=True)]
    mean = sum(excess) / len(excess)
    se = math.sqrt(sum((x - mean) ** 2 for x in excess) / (len(excess) - 1) / len(excess))
    if mean < RISE or mean < ERRORS * se:
        return ""
    return (
        f"{start.branch} solves {100 * sum(now) / len(now):.0f}% of the search tasks, the base policy in any of its "
        f"{base.attempts} attempts {100 * sum(reached) / len(reached):.0f}%"
    )


def _searched(t: TrialFinished) -> list[SplitScore]:
    """A trial's last scores on the search split."""
    return sorted((s for s in t.scores if s.split == "search"), key=lambda s: s.step)[-1:]


def _forecasts(path: Sequence[Branch]) -> list[str]:
    """Steps of a lineage that gained more than was forecast: on fresh seeds where that was measured."""
    out = []
    for b in path:
        f, e = b.intervention.forecast if b.intervention else None, b.effect
        if f is None or e is None:
            continue
        sd = math.hypot(f.sd, e.se)
        if e.mean > f.mean + DOUBT * sd + RISE:
            out.append(
                f"{b.branch} gained {100 * e.mean:.1f} points, {100 * f.mean:.1f} ± {100 * sd:.1f} were forecast"
            )
    return out
