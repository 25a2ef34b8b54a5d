"""Skills in a run: the library it may look up, what its verdicts teach, and what a briefing offers.

A run's own skills are a projection of its ledger: `skills/` can be written again from the events, and is, whenever a
walk over them finds a file missing. The library it looks things up in is copied into the run when it begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer import __version__
from evotrainer.errors import IntegrityError, StoreError
from evotrainer.projections.skills import (
    SOUND,
    Condition,
    Proof,
    Skill,
    SkillAdvice,
    SkillTrial,
    advise,
    direction,
)
from evotrainer.records.chain import Event, Row
from evotrainer.records.durable import os_errors
from evotrainer.records.events import Invalidated, Judged, LibraryOpened, Reestimated, SkillDistilled
from evotrainer.records.evidence import HealthReport, Intervention
from evotrainer.skills import check_trial, content_hash, find_skills, merge, read_skill, rendered_hash, write_skill
from evotrainer.verify.chain_and_files import Problem, Record

if TYPE_CHECKING:
    from evotrainer.run.loop import Loop

OTHERS_AFTER = 3
"""Rounds in a row without a promotion after which other domains' local skills are looked up (METHOD.md section 1)."""


class Librarian:
    """The skills of one run."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._library: dict[str, Skill] | None = None

    # -- the library -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Copy what `run.skills` names into the run, once; a changed copy is refused."""
        if not self.loop.task.run.skills:
            return
        folder = self.loop.folder / "library"

        def opened() -> LibraryOpened:
            shutil.rmtree(folder, ignore_errors=True)
            skills = collect(self.loop.task.run.skills)
            with os_errors(f"cannot write {folder}"):
                folder.mkdir(parents=True, exist_ok=True)
            written = {s.name: content_hash(write_skill(s, folder)) for s in skills.values()}
            return LibraryOpened(sources=self.loop.task.run.skills, skills=written)

        body: LibraryOpened = self.loop.record("library", "library", opened)
        if problems := library_problems(self.loop.folder, body):
            raise IntegrityError(f"{problems[0]}; restore it, or start a new run")

    @property
    def library(self) -> dict[str, Skill]:
        """Skills the run may look up, without anything it taught itself."""
        if self._library is None:
            there = find_skills(folder) if (folder := self.loop.folder / "library").is_dir() else []
            own = run_id(self.loop.ledger.events())
            kept = [s.without(own) for s in map(read_skill, there)] if self.loop.ledger.get("library") else []
            self._library = {s.name: s for s in kept if s}
        return self._library

    def advice(self, health: HealthReport) -> tuple[SkillAdvice, ...]:
        """Skills whose trigger is diagnosed: the domain's own evidence, other domains' where it may speak."""
        run = self.loop.ledger.get("run")
        assert run is not None
        domain, generator = domain_of(run.body.environment)
        diagnosed = {SOUND, *_bottlenecks(health)}
        out: list[SkillAdvice] = []
        for s in self.library.values():
            if s.bottleneck not in diagnosed:
                continue
            own = s.of(domain)
            others = tuple(t for t in s.trials if t not in own)
            tell = partial(
                advise,
                s,
                domain=domain,
                generator=generator,
                base=self.base(),
                version=__version__,
                now=run.time,
            )
            if own:
                out.append(tell(own))
            if others and (s.scope == "cross-domain" or self.loop.failures >= OTHERS_AFTER):
                out.append(tell(others))
        return tuple(out)

    def escalation(self) -> list[str]:
        """What escalation adds to the look-up, in words."""
        if self.loop.failures < OTHERS_AFTER or not self.library:
            return []
        return ["skills of other domains are looked up, too"]

    def base(self) -> str:
        """SHA-256 of the weights the run's policies start from."""
        return base_of(self.loop.ledger.events())

    # -- what a verdict teaches ------------------------------------------------------------------------------------

    def distil(self, branches: Sequence[str]) -> None:
        """One `skill` event and one grown skill folder per judged branch; what is recorded is only written again."""
        for name in branches:
            self._settle(name, f"{name}/skill")

    def withdraw(self, branches: Sequence[str]) -> None:
        """Branches that lost their standing after they taught something: they now speak against it."""
        for name in branches:
            taught = self.loop.ledger.get(f"{name}/skill")
            if taught is not None and taught.body.trial.kind != "invalid":
                self._settle(name, f"{name}/skill/invalid")

    def remeasure(self, branch: str) -> None:
        """A winner's effect on fresh seeds takes the place of the one it was chosen by."""
        taught = self.loop.ledger.get(f"{branch}/skill")
        if taught is not None and not taught.body.trial.proof.id.endswith("/reestimated"):
            self._settle(branch, f"{branch}/skill/fresh")

    def _settle(self, branch: str, key: str) -> None:
        def distilled() -> SkillDistilled:
            events = self.loop.ledger.events()
            event = decided(events, branch)
            row = self.loop.ledger.row(event.id) if event else None
            assert row is not None
            trial, (bottleneck, factor, way) = trial_of(events, branch, row)
            alone = Skill(bottleneck=bottleneck, factor=factor, direction=way, trials=(trial,))
            known = distilled_skills(events).get(alone.name)
            skill = known.joined((trial,)) if known else alone
            self.loop.view.note(f"skill {skill.name}: {skill.claim} after {len(skill.trials)} trial(s)")
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

        if self.loop.ledger.get(key) is None and decided(self.loop.ledger.events(), branch) is None:
            return
        body: SkillDistilled = self.loop.record(key, "skill", distilled)
        self._write(body.skill)

    def _write(self, name: str) -> None:
        """Bring a skill's folder up to the ledger: one that is missing or older. A changed one is left for `verify` to name."""
        events = self.loop.ledger.events()
        recorded = [e.body.sha256 for e in events if e.kind == "skill" and e.body.skill == name]
        folder = self.loop.folder / "skills" / name
        there = content_hash(folder)
        if there != recorded[-1] and (there in recorded or not (folder / "evidence.json").is_file()):
            write_skill(distilled_skills(events)[name], folder.parent)


