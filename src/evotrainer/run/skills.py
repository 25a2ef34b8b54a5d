"""Skills in a run: the library that it was given, what its verdicts teach, and what a briefing offers.

A run's own skills are a projection of its ledger: `skills/` can be written again from the events, and is, whenever a
walk over them finds a file missing. The library it looks things up in is copied into the run when it begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer import __version__
from evotrainer.errors import IntegrityError, StoreError
from evotrainer.projections.bottlenecks import bottlenecks
from evotrainer.projections.skill_evidence import base_of, decided, distilled_skills, domain_of, run_id, trial_of
from evotrainer.projections.skills import SOUND, Skill, advise
from evotrainer.records import keys
from evotrainer.records.durable import os_errors
from evotrainer.records.events import LibraryOpened, SkillDistilled
from evotrainer.records.findings import HealthReport
from evotrainer.records.skills import CLAIMS, SkillAdvice
from evotrainer.skills import (
    check_skill,
    content_hash,
    find_skills,
    library_problems,
    merge,
    read_skill,
    rendered_hash,
    write_skill,
)
from evotrainer.skills.text import effect_text

if TYPE_CHECKING:
    from evotrainer.run.context import RunContext

OTHERS_AFTER = 3
"""Rounds in a row without a promotion after which other domains' local skills are looked up."""


# -- the library -------------------------------------------------------------------------------------------------------


def open_library(ctx: RunContext) -> None:
    """Copy what `run.skills` names into the run, once; a changed copy is refused."""
    if not ctx.task.run.skills:
        return
    folder = ctx.folder / "library"

    def opened() -> LibraryOpened:
        shutil.rmtree(folder, ignore_errors=True)
        skills = collect(ctx.task.run.skills)
        with os_errors(f"cannot write {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        written = {s.name: content_hash(write_skill(s, folder)) for s in skills.values()}
        return LibraryOpened(sources=ctx.task.run.skills, skills=written)

    body = ctx.record(keys.LIBRARY, LibraryOpened, opened)
    if problems := library_problems(ctx.folder, body):
        raise IntegrityError(f"{problems[0]}; restore it, or start a new run")


def library(ctx: RunContext) -> dict[str, Skill]:
    """Skills that the run was given, without anything it taught itself."""
    if ctx.recorded(keys.LIBRARY) is None or not (ctx.folder / "library").is_dir():
        return {}
    own = run_id(ctx.ledger.events())
    kept = [read_skill(folder).without(own) for folder in find_skills(ctx.folder / "library")]
    return {s.name: s for s in kept if s}


def advice(ctx: RunContext, health: HealthReport) -> tuple[SkillAdvice, ...]:
    """Skills whose trigger is diagnosed: the domain's own evidence, other domains' where it may speak."""
    run = ctx.recorded(keys.RUN)
    assert run is not None
    domain, generator = domain_of(run.body.environment)
    base = base_of(ctx.ledger.events())
    diagnosed = {SOUND, *bottlenecks(health)}
    out: list[SkillAdvice] = []
    for s in library(ctx).values():
        if s.bottleneck not in diagnosed:
            continue
        own = s.of(domain)
        others = tuple(t for t in s.trials if t not in own)
        tell = partial(advise, s, domain=domain, generator=generator, base=base, version=__version__, now=run.time)
        if own:
            out.append(tell(own))
        if others and (s.scope == "cross-domain" or ctx.state.failures >= OTHERS_AFTER):
            out.append(tell(others))
    return tuple(out)


def escalation(ctx: RunContext) -> list[str]:
    """What escalation adds to the search for skills, in words."""
    if ctx.state.failures < OTHERS_AFTER or not library(ctx):
        return []
    return ["skills of other domains are looked up, too"]


# -- what a verdict teaches --------------------------------------------------------------------------------------------


def distil(ctx: RunContext, branches: Sequence[str]) -> None:
    """One `skill` event and one grown skill folder per judged branch; what is recorded is only written again."""
    for name in branches:
        record_skill(ctx, name, keys.skill(name))


def update_skills(ctx: RunContext) -> None:
    """Update what branches taught: one that became invalid since is evidence against its skill,
    a winner's effect on fresh seeds takes the place of the one it was chosen by.
    """
    for name, taught in list(ctx.state.taught.items()):
        fresh = ctx.state.reestimated.get(name)
        if ctx.branches[name].invalid is not None:
            if taught.trial.kind != "invalid":
                record_skill(ctx, name, keys.skill(name, "invalid"))
        elif fresh and taught.trial.proof.id != fresh:
            record_skill(ctx, name, keys.skill(name, "fresh"))


def record_skill(ctx: RunContext, branch: str, key: str) -> None:
    """Record, once, what a branch says of its change, and write the skill's folder."""

    def distilled() -> SkillDistilled:
        events = ctx.ledger.events()
        event = decided(events, branch)
        row = ctx.ledger.row(event.id) if event else None
        assert row is not None
        trial, (bottleneck, factor, way) = trial_of(events, branch, row)
        alone = Skill(bottleneck=bottleneck, factor=factor, direction=way, trials=(trial,))
        known = distilled_skills(events).get(alone.name)
        skill = known.joined((trial,)) if known else alone
        ctx.observer.note(f"skill {skill.name}: {CLAIMS[skill.claim]}, {effect_text(skill.trials)}")
        return SkillDistilled(
            round=trial.round,
            branch=branch,
            skill=skill.name,
            bottleneck=bottleneck,
            factor=factor,
            direction=way,
            trial=trial,
            sha256=rendered_hash(skill),
        )

    if ctx.recorded(key) is None and decided(ctx.ledger.events(), branch) is None:
        return
    write(ctx, ctx.record(key, SkillDistilled, distilled).skill)


def write(ctx: RunContext, name: str) -> None:
    """Bring a skill's folder up to the ledger: one that is missing or older.
    A changed one is left for `verify` to name."""
    events = ctx.ledger.events()
    recorded = [e.body.sha256 for e in events if e.kind == "skill" and e.body.skill == name]
    folder = ctx.folder / "skills" / name
    there = content_hash(folder)
    if there != recorded[-1] and (there in recorded or not (folder / "evidence.json").is_file()):
        write_skill(distilled_skills(events)[name], folder.parent)


# -- the library's files -----------------------------------------------------------------------------------------------


def collect(sources: Sequence[str]) -> dict[str, Skill]:
    """All skills that `run.skills` names; StoreError for a folder that holds none or a skill that does not validate."""
    found: list[Skill] = []
    for source in sources:
        folders = find_skills(Path(source))
        if not folders and source != "builtin":
            raise StoreError(f"run.skills: no skill in {source}; `evotrainer skills list {source}` shows what is there")
        for folder in folders:
            problems, _ = check_skill(folder)
            if problems:
                raise IntegrityError(
                    f"skill {folder}: {problems[0]}; `evotrainer skills validate {source}` shows all, "
                    "leave it out or correct it"
                )
            found.append(read_skill(folder))
    return merge(found)
