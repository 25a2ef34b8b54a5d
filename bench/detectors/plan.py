"""From a start policy and a plan to a labelled batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.detectors import episodes, maths, programs
from bench.detectors.case import Attempt, Case, Signals, book, curve, read_start, recipe
from evotrainer.harness import HarnessContext
from evotrainer.records.findings import HealthReport, MetricValue

DOMAINS = ("programs", "maths", "agents")
Params = programs.Programs | maths.Maths | episodes.Episodes


@dataclass(frozen=True)
class Start:
    """A start policy: how it behaves, and how it was read."""

    domain: str
    seed: int
    params: Params
    report: HealthReport
    accuracy: float
    tokens: float


@dataclass(frozen=True)
class Plan:
    """How a batch differs from its start."""

    note: str
    params: Params
    signals: Signals = field(default_factory=Signals)
    base: bool = True
    """Is the start policy's reading at hand?"""


Planter = Callable[[random.Random, Start], Plan]


def attempts(rng: random.Random, seed: int, p: Params) -> list[list[Attempt]]:
    """Groups of attempts of whichever domain."""
    if isinstance(p, programs.Programs):
        return programs.attempts(rng, seed, p)
    return maths.attempts(rng, seed, p) if isinstance(p, maths.Maths) else episodes.attempts(rng, seed, p)


def start(rng: random.Random, seed: int, domain: str) -> Start:
    """A healthy start policy with drawn habits."""
    mean = rng.uniform(0.36, 0.52)
    ability = (mean, rng.uniform(0.5, 1.1))
    size = 8
    p: Params
    if domain == "programs":
        p = programs.Programs(tasks=rng.choice((32, 40, 48)), size=size, ability=ability)
    elif domain == "maths":
        p = maths.Maths(tasks=rng.choice((32, 48, 56)), size=size, ability=ability, pads=rng.uniform(1.5, 5.0))
    else:
        p = episodes.Episodes(
            tasks=rng.choice((24, 32)), size=size, ability=ability, looks=rng.uniform(2.5, 4.5),
            edits=rng.uniform(1.3, 2.2), p_edit=rng.uniform(0.86, 0.98), p_test=rng.uniform(0.7, 0.95),
            failing=rng.uniform(0.02, 0.08),
        )  # fmt: skip
    rollouts = book(attempts(rng, seed, p), Signals(), rng)
    report = read_start(rollouts)
    tokens = sum(r.tokens or 0 for r in rollouts) / len(rollouts)
    return Start(domain, seed, p, report, report.metric("accuracy") or 0.0, tokens)


def change(p: Params, **fields: Any) -> Params:
    """Params with other values; unknown fields are an error."""
    return replace(p, **fields)


def trained(rng: random.Random, s: Start, gain: float | None = None, **fields: Any) -> Params:
    """The start policy after healthy training: a little better, a little tighter."""
    g = rng.uniform(0.0, 0.18) if gain is None else gain
    mean, spread = s.params.ability
    return change(s.params, ability=(min(0.95, max(0.02, mean + g)), spread), **fields)


def healthy_signals(rng: random.Random, s: Start, **fields: Any) -> Signals:
    """Signals of a healthy run, with a small format component in half of them."""
    extra: tuple[tuple[str, str, float], ...] = ()
    weights: dict[str, float] = {"hidden" if s.domain != "maths" else "correct": 1.0}
    if rng.random() < 0.5:
        extra, weights = (("format", "format", rng.uniform(0.6, 0.9)),), weights | {"format": rng.uniform(0.05, 0.12)}
    given: dict[str, Any] = {
        "entropy": rng.uniform(0.3, 0.7), "logprob": -rng.uniform(0.15, 0.5), "weights": weights, "extra": extra,
        "faults": rng.choice((0.0, 0.0, 0.005)),
    }  # fmt: skip
    return Signals(**(given | fields))


def realise(rng: random.Random, s: Start, plan: Plan, planted: str, may: frozenset[str]) -> Case:
    """The batch of a plan."""
    rollouts = book(attempts(rng, s.seed, plan.params), plan.signals, rng)
    live = [r for r in rollouts if r.reward is not None]
    now = sum(r.outcome == "correct" for r in live) / max(1, len(live))
    tokens = sum(r.tokens or 0 for r in live) / max(1, len(live))
    context = HarnessContext(
        recipe=recipe(plan.signals),
        proxy=("visible", "hidden") if s.domain != "maths" else None,
        base=s.report if plan.base else None,
        previous=tuple(_reading(x) for x in plan.signals.previous),
        curve=curve(rng, plan.signals, s.accuracy, now, (s.tokens, tokens)),
    )
    return Case(s.domain, planted, plan.note, rollouts, context, may)


def _reading(values: Mapping[str, float]) -> HealthReport:
    rows = tuple(MetricValue(name=k, layer="behaviour", value=v, n=100) for k, v in values.items())
    return HealthReport(harness="h0", subject="check", rollouts=100, groups=10, metrics=rows, findings=())