# -- projections of a ledger -----------------------------------------------------------------------------------------


def run_id(events: Sequence[Event]) -> str:
    """Hash of a run's first event."""
    return events[0].hash if events else ""


def domain_of(environment: dict[str, Any]) -> tuple[str, str]:
    """(name, version) of the task generator an environment describes."""
    return str(environment.get("name", "")), str(environment.get("version", ""))


def base_of(events: Sequence[Event]) -> str:
    """SHA-256 of the base policy's weights: as given, or as the warm start made them."""
    opened = next(e.body for e in events if e.kind == "run")
    warm = (e.body.policy_sha256 for e in events if e.kind == "finished" and e.body.trial == "base")
    return opened.base_policy.get("sha256") or next(warm, "")


def decided(events: Sequence[Event], branch: str) -> Event | None:
    """The event that settles what a branch is worth: its invalidation or its ancestor's, a winner's re-estimation on fresh
    seeds, else its last verdict.
    """
    found: Event | None = None
    fallen: Event | None = None
    fresh: Event | None = None
    for e in events:
        if isinstance(e.body, Judged) and e.body.verdict.branch == branch:
            found = e
        elif isinstance(e.body, Invalidated) and branch in (e.body.branch, *e.body.descendants):
            fallen = fallen or e
        elif isinstance(e.body, Reestimated) and e.body.branch == branch:
            fresh = e
    if found is None or found.body.verdict.kind == "invalid":
        return found
    return fallen or fresh or found


def trial_of(events: Sequence[Event], branch: str, row: Row) -> tuple[SkillTrial, tuple[str, str, str]]:
    """What a judged branch says, and of which (bottleneck, factor, direction); `row`: of the event that decided it."""
    event = next(e for e in events if e.id == row.id)
    opened = next(e.body for e in events if e.kind == "branch" and e.body.branch == branch)
    iv: Intervention | None = opened.intervention
    assert iv is not None
    run = next(e for e in events if e.kind == "run")
    health = next((e.body.health for e in events if e.id == f"r{opened.round}/diagnosed"), None)
    bottleneck, severity, conditions = trigger_of(health, iv)
    verdict = event.body.verdict if isinstance(event.body, Judged) else None
    again = event.body if isinstance(event.body, Reestimated) else None
    e = again.effect if again else verdict.effect if verdict and verdict.kind != "invalid" else None
    domain, generator = domain_of(run.body.environment)
    trial = SkillTrial(
        run=run_id(events),
        name=run.body.run,
        domain=domain,
        generator=generator,
        base=base_of(events),
        branch=branch,
        control=verdict.control if verdict else again.control if again else opened.parent or "",
        round=opened.round,
        old=iv.old,
        new=iv.new,
        move=iv.move,
        kind=verdict.kind if verdict else "promote" if again else "invalid",
        mean=e.mean if e else None,
        low=e.low if e else None,
        high=e.high if e else None,
        confidence=e.confidence if e else None,
        se=e.se if e else None,
        df=e.df if e else None,
        seeds=e.seeds if e else 0,
        tasks=e.tasks if e else 0,
        severity=severity,
        conditions=conditions,
        harness=health.harness if health else "",
        version=run.body.version,
        proof=Proof(**_row_fields(row)),
    )
    return trial, (bottleneck, iv.factor, direction(iv.factor, iv.old, iv.new))


def _row_fields(row: Row) -> dict[str, Any]:
    return {k: getattr(row, k) for k in ("seq", "id", "kind", "time", "body", "prev_hash", "hash")}


