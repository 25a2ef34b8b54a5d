"""Fits a response surface to real trainings: `python -m bench.claim.surface TASK FILE RUN... [--keep ROWS]`.

RUN is a run folder, or a file of rows that an earlier call kept (`trainings/<task>.jsonl`: trainings cost minutes each,
so what was trained on one day is kept for the next).

Bayesian linear regression (Bishop 2006, section 3.3) of search scores on the values in which recipes differ from the
task's starting recipe: effects normal around 0 with the same standard deviation, which is chosen among a few by the
leave-one-out error, as is whether pairs are of use. The error of prediction is that of leaving each recipe out whole.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.surface import Main, Pair, Surface, Value
from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.projections.branches import search_scores
from evotrainer.projections.pooled import Level, levels
from evotrainer.records.recipe import Recipe, diff

EFFECT_SDS = (0.01, 0.02, 0.04, 0.08, 0.16)
"""Prior standard deviations of an effect that are tried, score units."""
PAIR_SHARE = 0.5
"""Of a pair's prior standard deviation, in those of a main effect."""
LEAST = 8
"""Recipes below which nothing is fitted."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One training."""

    changes: Mapping[str, Any]
    """Factor -> value, against the starting recipe."""
    score: float
    seed: int = 0
    cpu_s: float = 0.0
    """CPU-seconds that it took."""


def fit(start: Recipe, seen: Sequence[Scored], name: str, seen_together: int = 3) -> Surface:
    """The surface that explains the trainings; `fit` in it states its error.

    Pairs are fitted that at least `seen_together` trainings have in common. loo_rmse: root mean square error of
    predicting a recipe's mean score from all other recipes; flat_rmse: the same by their mean. ConfigError for too few.
    """
    recipes = [start.with_changes(dict(s.changes)) for s in seen]
    if len({r.hash for r in recipes}) < LEAST:
        raise ConfigError(f"{len({r.hash for r in recipes})} recipes were trained, a surface needs {LEAST}; give more")
    rows = [levels(start, r) for r in recipes]
    y = np.array([s.score for s in seen])
    groups = np.array([r.hash for r in recipes])
    noise = seed_sd(y, groups)
    singles = sorted({x for row in rows for x in row})
    both = [p for p in combinations(singles, 2) if sum(set(p) <= row for row in rows) >= seen_together]
    best: tuple[float, float, list[tuple[Level, Level]]] | None = None
    for pairs in ([], both) if both else ([],):
        for sd in EFFECT_SDS:
            error = leave_one_out(design(rows, singles, pairs), y, groups, prior(singles, pairs, sd), noise)
            if best is None or error < best[0] - 1e-12:
                best = (error, sd, pairs)
    assert best is not None
    error, sd, pairs = best
    weights = posterior(design(rows, singles, pairs), y, prior(singles, pairs, sd), noise)
    effects = dict(zip([*singles, *pairs], weights[1:], strict=True))
    return Surface(
        name=name,
        base=float(np.clip(weights[0], 0.02, 0.98)),
        seed_sd=noise,
        effects=tuple(Main(factor=f, value=json.loads(v), effect=float(effects[f, v])) for f, v in singles),
        pairs=tuple(Pair(a=value(a), b=value(b), effect=float(effects[a, b])) for a, b in pairs),
        fit={
            "trainings": float(len(seen)),
            "recipes": float(len(set(groups))),
            "loo_rmse": error,
            "flat_rmse": flat(y, groups),
            "effect_sd": sd,
            "pairs": float(len(pairs)),
        },
    )


def value(x: Level) -> Value:
    return Value(factor=x[0], value=json.loads(x[1]))


def design(rows: Sequence[frozenset[Level]], singles: Sequence[Level], pairs: Sequence[tuple[Level, Level]]) -> Any:
    """(N, 1 + values + pairs), the intercept first."""
    return np.array(
        [[1.0, *(float(x in row) for x in singles), *(float(set(p) <= row) for p in pairs)] for row in rows]
    )


def prior(singles: Sequence[Level], pairs: Sequence[tuple[Level, Level]], sd: float) -> Any:
    """Precision of each weight, (K,); the intercept's is next to none."""
    return np.array([1e-6, *[1 / sd**2] * len(singles), *[1 / (PAIR_SHARE * sd) ** 2] * len(pairs)])


