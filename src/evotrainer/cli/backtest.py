"""`evotrainer backtest`: what a change, a detector or a gate would have done, replayed on what exists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import FOUND, AsJson, Cache, Format, Workers
from evotrainer.cli._progress import progress
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.studies.backtest import ReplayedChange

Items = Annotated[
    list[str],
    typer.Argument(metavar="PATH... [name=value]...", help="Run folders or rollouts, then what is to be changed."),
]
Change = Annotated[Path | None, typer.Option(help="The change as a file, TOML or JSON: factor, new, prediction.")]
Predict = Annotated[str | None, typer.Option(help="What the change should do, e.g. 'frac_reward_zero_std down 0.2'.")]
Detector = Annotated[
    str | None, typer.Option(help="Backtest a detector: its name, or a file; name=value are its thresholds.")
]
Gate = Annotated[
    bool,
    typer.Option("--gate", help="Backtest a gate: alpha=0.01, min_effect=0.03, drop=proxy, rule=score-only."),
]
Paid = Annotated[
    str | None,
    typer.Option(help="Weights in the reward of foreign rollouts, e.g. visible=1,format=0.1; default: inferred."),
]
Bad = Annotated[str | None, typer.Option(help="Versions that are bad, for --detector: b1,b3; default: the ledger's.")]
Seen = Annotated[str | None, typer.Option(help="Versions looked at when the detector was made; default: the ledger's.")]
Label = Annotated[str | None, typer.Option(help="Bad rollouts by a field or key of their detail: KEY or KEY=VALUE.")]
FailOn = Annotated[
    str | None,
    typer.Option(help="contradicts (a change) or flips (a gate changes a verdict): exit with 10 then, for CI."),
]


def backtest(
    items: Items,
    *,
    intervention: Change = None,
    predict: Predict = None,
    detector: Detector = None,
    gate: Gate = False,
    branch: Annotated[str | None, typer.Option(help="Branch of a run; default: the champion.")] = None,
    split: Annotated[str, typer.Option(help="Split of a run: search or train.")] = "search",
    paid: Paid = None,
    bad: Bad = None,
    seen: Seen = None,
    label: Label = None,
    format: Format = None,
    cache: Cache = None,
    workers: Workers = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """What would this reward, filter, detector or gate have done? Replayed on rollouts and verdicts that exist, in
    seconds.

    A change of the recipe is replayed on a run's champion or on anybody's rollouts; a detector (--detector) is held
    against all versions whose truth is known; a gate (--gate) gives a run's verdicts again.

    Example: evotrainer backtest runs/mine rewards.robust=1 rewards.visible=0
    """
    paths, settings = split_items(items)
    kind = "gate" if gate else "detector" if detector else "change"
    _check(paths, settings, kind, detector, intervention, fail_on)
    read: dict[str, Any] = {"format": format, "cache": cache, "workers": workers}
    if gate:
        met = _gates(paths, settings, as_json) and fail_on == "flips"
    elif detector:
        _detector(detector, settings, paths, as_json, bad=_names(bad), seen=_names(seen), label=label, **read)
        met = False
    else:
        from evotrainer.studies.backtest import as_intervention, replay_change, subjects

        found = subjects(paths, branch=branch, split=split, paid=_weights(paid), **read)
        results = [replay_change(s, *as_intervention(s.recipe, settings, intervention, predict)) for s in found]
        _print_changes(results, as_json)
        met = fail_on == "contradicts" and any(r.backtest.verdict == "contradicts" for r in results)
    if met:
        raise typer.Exit(FOUND)


def split_items(items: Sequence[str]) -> tuple[list[Path], list[str]]:
    """(paths, settings): a setting has a `=` and is no file."""
    settings = [i for i in items if "=" in i and not Path(i).exists()]
    return [Path(i) for i in items if i not in settings], settings


def _check(
    paths: Sequence[Path],
    settings: Sequence[str],
    kind: str,
    detector: str | None,
    intervention: Path | None,
    fail_on: str | None,
) -> None:
    """ConfigError where the arguments name nothing to replay, or two things."""
    if not paths:
        raise ConfigError("give a run folder or rollouts first: evotrainer backtest RUN rewards.robust=1")
    if fail_on not in (None, "contradicts", "flips"):
        raise ConfigError(f"--fail-on {fail_on}: give contradicts (a change) or flips (a gate)")
    if kind == "gate" and (detector or intervention):
        raise ConfigError("--gate, --detector and --intervention are three kinds of backtest; give one")
    if detector and intervention:
        raise ConfigError("--detector and --intervention are two kinds of backtest; give one")
    if kind == "change" and not settings and intervention is None:
        raise ConfigError(
            "say what to replay: a change (rewards.robust=1, group_filter=snr_top_p), --intervention FILE, "
            "--detector NAME or --gate alpha=0.01"
        )


def _names(text: str | None) -> list[str]:
    return [n.strip() for n in (text or "").split(",") if n.strip()]


def _weights(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    try:
        return {k.strip(): float(v) for k, v in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ConfigError(f"--paid {text}: give component=weight,..., e.g. --paid visible=1,format=0.1") from None


def _print_changes(results: Sequence[ReplayedChange], as_json: bool) -> None:
    from evotrainer.studies.backtest.text import change_json, change_lines

    if as_json:
        print(json.dumps([change_json(r) for r in results], indent=1))
    else:
        print("\n\n".join("\n".join(change_lines(r)) for r in results))


def _detector(name: str, settings: Sequence[str], paths: Sequence[Path], as_json: bool, **options: Any) -> None:
    from evotrainer.studies.backtest import backtest_detector, detector_of
    from evotrainer.studies.backtest.text import detector_json, detector_lines

    with progress() as say:
        done = backtest_detector(detector_of(name, settings, paths), paths, progress=say, **options)
    print(json.dumps(detector_json(done), indent=1) if as_json else "\n".join(detector_lines(done)))


def _gates(paths: Sequence[Path], settings: Sequence[str], as_json: bool) -> bool:
    """Print what another gate would have said. True where a verdict changes."""
    from evotrainer.studies.backtest import replay_gate
    from evotrainer.studies.backtest.text import gate_json, gate_lines, total_line

    done = [replay_gate(p, settings) for p in paths]
    if as_json:
        print(json.dumps([gate_json(g) for g in done], indent=1))
    else:
        print("\n\n".join("\n".join(gate_lines(g, settings)) for g in done))
        if len(done) > 1:
            print("\n" + total_line(done))
    return any(g.flipped for g in done)
