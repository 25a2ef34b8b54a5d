"""The state of a run, what was not measured in it, what it cost."""

from __future__ import annotations

from collections.abc import Iterable

from evotrainer.projections import words
from evotrainer.projections.caveats import caveat_line
from evotrainer.projections.text import duration
from evotrainer.records.findings import input_label
from evotrainer.records.text import counted
from evotrainer.views import progress
from evotrainer.views.model import RunView

MIN_SEEDS = 3
AS_FAR = "What is shown is final as far as it goes."


def headline(view: RunView) -> str:
    """The result with the first caveats of the champion's certificate."""
    caveat = caveat_line(view.caveats.get(view.champion, ()))
    return view.facts.text("result") + (f". Caveat: {caveat}" if caveat else "")


def state(view: RunView) -> tuple[str, str]:
    """(`closed`, `running` or `open`, sentence)."""
    if view.closed:
        return "closed", f"Ended after {counted(len(view.rounds), 'round')}: {view.closed.reason}"
    waiting = [t for t in view.trials if not t.finished]
    if view.driver is not None:
        who = f"process {view.driver}" if view.driver else "another process"
        return (
            "running",
            f"Running, by {who}: {progress.of_view(view).line()}. What is shown is final as far as it goes.",
        )
    text = "Not finished: " + (stopped(view) or "the ledger has no closing event")
    if waiting:
        text += f"; {counted(len(waiting), 'trial')} without a result"
    return "open", f"{text}. {AS_FAR}"


def stopped(view: RunView) -> str:
    """The error of a trial that stopped a run which stands; empty where none did."""
    failed = next((t for t in view.trials if t.error and not t.finished), None)
    return f"trial {failed.id} failed: {failed.error}" if failed and not view.closed and view.driver is None else ""


def not_measured(view: RunView) -> list[str]:
    """What a careful reader would ask for and this run cannot answer, but for what a branch's own tables say."""
    parts = (_run_gaps, _branch_gaps, _blind_detectors)
    return [line for part in parts for line in part(view)] + view.unread


def _run_gaps(view: RunView) -> list[str]:
    out = []
    if not view.noise:
        out.append("Noise: no A/A trials finished, so no difference can be told from seed noise.")
    if view.certified is None:
        out.append("Certification: the cert split was not read; all scores are from the splits used to choose.")
    elif thin := [r.name for r in view.certified.rows if len(r.seeds) < MIN_SEEDS]:
        out.append(f"Certification of {', '.join(thin)} rests on fewer than {MIN_SEEDS} seeds.")
    if view.opened and view.proxy is None:
        out.append("Proxy gap: the environment names no proxy and true reward component to compare.")
    if view.opened and view.opened.sandbox_tier in ("B", "C", "D", "E"):
        out.append(
            f"Isolation: programs ran in sandbox tier {view.opened.sandbox_tier}, not A (see evotrainer doctor)."
        )
    return out


def _branch_gaps(view: RunView) -> list[str]:
    out = []
    for b in view.branches.values():
        done = [t for t in b.trials if t.status == "complete"]
        lost = len(b.trials) - len(done)
        if lost and b.recipe is not None:
            out.append(
                f"{b.name}: {lost} of {counted(len(b.trials), 'trial')} {'has' if lost == 1 else 'have'} no result."
            )
        if b.status == "open":
            out.append(f"{b.name}: no verdict.")
        if b.outcome and b.outcome.change is None:
            about = words.metric(b.outcome.prediction.metric)
            out.append(f'{b.name}: its prediction about "{about}" was not measured on both sides.')
        faults = sum(s.errors for t in done for s in (t.finished.scores if t.finished else ()))
        if faults:
            out.append(f"{b.name}: {counted(faults, 'rollout')} lost to infrastructure faults, in no mean.")
        out += [f"{b.name}: {f.text}." for f in b.facts.of_kinds("grading")]
    return out


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


def cost_lines(view: RunView) -> list[tuple[str, str, str, float | None]]:
    """(label, amount, limit, share of the limit) for each resource that was measured or limited."""
    limits = view.opened.budget if view.opened else {}
    found, saved = view.cached()
    what = ", ".join(counted(n, kind) for kind, n in found.items())
    more = {
        "trials": f", {found.get('training', 0)} from the cache",
        "cpu_s": f" ({duration(saved)} saved by the cache: {what})",
    }
    out = []
    for key in dict.fromkeys(["cpu_s", "wall_s", "trials", *limits, *(k for k, v in view.spent.items() if v)]):
        used, limit = view.spent.get(key, 0.0), limits.get(key)
        shown = duration if key.endswith("_s") else "{:g}".format
        name = {"cpu_s": "CPU time", "wall_s": "Wall time", "trials": "Trainings"}.get(key, key.replace("_", " "))
        text = shown(used) + (more.get(key, "") if saved else "")
        out.append((name, text, "" if limit is None else shown(limit), used / limit if limit else None))
    if spent_text := view.seat.summary():
        out.append(("Seat", spent_text, "", None))
    if spent_text := view.reader.spent.summary():
        out.append(("Reader", spent_text, "", None))
    return out