def posterior(x_NK: Any, y_N: Any, precision_K: Any, noise: float) -> Any:
    """Posterior mean of the weights, (K,)."""
    return np.linalg.solve(np.diag(precision_K) + x_NK.T @ x_NK / noise**2, x_NK.T @ y_N / noise**2)


def leave_one_out(x_NK: Any, y_N: Any, groups_N: Any, precision_K: Any, noise: float) -> float:
    """Root mean square error, over recipes, of the prediction by all other recipes."""
    errors = []
    for g in sorted(set(groups_N)):
        out = groups_N == g
        weights = posterior(x_NK[~out], y_N[~out], precision_K, noise)
        errors.append(float(x_NK[out][0] @ weights - y_N[out].mean()))
    return float(np.sqrt(np.mean(np.square(errors))))


def flat(y_N: Any, groups_N: Any) -> float:
    """The same for predicting the mean of all others: what the surface has to beat."""
    errors = [y_N[groups_N != g].mean() - y_N[groups_N == g].mean() for g in sorted(set(groups_N))]
    return float(np.sqrt(np.mean(np.square(errors))))


def seed_sd(y_N: Any, groups_N: Any, prior_sd: float = 0.025, prior_df: float = 2.0) -> float:
    """Standard deviation of one training's score within recipes, with a weak prior."""
    squares, df = prior_sd**2 * prior_df, prior_df
    for g in set(groups_N):
        mine = y_N[groups_N == g]
        if len(mine) > 1:
            squares += float(((mine - mine.mean()) ** 2).sum())
            df += len(mine) - 1
    return float(np.sqrt(squares / df))


def trainings_in(sources: Iterable[Path], start: Recipe) -> list[Scored]:
    """Every complete training of these runs and files of rows, search trainings included; those of one recipe and seed
    once. ConfigError for a row that is none."""
    out: dict[tuple[str, int], Scored] = {}
    for source in sources:
        for one in kept_in(source) if source.is_file() else trained_in(source, start):
            out[start.with_changes(dict(one.changes)).hash, one.seed] = one
    return list(out.values())


def trained_in(folder: Path, start: Recipe) -> Iterator[Scored]:
    """Of a run, against the task's starting recipe."""
    state = api.open_run(folder).state
    known = [(b.recipe, b.complete) for b in state.branches.values()]
    known += [(p.recipe, p.complete) for p in state.probes.values()]
    for recipe, done in known:
        changes = {f: new for f, (_, new) in diff(start, recipe).items()}
        for t in done:
            for score in search_scores([t]):
                yield Scored(changes, score, t.seed, round(t.computed_cpu_s, 1))


def kept_in(file: Path) -> Iterator[Scored]:
    """Of a file of rows, a JSON object each."""
    for n, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield Scored(**json.loads(line))
        except (ValueError, TypeError) as e:
            raise ConfigError(f"{file}, line {n} is no training ({e}); it was written by another version") from None


def keep(seen: Sequence[Scored], file: Path) -> None:
    """Writes all rows, in an order that depends on nothing else."""
    rows = sorted(json.dumps(asdict(s), sort_keys=True) for s in seen)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{r}\n" for r in rows), encoding="utf-8")


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.claim.surface")
    ask.add_argument("task", type=Path)
    ask.add_argument("file", type=Path)
    ask.add_argument("runs", type=Path, nargs="+", help="run folders, or files of rows")
    ask.add_argument("--keep", type=Path, metavar="ROWS", help="write all trainings into this file, a row each")
    given = ask.parse_intermixed_args()
    task = load_task(given.task)
    seen = trainings_in(given.runs, task.recipe)
    if given.keep:
        keep(seen, given.keep)
    made = fit(task.recipe, seen, task.task.name)
    given.file.write_text(made.model_dump_json(indent=1), encoding="utf-8")
    told = {k: v if k in ("trainings", "recipes") else 100 * v for k, v in made.fit.items()}
    print(
        f"{told['trainings']:.0f} trainings of {told['recipes']:.0f} recipes: {told['loo_rmse']:.1f} points of error "
        f"where a recipe is left out, {told['flat_rmse']:.1f} by their mean; seed sd {100 * made.seed_sd:.1f}"
    )


if __name__ == "__main__":
    main()
