"""Landscapes fitted to real trainings: `python -m bench.claim.fitted NAME` states the error for math or code
(and for swe, of which the 85 trainings there are say no more than their mean: no world is made of it).

A Gaussian process (Rasmussen and Williams 2006, chapter 2) over what recipes say in numbers: logs of the sizes that
range over more than a factor of 2.5, words as 0 or 1, phases part by part. So a value between two that were trained
scores between them, which one effect per value cannot do. Kernel: constant + linear + squared exponential,
its sizes chosen by the error of leaving each recipe out. A recipe scores what the posterior expects: far from all
trainings that is their mean, so the landscape is flatter than the real one. (Draws of the posterior were tried: far
from the trainings they have peaks of twenty points that no training has seen.) All trainings cost the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from bench.claim.surface import Scored, flat, kept_in, seed_sd
from bench.compare.surface import Surface
from evotrainer.config.task import TaskFile
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.findings import HealthReport
from evotrainer.records.recipe import Recipe

HERE = Path(__file__).parent
LINEAR, CURVED, LENGTHS, CONSTANT = (0.0, 0.03, 0.06), (0.0, 0.03, 0.06, 0.1, 0.15), (0.5, 0.8, 1.2, 2.0), (0.02, 0.05)
"""Standard deviations (score units) and lengths of the kernel that are tried."""
WIDE = 2.5
"""Largest over smallest value from which on a size is taken by its log."""


def numbers(recipe: Recipe) -> dict[str, float]:
    """What a recipe says, as numbers."""
    out: dict[str, float] = {}
    for name, value in recipe.factors().items():
        out.update(_flat(value, name))
    supervised = sum(v for k, v in out.items() if k.startswith("phases[") and k.endswith(".steps"))
    return out | {"rl_steps": recipe.whole_steps - supervised}


def _flat(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _flat(v, f"{name}.{k}")
    elif isinstance(value, list | tuple):
        yield f"{name}#", float(len(value))
        for i, v in enumerate(value):
            yield from _flat(v, f"{name}[{i}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)
    else:
        yield f"{name}={value}", 1.0


class Axes:
    """The numbers that differ between recipes, each with mean 0 and standard deviation 1 over the trainings."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        seen = [numbers(r) for r in recipes]
        self.names: list[str] = []
        self.logs: dict[str, float] = {}
        """Name -> half of its smallest size, for those that are taken by their log."""
        raw = []
        for name in sorted({k for one in seen for k in one}):
            values = [one.get(name, 0.0) for one in seen]
            sizes = [v for v in values if v > 0]
            if sizes and max(sizes) > WIDE * min(sizes):
                self.logs[name] = min(sizes) / 2
            column = np.array([self._one(name, v) for v in values])
            if column.std() > 1e-9:
                self.names.append(name)
                raw.append(column)
        x_NK = np.array(raw).T
        self.low, self.high, self.mean, self.sd = x_NK.min(0), x_NK.max(0), x_NK.mean(0), x_NK.std(0)
        self.x_NK = (x_NK - self.mean) / self.sd

    def _one(self, name: str, value: float) -> float:
        return math.log(value / self.logs[name]) if name in self.logs and value > 0 else value

    def of(self, recipe: Recipe) -> Any:
        """(K,); what lies beyond the trainings counts as their end."""
        seen = numbers(recipe)
        found = np.array([self._one(n, seen.get(n, 0.0)) for n in self.names])
        return (np.clip(found, self.low, self.high) - self.mean) / self.sd


@dataclass(frozen=True)
class Kernel:
    """Sizes in score units; distances are root mean squares over the axes."""

    linear: float
    curved: float
    length: float
    constant: float

    def __call__(self, a_NK: Any, b_MK: Any) -> Any:
        """(N, M)"""
        dot = a_NK @ b_MK.T / a_NK.shape[1]
        far = (a_NK**2).mean(1)[:, None] + (b_MK**2).mean(1)[None, :] - 2 * dot
        return self.constant**2 + self.linear**2 * dot + self.curved**2 * np.exp(-far / (2 * self.length**2))


