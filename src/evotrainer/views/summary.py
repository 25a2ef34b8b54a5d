"""The state of a run, what was not measured in it, what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum

from evotrainer.projections.caveats import caveat_line
from evotrainer.projections.text import duration
from evotrainer.records.events import GateAsked, SeatAsked
from evotrainer.records.findings import input_label
from evotrainer.records.text import counted
from evotrainer.views import progress
from evotrainer.views.model import RunView
from evotrainer.views.progress import settings


class Standing(Enum):
    """Where a run stands: its words, and its mark, a status of `MARK`."""

    waiting = "waits for an answer", "withheld"
    running = "running", "start"
    open = "stopped", "inconclusive"
    closed = "ended", "promote"


ALONE = "no process drives it: evotrainer resume goes on"
AS_FAR = "What is shown is final as far as it goes."


def headline(view: RunView) -> str:
    """The result with the first caveats of the champion's certificate."""
    caveat = caveat_line(view.caveats.get(view.champion, ()))
    return view.facts.text("result") + (f". Caveat: {caveat}" if caveat else "")


def state(view: RunView) -> tuple[Standing, str]:
    """Where a run stands, and the sentence that says it."""
    if view.closed:
        return Standing.closed, f"Ended after {counted(len(view.rounds), 'round')}: {view.closed.reason}"
    waiting = [t for t in view.trials if not t.finished]
    if (asked := view.question or view.request) is not None and (view.driver is not None or not waiting):
        where = f"at the {gate(asked.body)}" if asked is view.question else f"of its seat ({seat_step(asked.body)})"
        text = f"Waits for an answer {where} since {asked.time[:16].replace('T', ' ')} UTC"
        return Standing.waiting, f"{text}{'' if view.driver is not None else f'; {ALONE} once it is answered'}."
    if view.driver is not None:
        who = f"process {view.driver}" if view.driver else "another process"
        return (
            Standing.running,
            f"Running, by {who}: {progress.of_view(view).line()}. What is shown is final as far as it goes.",
        )
    text = "Not finished: " + (stopped(view) or "the ledger has no closing event")
    if waiting:
        text += f"; {counted(len(waiting), 'trial')} without a result"
    return Standing.open, f"{text}. {AS_FAR}"


APPROVES = {
    "diagnosis": "that the round answers this diagnosis",
    "intervention": "that these changes are replayed on stored rollouts",
    "backtest": "that these changes are trained",
    "verdict": "that this branch is promoted",
}
"""Gate -> what is approved there."""


def gate(asked: GateAsked) -> str:
    """Where a run waits, in words."""
    return f"{asked.where} gate of round {asked.round}" + (f", of {asked.branch}" if asked.branch else "")


def seat_step(asked: SeatAsked) -> str:
    """What a seat is asked, in words."""
    r = asked.request
    return f"{r.step} {r.number} of round {r.round}"


def seat_until(view: RunView) -> str:
    """When the statistical agent chooses in the seat's place: `14:05:10 UTC`; empty where that is not known."""
    wait = ((settings(view).get("run") or {}).get("agent_options") or {}).get("timeout_s", 600.0)
    if view.request is None or view.driver is None or not isinstance(wait, int | float):
        return ""
    return f"{datetime.fromisoformat(view.request.time) + timedelta(seconds=min(wait, 10**9)):%Y-%m-%d %H:%M:%S} UTC"


def stopped(view: RunView) -> str:
    """The error of a trial that stopped a run which stands; empty where none did."""
    failed = next((t for t in view.trials if t.error and not t.finished), None)
    return f"trial {failed.id} failed: {failed.error}" if failed and not view.closed and view.driver is None else ""


def not_measured(view: RunView) -> list[str]:
    """What a careful reader would ask for and this run cannot answer, but for what a branch's own tables say."""
    told = [f"{f.about or f.label.capitalize()}: {f.text}." for f in view.facts.unmeasured]
    open_ = [b for b in view.branches.values() if b.status == "open"]
    unsure = [b for b in view.branches.values() if b.outcome and b.outcome.change is None]
    told += [f"{b.name}: {b.facts.text('status')}." for b in open_]
    told += [f"{b.name}: predicted {b.facts.text('prediction')}: {b.facts.text('outcome')}." for b in unsure]
    return told + _blind_detectors(view) + view.unread


def _blind_detectors(view: RunView) -> list[str]:
    found = [(b.name, f) for b in view.branches.values() for _, f in b.blind]
    blind_notes = [
        (f"{f.detector} found no input ({', '.join(map(input_label, f.missing))} missing)", name) for name, f in found
    ]
    blind = _branches_by(blind_notes)
    return [f"Detector {what} in {_branches(view, names)}." for what, names in blind.items()]


def _branches_by(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What is lacking -> the branches that lack it."""
    out: dict[str, list[str]] = {}
    for what, name in dict.fromkeys(pairs):
        out.setdefault(what, []).append(name)
    return out


def _branches(view: RunView, names: Iterable[str]) -> str:
    listed, read = list(names), [b.name for b in view.branches.values() if b.metrics]
    return "every branch that was read" if len(listed) == len(read) > 1 else ", ".join(listed)


NAMES = {"cpu_s": "CPU time", "gpu_s": "GPU time", "wall_s": "Wall time", "trials": "Trainings", "usd": "US dollars"}


def cost_lines(view: RunView) -> list[tuple[str, str, str, float | None]]:
    """(label, amount, limit, share of the limit) for each resource that was measured or limited."""
    limits = view.opened.budget if view.opened else {}
    found, saved = view.cached()
    what = ", ".join(counted(n, kind) for kind, n in found.items())
    more = {
        "trials": f", {found.get('training', 0)} from the cache",
        "cpu_s": f" ({duration(saved)} saved by the cache: {what})",
    }
    priced = f" ({view.opened.price})" if view.opened and view.opened.price else ""
    out = []
    for key in dict.fromkeys(["cpu_s", "wall_s", "trials", *limits, *(k for k, v in view.spent.items() if v)]):
        used, limit = view.spent.get(key, 0.0), limits.get(key)
        shown = duration if key.endswith("_s") else "{:.2f}".format if key == "usd" else "{:g}".format
        name = NAMES.get(key, key.replace("_", " "))
        text = shown(used) + (more.get(key, "") if saved else "") + (priced if key == "usd" else "")
        out.append((name, text, "" if limit is None else shown(limit), used / limit if limit else None))
    if spent_text := view.seat.summary():
        out.append(("Seat", spent_text, "", None))
    if spent_text := view.reader.spent.summary():
        out.append(("Reader", spent_text, "", None))
    return out