def trigger_of(health: HealthReport | None, iv: Intervention) -> tuple[str, float, tuple[Condition, ...]]:
    """(bottleneck, its severity, what its detectors had measured): the one the proposal answers, else the worst."""
    found = _bottlenecks(health) if health else {}
    name = iv.bottleneck if iv.bottleneck in found else next(iter(found), SOUND)
    if health is None or name == SOUND:
        return name, 0.0, ()
    ranked = next((b for b in health.bottlenecks if _canonical(b.name) == name), None)
    detectors = set(ranked.findings) if ranked else set()
    out = []
    for f in health.findings:
        if f.severity == "info" or not (f.detector in detectors or _canonical(f.kind) == name):
            continue
        for number, threshold in sorted(f.thresholds.items()):
            if (value := f.numbers.get(number)) is not None:
                out.append(
                    Condition(
                        detector=f.detector,
                        number=number,
                        relation=">=" if value >= threshold else "<=",
                        threshold=threshold,
                        value=value,
                    )
                )
    return name, found[name], tuple(out)


def _bottlenecks(health: HealthReport) -> dict[str, float]:
    """Ranked bottlenecks by one name each, worst first; where nothing was ranked, the findings' kinds."""
    from evotrainer.agents.symptoms import SEVERITY

    ranked = {_canonical(b.name): b.score for b in health.bottlenecks}
    if ranked:
        return ranked
    kinds = [(_canonical(f.kind), SEVERITY[f.severity]) for f in health.findings if f.severity != "info"]
    return dict(sorted(kinds, key=lambda kv: (-kv[1], kv[0])))


def _canonical(name: str) -> str:
    from evotrainer.agents.symptoms import canonical

    return canonical(name)


def distilled_skills(events: Sequence[Event]) -> dict[str, Skill]:
    """The run's own skills as its events say: later events on a branch replace earlier ones."""
    out: dict[str, Skill] = {}
    for e in events:
        if isinstance(e.body, SkillDistilled):
            b = e.body
            one = Skill(bottleneck=b.bottleneck, factor=b.factor, direction=b.direction, trials=(b.trial,))
            out[b.skill] = out[b.skill].joined((b.trial,)) if b.skill in out else one
    return out


# -- verification ------------------------------------------------------------------------------------------------------


def prove_library(record: Record, event: Event) -> Iterator[Problem]:
    """The copy of the library against what the ledger recorded of it."""
    record.checked["skills"] += len(event.body.skills)
    yield from (Problem("library", p) for p in library_problems(record.folder, event.body))


def prove_skill(record: Record, event: Event) -> Iterator[Problem]:
    """What a branch taught, computed again from the events before; and, of a skill's last event, its files."""
    b: SkillDistilled = event.body
    before = record.before(event)
    known = decided(before, b.branch)
    p = b.trial.proof
    if known is None or (p.id, p.hash) != (known.id, known.hash):
        yield Problem("skill", f"{event.id}: rests on event {p.id}, which did not decide {b.branch}")
        return
    yield from (Problem("skill", f"{event.id}: {x}") for x in check_trial(b.trial))
    fresh, key = trial_of(before, b.branch, Row(**p.model_dump()))
    wrong = [k for k, v in fresh.model_dump().items() if getattr(b.trial, k) != getattr(fresh, k)]
    if wrong or key != (b.bottleneck, b.factor, b.direction):
        yield Problem("skill", f"{event.id}: {', '.join(wrong) or 'its trigger'} does not follow from the ledger")
    events = [e for e in record.of("skill") if e.body.skill == b.skill]
    if events[-1] is not event:
        return
    record.checked["skills"] += 1
    there = content_hash(record.folder / "skills" / b.skill)
    # the event comes first: a run killed in between has the folder of the event before, or none
    behind = event.seq == len(record.events) and (
        there in [e.body.sha256 for e in events[:-1]]
        or (len(events) == 1 and not (record.folder / "skills" / b.skill).exists())
    )
    if there != b.sha256 and not behind:
        yield Problem("skill", f"skills/{b.skill} does not match its SHA-256 in the ledger; it was changed or removed")


def collect(sources: Sequence[str]) -> dict[str, Skill]:
    """All skills that `run.skills` names; StoreError for a folder that holds none or a skill that does not validate."""
    from evotrainer.skills import check_skill

    found: list[Skill] = []
    for source in sources:
        folders = find_skills(Path(source))
        if not folders and source != "builtin":
            raise StoreError(f"run.skills: no skill in {source}; `evotrainer skills list {source}` shows what is there")
        for folder in folders:
            problems, _ = check_skill(folder)
            if problems:
                raise IntegrityError(
                    f"skill {folder}: {problems[0]}; `evotrainer skills validate {source}` shows all, leave it out or mend it"
                )
            found.append(read_skill(folder))
    return merge(found)


def library_problems(folder: Path, body: LibraryOpened) -> list[str]:
    """Differences between the copy of the library in a run folder and what the ledger recorded of it."""
    there = {p.name: content_hash(p) for p in find_skills(folder / "library")} if (folder / "library").is_dir() else {}
    out = [f"skill {n} of the run's library is missing" for n in sorted(body.skills.keys() - there.keys())]
    out += [f"skill {n} of the run's library was added" for n in sorted(there.keys() - body.skills.keys())]
    changed = sorted(n for n in body.skills.keys() & there.keys() if body.skills[n] != there[n])
    return out + [f"skill {n} of the run's library was changed" for n in changed]
