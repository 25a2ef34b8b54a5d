"""A run's figures in the form of trackers: runs with a configuration, points on a step axis, a few texts. Pure.

One tracker run per finished trial (step axis: training steps) and one for the evolution as a whole (step axis: events
of the ledger). Everything comes from the ledger, so it can be exported again at any time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evotrainer.projections.caveats import caveat_line as in_words
from evotrainer.projections.caveats import caveats
from evotrainer.projections.predictions import subject_branch
from evotrainer.projections.state import RunState
from evotrainer.projections.text import one_line
from evotrainer.projections.words import kind
from evotrainer.records import events as ev
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.findings import HealthReport
from evotrainer.records.recipe import short
from evotrainer.records.verdicts import Effect

STORY = "evolution"
"""The tracker run of the run as a whole."""
_GRADED = ("search", "gate", "cert")


@dataclass(frozen=True, slots=True)
class Point:
    """Values at a step; `time` in Unix seconds, from the ledger."""

    step: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Alert:
    """A critical finding, for trackers that wake somebody."""

    title: str
    text: str
    step: int
    """Event of the ledger that told it first."""


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """One tracker run, or what is new of it."""

    key: str
    """Id of the tracker run, unique for run and trial: 16 hexadecimal digits."""
    name: str
    """`<run>/<trial>`, or `<run>/evolution`."""
    group: str
    """The run's name."""
    config: Mapping[str, Any]
    points: Sequence[Point] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """Texts: verdicts with their reasons, champion, report."""
    alerts: Sequence[Alert] = ()
    summary: Mapping[str, float] = field(default_factory=dict)
    """Final values of the most important figures."""
    tags: Sequence[str] = ()
    failed: bool = False
    start: float = 0.0
    """Unix seconds."""
    complete: bool = True
    """The tracker run is complete: nothing will be added."""


class Target:
    """A tracker."""

    def write(self, sheet: TrackerRun) -> None:
        """Add the sheet's points, configuration and texts; raises whatever the client raises."""
        raise NotImplementedError

    def known(self, sheet: TrackerRun) -> set[int]:
        """Steps of this tracker run that it holds; none where it sees to it itself that none comes twice."""
        return set()

    def where(self) -> str:
        """Where a reader finds the exported figures."""
        raise NotImplementedError

    def close(self) -> None: ...


def trial_sheets(events: Sequence[Event], about: Mapping[str, Any]) -> list[tuple[int, TrackerRun]]:
    """(sequence number of its event, sheet) of every finished trial. `about`: joins the configuration."""
    opened = next((e.body for e in events if e.kind == "run"), None)
    if opened is None:
        return []
    recipes = {e.body.branch: e.body for e in events if e.kind == "branch"}
    purposes = {e.body.trial: e.body.purpose for e in events if e.kind == "intended"}
    out = []
    for e in events:
        if e.kind == "finished":
            branch = recipes.get(e.body.branch)
            out.append((e.seq, _trial(e, opened, branch, str(purposes.get(e.body.trial, "")), about, events[0].hash)))
    return out


def _trial(
    e: Event, opened: ev.RunOpened, branch: ev.BranchOpened | None, purpose: str, about: Mapping[str, Any], root: str
) -> TrackerRun:
    t: ev.TrialFinished = e.body
    end = seconds(e)
    evaluated = _evaluated(t)
    config = {
        **about,
        "trial": t.trial,
        "branch": t.branch,
        "seed": t.seed,
        "purpose": purpose,
        "policy_sha256": t.policy_sha256,
        "evotrainer": opened.version,
    }
    texts = {}
    if branch is not None:
        config["recipe_hash"] = branch.recipe_hash
        config["recipe"] = branch.recipe.model_dump(mode="json")
        if iv := branch.intervention:
            texts = {"intervention": f"{iv.factor}: {short(iv.old)} -> {short(iv.new)}", "hypothesis": iv.hypothesis}
    if t.status == "failed":
        texts["error"] = f"{t.label or 'failed'}: {t.error}"
    cost = {
        "cost/cpu_s": t.cpu_s,
        "cost/wall_s": t.wall_s,
        "cost/peak_rss_mb": t.peak_rss_mb,
        "cost/resumed": float(t.resumed),
    }
    last = evaluated[max(evaluated)] if evaluated else {}
    return TrackerRun(
        key=key_of(root, t.trial),
        name=f"{opened.run}/{t.trial}",
        group=opened.run,
        config=config,
        points=_points(t, evaluated, end),
        texts=texts,
        summary=finite(cost | last),
        tags=tuple(x for x in (opened.task, t.branch, purpose) if x),
        failed=t.status == "failed",
        start=end - t.wall_s,
    )


