"""`evotrainer try-code`: a reward component or a hook of one's own, through the loop's checks and backtest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import FOUND, AsJson
from evotrainer.errors import ConfigError
from evotrainer.records.output import print


def try_code(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python file: reward(rollout), or hooks.")],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or rollouts of others.")],
    *,
    weight: Annotated[float, typer.Option(help="Its weight beside what is paid now.")] = 1.0,
    instead_of: Annotated[
        str | None, typer.Option("--instead-of", help="Component that gives it its place and weight.")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Branch of a run; default: the champion.")] = None,
    split: Annotated[str, typer.Option(help="Split of a run: search or train.")] = "search",
    tier_e: Annotated[
        bool, typer.Option("--accept-tier-e", help="Run it where no sandbox is better than tier E.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Would this code be trained on, a reward component or a hook? The checks that the loop makes of an agent's, and
    the backtest.

    The file defines reward(rollout), one pure function of a rollout's public evidence; or hooks, edits of the
    algorithm: advantages(group), weights(rollouts), select(tasks, history). It is run in the sandbox, never imported.
    Of a run it reads one branch's rollouts on one split: the champion's on search, or --branch, --split.
    Exit code 10 where a check or the replay ends it; the label says which.

    Example: evotrainer try-code no_crash.py runs/mine
    """
    from evotrainer.studies.backtest import subjects
    from evotrainer.studies.backtest.code import code_lines, passed_everything, try_code
    from evotrainer.studies.backtest.text import change_json, change_lines

    if not weight > 0:
        raise ConfigError(f"--weight {weight:g}: give a weight above 0; what is unwanted is paid as 1 minus it")
    tried = [try_code(s, file, weight, instead_of, tier_e) for s in subjects(runs, branch=branch, split=split)]
    if as_json:
        results = [{"component": t.name, "source": t.source, **change_json(t.replayed)} for t in tried]
        print(json.dumps(results, indent=1))
    else:
        print("\n\n".join("\n".join([*code_lines(t), *change_lines(t.replayed)]) for t in tried))
    if not passed_everything(tried):
        raise typer.Exit(FOUND)
