"""`evotrainer why`: explains a branch, a harness version or a skill of a run, and recomputes it from the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.cli._ladder import ladder, print_ladder
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
    versions = {e.body.version for e in record.of("harness")}
    skills = {e.body.skill for e in record.of("skill")} | {s for e in record.of("library") for s in e.body.skills}
    what = record.state.champion or START if what in (None, "champion") else what
    if what in record.state.branches:
        explain: Callable[[Record, str], Explanation] = _branch
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
        choices = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in known.items() if names)
        raise ConfigError(f"nothing is recorded of {what!r} in {folder}; there are {choices or 'no branches yet'}")
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


class Explanation(NamedTuple):
    """What was explained, what differs where it is computed again, and what is the same where nothing does."""

    what: str
    wrong: Sequence[str]
    same: str


def _plain(record: Record, what: str, again: Explanation) -> dict[str, Any]:
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


def _branch(record: Record, branch: str) -> Explanation:
    """Print what is known of a branch, compute its verdicts, effects and audits again, and what led to it."""
    from evotrainer.projections.branches import START
    from evotrainer.projections.run_facts import facts_of
    from evotrainer.projections.text import of_run
    from evotrainer.verify import checks, when_readable
    from evotrainer.verify.effects import audit_differences, fresh_seeds
    from evotrainer.verify.verdicts import judged, verdict_on

    b, facts = record.state.branches[branch], facts_of(record.events, record.state)
    against = f" against {b.verdict.control}" if b.verdict else ""
    print(f"{branch}{against}: {facts.of(branch).text('status').upper() if b.parent else 'a starting recipe'}")
    print_ladder(record, facts.of(branch), branch)
    wrong: list[str] = []
    for k in range(1, b.looks + 1):
        event = verdict_on(record, branch, k)
        found = when_readable(record, event.id, lambda e=event: [p.message for p in judged(record, e)])  # type: ignore[misc]
        wrong += [d if k == b.looks else f"analysis {k}: {d}" for d in found]
    if b.fresh:
        event = next(e for e in record.of("reestimated") if e.body == b.fresh)
        wrong += when_readable(record, branch, lambda: [p.message for p in fresh_seeds(record, event)])
    own = [e for e in record.events if e.kind in ABOUT and _of(e) == branch]
    for e in own:
        if e.kind == "audited":
            differs = when_readable(record, e.id, lambda e=e: audit_differences(record, e))  # type: ignore[misc]
            wrong += [f"{e.id}: {d}" for d in differs]
        else:
            wrong += [p.message for p in checks()[e.kind](record, e)]
    wrong += ladder(record, facts, branch)
    _quotes(record, branch)
    run = (*facts.of_kinds("noise"), *facts.of("").unmeasured) if branch == START else ()
    for f in (*run, *(facts.of_kinds("tasks") if b.verdict else ())):
        print(f"  {f.label:<10} {of_run(f.text, record.folder)}")
    same = ["the same verdict, every number"] if b.verdict else []
    return Explanation(branch, wrong, ", ".join([*same, *(ABOUT[k] for k in ABOUT if any(e.kind == k for e in own))]))


ABOUT = {
    "branch": "its recipe",
    "noise": "its noise",
    "promoted": "its version",
    "audited": "its audits",
    "invalidated": "which descendants are invalid with it",
}
"""Kind of event -> what is computed again of it."""


def _quotes(record: Record, branch: str) -> None:
    """Print what a reader quoted of a branch."""
    from evotrainer.projections.reader import read_rollouts
    from evotrainer.projections.text import one_line

    for r in [x for x in read_rollouts(record.events) if x.branch == branch and x.verdict.verdict == "hack"][:QUOTES]:
        v, why = r.verdict, r.why or "at random"
        print(f"             {v.kind}, {r.trial}:{r.rollout[:12]} (read for {why}): {one_line(v.quote, 200)}")


def _of(event: Event) -> str:
    """The branch that an event is about."""
    from evotrainer.records import keys

    if event.kind == "noise":
        return keys.noise_branch(event.id, event.body.branch)
    return str(event.body.audit.branch if event.kind == "audited" else event.body.branch)


# -- a harness version -------------------------------------------------------------------------------------------------


def _version(record: Record, version: str) -> Explanation:
    """Print why a version was made; compute its content and the admission test of its detectors again."""
    from evotrainer.harness.evolving.render import gap_lines, version_lines
    from evotrainer.projections.harness_lineage import Coevolution
    from evotrainer.verify import checks
    from evotrainer.verify.harness import recheck_admissions

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
    tried = recheck_admissions(record, gap or event)
    wrong += [f"{name}: {d}" for name, found in tried for d in found]
    print()
    same = f"{version} is {event.body.parent} with this difference" if event.body.parent else f"the hash of {version}"
    return Explanation(
        version, wrong, same + (f"; {len(tried)} admission tests give the same numbers" if tried else "")
    )


# -- a skill -----------------------------------------------------------------------------------------------------------


def _skill(record: Record, name: str) -> Explanation:
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
    sources = [*events, *(e for e in record.of("library") if name in e.body.skills)]
    wrong = [p.message for e in sources for p in checks()[e.kind](record, e)]
    return Explanation(f"skill {name}", wrong, "the same trials, pooled effect and files")