def _evaluated(t: ev.TrialFinished) -> dict[int, dict[str, float]]:
    """Step -> figures of the evaluations at it."""
    out: dict[int, dict[str, float]] = {}
    for s in t.scores:
        if s.split not in _GRADED:
            continue
        row = out.setdefault(s.step, {})
        if s.score is not None:
            row[f"eval/{s.split}/score"] = s.score
        row |= {f"eval/{s.split}/{name}": v for name, v in s.components.items()}
        row[f"eval/{s.split}/faults"] = float(s.errors)
    return out


def _points(t: ev.TrialFinished, evaluated: Mapping[int, Mapping[str, float]], end: float) -> list[Point]:
    """One point per step: of the training, whose times are spread over its duration, with what was evaluated there."""
    at: dict[int, Point] = {}
    for i, row in enumerate(t.curve, 1):
        step = int(row.get("step", i))
        time = end - t.wall_s + t.wall_s * i / (len(t.curve) + 1)
        at[step] = Point(step, time, finite({f"train/{k}": v for k, v in row.items() if k != "step"}))
    for step, values in evaluated.items():
        trained = at[step].values if step in at else {}
        at[step] = Point(step, end, finite({**trained, **values}))
    return [at[step] for step in sorted(at)]


def story(events: Sequence[Event], about: Mapping[str, Any], after: int = 0) -> TrackerRun | None:
    """The evolution as a whole, its points behind event `after`; None before the run is opened."""
    opened = next((e.body for e in events if e.kind == "run"), None)
    if opened is None:
        return None
    figures = RunFigures()
    points = []
    for e in events:
        values = finite(figures.take(e))
        if values and e.seq > after:
            points.append(Point(e.seq, seconds(e), values))
    told = figures.alerts.values()
    figures.texts |= {f"finding/{branch}/{by}": a.text for (branch, by), a in figures.alerts.items()}
    if any(e.kind == "certified" for e in events):
        figures.texts |= {f"caveat/{branch}": in_words(found, len(found)) for branch, found in caveats(events).items()}
    limits = {f"budget_{k}": v for k, v in opened.budget.items()}
    return TrackerRun(
        key=key_of(events[0].hash, STORY),
        name=f"{opened.run}/{STORY}",
        group=opened.run,
        config={
            **about,
            **limits,
            "evotrainer": opened.version,
            "task": opened.task,
            "agent": opened.agent,
            "seed": opened.seed,
        },
        points=points,
        alerts=[a for a in told if a.step > after],
        texts=figures.texts | {"ledger": f"{len(events)} events, head {events[-1].hash}"},
        summary=finite({**figures.spent, **figures.summary}),
        tags=(opened.task, STORY),
        start=seconds(events[0]),
        complete=figures.state.closed_by is not None,
    )


