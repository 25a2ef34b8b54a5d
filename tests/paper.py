"""Trials on paper: scores are drawn instead of trained, so that a run's decisions can be tested in a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from evotrainer.executors import local
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.run.loop import Loop


def drawn(
    spec: TrialSpec,
    solved: float,
    key: Callable[[EvalPlan], str],
    world: Mapping[str, Any],
    *,
    steps: int = 12,
    tasks: int = 120,
) -> TrialFinished:
    """What a trial of the specification would have written: each of four attempts succeeds with probability `solved`."""
    scores = []
    for plan in spec.evals:
        rng = random.Random(key(plan))
        per = {f"{plan.split}-{i}": sum(rng.random() < solved for _ in range(4)) / 4 for i in range(tasks)}
        mean = sum(per.values()) / len(per)
        scores.append(SplitScore(split=plan.split, step=steps, score=mean, attempts=4, per_task=per))
    return TrialFinished(
        trial=spec.trial, branch=spec.branch, seed=spec.seed, status="complete", cpu_s=1.0, wall_s=1.0,
        steps=steps if spec.train else 0, policy_sha256=f"sha-{spec.trial}", policy_path=f"trials/{spec.trial}/policy",
        scores=tuple(scores), world=dict(world),
    )  # fmt: skip


def nothing(self: Loop, trial: str, split: str) -> list[Any]:
    """Trials on paper leave no rollouts."""
    return []


def on_paper(
    monkeypatch: pytest.MonkeyPatch,
    finish: Callable[[TrialSpec], TrialFinished],
    load: Callable[[Loop, str, str], list[Any]] = nothing,
) -> list[TrialSpec]:
    """Have every trial finish at once; returns the specifications that ran, in order."""
    ran: list[TrialSpec] = []

    def run(self: Any, specs: Sequence[TrialSpec], progress: Any = None) -> Iterator[TrialFinished]:
        for spec in specs:
            ran.append(spec)
            yield finish(spec)

    monkeypatch.setattr(local.LocalExecutor, "run", run)
    monkeypatch.setattr(Loop, "load", load)
    return ran
