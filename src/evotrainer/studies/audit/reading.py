"""Reading a source's traits: subject by subject, and with several steps also the end against the start."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evotrainer.errors import EvoTrainerError
from evotrainer.harness import Batch, Harness, HarnessContext
from evotrainer.harness.columns.numerics import distinct
from evotrainer.harness.columns.traits import Traits, take
from evotrainer.harness.coverage import not_covered
from evotrainer.harness.layers.score import correct_by_task
from evotrainer.projections.means import mean_curve
from evotrainer.records.findings import HealthReport
from evotrainer.records.output import Progress
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import GREEDY
from evotrainer.studies.audit.curve import learning_curve, paid_weights, proxy_pair
from evotrainer.studies.audit.fault_columns import suspects, ungraded
from evotrainer.studies.audit.units import OpenedSource

MAX_SUBJECTS = 24
"""Subjects of one source that are read apart; of more, all together."""
STEPS = 5
"""Steps from which the end of a training is also read by itself, against its beginning."""


_STEP = re.compile(r"[@/_.-]?(?:(?:global_?)?step|checkpoint|ckpt|iter(?:ation)?|epoch)[_-]?\d+$|@\d+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SubjectReading:
    """The harness's reading of one subject of a source."""

    subject: str
    health: HealthReport
    curve: tuple[dict[str, float], ...] = ()
    assumed: dict[str, Any] = field(default_factory=dict)
    """What was inferred rather than given: `proxy`, `paid`."""
    not_looked_at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Detector -> what it lacked; those that are not in it looked."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """Of a learning curve alone: the numbers of each column that was read, see `Curve.table`."""
    notes: tuple[str, ...] = ()
    """Of a learning curve alone: columns that were not read, steps that are there twice."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a run of ours wrote down of a branch in addition to its rollouts."""

    recipe: Recipe
    curve: tuple[Mapping[str, float], ...]
    """Mean over its trials; keys as in `HarnessContext.curve`, and what only a trainer knows: kl, ess, ratio_max."""


def own_training(path: Path) -> dict[str, Training]:
    """Branch -> what the run's ledger says of its training, the champion first, then the newest; empty where `path` is
    no run folder of ours."""
    if not (path / "ledger.db").is_file():
        return {}
    from evotrainer.records.ledger import Ledger

    try:
        with Ledger.open(path / "ledger.db", readonly=True) as ledger:
            events = ledger.events()
    except EvoTrainerError:
        return {}
    recipes = {e.body.branch: e.body.recipe for e in events if e.kind == "branch"}
    curves: dict[str, list[Any]] = {}
    for e in events:
        if e.kind == "finished" and e.body.curve and e.body.branch in recipes:
            curves.setdefault(e.body.branch, []).append(e.body.curve)
    best = [e.body.branch for e in events if e.kind == "promoted"][-1:]
    order = dict.fromkeys([*best, *reversed(recipes)])
    return {b: Training(recipes[b], tuple(mean_curve(curves[b]))) for b in order if b in curves}


