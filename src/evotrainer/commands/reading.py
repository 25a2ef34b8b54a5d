"""Commands that read a run: `status`, `lineage`, `show`, `verify`, `report`, `health`. `why` is in explaining.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.commands.common import console, open_page
from evotrainer.errors import ConfigError
from evotrainer.records.output import line, print

if TYPE_CHECKING:
    from evotrainer.api import Run


def status(folder: Path, *, as_json: bool) -> None:
    from evotrainer import api

    run = api.open_run(folder)
    if as_json:
        print(json.dumps(status_json(run), indent=1))
        return
    from evotrainer.views.terminal import render_status

    console().print(render_status(folder))


def status_json(run: Run) -> dict[str, Any]:
    """State of a run as plain data."""
    from evotrainer.projections.budget import Budget

    events = run.events()
    limits = run.limits
    budget = Budget.from_events(events, limits)
    finished = {e.body.trial: e.body for e in events if e.kind == "finished"}
    rounds = [e.body.round for e in events if e.kind == "round"]
    cert = run.certification
    return {
        "run": str(run.folder),
        "state": "closed" if run.closed else "open",
        "reason": run.closed.reason if run.closed else "",
        "round": max(rounds, default=0),
        "champion": run.champion,
        "invalid": run.state.invalid,
        "trials": {
            e.body.trial: finished[e.body.trial].status if e.body.trial in finished else "open"
            for e in events
            if e.kind == "intended"
        },
        "verdicts": {v.branch: v.kind for v in run.verdicts},
        "effects": effects_json(events),
        "spent": dict(budget.spent),
        "limits": limits,
        "certification": cert.model_dump(mode="json") if cert else None,
        "caveats": {k: [c.model_dump() for c in v] for k, v in run.caveats.items()},
    }


def effects_json(events: Sequence[Any]) -> dict[str, Any]:
    """Branch -> its effect on gate (on fresh seeds where it was measured again), the one at selection, its looks."""
    out: dict[str, Any] = {}
    for e in events:
        if e.kind == "judged" and (v := e.body.verdict).effect:
            looks = out.get(v.branch, {}).get("looks", 0) + 1
            out[v.branch] = {"effect": v.effect.model_dump(mode="json"), "fresh": False, "looks": looks}
        elif e.kind == "reestimated":
            known = out.setdefault(e.body.branch, {"looks": 0})
            selected = e.body.selected.model_dump(mode="json") if e.body.selected else None
            known |= {"effect": e.body.effect.model_dump(mode="json"), "fresh": True, "at_selection": selected}
    return out


def lineage(folder: Path) -> None:
    from evotrainer import api

    api.open_run(folder)
    from evotrainer.views.terminal import render_lineage

    console().print(render_lineage(folder))


def show(folder: Path, what: str) -> None:
    """A branch, trial or rollout; ConfigError where nothing has that name."""
    from evotrainer import api
    from evotrainer.views import terminal

    run = api.open_run(folder)
    events = run.events()
    if any(e.kind == "branch" and e.body.branch == what for e in events):
        console().print(terminal.render_branch(folder, what))
    elif any(e.kind == "intended" and e.body.trial == what for e in events):
        console().print(terminal.render_trial(folder, what))
    else:
        console().print(terminal.render_rollout(folder, what))


def verify(folder: Path, head: str = "") -> None:
    """Exit 4 and one line per problem where something does not hold."""
    from evotrainer import api
    from evotrainer.errors import IntegrityError

    result = api.open_run(folder).verify(head)
    print("checked " + ", ".join(f"{n} {what}" for what, n in sorted(result.checked.items())))
    print(
        f"head {result.checked['events']} {result.head}"
        + (", and the noted one is in it" if head and not any(p.area == "head" for p in result.problems) else "")
    )
    if result.chain_only:
        print("vouched for by the chain alone: " + ", ".join(result.chain_only))
    if result.unchecked:
        print("without a check of its own: " + ", ".join(result.unchecked))
    for text in result.notes:
        print(f"note: {line(text)}")
    for p in result.problems:
        print(f"[FAIL] {p.area}: {line(p.message)}")
    if result.ok and not result.checked["events"]:
        print("the ledger is empty: the run was stopped before its first event; `evotrainer resume` begins it")
    elif result.ok:
        print("everything holds: hash chain, recipes, single factors, policies, rollouts, scores, verdicts")
    else:
        raise IntegrityError(f"{folder}: {len(result.problems)} problem(s) found; see above")


def report(folder: Path, out: Path | None, *, open_report: bool) -> None:
    from evotrainer import api

    path = api.open_run(folder).report(out)
    print(f"report: {path}")
    if open_report:
        open_page(path)


def health(
    folder: Path, what: str | None, *, step: int | None = None, trend: bool = False, as_json: bool = False
) -> None:
    """The recorded readings of a branch, of a trial, or of a trial at one step of its training."""
    from evotrainer import api
    from evotrainer.harness import render_text
    from evotrainer.views.trend import render_trend, trend_rows

    run = api.open_run(folder)
    name = what or run.champion or "base"
    chosen = readings_of(run, name)
    if not chosen:
        known = sorted({h.subject.split("@")[0] for h in readings_of(run, None)})
        raise ConfigError(
            f"nothing was read of {name!r} in {folder}; there are readings of: {', '.join(known) or 'none'}"
        )
    if trend:
        trials = {e.body.trial for e in run.events() if e.kind == "finished"}
        every = chosen if name in trials else readings_of(run, None)
        rows = trend_rows([h for h in every if name in trials or h.subject.split("@")[0].split("/")[0] == name])
        print(json.dumps(rows, indent=1) if as_json else render_trend(name, rows))
        return
    if step is not None:
        at = [h for h in chosen if f"@{step} " in h.subject]
        if not at:
            steps = ", ".join(sorted({h.subject.partition("@")[2] for h in chosen}))
            raise ConfigError(f"nothing was read of {name} at step {step}; there are: {steps}")
        chosen = at
    print(chosen[-1].model_dump_json(indent=1) if as_json else render_text(chosen[-1]))


def readings_of(run: Run, name: str | None) -> list[Any]:
    """Recorded health reports of a branch (`b1`, its own readings last), of a trial (`b1-s1`), or all of them."""
    trials = [(e.body.trial, h) for e in run.events() if e.kind == "finished" for h in e.body.health]
    branches = [(h.subject.split("@")[0], h) for h in (e.body.health for e in run.events() if e.kind == "diagnosed")]
    return [h for who, h in (*trials, *branches) if name in (None, who)]
