"""`track` and `export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, EvoTrainerError, TrainerError
from evotrainer.records.output import print


def track(folder: Path, to: Sequence[str], project: str | None, options: Sequence[str], *, again: bool = False) -> None:
    """Export a run's figures to trackers: what is not there yet."""
    from evotrainer import api
    from evotrainer.extras.tracking import check_targets
    from evotrainer.extras.tracking.export import Exporter, about_run, read_events

    run = api.open_run(folder)
    section = run.task.tracking
    names = tuple(to) or section.to
    if not names:
        raise ConfigError("no tracker is named, neither here nor in the run's task file; add --to tensorboard")
    settled = {k: dict(v) for k, v in section.options.items() if isinstance(v, dict)}
    for name, values in _options(options, names).items():
        settled[name] = {**settled.get(name, {}), **values}
    check_targets(names, settled)
    events, about = read_events(folder), about_run(folder)
    for name in names:
        try:
            exporter = Exporter(folder, name, project or section.project, settled.get(name, {}), again=again)
            try:
                written = exporter.export(events, about)
                where = exporter.target.where()
            finally:
                exporter.close()
        except EvoTrainerError:
            raise
        except Exception as e:  # clients raise what they like
            cause = str(e).strip().split("\n")[0][:300]
            raise TrainerError(
                f"tracking to {name} failed: {type(e).__name__}: {cause}; nothing is lost: mend the cause and run it again"
            ) from e
        what = f"{written} tracker runs written" if written else "nothing new"
        print(f"{name}: {what}; {where}")


def export(folder: Path, out: Path, *, branch: str | None, seed: int | None, anyway: bool) -> None:
    """Write a Hugging Face folder and say what it is."""
    from evotrainer import api
    from evotrainer.extras.export import choose
    from evotrainer.projections.caveats import told
    from evotrainer.views.text import one_line

    run = api.open_run(folder)
    chosen = choose(folder, run.events(), branch, seed, anyway)
    run.export(out, branch, seed, anyway)
    caveat = told(run.caveats.get(chosen.branch, ()))
    certified = "certified with a caveat" if caveat else "certified"
    standing = "INVALID" if chosen.invalid else certified if chosen.certified else "not certified"
    print(f"wrote {out}: branch {chosen.branch} ({standing}), trial {chosen.trial.trial}, {chosen.rule}")
    if caveat:
        print(f"caveat: {one_line(caveat, 1000)}")
    print(f"load it: AutoModelForCausalLM.from_pretrained({str(out)!r}); the card is {out / 'README.md'}")


def _options(given: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`k=v` for the only target, `target.k=v` among several."""
    out: dict[str, dict[str, Any]] = {}
    for item in given:
        key, eq, value = item.partition("=")
        target, dot, name = key.strip().partition(".")
        if not dot:
            target, name = (names[0] if len(names) == 1 else ""), key.strip()
        if not eq or not name or target not in names:
            raise ConfigError(
                f"option {item!r} is not of the form name=value, or target.name=value (one of {', '.join(names)})"
            )
        out.setdefault(target, {})[name] = value.strip()
    return out
