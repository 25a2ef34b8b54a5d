"""A labelled batch, and what is common to all domains: rewards, advantages, logprobs, curves, readings of the start."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evotrainer.harness import Batch, HarnessContext, measure
from evotrainer.records.findings import HealthReport
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, Turn

STEPS = 24
Curve = dict[str, list[float]]


@dataclass(frozen=True)
class Signals:
    """How the trainer sees a batch; a healthy run by default. Failures of the signal layer change these."""

    entropy: float = 0.6
    logprob: float = -0.45
    weights: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0})
    extra: tuple[tuple[str, str, float], ...] = ()
    """Reward components by mechanism: (name, kind, parameter); see `component`."""
    squeeze: float = 1.0
    """Scale of the correctness reward around 0.5, with a judge's noise of a hundredth where it is below 1."""
    advantages: str = "group"
    """group: (reward - mean) / std; lost: a bug drops the reward before the advantage; none: not stored."""
    faults: float = 0.0
    curve: Curve = field(default_factory=dict)
    """Series that replace the healthy ones."""
    previous: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One attempt of a domain, before the trainer's bookkeeping."""

    task: str
    turns: tuple[Turn, ...]
    correct: bool
    components: Mapping[str, float]
    tokens: int
    finish: str = "stop"
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A batch with its label."""

    domain: str
    planted: str
    """Failure that was planted, "" for none."""
    note: str
    rollouts: list[Rollout]
    context: HarnessContext
    may: frozenset[str] = frozenset()
    """Detectors whose failure the planting may bring along: neither right nor wrong here."""


def pass_rate(seed: int, task: int, mean: float, spread: float) -> float:
    """How often a policy solves a task; a task is as hard for every policy of a seed."""
    odds = math.log(mean / (1 - mean)) + spread * random.Random(f"{seed}:{task}").gauss(0, 1)
    return 1 / (1 + math.exp(-odds))


def component(kind: str, x: float, a: Attempt, rng: random.Random) -> float:
    """Value of a side reward: `format` (earned with chance x), `noise` (a style judge that does not see correctness),
    `brevity` and `length` (by tokens), `partial` (correctness with noise), `lenient` (a judge fooled with chance x)."""
    if kind == "format":
        return float(rng.random() < x)
    if kind == "noise":
        return min(1.0, max(0.0, rng.gauss(0.5, x)))
    if kind == "length":
        return min(1.0, a.tokens / x)
    if kind == "lenient":
        return float(a.correct or rng.random() < x)
    if kind == "brevity":
        return max(0.0, 1.0 - a.tokens / x)
    return min(1.0, max(0.0, 0.8 * a.correct + rng.gauss(0.1, x)))


def book(groups: Sequence[Sequence[Attempt]], s: Signals, rng: random.Random) -> list[Rollout]:
    """What a trainer would have stored of these attempts."""
    out: list[Rollout] = []
    for g, group in enumerate(groups):
        rows: list[Rollout] = []
        for k, a in enumerate(group):
            parts = dict(a.components) | {"correct": float(a.correct)}
            parts |= {name: component(kind, x, a, rng) for name, kind, x in s.extra}
            if s.squeeze < 1.0:
                parts["correct"] = 0.5 + s.squeeze * (float(a.correct) - 0.5) + rng.gauss(0, 0.01)
            reward = sum(w * parts[c] for c, w in s.weights.items())
            fault = rng.random() < s.faults
            rows.append(
                Rollout(
                    id=f"{g}-{k}", task=a.task, group=f"g{g}", k=k, turns=a.turns,
                    reward=None if fault else reward, components={} if fault else parts,
                    outcome="unknown" if fault else "correct" if a.correct else "incorrect",
                    finish=a.finish, tokens=a.tokens, detail=dict(a.detail),  # type: ignore[arg-type]
                    error_kind="timeout" if fault else None, error="the sandbox did not answer" if fault else "",
                    entropy=max(0.001, rng.gauss(s.entropy, 0.15 * s.entropy)),
                    mean_logprob=-max(0.0005, rng.gauss(-s.logprob, -0.15 * s.logprob)),
                )
            )  # fmt: skip
        out += _advantages(rows, s.advantages)
    return out


def _advantages(rows: list[Rollout], how: str) -> list[Rollout]:
    rewards = [r.reward for r in rows if r.reward is not None]
    if how == "none" or not rewards:
        return rows
    mean, std = float(np.mean(rewards)), float(np.std(rewards))
    if how == "lost":
        mean, std = 0.0, 0.0
    return [
        r if r.reward is None else replace(r, advantage=0.0 if std < 1e-6 else (r.reward - mean) / (std + 1e-4))
        for r in rows
    ]


def curve(
    rng: random.Random, s: Signals, base: float, now: float, tokens: tuple[float, float]
) -> tuple[Mapping[str, float], ...]:
    """A learning curve: saturating rise of the score, slow fall of entropy, small noise;
    series of `s.curve` replace its own."""
    rate = rng.uniform(0.8, 3.0)
    shape = [(1 - np.exp(-rate * i / STEPS)) / (1 - np.exp(-rate)) for i in range(STEPS + 1)]
    noise = rng.uniform(0.008, 0.03)
    score = [min(1.0, max(0.0, base + (now - base) * x + rng.gauss(0, noise))) for x in shape]
    start = max(s.entropy, s.entropy * rng.uniform(1.0, 1.6))
    lines: Curve = {
        "score": score,
        "reward": score,
        "entropy": [start + (s.entropy - start) * x + rng.gauss(0, 0.02 * start) for x in shape],
        "reward_std": [0.33 - 0.06 * x + rng.gauss(0, 0.015) for x in shape],
        "frac_reward_zero_std": [min(0.9, max(0.0, 0.15 + 0.1 * x + rng.gauss(0, 0.04))) for x in shape],
        "kl": [0.08 * x + abs(rng.gauss(0, 0.01)) for x in shape],
        "ratio_max": [1.5 + abs(rng.gauss(0, 0.8)) for _ in shape],
        "ess": [min(1.0, 0.93 + rng.gauss(0, 0.02)) for _ in shape],
        "completions/mean_length": [
            tokens[0] + (tokens[1] - tokens[0]) * x + rng.gauss(0, 0.02 * tokens[0]) for x in shape
        ],
    }  # fmt: skip
    lines |= s.curve
    n = min(len(v) for v in lines.values())
    return tuple({k: float(v[len(v) - n + i]) for k, v in lines.items()} for i in range(n))


def read_start(rollouts: Sequence[Rollout]) -> HealthReport:
    """The reading of a start policy."""
    batch = Batch.of(rollouts)
    values = tuple(measure(batch, HarnessContext()).values())
    return HealthReport(
        harness="h0", subject="base", rollouts=batch.n, groups=batch.n_groups, metrics=values, findings=()
    )


def recipe(s: Signals) -> Recipe:
    """The recipe that pays what `s` says."""
    return Recipe(rewards=dict(s.weights))