@dataclass
class Landscape:
    """A Gaussian process fitted to trainings."""

    start: Recipe
    """Against which the trainings' changes are told."""
    seen: Sequence[Scored]
    kernel: Kernel = field(init=False)
    error: float = field(init=False)
    """Root mean square error of predicting a recipe's mean from all other recipes, score units."""

    def __post_init__(self) -> None:
        recipes = [self.start.with_changes(dict(s.changes)) for s in self.seen]
        self.axes = Axes(recipes)
        self.y_N = np.array([s.score for s in self.seen])
        self.groups = np.array([r.hash for r in recipes])
        self.noise = seed_sd(self.y_N, self.groups)
        tried = [Kernel(*sizes) for sizes in product(LINEAR, CURVED, LENGTHS, CONSTANT)]
        self.error, best = min((self._left_out(k), n) for n, k in enumerate(tried))
        self.kernel = tried[best]

    @cached_property
    def weights(self) -> Any:
        """Of each training in a prediction."""
        return self._inverse(self.kernel) @ (self.y_N - self.y_N.mean())

    @property
    def rows(self) -> float:
        """A number that tells these trainings from others: the hash of the surface holds it."""
        text = json.dumps([[g, round(float(y), 6)] for g, y in zip(self.groups, self.y_N, strict=True)])
        return float(int(hashlib.sha256(text.encode()).hexdigest()[:12], 16))

    def __call__(self, recipe: Recipe) -> float:
        """Expected score of a recipe."""
        x = self.axes.of(recipe)[None, :]
        return float(self.y_N.mean() + (self.kernel(x, self.axes.x_NK) @ self.weights)[0])

    def _inverse(self, kernel: Kernel) -> Any:
        x = self.axes.x_NK
        return np.linalg.inv(kernel(x, x) + self.noise**2 * np.eye(len(x)))

    def _left_out(self, kernel: Kernel) -> float:
        inverse = self._inverse(kernel)
        weights = inverse @ (self.y_N - self.y_N.mean())
        errors = []
        for g in sorted(set(self.groups)):
            out = np.flatnonzero(self.groups == g)
            errors.append(np.linalg.solve(inverse[np.ix_(out, out)], weights[out]).mean())
        return float(np.sqrt(np.mean(np.square(errors))))


class Fitted(Surface):
    """A surface whose scores are a landscape's."""

    land: Any = Field(exclude=True)
    signals: HealthReport | None = Field(None, exclude=True)
    """What the harness read of the reference's real rollouts; so it is told of every training."""
    known: dict[str, float] = Field(default_factory=dict, exclude=True)

    def score(self, recipe: Recipe) -> float:
        if recipe.hash not in self.known:
            self.known[recipe.hash] = round(min(0.98, max(0.02, self.land(recipe))), 6)  # the same on any BLAS
        return self.known[recipe.hash]

    def _health(self, spec: TrialSpec) -> tuple[HealthReport, ...]:
        subject = f"{spec.branch}/{spec.seed}@{spec.recipe.whole_steps} search"
        return (self.signals.model_copy(update={"subject": subject}),) if self.signals else ()


def landscape(name: str, task: TaskFile) -> Landscape:
    """That of a domain, from `trainings/<name>.jsonl`; `task` as its file has it, against which the rows are told."""
    return Landscape(task.recipe, list(kept_in(HERE / "trainings" / f"{name}.jsonl")))


def fitted(name: str, task: TaskFile, reference: Recipe) -> Surface:
    """The surface on which a search begins with the reference."""
    land = landscape(name, task)
    plain = Surface(name=name, base=0.5)
    read = HERE / "signals" / f"{name}.json"
    sampling = math.sqrt(0.25 / (plain.tasks * plain.attempts))
    return Fitted(
        name=name,
        base=round(land(reference), 4),
        seed_sd=round(math.sqrt(max(0.005**2, land.noise**2 - sampling**2)), 4),
        fit={"trainings": float(len(land.seen)), "loo_rmse": round(land.error, 4), "rows": land.rows},
        land=land,
        signals=HealthReport.model_validate_json(read.read_text()) if read.is_file() else None,
    )


def main() -> None:
    from bench.claim.real import reference
    from evotrainer.config.load import load_task

    name = sys.argv[1]
    task = load_task(Path(f"tasks/{name}.toml"))
    land = landscape(name, task)
    known = {r.hash: r for r in (land.start.with_changes(dict(s.changes)) for s in land.seen)}
    best = max(known.values(), key=land)
    mean, seen, axes = flat(land.y_N, land.groups), len(land.seen), len(land.axes.names)
    print(
        f"{name}: {seen} trainings of {len(known)} recipes, {axes} axes; error where a recipe is left out "
        f"{100 * land.error:.1f} points, by the mean of all {100 * mean:.1f}; noise {100 * land.noise:.1f}; "
        f"{land.kernel}; the reference {100 * land(reference(name)):.1f}%, the best that was trained "
        f"{100 * land(best):.1f}%"
    )


if __name__ == "__main__":
    main()
