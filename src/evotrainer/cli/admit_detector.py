"""`evotrainer admit-detector`: a detector of one's own, tried on recorded runs by the rules of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson
from evotrainer.errors import ConfigError
from evotrainer.records import keys
from evotrainer.records.output import print
from evotrainer.records.regular_file import read_text

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.records.detectors import DetectorSpec


def admit_detector(
    spec: Annotated[Path, typer.Argument(help='Detector (TOML), e.g. form = "pattern"; see docs/commands.')],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    *,
    bad: Annotated[list[str] | None, typer.Option(help="Branch it should speak of, repeatable.")] = None,
    clean: Annotated[list[str] | None, typer.Option(help="Branch on which it should be silent, repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Would a detector of your own be admitted? Tries it on recorded runs by the rules that the loop applies.

    Without --bad and --clean the runs' own records tell: branches that are invalid, or moved unexplained, against all
    others and the base policy. Exit code 1 where it is refused; the reason names the number.

    Example: evotrainer admit-detector reads_history.toml runs/leak
    """
    from evotrainer import api
    from evotrainer.harness import Harness
    from evotrainer.harness.evolving.admission import admit
    from evotrainer.harness.evolving.render import admission_lines
    from evotrainer.sandbox.detector_runner import SandboxRunner

    detector = _read_spec(spec)
    opened = [api.open_run(r) for r in runs]
    sides = _sides(opened, bad or [], clean or [])
    runner = SandboxRunner(any(r.task.sandbox.accept_tier_e for r in opened))
    in_force = [e.body for r in opened for e in r.events() if e.kind == "harness"]
    known = Harness.model_validate(in_force[-1].harness) if in_force else Harness.default()
    a = admit(
        detector,
        sides[0],
        sides[1],
        builtin=known.detectors,
        authored=[s for s in known.authored if s.name != detector.name],
        runner=runner,
        spent=runner.spent,
    )
    lines = [line.removeprefix("  ") for line in admission_lines(a)]
    lines.append("  every seed counts as held out here; in a run, those that were mined or shown to an agent do not")
    print(a.model_dump_json(indent=1) if as_json else "\n".join(lines))
    if not a.admitted:
        raise typer.Exit(1)


def _read_spec(path: Path) -> DetectorSpec:
    """A detector from a TOML file; `source_file` beside it may hold the function. ConfigError names what is wrong."""
    import tomllib

    from evotrainer.records.detectors import DetectorSpec
    from evotrainer.records.frozen import parsed

    try:
        values = tomllib.loads(read_text(path))
        if file := values.pop("source_file", None):
            values["source"] = read_text(path.parent / str(file))
        return parsed(DetectorSpec, {"standing": "suspect", **values}, str(path))
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the detector: {e}") from None
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{path} is not valid TOML: {e}") from None


def _sides(runs: Sequence[Run], bad: Sequence[str], clean: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(bad, clean) versions of runs, by trial; without names the runs' own records tell which is which."""
    from evotrainer.harness.columns.rollout_reader import RolloutReader
    from evotrainer.projections.branches import BASE
    from evotrainer.run.contrasts import questionable

    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    known: set[str] = set()
    for run in runs:
        events, tree = run.events(), run.state
        doubted = questionable(tree, events)
        for e in events:
            if e.kind != "finished" or e.body.status != "complete" or not _own(e.body.trial, e.body.branch):
                continue
            name = e.body.branch
            known.add(name)
            listed = bool(bad or clean)
            is_bad = name in bad if listed else name in doubted
            if (listed and name not in (*bad, *clean) and name != BASE) or (clean and not is_bad and name not in clean):
                continue
            reader = RolloutReader(run.folder)
            if reader.search(e.body.trial).n:
                sides[0 if is_bad else 1][f"{run.folder.name}/{e.body.trial} search"] = reader.views(e.body.trial)
    if unknown := sorted({*bad, *clean} - known):
        raise ConfigError(
            f"no finished branch {', '.join(unknown)} in these runs; there are: {', '.join(sorted(known)) or 'none'}"
        )
    return sides


def _own(trial: str, branch: str) -> bool:
    """Is it a branch's own training (or the base policy), not an evaluation that repeats one?"""
    return trial == branch or keys.is_training(trial, branch)
