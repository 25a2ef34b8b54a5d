"""`evotrainer backtest`: what a change of the recipe would have done, replayed on rollouts that exist."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import FOUND, AsJson, Cache, Format, Workers
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

Items = Annotated[
    list[str],
    typer.Argument(metavar="PATH... [name=value]...", help="Run folders or rollouts, then what is to be changed."),
]
Change = Annotated[Path | None, typer.Option(help="The change as a file, TOML or JSON: factor, new, prediction.")]
Predict = Annotated[str | None, typer.Option(help="What the change should do, e.g. 'frac_reward_zero_std down 0.2'.")]
Paid = Annotated[
    str | None,
    typer.Option(help="Weights in the reward of foreign rollouts, e.g. visible=1,format=0.1; default: inferred."),
]
FailOn = Annotated[str | None, typer.Option(help="contradicts: exit with 10 where a replay does, for CI.")]


def backtest(
    items: Items,
    *,
    intervention: Change = None,
    predict: Predict = None,
    branch: Annotated[str | None, typer.Option(help="Branch of a run; default: the champion.")] = None,
    split: Annotated[str, typer.Option(help="Split of a run: search or train.")] = "search",
    paid: Paid = None,
    format: Format = None,
    cache: Cache = None,
    workers: Workers = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """What would this reward, filter or best-of-n score have done? A change of the recipe, replayed on a run's champion
    or on anybody's rollouts, in seconds.

    Example: evotrainer backtest runs/mine rewards.robust=1 rewards.visible=0
    """
    from evotrainer.studies.backtest import as_intervention, replay_change, subjects
    from evotrainer.studies.backtest.text import change_json, change_lines

    paths, settings = split_items(items)
    _check(paths, settings, intervention, fail_on)
    found = subjects(
        paths, branch=branch, split=split, paid=_weights(paid), format=format, cache=cache, workers=workers
    )
    results = [replay_change(s, *as_intervention(s.recipe, settings, intervention, predict)) for s in found]
    if as_json:
        print(json.dumps([change_json(r) for r in results], indent=1))
    else:
        print("\n\n".join("\n".join(change_lines(r)) for r in results))
    if fail_on and any(r.backtest.verdict == "contradicts" for r in results):
        raise typer.Exit(FOUND)


def split_items(items: Sequence[str]) -> tuple[list[Path], list[str]]:
    """(paths, settings): a setting has a `=` and is no file."""
    settings = [i for i in items if "=" in i and not Path(i).exists()]
    return [Path(i) for i in items if i not in settings], settings


def _check(paths: Sequence[Path], settings: Sequence[str], intervention: Path | None, fail_on: str | None) -> None:
    """ConfigError where the arguments name nothing to replay."""
    if not paths:
        raise ConfigError("give a run folder or rollouts first: evotrainer backtest RUN rewards.robust=1")
    if fail_on not in (None, "contradicts"):
        raise ConfigError(f"--fail-on {fail_on}: give contradicts")
    if not settings and intervention is None:
        raise ConfigError(
            "say what to replay: a change (rewards.robust=1, group_filter=snr_top_p) or --intervention FILE"
        )


def _weights(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    try:
        return {k.strip(): float(v) for k, v in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ConfigError(f"--paid {text}: give component=weight,..., e.g. --paid visible=1,format=0.1") from None
