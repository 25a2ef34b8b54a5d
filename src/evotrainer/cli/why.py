"""`evotrainer why`: explains a branch, a harness version or a skill of a run, and recomputes it from the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.cli._ladder import ladder, tell_change
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.records.chain import Event
    from evotrainer.verify import Record

QUOTES = 5
"""Quotes of a reader's that are shown."""
LOCKED = "not recomputed: gate and cert are encrypted until the run closes; then `why` and `verify` compute it again"


def why(
    folder: RunFolder,
    what: Annotated[
        str | None, typer.Argument(help="Branch (b1), harness version (h1) or skill (its name); default: the champion.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Explain why a branch was promoted or not, why the harness changed, what a skill rests on; and recompute it.

    Example: evotrainer why runs/mine b1
    """
    from evotrainer import api
    from evotrainer.projections.branches import START
    from evotrainer.verify import Record

    record = Record(folder, api.open_run(folder).events())
    judged = {e.body.verdict.branch for e in record.of("judged")}
    versions = {e.body.version for e in record.of("harness")}
    skills = {e.body.skill for e in record.of("skill")} | {s for e in record.of("library") for s in e.body.skills}
    what = record.state.champion or START if what in (None, "champion") else what
    if what in judged:
        explain: Callable[[Record, str], Explained] = _judged
    elif what in record.state.branches:
        explain = _unjudged
    elif what in versions:
        explain = _version
    elif what in skills:
        explain = _skill
    elif what in record.state.probes:
        raise ConfigError(
            f"{what} is a search training: it is judged by nobody, and decides nothing by itself; see `evotrainer show "
            f"{folder} {what}` and `evotrainer cases {folder} --trials`"
        )
    else:
        known = {"branches": record.state.branches, "harness versions": sorted(versions), "skills": sorted(skills)}
        told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in known.items() if names)
        raise ConfigError(f"nothing is recorded of {what!r} in {folder}; there are {told or 'no branches yet'}")
    if as_json:
        with redirect_stdout(StringIO()):  # the text tells people the events that programs are given
            again = explain(record, what)
        print(json.dumps(_plain(record, what, again), indent=1))
    else:
        again = explain(record, what)
        for d in again.wrong:
            print(f"  differs: {d}")
        if not again.wrong:
            print(LOCKED if record.locked else f"recomputed from the ledger: {again.same}")
    if again.wrong:
        raise ConfigError(f"{again.what} does not follow from the ledger; run `evotrainer verify {folder}`")


class Explained(NamedTuple):
    """What was explained, what differs where it is computed again, and what is the same where nothing does."""

    what: str
    wrong: Sequence[str]
    same: str


def _plain(record: Record, what: str, again: Explained) -> dict[str, Any]:
    """The events about a branch, version or skill, and how the recomputation ended; without scores of single tasks."""
    return {
        "what": what,
        "recomputed": None if record.locked and not again.wrong else not again.wrong,
        "differences": list(again.wrong),
        "same": again.same,
        "events": [
            {"id": e.id, "kind": e.kind, "body": e.body.model_dump(mode="json")}
            for e in record.events
            if e.kind not in ("intended", "finished") and what in _subjects(e)
        ],
    }


def _subjects(event: Event) -> set[str]:
    """Branch, harness version and skill that an event is about."""
    body = event.body
    inner = (getattr(body, name, None) for name in ("verdict", "audit"))
    found = [getattr(x, "branch", None) for x in (body, *inner)]
    found += [getattr(body, name, None) for name in ("skill", "version")]
    return {x for x in found if isinstance(x, str)}


# -- a branch ----------------------------------------------------------------------------------------------------------


def _judged(record: Record, branch: str) -> Explained:
    """Print a branch with its verdict, earlier interim analyses, audits and what followed."""
    from evotrainer.projections.task_sets import told
    from evotrainer.verify import when_readable
    from evotrainer.verify.verdicts import rejudge, verdict_on
    from evotrainer.views.text import change, of_run

    event = verdict_on(record, branch)
    v, reason = event.body.verdict, event.body.verdict.reason
    for g in v.gates:  # each gate tells its own part below
        reason = reason.replace(f"; {g.message}", "")
    sent_back = _sent_back(record, branch)
    kind = "withheld" if sent_back else v.kind
    print(f"{branch} against {v.control}: {kind.upper()}")
    print(f"  {reason}")
    if (c := record.state.branches.get(v.control)) and c.matches and c.intervention:
        told_control = change(c.intervention.factor, c.intervention.old, c.intervention.new)
        print(f"  control    {v.control}: {c.parent} trained for as long as {branch} ({told_control})")
    if iv := record.state.branches[branch].intervention:
        tell_change(record, branch, iv)
        p = iv.prediction
        print(f"  predicted  {p.metric} {p.direction} by at least {p.size:g}")
    if v.gates:
        print(f"  gates      against {v.control}, on the gate split:")
    for g in v.gates:
        mark = {True: "pass", False: "FAIL", None: "open"}[g.passed]
        print(f"  [{mark}] {g.gate}: {of_run(g.message, record.folder)}")
    wrong = when_readable(record, event.id, lambda: rejudge(record, event).differences)
    wrong += _analyses(record, branch)
    if sent_back:
        print(f"  withheld   a human sent the promotion back: {sent_back}")
    wrong += _audits(record, branch)
    wrong += ladder(record, branch)
    _beside(record, branch)
    for skill in dict.fromkeys(e.body.skill for e in record.of("skill") if e.body.branch == branch):
        print(f"  taught     {skill} (`evotrainer why {record.folder} {skill}`)")
    if v.look:
        print(f"  interim analysis {v.look} of the run spent an error probability of {v.alpha:.3g}")
        if line := told(record.opened):
            print(f"  tasks      {line}")
    return Explained(f"the verdict on {branch}", wrong, "the same verdict, every number")


def _unjudged(record: Record, branch: str) -> Explained:
    """Print a branch without a verdict: a starting recipe, which has no control, or one that is not judged yet."""
    from evotrainer.verify import checks
    from evotrainer.views.words import RUN_FLOOR

    b = record.state.branches[branch]
    control = f"control of {b.matches}, which takes as much compute; a control gets no verdict"
    own = control if b.matches else "not judged yet"
    print(f"{branch}: {own if b.parent else 'a starting recipe, which has no control'}")
    if b.intervention:
        tell_change(record, branch, b.intervention)
    if b.version:
        print(f"  version    {b.version}")
    about = {
        "branch": "its recipe",
        "noise": "its noise",
        "promoted": "its version",
        "audited": "the same audit, every number",
        "invalidated": "which descendants are invalid with it",
    }
    told = [e for e in record.events if e.kind in about and _of(e) == branch]
    wrong = [p.message for e in told if e.kind != "audited" for p in checks()[e.kind](record, e)]
    last = record.state.noise
    for e in told:
        if e.kind == "noise" and last is not None:
            floor = f"{RUN_FLOOR} {100 * last.noise_floor:.1f} points on gate"
            if e.body.noise_floor != last.noise_floor:
                floor += f" ({100 * e.body.noise_floor:.1f} when {branch} was measured)"
            spread = f"standard deviation between seeds {list(e.body.seeds)} then {100 * e.body.seed_sd:.1f}"
            print(f"  noise      {floor}, {spread} ({e.id})")
    wrong += _audits(record, branch)
    _beside(record, branch)
    kinds = {e.kind for e in told}
    return Explained(branch, wrong, ", ".join(text for k, text in about.items() if k in kinds))


def _beside(record: Record, branch: str) -> None:
    """Tell the grading canaries that flipped in its trials, the detectors that were made from it or that questioned it,
    the caveats on its certificate, and what a reader said."""
    from evotrainer.projections.caveats import caveats
    from evotrainer.projections.reader import UNREAD, Readings, read_rollouts, told
    from evotrainer.records.canaries import flip_line
    from evotrainer.views.coevolution import Coevolution
    from evotrainer.views.text import one_line

    for t in record.finished.values():
        if t.branch == branch:
            for f in t.canary_flips:
                print(f"  grading    {flip_line(t.trial, f)}")
    for x in Coevolution.of(record.events).links:
        if x.branch == branch:
            print(f"  harness    {x.text} (`evotrainer why {record.folder} {x.version}`)")
    for c in caveats(record.events).get(branch, ()):
        print(f"  CAVEAT     {one_line(c.text, 600)}")
    read = Readings.of(record.events).last.get(branch)
    if read or any(r.branch == branch for r in (record.state.certified.rows if record.state.certified else ())):
        print(f"  reader     {one_line(told(read) if read else UNREAD, 600)}")
    for r in [x for x in read_rollouts(record.events) if x.branch == branch and x.verdict.verdict == "hack"][:QUOTES]:
        v, why = r.verdict, r.why or "at random"
        print(f"             {v.kind}, {r.trial}:{r.rollout[:12]} (read for {why}): {one_line(v.quote, 200)}")


def _of(event: Event) -> str:
    """The branch that an event is about."""
    from evotrainer.records import keys

    if event.kind == "noise":
        return keys.noise_branch(event.id, event.body.branch)
    return str(event.body.audit.branch if event.kind == "audited" else event.body.branch)


def _analyses(record: Record, branch: str) -> list[str]:
    """Print earlier interim analyses, added seeds and the effect on fresh seeds; return what differs."""
    from evotrainer.records.events import Judged, Reestimated, ToppedUp
    from evotrainer.verify import when_readable
    from evotrainer.verify.effects import again as estimate
    from evotrainer.verify.verdicts import rejudge, verdict_on
    from evotrainer.views.summary import fresh_line

    own = [
        e.body
        for e in record.events
        if isinstance(e.body, Judged | ToppedUp | Reestimated)
        and (e.body.verdict.branch if isinstance(e.body, Judged) else e.body.branch) == branch
    ]
    last = sum(isinstance(b, Judged) for b in own)
    wrong: list[str] = []
    k = 0
    for b in own:
        if isinstance(b, Judged):
            k += 1
            if k < last:
                v = b.verdict
                spent = f" (interim analysis {v.look} of the run, error probability {v.alpha:.3g})" if v.look else ""
                print(f"  analysis {k} {v.kind}: {v.reason}{spent}")
                earlier = verdict_on(record, branch, k)
                found = when_readable(record, earlier.id, lambda e=earlier: rejudge(record, e).differences)  # type: ignore[misc]
                wrong += [f"analysis {k}: {d}" for d in found]
        elif isinstance(b, ToppedUp):
            given = f"{branch} + {list(b.seeds)}, {b.control} + {list(b.control_seeds)}"
            print(f"  more seeds {b.wanted} asked for: {b.refused or given}")
        else:
            print(f"  effect     {fresh_line(b)}")
            if b.selected:
                print(f"  selected by {100 * b.selected.mean:+.1f} points, too large on average")
            wrong += when_readable(record, branch, lambda b=b: estimate(b, record.events))  # type: ignore[misc]
    return wrong


def _audits(record: Record, branch: str) -> list[str]:
    """Print each audit and what followed from it; return what differs when they are computed again."""
    from evotrainer.verify import when_readable
    from evotrainer.verify.effects import audit_differences
    from evotrainer.views.shortcut_audits import audit_lines

    wrong: list[str] = []
    for e in record.of("audited"):
        if e.body.audit.branch == branch:
            print("  " + "\n  ".join(audit_lines(e.body.audit)))
            differs = when_readable(record, e.id, lambda e=e: audit_differences(record, e))  # type: ignore[misc]
            wrong += [f"{e.id}: {d}" for d in differs]
    if branch in record.state.invalid:
        print(f"  INVALID    {record.state.invalid[branch]}")
        for e in record.of("invalidated"):
            if branch in (e.body.branch, *e.body.descendants):
                fallen = f", and with it {', '.join(e.body.descendants)}" if e.body.descendants else ""
                when = e.time[:19].replace("T", " ")
                print(f"  since      {when} UTC: {e.body.branch} is invalid{fallen}; champion {e.body.champion}")
        print(f"  champion since: {record.state.champion}")
    return wrong


def _sent_back(record: Record, branch: str) -> str:
    """A human's REVISE at the verdict gate of a branch; empty where there is none."""
    gates = [e.body for e in record.of("gate")]
    return next((g.feedback for g in gates if (g.where, g.branch, g.answer) == ("verdict", branch, "REVISE")), "")


# -- a harness version -------------------------------------------------------------------------------------------------


def _version(record: Record, version: str) -> Explained:
    """Print why a version was made; compute its content and the admission test of its detectors again."""
    from evotrainer.harness.evolving.render import gap_lines, version_lines
    from evotrainer.verify import checks
    from evotrainer.verify.harness import admissions_again
    from evotrainer.views.coevolution import Coevolution

    event = next(e for e in record.of("harness") if e.body.version == version)
    gap = next((e for e in record.of("gap") if e.id == event.body.gap), None)
    print("\n".join(version_lines(event.body, record.events, record.folder)))
    if gap is not None:
        print("\n  what led to it")
        print("\n".join(gap_lines(gap.body)))
    links = [x for x in Coevolution.of(record.events).links if x.version == version]
    if links:
        print("\n  branches it came from, and what it did to branches")
    for x in links:
        print(f"    {x.branch}: {x.text}")
    wrong = [p.message for e in (gap, event) if e is not None for p in checks()[e.kind](record, e)]
    tried = admissions_again(record, gap or event)
    wrong += [f"{name}: {d}" for name, found in tried for d in found]
    print()
    same = f"{version} is {event.body.parent} with this difference" if event.body.parent else f"the hash of {version}"
    return Explained(version, wrong, same + (f"; {len(tried)} admission tests give the same numbers" if tried else ""))


# -- a skill -----------------------------------------------------------------------------------------------------------


def _skill(record: Record, name: str) -> Explained:
    """Print what a skill claims and rests on; pool its effect again, and compare each trial with the ledger."""
    from evotrainer.projections.skill_evidence import distilled_skills
    from evotrainer.records.skills import CLAIMS
    from evotrainer.skills import read_skill
    from evotrainer.skills.text import description, effect_text
    from evotrainer.verify import checks

    events = [e for e in record.of("skill") if e.body.skill == name]
    skill = distilled_skills(record.events).get(name) or read_skill(record.folder / "library" / name)
    print(f"{name}: {CLAIMS[skill.claim]}, {skill.scope}\n  {description(skill)}")
    print(f"  effect     {effect_text(skill.trials)}")
    for t in skill.trials:
        side = "for" if t in skill.supporting else "against" if t in skill.opposing else "trial"
        low, high = 100 * (t.low or 0), 100 * (t.high or 0)
        mean = "" if t.mean is None else f" {100 * t.mean:+.1f} points [{low:+.1f}, {high:+.1f}]"
        print(f"  {side}: {t.name}/{t.branch} ({t.kind}){mean}, event {t.proof.id}")
    for e in record.of("branch"):
        for u in e.body.intervention.skills if e.body.intervention else ():
            if u.skill == name:
                moved = f"from {100 * u.before_mean:+.1f} to {100 * u.after_mean:+.1f} points"
                print(f"  moved      the prior of {e.body.branch} {moved}")
    told = [*events, *(e for e in record.of("library") if name in e.body.skills)]
    wrong = [p.message for e in told for p in checks()[e.kind](record, e)]
    return Explained(f"skill {name}", wrong, "the same trials, pooled effect and files")
