"""Means over trials: gate scores, tasks, training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evotrainer.records.events import TrialFinished


def gate_mean(trials: Sequence[TrialFinished]) -> float:
    """Mean gate score over complete trials; -1 without any."""
    scores = [s.score for t in trials for s in t.scores if s.split == "gate" and s.score is not None]
    return sum(scores) / len(scores) if scores else -1.0


def mean_per_task(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each task over the trials that have it."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        for task, score in trial.items():
            scores.setdefault(task, []).append(score)
    return {task: sum(scores[task]) / len(scores[task]) for task in sorted(scores)}


def greedy_per_task(trials: Sequence[TrialFinished], split: str) -> dict[str, float] | None:
    """Share of correct greedy attempts of each task over trials; None where one of them has no greedy reading."""
    read = [[s.greedy_per_task for s in t.scores if s.split == split and s.greedy_per_task] for t in trials]
    return mean_per_task([x for one in read for x in one]) if read and all(read) else None


def mean_curve(curves: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """Step-wise mean of several training curves, over the steps all of them reached."""
    if not curves:
        return []
    out = []
    for rows in zip(*curves, strict=False):
        keys_ = set.intersection(*(set(r) for r in rows))
        out.append({k: sum(r[k] for r in rows) / len(rows) for k in sorted(keys_)})
    return out
