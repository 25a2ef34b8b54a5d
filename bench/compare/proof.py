"""The proof, alike for all arms: a recipe trained on fresh seeds, read on search and cert, audited as any run is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench.compare.arms import APART, FRESH_SEED, proof_task
from bench.compare.surface import Surface
from evotrainer.config.load import load_run_task
from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError
from evotrainer.projections.branches import BASE, START, search_scores
from evotrainer.projections.reader import describe as told_of
from evotrainer.records.recipe import Recipe

if TYPE_CHECKING:
    from evotrainer.api import Run

GoOn = Callable[[Path, TaskFile], "Run"]
"""Starts or resumes an ordinary run."""


@dataclass(frozen=True, slots=True)
class Proved:
    """A recipe on fresh seeds."""

    cert: dict[int, float]
    """Seed -> score on cert."""
    search: dict[int, float]
    invalid: str = ""
    """Why its scores do not count: an audit found a shortcut, or a reader hacks."""
    run: str = ""
    """Its run folder; empty where it was drawn from a surface."""
    true: float | None = None
    """Its score without noise, where a surface says it."""


class Prover(Protocol):
    """Proves recipes."""

    def __call__(self, recipe: Recipe, repeat: int) -> Proved: ...


@dataclass
class RunProver:
    """Each recipe's proof is an ordinary run without rounds, `proofs/<recipe>-<repeat>`; arms that chose the same
    share it."""

    task: TaskFile
    out: Path
    fresh: int
    go_on: GoOn
    _done: dict[tuple[str, int], Proved] = field(default_factory=dict)

    def __call__(self, recipe: Recipe, repeat: int) -> Proved:
        at = (recipe.hash, repeat)
        if at not in self._done:
            folder = self.out / "proofs" / f"{recipe.hash}-{repeat}"
            task = proof_task(self.task, recipe, self.fresh, repeat)
            there = load_run_task(folder) if (folder / "ledger.db").is_file() else task
            if there.evaluation.protocol != task.evaluation.protocol:
                raise ConfigError(
                    f"{folder}: this choice was proved under another sampling than its search and the start; move the "
                    "folder away, and it is proved again"
                )
            self._done[at] = self._read(self.go_on(folder, task))
        return self._done[at]

    def _read(self, run: Run) -> Proved:
        state = run.state
        start, told = state.branches[START], state.certified
        assert told is not None
        row = next(r for r in told.rows if r.name == "start")
        search = {t.seed: s for t in start.complete for s in search_scores([t])}
        why = start.invalid or ("no valid version is left" if state.champion in (None, BASE) else "")
        if start.readings and start.readings[-1].outcome == "confirmed":
            why = why or told_of(start.readings[-1])
        name = run.folder.relative_to(self.out).as_posix()
        return Proved(dict(zip(row.seeds, row.per_seed, strict=True)), search, why, name)


@dataclass
class SurfaceProver:
    """Drawn, as a run on the surface would have drawn it."""

    surfaces: list[Surface]
    fresh: int

    def __call__(self, recipe: Recipe, repeat: int) -> Proved:
        surface = surface_of(self.surfaces, repeat)
        first = FRESH_SEED + APART * (repeat - 1)
        seeds = range(first, first + self.fresh)
        cert = {s: surface.reading(recipe, s, "cert") for s in seeds}
        search = {s: surface.reading(recipe, s, "search") for s in seeds}
        return Proved(cert, search, true=surface.score(recipe))


def surface_of(surfaces: list[Surface], repeat: int) -> Surface:
    """The world of a repeat: the first repeat has the first, and so on, round and round."""
    return surfaces[(repeat - 1) % len(surfaces)]