def read_subjects(
    whole: OpenedSource,
    traits: Traits,
    given: tuple[str, str] | None,
    harness: Harness,
    own: Mapping[str, Training] | None = None,
    say: Progress = lambda what, done, of: None,
) -> list[SubjectReading]:
    """Readings of every subject (run, branch, split): of all its steps, and from STEPS steps on of the last fifth
    against the first. `given`: the proxy pair; `own`: what is known of the branches' training."""
    out: list[SubjectReading] = []
    subjects = sorted(policies_apart(whole, traits, subjects_of(traits)), key=partial(_place, whole, list(own or ())))
    for k, (name, rows) in enumerate(subjects):
        say(f"looking for findings in {name or 'all rollouts'}", k, len(subjects))
        batch = batch_of(whole, traits, rows)
        known = known_of(own or {}, batch, traits)
        curve = learning_curve(batch)
        if known and len(known.curve) == len(curve):
            curve = tuple({**a, **b} for a, b in zip(known.curve, curve, strict=True))
        proxy = proxy_pair(batch, given)
        paid = None if known else paid_weights(batch)
        assumed: dict[str, Any] = {"proxy": list(proxy)} if proxy and given is None else {}
        assumed |= {"paid": paid} if paid is not None else {}
        shared = partial(
            HarnessContext,
            recipe=known.recipe if known else None,
            proxy=proxy,
            paid=paid,
            curve=curve,
            greedy=greedy_of(whole, traits, name),
        )
        title = name or "all rollouts"
        steps = distinct(np.nan_to_num(batch.trait("step")))[0]
        long = len(steps) >= STEPS
        read = _asking(harness.read(batch, f"{title}, {_steps(steps)}" if long else title, shared()), batch)
        out.append(SubjectReading(name, read, curve, assumed, not_covered(batch, shared())))
        if not long:
            continue
        size = max(1, len(steps) // 5)
        first = _between(whole, traits, rows, steps[0], steps[size - 1])
        base = harness.read(first, f"{title}, {_steps(steps[:size])}", HarnessContext(proxy=proxy, paid=paid))
        last = _between(whole, traits, rows, steps[-size], steps[-1])
        late = f"{title}, {_steps(steps[-size:])}"
        then = shared(base=base, previous=(base,))
        out.append(SubjectReading(late, harness.read(last, late, then), (), assumed, not_covered(last, then)))
    return out


def _place(whole: OpenedSource, newest: Sequence[str], subject: tuple[str, np.ndarray | None]) -> tuple[int, bool]:
    """Subjects of a run are read in the order of its branches, search rollouts before those of training."""
    rows = [0] if subject[1] is None else subject[1][:1].tolist()
    branch, split = (whole.column(name, rows)[0] if rows and newest else "" for name in ("branch", "split"))
    return newest.index(branch) if branch in newest else len(newest), split == "train"


def _asking(health: HealthReport, batch: Batch) -> HealthReport:
    """The reading and what it asks: columns that may be faults, rewards that are missing."""
    found = [*suspects(batch), *ungraded(batch)]
    return health.model_copy(update={"findings": (*health.findings, *found)}) if found else health


def _steps(steps: np.ndarray) -> str:
    a, b = int(steps[0]), int(steps[-1])
    return f"step {a}" if a == b else f"steps {a} to {b}"


def subjects_of(traits: Traits) -> list[tuple[str, np.ndarray | None]]:
    """(name, rows) of each subject; rows None: all."""
    names = traits.subject.names
    if not traits.n:
        return []
    # greedy attempts are the second reading of another subject, which they must not enter
    sampled = [i for i, name in enumerate(names) if not (name.endswith(GREEDY) and name.removesuffix(GREEDY) in names)]
    if len(names) > MAX_SUBJECTS:
        rows = None if len(sampled) == len(names) else np.flatnonzero(np.isin(traits.subject.code, sampled))
        return [(f"{len(sampled)} runs and branches together", rows)]
    if len(names) <= 1:
        return [(names[0] if names else "", None)]
    return [(names[i], np.flatnonzero(traits.subject.code == i)) for i in sorted(sampled, key=lambda i: names[i])]


def policies_apart(
    whole: OpenedSource, traits: Traits, subjects: list[tuple[str, np.ndarray | None]]
) -> list[tuple[str, np.ndarray | None]]:
    """The same subjects, those of foreign sources that hold rollouts of several policies cut into one a policy, those
    of a run of ours that hold evaluations of one policy with a shortcut open and closed into one a world. What would be
    cut into more than MAX_SUBJECTS stays whole.

    A run of ours names its policies by step, and so do others: names that differ in a step alone are one policy."""
    out: list[tuple[str, np.ndarray | None]] = []
    for name, rows in subjects:
        # by their place in the source, where faults stand among them: a batch orders its rollouts by group
        places = list(range(traits.n)) if rows is None else rows.tolist()
        if whole.column("branch", places[:1])[0]:
            worlds = _worlds(whole, places)
            cut = 1 < len(worlds) <= MAX_SUBJECTS - len(subjects)
            out += [(f"{name}{world}", x) for world, x in worlds] if cut else [(name, rows)]
            continue
        named = whole.column("policy", places)
        plain = np.array([without_step(p) for p in named], dtype=object)
        known = sorted({p for p in plain if p})
        if len(known) < 2 or len(known) + len(subjects) > MAX_SUBJECTS:
            out.append((name, rows))
            continue
        for policy in sorted(set(plain)):
            some = np.flatnonzero(plain == policy)
            out.append((f"{name} {policy or 'no policy named'}".strip(), some if rows is None else rows[some]))
    return out


def without_step(policy: object) -> str:
    """A policy's name without the step of its training."""
    return _STEP.sub("", str(policy or ""))


def _worlds(whole: OpenedSource, places: Sequence[int]) -> list[tuple[str, np.ndarray]]:
    """(what a subject's name needs, rows) of each setting of the environment's knobs; the first one needs nothing."""
    knobs = whole.column("knobs", places)
    texts = {id(k): k for k in knobs}  # equal ones are mostly one object
    text = {i: json.dumps(k, sort_keys=True, default=str) for i, k in texts.items()}
    settings = [text[id(k)] for k in knobs]
    first, *others = dict.fromkeys(settings)
    rows, values = np.array(places), np.array(settings, dtype=object)
    known = json.loads(first)
    out = [("", rows[values == first])]
    for other in others:
        parts = [f"{k} = {v}" for k, v in json.loads(other).items() if known.get(k) != v]
        out.append((f" with {', '.join(parts) or 'other knobs'}", rows[values == other]))
    return out


def greedy_of(whole: OpenedSource, traits: Traits, name: str) -> dict[str, float] | None:
    """Task -> share of correct greedy attempts of a subject; None where there are none."""
    if name + GREEDY not in traits.subject.names:
        return None
    rows = np.flatnonzero(traits.subject.code == traits.subject.names.index(name + GREEDY))
    return correct_by_task(batch_of(whole, traits, _worlds(whole, rows.tolist())[0][1]))


def known_of(own: Mapping[str, Training], batch: Batch, traits: Traits) -> Training | None:
    """What is known of the branch that a subject's rollouts are of; None where several are read as one."""
    if not own or not batch.n or len(traits.subject.names) > MAX_SUBJECTS:
        return None
    return own.get(batch.column("branch", [0])[0])


def batch_of(whole: OpenedSource, traits: Traits, rows: np.ndarray | None) -> Batch:
    """A batch of some rows of a source (None: all)."""
    return Batch.over(whole, traits if rows is None else take(traits, rows), rows)


def _between(whole: OpenedSource, traits: Traits, rows: np.ndarray | None, low: float, high: float) -> Batch:
    """Rollouts of the steps from `low` to `high`."""
    step = np.nan_to_num(traits.columns["step"].astype(float))
    inside = (step >= low) & (step <= high)
    return batch_of(whole, traits, np.flatnonzero(inside) if rows is None else rows[inside[rows]])
