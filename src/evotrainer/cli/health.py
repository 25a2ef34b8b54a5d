"""`evotrainer health`: what the harness read of a branch or trial."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.projections.state import RunState
    from evotrainer.records.chain import Event


def health(
    folder: RunFolder,
    what: Annotated[str | None, typer.Argument(help="Branch (b1) or trial (b1-s1); default: the champion.")] = None,
    *,
    step: Annotated[int | None, typer.Option(help="Show the reading at this step of a trial's training.")] = None,
    trend: Annotated[bool, typer.Option("--trend", help="Show how the readings change over training.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every metric.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the harness read in a branch's or a trial's rollouts: what is wrong first, then findings and metrics.

    Example: evotrainer health runs/mine b1 --trend
    """
    from evotrainer import api
    from evotrainer.harness import render_text
    from evotrainer.projections.predictions import subject_branch
    from evotrainer.projections.state import RunState
    from evotrainer.views.trend import render_trend, trend_rows

    events = api.open_run(folder).events()  # once: each call reads and checks the whole ledger
    state = RunState.of(events)
    name = what or state.champion or "base"
    chosen = readings_of(events, name)
    if not chosen:
        known = ", ".join(sorted({h.subject.split("@")[0] for h in readings_of(events, None)})) or "none"
        raise ConfigError(f"{folder} holds no reading of {name!r}; it holds readings of: {known}")
    if trend:
        trials = {e.body.trial: e.body for e in events if e.kind == "finished"}
        read = chosen if name in trials else readings_of(events, None)
        rows = trend_rows([h for h in read if name in trials or subject_branch(h.subject) == name])
        own = [trials[name]] if name in trials else [t for t in trials.values() if t.branch == name and t.steps]
        print(json.dumps(rows, indent=1) if as_json else render_trend(name, rows, own))
        return
    if step is not None:
        at = [h for h in chosen if f"@{step} " in h.subject]
        if not at:
            steps = ", ".join(sorted({h.subject.partition("@")[2] for h in chosen}))
            raise ConfigError(f"{name} was not read at step {step}; it was read at: {steps}")
        chosen = at
    if as_json:
        print(chosen[-1].model_dump_json(indent=1))
        return
    size, builtin = held_by(events, chosen[-1].harness)
    print(render_text(chosen[-1], every=every, size=size, explained=explained(events, state, name)))
    if not builtin:
        print(
            f"This harness has no built-in detector; `evotrainer audit {folder}` reads the rollouts with all of them."
        )


def held_by(events: Sequence[Event], version: str) -> tuple[str, bool]:
    """What a version of the harness holds, in words, and whether built-in detectors are among it."""
    found = [e.body for e in events if e.kind == "harness" and e.body.version == version]
    return (found[-1].size, bool(found[-1].harness.get("detectors"))) if found else ("", True)


def explained(events: Sequence[Event], state: RunState, branch: str) -> str:
    """The promotion that explains a branch's rise, with what was forecast of it; empty where none does."""
    from evotrainer.projections.caveats import proved_gain

    gain = proved_gain(state, branch)
    if not gain:
        return ""
    iv = state.branches[branch].intervention
    forecast = f" (forecast {100 * iv.forecast.mean:+.1f})" if iv and iv.forecast else ""
    return f"The score rose by its change, which was promoted: {gain}{forecast}."


def readings_of(events: Sequence[Event], name: str | None) -> list[Any]:
    """Recorded health reports of a branch (`b1`, its own readings last), of a trial (`b1-s1`), or all of them."""
    trials = [(e.body.trial, h) for e in events if e.kind == "finished" for h in e.body.health]
    branches = [(h.subject.split("@")[0], h) for h in (e.body.health for e in events if e.kind == "diagnosed")]
    return [h for who, h in (*trials, *branches) if name in (None, who)]
