"""`python -m bench.compare`: search arms at an equal number of trainings, each arm's choice proved on fresh seeds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bench.compare import check_arms, open_plan, table
from bench.compare import compare as play
from bench.compare.plan import make_plan
from bench.compare.surface import load_surfaces
from bench.compare.text import text_table, write_results
from evotrainer.cli._common import AsJson, Overrides, TaskPath
from evotrainer.cli._progress import progress
from evotrainer.config.load import load_task
from evotrainer.errors import AbortedError, ConfigError, EvoTrainerError
from evotrainer.records.output import print

ALL = "statistical,one_factor,random,random_recipes,greedy,tpe,best_of_n,score_only,frozen"


def compare(
    task: TaskPath,
    overrides: Overrides = None,
    *,
    out: Annotated[Path, typer.Option(help="Folder of the comparison; the same command goes on with it.")],
    arms: Annotated[str, typer.Option(help="Arms, separated by commas.")] = ALL,
    repeats: Annotated[int, typer.Option(help="Repeats of each arm, each on seeds of its own.")] = 3,
    trainings: Annotated[int, typer.Option(help="Trainings of each repeat, its proof apart.")] = 60,
    fresh: Annotated[int, typer.Option(help="Fresh seeds on which each choice, and the start, is proved.")] = 3,
    points: Annotated[
        int | None,
        typer.Option(help="Places along the trainings at which the choice of the moment is proved; default the end."),
    ] = None,
    surface: Annotated[
        Path | None, typer.Option(help="Draw trainings from this response surface (JSON) instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare ways to search for a recipe, at an equal number of trainings.

    Each repeat of an arm is a run folder below --out. What an arm chooses is trained on fresh seeds, beside the start.

    Example: python -m bench.compare tasks/math.toml --arms statistical,tpe,greedy --repeats 5 --out runs/arms
    """
    names = [a.strip() for a in arms.split(",") if a.strip()]
    if not names:
        raise ConfigError("--arms names no arm; e.g. --arms statistical,tpe")
    resolved = load_task(task, overrides or [])
    worlds = load_surfaces(surface) if surface else []
    check_arms(names, resolved, trainings)
    asked = make_plan(resolved, names, repeats, trainings, fresh, points or (12 if worlds else 1), worlds)
    plan = open_plan(out, asked)
    if plan.repeats < 2:
        print("evotrainer: note: one repeat gives no interval; --repeats 2 or more does", file=sys.stderr)
    with progress(_line) as tell, interrupted(out):
        found = table(play(plan, resolved, out, worlds, tell=tell)) | {"plan": plan.model_dump()}
    made = write_results(found, out)
    if as_json:
        print(json.dumps(found))
        return
    print(text_table(found))
    print(f"every number: {made}")


def _line(what: str, done: int, of: int) -> None:
    """A unit of hours' work, where there is no terminal."""
    if what:
        print(f"{done + 1}/{of} {what}", file=sys.stderr)


@contextmanager
def interrupted(out: Path) -> Iterator[None]:
    """Ctrl-C ends the trials in progress and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        e = AbortedError(f"interrupted; nothing is lost: the same command goes on with {out}")
        e.exit_code = 130
        raise e from None


if __name__ == "__main__":
    try:
        typer.run(compare)
    except EvoTrainerError as e:
        print(f"bench.compare: {e}", file=sys.stderr)
        raise SystemExit(e.exit_code) from None
