"""`evotrainer status`: where a run stands."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evotrainer.cli._common import AsJson, RunFolder, console
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.views.model import BranchView


WATCH_S = 5.0
"""Seconds between two readings of `--watch`."""


def status(
    folder: RunFolder,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show what moves every 5 s, until the run ends or Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Where a run stands: round, trials, budget, champion, verdicts. Works while it runs.

    Example: evotrainer status runs/mine --watch
    """
    from evotrainer import api

    if watch and as_json:
        raise ConfigError("--watch is for readers, --json for scripts; give one of them")

    if watch:
        _wait_for_run(folder)
    run = api.open_run(folder)
    if as_json:
        print(json.dumps(status_json(run), indent=1))
        return
    from evotrainer.views.status import render_status

    if watch:
        _watch(folder)
    console().print(render_status(folder))


def _wait_for_run(folder: Path) -> None:
    """Until the folder holds a run's ledger; of one whose process is just making it, until that can be read."""
    from evotrainer import api
    from evotrainer.errors import StoreError
    from evotrainer.records.durable import writer_of
    from evotrainer.views.fold import LOCK

    noted = False
    while not folder.exists() or folder.is_dir():
        if (folder / "ledger.db").is_file():
            try:
                api.open_run(folder).events()
                return
            except StoreError:
                if writer_of(folder / LOCK) is None:
                    raise  # nobody is just making it
        if not noted:
            print(f"{folder} holds no run yet; waiting until one begins there (Ctrl-C ends this)", flush=True)
        noted = True
        time.sleep(WATCH_S / 5)


def _watch(folder: Path) -> None:
    """Until nobody drives the run: what moves, in a terminal as tall as it is; a line per change elsewhere."""
    from rich.live import Live

    from evotrainer.views import progress
    from evotrainer.views.fold import load_view
    from evotrainer.views.status import render_status

    screen, shown = console(), ""
    with contextlib.ExitStack() as stack:
        live = None
        if screen.is_terminal:
            live = stack.enter_context(
                Live(console=screen, auto_refresh=False, transient=True, vertical_overflow="ellipsis")
            )
        while (view := load_view(folder, rollouts=False)).driver is not None:
            if live is not None:
                live.update(render_status(folder, brief=True), refresh=True)
            elif (line := progress.of_view(view).line()) != shown:
                print(shown := line, flush=True)
            time.sleep(WATCH_S)


def status_json(run: Run) -> dict[str, Any]:
    """State of a run as plain data."""
    from evotrainer.projections.trials import counts
    from evotrainer.views import progress, summary
    from evotrainer.views.advice import advice, fill_in
    from evotrainer.views.fold import load_view
    from evotrainer.views.plain_data import branch_row

    view = load_view(run.folder, rollouts=False)
    cert = run.certification
    return {
        "run": str(run.folder),
        "state": summary.state(view)[0].name,
        "driver": view.driver,
        "next": advice(view, str(run.folder)),
        "left_s": progress.of_view(view).left_s if view.driver is not None else None,
        "waits": {"id": q.id, "since": q.time, **q.body.model_dump(mode="json")} if (q := view.question) else None,
        "reason": run.closed.reason if run.closed else summary.stopped(view),
        "round": max(view.rounds, default=0),
        "champion": run.champion,
        "invalid": run.state.invalid,
        "branches": [branch_row(b, view) for b in view.branches.values()],
        "trials": {t.id: t.finished.status if t.finished else "open" for t in view.trials},
        "cached": [t.id for t in view.trials if t.finished and t.finished.cached],
        "verdicts": {v.branch: v.kind for v in run.verdicts},
        "effects": {name: _effect(b) for name, b in view.branches.items() if any(v.effect for v in b.looks)},
        "search": [s.model_dump(mode="json") for s in run.state.searched],
        "labels": counts(view.memory.trials if view.memory else ()),
        "spent": view.spent,
        "seat": asdict(view.seat),
        "reader": {k: r.model_dump(mode="json") for k, r in view.reader.last.items()},
        "limits": run.limits,
        "certification": cert.model_dump(mode="json") if cert else None,
        "caveats": {
            k: [f.model_dump() | {"remedy": fill_in(view, f.remedy, str(run.folder))} for f in found]
            for k, found in view.caveats.items()
        },
    }


def _effect(b: BranchView) -> dict[str, Any]:
    """A branch's effect on gate, on fresh seeds where it was measured again, and how often it was analysed."""
    looks, effect = sum(v.effect is not None for v in b.looks), b.effect
    out = {"effect": effect and effect.model_dump(mode="json"), "fresh": b.on_fresh_seeds, "looks": looks}
    return out | ({"at_selection": b.at_selection and b.at_selection.model_dump(mode="json")} if b.fresh else {})
