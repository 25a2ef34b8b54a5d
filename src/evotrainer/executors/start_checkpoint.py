"""Reads the earlier training that a recipe with a `start` continues, where its policy, note and rollouts already lie in
the trial's folder (`trainers/continued.py`), so that it is not trained again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.records.events import FromCache
from evotrainer.trainers.continued import STARTED, notes

if TYPE_CHECKING:
    from evotrainer.records.recipe import Recipe
    from evotrainer.records.store import RolloutStore

ROLLOUTS = "rollouts.parquet"
"""Beside the note: the training rollouts, with the ids that they have in this trial."""


def take_rollouts(folder: Path, store: RolloutStore) -> None:
    """Put the rollouts of an earlier training into the trial's store; IntegrityError where they are damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for at, _ in notes(folder):
        if not (at / ROLLOUTS).is_file():
            continue
        try:
            table = pq.read_table(at / ROLLOUTS, use_threads=False)
        except (pa.ArrowException, OSError) as e:
            raise IntegrityError(f"{at / ROLLOUTS} cannot be read ({e}); delete {folder / STARTED} and resume") from e
        if table.num_rows and str(table.column("id")[0]) not in store:  # a killed trial has them already
            store.adopt(table)


def start_fields(folder: Path) -> dict[str, Any]:
    """What a trial's result says of the earlier training: its policy, and what of it was from the cache."""
    found = [note for _, note in notes(folder)]
    cached: FromCache | None = next((n.cached for n in found if n.cached is not None), None)
    return {"start_sha256": found[0].policy_sha256 if found else "", "cached": cached}


def saved(folder: Path) -> float:
    """CPU-seconds that the cache spared a trial: they count for its limit all the same."""
    cached = start_fields(folder)["cached"]
    return cached.cpu_s if cached else 0.0


def check_one_part(recipe: Recipe) -> None:
    """ConfigError for a recipe whose trainings a data-parallel group would have to agree on."""
    if recipe.start is not None:
        raise ConfigError(
            "recipe.start: processes that train together train one recipe; set executor.options.workers_per_trial=1, "
            "or start to base"
        )
