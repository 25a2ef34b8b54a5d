"""What a branch teaches, computed from a run's events: the trial behind a skill, its trigger, the run's own skills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evotrainer.projections.bottlenecks import bottlenecks, canonical
from evotrainer.projections.skills import SOUND, Skill, direction
from evotrainer.records import keys
from evotrainer.records.chain import Event, EventRow
from evotrainer.records.events import Invalidated, Judged, Reestimated, SkillDistilled
from evotrainer.records.findings import HealthReport
from evotrainer.records.interventions import Intervention
from evotrainer.records.skills import Condition, Proof, SkillTrial


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
    """The event that settles what a branch is worth: its invalidation or its ancestor's, a winner's re-estimation on
    fresh seeds, else its last verdict.
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


def trial_of(events: Sequence[Event], branch: str, row: EventRow) -> tuple[SkillTrial, tuple[str, str, str]]:
    """What a judged branch says, and of which (bottleneck, factor, direction); `row`: of the event that decided it."""
    event = next(e for e in events if e.id == row.id)
    opened = next(e.body for e in events if e.kind == "branch" and e.body.branch == branch)
    iv: Intervention | None = opened.intervention
    assert iv is not None
    run = next(e for e in events if e.kind == "run")
    health = next((e.body.health for e in events if e.id == keys.diagnosed(opened.round)), None)
    bottleneck, severity, conditions = trigger_of(health, iv)
    verdict = event.body.verdict if isinstance(event.body, Judged) else None
    again = event.body if isinstance(event.body, Reestimated) else None
    effect = None
    kind, control = "invalid", opened.parent or ""
    if again:  # fresh seeds overrule the effect that the change was picked by
        effect, kind, control = again.effect, "promote", again.control
    elif verdict:
        effect, kind, control = verdict.evidence, verdict.kind, verdict.control
    domain, generator = domain_of(run.body.environment)
    trial = SkillTrial(
        run=run_id(events),
        name=run.body.run,
        domain=domain,
        generator=generator,
        base=base_of(events),
        branch=branch,
        control=control,
        round=opened.round,
        old=iv.old,
        new=iv.new,
        move=iv.move,
        kind=kind,
        mean=effect.mean if effect else None,
        low=effect.low if effect else None,
        high=effect.high if effect else None,
        confidence=effect.confidence if effect else None,
        se=effect.se if effect else None,
        df=effect.df if effect else None,
        seeds=effect.seeds if effect else 0,
        tasks=effect.tasks if effect else 0,
        severity=severity,
        conditions=conditions,
        harness=health.harness if health else "",
        version=run.body.version,
        proof=Proof(**_row_fields(row)),
    )
    return trial, (bottleneck, iv.factor, direction(iv.factor, iv.old, iv.new))


def _row_fields(row: EventRow) -> dict[str, Any]:
    return {k: getattr(row, k) for k in ("seq", "id", "kind", "time", "body", "prev_hash", "hash")}


def trigger_of(health: HealthReport | None, iv: Intervention) -> tuple[str, float, tuple[Condition, ...]]:
    """(bottleneck, its severity, what its detectors had measured): the one the proposal answers, else the worst."""
    found = bottlenecks(health) if health else {}
    name = iv.bottleneck if iv.bottleneck in found else next(iter(found), SOUND)
    if health is None or name == SOUND:
        return name, 0.0, ()
    ranked = next((b for b in health.bottlenecks if canonical(b.name) == name), None)
    detectors = set(ranked.findings) if ranked else set()
    out = []
    for f in health.findings:
        if f.severity == "info" or not (f.detector in detectors or canonical(f.kind) == name):
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


def distilled_skills(events: Sequence[Event]) -> dict[str, Skill]:
    """The run's own skills as its events say: later events on a branch replace earlier ones."""
    out: dict[str, Skill] = {}
    for e in events:
        if isinstance(e.body, SkillDistilled):
            b = e.body
            one = Skill(bottleneck=b.bottleneck, factor=b.factor, direction=b.direction, trials=(b.trial,))
            out[b.skill] = out[b.skill].joined((b.trial,)) if b.skill in out else one
    return out