class RunFigures:
    """Accumulates a run's events. `take` gives the figures of one event."""

    def __init__(self) -> None:
        self.state = RunState()
        self.texts: dict[str, str] = {}
        self.spent = {"budget/cpu_s": 0.0, "budget/trials": 0.0}
        self.summary: dict[str, float] = {}
        self.scores: dict[tuple[str, str], list[float]] = {}
        """(split, branch) -> scores of its trials."""
        self.alerts: dict[tuple[str, str], Alert] = {}
        """(branch, detector) -> what it found first that is critical."""

    def take(self, event: Event) -> dict[str, float]:
        """The event's figures, by name."""
        self.state.apply(event)
        body = event.body
        match body:
            case ev.TrialFinished():
                for reading in body.health:
                    self._critical(event.seq, body.branch, reading)
                return self._trial(body)
            case ev.Diagnosed():
                self._critical(event.seq, subject_branch(body.health.subject), body.health)
                return {"findings/critical": float(len(self.alerts))}
            case ev.NoiseMeasured():
                sds = {"noise/seed_sd": body.seed_sd, "noise/task_sd": body.task_sd}
                return {"noise/floor": body.noise_floor, **sds}
            case ev.Judged():
                v = body.verdict
                self.texts[f"verdict/{v.branch}"] = f"{v.kind}: {v.reason}"
                promoted = {f"promoted/{v.branch}": float(v.kind == "promote")}
                return promoted | (_interval(f"effect/{v.branch}", v.effect) if v.effect else {})
            case ev.Reestimated():
                return _interval(f"effect_fresh/{body.branch}", body.effect)
            case ev.Audited():
                name = f"audit/{body.audit.branch}/{body.audit.capability}"
                self.texts[name] = f"{body.audit.verdict}: {body.audit.reason}"
                return {f"{name}/excess": body.audit.excess}
            case ev.Promoted():
                version = float(body.version.removeprefix("v") or 0)
                return {"champion/version": version} | self._champion(f" ({body.version})")
            case ev.Invalidated():
                self.texts[f"invalid/{body.branch}"] = body.reason
                return self._champion()
            case ev.Certified():
                return self._certified(body)
            case ev.RunClosed():
                self.texts["champion"], self.texts["closed"] = self.state.champion or "", body.reason
                used = {"cpu_s": body.cpu_s, "wall_s": body.wall_s, "peak_rss_mb": body.peak_rss_mb}
                values = {f"budget/{k}": v for k, v in used.items()}
                self.summary |= values
                return values
        return {}

    def _critical(self, seq: int, branch: str, reading: HealthReport) -> None:
        """Take in what a reading found that is critical and was not found in this branch before."""
        for f in (f for f in reading.claims if f.severity == "critical"):
            text = one_line(f"{f.claim} (detector {f.detector}, branch {branch})", 600)
            self.alerts.setdefault((branch, f.detector), Alert(f"{branch}: {kind(f.kind)}", text, seq))

    def _trial(self, t: ev.TrialFinished) -> dict[str, float]:
        self.spent["budget/cpu_s"] += t.cpu_s
        self.spent["budget/trials"] += t.steps > 0
        values = self.spent | {"findings/critical": float(len(self.alerts))}
        after_training = {s.split: s for s in sorted(t.scores, key=lambda s: s.step)}
        for s in after_training.values():
            if s.score is not None and s.split in ("search", "gate"):
                values[f"{s.split}/{t.branch}"] = s.score
                self.scores.setdefault((s.split, t.branch), []).append(s.score)
        return values

    def _certified(self, body: ev.Certified) -> dict[str, float]:
        values: dict[str, float] = {}
        for row in body.rows:
            values |= {f"cert/{row.name}/{k}": getattr(row, k) for k in ("score", "low", "high")}
        for name, numbers in body.comparisons.items():
            values |= {f"cert/{name}/{k}": v for k, v in numbers.items()}
        self.summary |= values
        return values

    def _champion(self, version: str = "") -> dict[str, float]:
        """Scores of the champion as it is now."""
        branch = self.state.champion or ""
        self.texts["champion"] = branch + version
        found = {f"champion/{split}": self.scores.get((split, branch), ()) for split in ("search", "gate")}
        return {k: sum(v) / len(v) for k, v in found.items() if v}


def _interval(name: str, e: Effect) -> dict[str, float]:
    return {f"{name}/mean": e.mean, f"{name}/low": e.low, f"{name}/high": e.high}


def running(events: Sequence[Event]) -> set[str]:
    """Trials that were begun and have not ended."""
    begun = {e.body.trial for e in events if e.kind == "intended"}
    return begun - {e.body.trial for e in events if e.kind == "finished"}


def live_sheet(events: Sequence[Event], trial: str, points: Sequence[Point], complete: bool) -> TrackerRun:
    """What a trial's heartbeats say while it runs.
    Apart from its own sheet, which the ledger gives when it has ended."""
    run = str(events[0].body.run)
    return TrackerRun(
        key=key_of(events[0].hash, f"{trial}/live"),
        name=f"{run}/{trial}/live",
        group=run,
        config={"trial": trial},
        points=points,
        tags=("live",),
        start=seconds(next(e for e in events if e.id == keys.intended(trial))),
        complete=complete,
    )


def beat_point(beat: Mapping[str, Any]) -> Point | None:
    """A heartbeat as a point; None before the first step."""
    step, time = beat.get("step"), beat.get("time")
    if not isinstance(step, int) or step < 1 or not isinstance(time, (int, float)):
        return None
    values = {"live/score": beat.get("score"), "live/cpu_s": beat.get("cpu_s"), "live/steps": beat.get("steps")}
    return Point(step, float(time), finite(values))


def key_of(root: str, what: str) -> str:
    """A key that no other run's trial shares. `root`: hash of the run's first event."""
    return hashlib.sha256(f"{root}:{what}".encode()).hexdigest()[:16]


def seconds(e: Event) -> float:
    """When an event was recorded, Unix seconds."""
    return datetime.fromisoformat(e.time).timestamp()


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Numbers that trackers can draw."""
    kept = {k: v for k, v in values.items() if isinstance(v, (int, float)) and math.isfinite(v)}
    return {k: float(v) for k, v in kept.items()}


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str | float | bool]]:
    """Nested configuration as dotted names; lists as JSON text."""
    for k, v in config.items():
        if isinstance(v, Mapping):
            yield from flat(v, f"{prefix}{k}.")
        elif isinstance(v, (list, tuple)):
            yield prefix + k, json.dumps(v)
        elif v is not None:
            yield prefix + k, v if isinstance(v, (bool, int, float, str)) else str(v)
