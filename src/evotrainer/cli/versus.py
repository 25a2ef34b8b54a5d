"""`evotrainer versus`: is A better than B? One word over two sets of anybody's rollouts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import FOUND, AsJson, Cache, Format, Map, Workers, check_workers
from evotrainer.cli._progress import progress
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

SEPARATOR = "vs"
WORDS = ("better", "no-worse", "undecided", "worse")
"""From what CI likes best to what it likes least."""

Sides = Annotated[
    list[str],
    typer.Argument(
        metavar="A... vs B...",
        help="Files or folders of A, the word vs, those of B; two paths need no vs. A path may hold several trainings.",
    ),
]
Score = Annotated[
    str | None,
    typer.Option(
        help="outcome, reward or a component; default: the outcome where both sides record one, else the reward."
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(help="Say `no worse` where a loss of this much is excluded; score units, 0.02 is 2 points."),
]
Alpha = Annotated[float, typer.Option(help="Probability of a false `better`, and of a false `worse`.")]
Split = Annotated[str | None, typer.Option(help="Only rollouts of this split.")]
Policy = Annotated[str | None, typer.Option(help="Only rollouts of this policy (model).")]
Steps = Annotated[str | None, typer.Option(metavar="FIRST-LAST", help="Only rollouts of these training steps.")]
Common = Annotated[bool, typer.Option("--common-tasks", help="Decide on the tasks that all have, however few.")]
Reworded = Annotated[
    bool,
    typer.Option("--other-prompts", help="Pair tasks by id though their prompts differ: the same tasks, reworded."),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="What tells a path's trainings apart: file, folder, a column, or one (it is one training); default: what "
        "names and columns say."
    ),
]
Fault = Annotated[
    list[str] | None,
    typer.Option(help="A column that makes a rollout a fault, COLUMN or COLUMN=VALUE; again for more."),
]
FailOn = Annotated[
    str | None,
    typer.Option(
        help="worse, undecided or no-worse: exit with 10 at that word or below, for CI; worse lets undecided pass."
    ),
]
Html = Annotated[Path | None, typer.Option(help="Write a page to this file.")]


def versus(
    paths: Sides,
    *,
    score: Score = None,
    margin: Margin = None,
    alpha: Alpha = 0.025,
    split: Split = None,
    policy: Policy = None,
    steps: Steps = None,
    seeds: Seeds = None,
    common_tasks: Common = False,
    other_prompts: Reworded = False,
    fault: Fault = None,
    fail_on: FailOn = None,
    html: Html = None,
    as_json: AsJson = False,
    format: Format = None,
    map: Map = None,
    cache: Cache = None,
    workers: Workers = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no cache.")] = False,
) -> None:
    """Is A better than B? One word (better, no worse, worse, undecided) over two sets of anybody's rollouts.

    Paired by task, so both sides need the same ones; several trainings (seeds) a side are clusters, as in a run's
    verdict, and the word speaks of the recipes. With one training a side it speaks of these two policies' outputs.
    Seeds in one folder are told apart by the names of files and policies and by columns. Any format that `audit` reads.

    Example: evotrainer versus new/ old/

    Example: evotrainer versus new/seed* vs old/seed* --margin 0.02 --fail-on undecided --html versus.html
    """
    a, b = sides_of(paths)
    _check(fail_on, alpha, margin)
    check_workers(workers)
    from evotrainer.studies.audit import default_cache
    from evotrainer.studies.versus import Selection, compare, read_side
    from evotrainer.studies.versus.text import versus_json, versus_lines

    folder = None if no_cache else cache or default_cache()
    wanted = Selection(format, map or (), fault or (), split, policy, _steps(steps), folder, workers, seeds)
    with progress() as say:
        logs = [read_side(paths, wanted, side, say) for paths, side in ((a, "A"), (b, "B"))]
        say("comparing", 0, 1)
        done = compare(*logs, score=score, alpha=alpha, margin=margin, common=common_tasks, reworded=other_prompts)
    print(json.dumps(versus_json(done), indent=1) if as_json else "\n".join(versus_lines(done)))
    if html is not None:
        from evotrainer.studies.versus.page import write_html

        print(f"report: {write_html(done, html)}", file=sys.stderr if as_json else sys.stdout)
    if fail_on and WORDS.index(done.comparison.word.replace(" ", "-")) >= WORDS.index(fail_on):
        raise typer.Exit(FOUND)


def sides_of(given: list[str]) -> tuple[list[Path], list[Path]]:
    """Paths before and after the word `vs`; ConfigError where a side is empty."""
    if given.count(SEPARATOR) > 1:
        raise ConfigError("vs is given twice; two sides are compared (a file of that name is ./vs)")
    if SEPARATOR in given:
        at = given.index(SEPARATOR)
        a, b = given[:at], given[at + 1 :]
    elif len(given) == 2:
        a, b = given[:1], given[1:]
    else:
        raise ConfigError(
            f"{len(given)} path(s) and no vs between the sides; give evotrainer versus A B, or A1 A2 ... vs B1 B2 ..."
        )
    for side, paths in (("A", a), ("B", b)):
        if not paths:
            raise ConfigError(f"side {side} is empty; give at least one file or folder on each side of vs")
    return [Path(p) for p in a], [Path(p) for p in b]


def _check(fail_on: str | None, alpha: float, margin: float | None) -> None:
    if fail_on is not None and fail_on not in WORDS[1:]:
        raise ConfigError(f"--fail-on {fail_on}: give {', '.join(WORDS[1:])}")
    if not 0 < alpha < 0.5:
        raise ConfigError(f"--alpha {alpha:g}: give a probability above 0 and below 0.5")
    if margin is not None and not margin > 0:
        raise ConfigError(f"--margin {margin:g}: give the loss that would matter, above 0, e.g. 0.02 for 2 points")


def _steps(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise ConfigError(f"--steps {text}: give FIRST-LAST, e.g. --steps 80-100, or one step")
    return int(first), int(last or first)
