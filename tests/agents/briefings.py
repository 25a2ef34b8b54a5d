"""Constructed briefings and stored rollouts for agents to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from evotrainer.records.briefing import BranchRecord, Briefing
from evotrainer.records.findings import Bottleneck, HealthReport, MetricValue
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.verdicts import Effect, Verdict

COMPONENTS = {
    "shown": "passes the tests in the statement",
    "kept_back": "passes the tests that the statement does not show",
    "share": "share of the kept-back tests passed",
    "format": "the program parses",
    "brevity": "1 - tokens / budget",
}
START = Recipe(rewards={"shown": 1.0})


def rollouts(tasks: int = 120, group: int = 4, gap: float = 0.25, seed: int = 0) -> list[Rollout]:
    """Attempts of which `gap` of those that pass the shown tests fail the kept-back ones."""
    rng = np.random.default_rng(seed)
    out = []
    for t in range(tasks):
        p = rng.beta(0.7, 0.7)
        for k in range(group):
            shown = bool(rng.random() < p)
            right = shown and bool(rng.random() > gap)
            share = 1.0 if right else float(rng.choice([0.0, 0.25, 0.5, 0.75])) if shown else 0.0
            parses = shown or bool(rng.random() < 0.9)
            parts = {
                "shown": float(shown),
                "kept_back": float(right),
                "share": share,
                "format": float(parses),
                "brevity": float(rng.random()),
            }
            out.append(
                Rollout(
                    id=f"{t}-{k}",
                    task=f"t{t}",
                    turns=(Turn("user", "sum the integers"), Turn("assistant", "print(sum(xs))")),
                    reward=float(shown),
                    components=parts,
                    outcome="correct" if right else "incorrect",
                    group=f"g{t}",
                    k=k,
                )
            )
    return out


class FakeTools:
    """Tools over given rollouts; `replay` answers backtests."""

    def __init__(
        self, stored: Sequence[Rollout] = (), replay: Callable[[Intervention], str] = lambda _: "silent"
    ) -> None:
        self.stored, self.replay = list(stored), replay
        self.asked: list[Intervention] = []

    def backtest(self, intervention: Intervention) -> Backtest:
        self.asked.append(intervention)
        verdict: Any = self.replay(intervention)
        return Backtest(factor=intervention.factor, verdict=verdict, reason=f"the replay {verdict}")

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return self.stored[:limit]

    def why_not(self, changes: Mapping[str, object]) -> str:
        return ""


def health(bottlenecks: dict[str, float] | None = None, **metrics: float) -> HealthReport:
    """A report with ranked bottlenecks and metrics."""
    ranked = sorted((bottlenecks or {}).items(), key=lambda kv: -kv[1])
    return HealthReport(
        harness="h0",
        subject="b0@30 search",
        rollouts=480,
        groups=120,
        metrics=tuple(MetricValue(name=k, layer="signal", value=v) for k, v in metrics.items()),
        findings=(),
        bottlenecks=tuple(Bottleneck(name=k, score=v, explanation=f"{k} is high", findings=(k,)) for k, v in ranked),
    )


def effect(mean: float, se: float = 0.016) -> Effect:
    """An effect with a plain interval."""
    return Effect(
        mean=mean,
        low=mean - 2.5 * se,
        high=mean + 2.5 * se,
        confidence=0.96,
        se=se,
        df=6,
        seeds=3,
        tasks=200,
        noise_floor=0.03,
    )


def record(
    name: str,
    recipe: Recipe,
    parent: str | None = "b0",
    round_: int = 1,
    intervention: Intervention | None = None,
    kind: Any = None,
    mean: float = 0.0,
    **fields: Any,
) -> BranchRecord:
    """A branch, judged where `kind` is given."""
    verdict = None
    if kind:
        verdict = Verdict(
            branch=name, control="b0", kind=kind, reason=f"{kind} for a reason", effect=effect(mean), look=1
        )
    return BranchRecord(
        branch=name,
        parent=parent,
        round=round_,
        recipe=recipe,
        intervention=intervention,
        verdict=verdict,
        effect=verdict.effect if verdict else None,
        **fields,
    )


def briefing(recipe: Recipe = START, report: HealthReport | None = None, **fields: Any) -> Briefing:
    """A briefing of round 1 with b0 as champion, unless `fields` say otherwise."""
    champion = record("b0", recipe, None, 0, version="v0", search={"score": 0.62, "shown": 0.78})
    values: dict[str, Any] = {
        "run": "run",
        "round": 1,
        "task": "write a program",
        "champion": champion,
        "health": report or health(),
        "branches": (champion,),
        "components": COMPONENTS,
        "offers": ("demonstrations",),
        "budget_left": {"cpu_s": 2000.0},
        "trial_cost": 80.0,
    }
    return Briefing(**(values | fields))
