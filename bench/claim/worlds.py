"""Invented response surfaces of the classes of a search simulation: `python -m bench.claim.worlds KIND N FILE`.

Over the changes that the catalogue offers for a starting recipe without any symptom: what anybody knows beforehand is
wrong as often as right. A fifth of the factors helps by 1 to 10 points, a third hurts, the others are worth about
nothing; the values of a factor do alike. additive: no more. pairwise: one pair of factors in five interacts, sd 2
points. cliffs: six factors help, and two of them together collapse. nothing: no factor helps. alike: none makes any
difference, so that every promotion is a false one. five: one factor is worth 5 points, the others make no difference.
tuned: as the three domains turned out where a person had tuned the start: one factor is worth 12 points at most, two
some 2, half of the others hurt, and trainings differ by 6 points.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.agents.control import MAX_COST, Space
from bench.compare.surface import Best, Main, Pair, Surface, Value
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.envs import open_environment
from evotrainer.records.briefing import BranchRecord, Briefing
from evotrainer.records.findings import HealthReport
from evotrainer.records.recipe import Recipe, diff
from evotrainer.testing import NoTools

KINDS = ("additive", "pairwise", "cliffs", "nothing", "alike", "five", "tuned")
CLIMBS = 4
FIVE = 0.05
"""Worth of the factor that makes a difference in worlds of kind `five`."""


def scaffold(folder: Path) -> Path:
    """The task of `evotrainer init`: an environment of a few lines, which opens in no time."""
    from evotrainer.cli.init import init

    init(folder / "letters")
    return folder / "letters" / "task.toml"


def offered(task: TaskFile) -> Space:
    """The changes on offer in the starting recipe's situation, where no rollout says anything."""
    environment = open_environment(task.environment, accept_tier_e=True)
    try:
        knobs = {k: ", ".join(map(str, v)) for k, v in environment.knobs.items()}
        components = dict(environment.components)
    finally:
        environment.close()
    start = BranchRecord(branch="b0", parent=None, round=0, recipe=task.recipe)
    health = HealthReport(harness="h0", subject="", rollouts=0, groups=0, metrics=(), findings=())
    briefing = Briefing(
        run="", round=1, task="", champion=start, health=health, branches=(start,), components=components, knobs=knobs
    )
    tools = NoTools()
    return Space(task.recipe, candidate_pool(briefing, tools, situation(briefing, tools, 0), MAX_COST))


def levels_of(space: Space) -> dict[str, list[Any]]:
    """Field -> the values that the changes on offer give it."""
    out: dict[str, list[Any]] = {}
    for c in space.moves:
        for factor, (_, new) in diff(space.champion, c.child).items():
            if new not in out.setdefault(factor, []):
                out[factor].append(new)
    return {f: sorted(out[f], key=lambda v: json.dumps(v, sort_keys=True)) for f in sorted(out)}


def world(kind: str, space: Space, rng: np.random.Generator, name: str) -> Surface:
    """One invented surface over the changes on offer."""
    levels = levels_of(space)
    names = list(levels)
    worth = dict(zip(names, factor_effects(kind, len(names), rng), strict=True))
    effects = [
        Main(factor=f, value=v, effect=round(float(worth[f] * (rng.uniform(0.4, 1.0) if kind != "five" else 1.0)), 5))
        for f in names
        for v in levels[f]
    ]
    made = Surface(
        name=name,
        base=0.45,
        link="logit",
        seed_sd=0.06 if kind == "tuned" else 0.02,
        tasks=60,
        attempts=20,
        effects=tuple(effects),
        pairs=tuple(pairs_of(kind, levels, worth, rng)),
    )
    return made.model_copy(update={"best": best(made, space, rng)})


def factor_effects(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """What each factor is worth at most, (n,), score units."""
    out = rng.normal(0, 0.003, n)
    order = rng.permutation(n)
    if kind in ("alike", "five"):
        return np.where(np.arange(n) == order[0], FIVE, 0.0) * (kind == "five")
    if kind == "tuned":
        out[order[:3]] = (0.12, 0.02, 0.02)
        out[order[3 : 3 + n // 2]] = -rng.uniform(0.01, 0.10, n // 2)
        return out
    help_, hurt = round(n / 5), round(n / 3)
    if kind == "cliffs":
        help_ = 6
    out[order[:help_]] = rng.uniform(0.01, 0.10, help_)
    out[order[help_ : help_ + hurt]] = -rng.uniform(0.01, 0.10, hurt)
    return -np.abs(out) if kind == "nothing" else out


def pairs_of(kind: str, levels: dict[str, list[Any]], worth: dict[str, float], rng: np.random.Generator) -> list[Pair]:
    """Interactions: of a fifth of all pairs of factors, or of any two that help."""
    out = []
    good = sorted(sorted(worth, key=lambda f: -worth[f])[:6])
    for a, b in combinations(sorted(levels), 2):
        effect = 0.0
        if kind == "pairwise" and rng.random() < 0.2:
            effect = float(rng.normal(0, 0.02))
        if kind == "cliffs" and a in good and b in good:
            effect = -0.3
        for x in levels[a] if effect else ():
            for y in levels[b]:
                out.append(Pair(a=Value(factor=a, value=x), b=Value(factor=b, value=y), effect=round(effect, 5)))
    return out


def best(surface: Surface, space: Space, rng: np.random.Generator) -> Best:
    """The best recipe that hill climbing without noise finds: a lower bound of what is within reach."""
    top, changes = 0.0, dict[str, Any]()
    start = surface.score(space.champion)
    for k in range(CLIMBS):
        now = dict[str, Any]()
        for _ in range(6 * k):
            now = space.step(now, rng)
        value, moved = surface.score(_recipe(space, now)), True
        while moved:
            moved = False
            for f in rng.permutation(list(space.factors)):
                kept = space.without(now, f)
                for c in [None, *space.factors[f]]:
                    then = space.fit([*kept, *([c] if c else [])])
                    if (v := surface.score(_recipe(space, then))) > value + 1e-9:
                        now, value, moved = then, v, True
        if value - start > top:
            top, changes = value - start, {f: c.variant.value for f, c in sorted(now.items())}
    return Best(changes=changes, gain=round(top, 5))


def _recipe(space: Space, changes: dict[str, Any]) -> Recipe:
    return space.champion.with_changes({f: c.variant.value for f, c in changes.items()})


def worlds(kind: str, n: int, task: TaskFile, seed: int = 0) -> list[Surface]:
    """`n` surfaces of a class, the same for the same seed."""
    space = offered(task)
    return [world(kind, space, np.random.default_rng([seed, KINDS.index(kind), i]), f"{kind}-{i}") for i in range(n)]


def main(argv: Sequence[str]) -> None:
    kind, n, file = argv[0], int(argv[1]), Path(argv[2])
    with tempfile.TemporaryDirectory() as folder:
        task = load_task(Path(argv[3]) if len(argv) > 3 else scaffold(Path(folder)))
        made = worlds(kind, n, task)
    file.write_text(json.dumps([s.model_dump(mode="json") for s in made]), encoding="utf-8")
    print(f"{n} surfaces, {len(made[0].effects)} values, best gains {min(s.best.gain for s in made if s.best):.3f} up")


if __name__ == "__main__":
    main(sys.argv[1:])
