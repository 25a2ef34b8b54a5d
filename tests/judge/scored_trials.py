"""Trials with scores, as the gate sees them: with a planted effect, with component means, repeated."""

from __future__ import annotations

from typing import Any

import numpy as np

from evotrainer.judge import InterimAnalysis, JudgeConfig, JudgeInput, judge
from evotrainer.judge.real_comparisons import RealComparisons, real_comparisons
from evotrainer.judge.simulate import Population
from evotrainer.records.differences import differences
from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.verdicts import Verdict

FIRST = InterimAnalysis(number=1, alpha=0.019)


def recomputed(stored: Verdict, given: JudgeInput) -> tuple[str, ...]:
    """What differs where a verdict is given again from these bodies, as `verify` does it."""
    look = InterimAnalysis(number=stored.look or 1, alpha=stored.alpha or given.config.alpha * 0.5)
    fresh = judge(given, look)
    return tuple(differences(stored.model_dump(mode="json"), fresh.model_dump(mode="json")))


POP = Population(tasks=200)


def planted(effect: float = 0.0, seed: int = 0, seeds: int = 3) -> tuple[list[TrialFinished], list[TrialFinished]]:
    """Trials of a branch with the planted effect, and of its control."""
    rng = np.random.default_rng(seed)
    p_T = POP.difficulties(rng)
    control = POP.trials("b0", p_T, range(1, 4), rng)
    return POP.trials("b1", p_T, range(1, seeds + 1), rng, effect=effect), control


def with_components(trials: list[TrialFinished], **means: list[float]) -> list[TrialFinished]:
    """The trials with component means on the gate split, one value per trial."""
    out = []
    for i, t in enumerate(trials):
        score = t.scores[0].model_copy(update={"components": {k: v[i] for k, v in means.items()}})
        out.append(t.model_copy(update={"scores": (score,)}))
    return out


def leak(severity: Any) -> Finding:
    """A validity finding."""
    return Finding(
        detector="history_reads",
        kind="answer_leak",
        severity=severity,
        claim="12 of 40 rollouts read the fix from the history",
        validity=True,
    )


SMALL = Population(tasks=80, attempts=2)


def repeats(n: int, population: Population = SMALL, name: str = "b0", seed: int = 0) -> list[TrialFinished]:
    rng = np.random.default_rng(seed)
    return population.trials(name, population.difficulties(rng), range(1, n + 1), rng)


def nothing() -> RealComparisons:
    return real_comparisons({}, JudgeConfig())
