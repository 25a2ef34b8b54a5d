"""Sentences computed from a run: its headline, its state, what was not measured, how to reproduce it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evotrainer.projections.task_sets import told
from evotrainer.records.canaries import flip_line
from evotrainer.records.events import Reestimated
from evotrainer.records.findings import input_told
from evotrainer.records.text import counted
from evotrainer.records.verdicts import Verdict
from evotrainer.views import progress, words
from evotrainer.views.model import BranchView, RunView
from evotrainer.views.text import change, confidence, duration, percent, point_range, points

MIN_SEEDS = 3


def headline(view: RunView) -> str:
    """The result, no stronger than the numbers: with the certificate's caveat."""
    return f"{result(view)}. Caveat: {view.caveat}" if view.caveat else result(view)


def result(view: RunView) -> str:
    """The result in one sentence, without its caveat."""
    cert = view.certified
    if cert is None:
        return search_headline(view)
    rows = {r.name: r for r in cert.rows}
    if lost := worse(view):
        return lost
    names = {"champion": "the champion", "start": "the starting recipe", "base": "the base policy"}
    said = [f"{label} {percent(rows[k].score)}" for k, label in names.items() if k in rows]
    if not said:
        return "Certified"
    certified = view.branches.get(cert.champion)
    if "champion" in rows and certified and certified.invalid:
        return (
            f"The certified champion {cert.champion} was invalidated afterwards ({certified.invalid}); "
            f"the last valid version is {view.champion}"
        )
    if "champion" in rows:
        said[0] = f"The champion solves {percent(rows['champion'].score)} of unseen tasks"
        if rows["champion"].temperature is not None:
            said[0] += f" at deployment temperature {rows['champion'].temperature:g}"
        if "start" in rows and cert.gain and not cert.gain_shown:
            told = "worse than" if cert.gain["high"] < 0 else "not shown to be better than"
            said[0:2] = [f"{said[0]}, {told} the starting recipe ({percent(rows['start'].score)})"]
        return f"{said[0]}; " + ", ".join(said[1:]) if said[1:] else said[0]
    return "No branch was promoted: of unseen tasks " + " and ".join(
        f"{names[k]} solves {percent(rows[k].score)}" for k in names if k in rows
    )


def worse(view: RunView) -> str:
    """That training made the policy worse than its base, by the certificate; empty where it did not."""
    cert = view.certified
    rows = {r.name: r for r in cert.rows} if cert else {}
    row = rows.get("champion") or rows.get("start")
    found = view.branches.get(row.branch) if row else None
    lost = cert.below_base(row.branch) if cert and row and not (found and found.invalid) else None
    if not lost or not row or "base" not in rows:
        return ""
    what = f"the champion {row.branch}" if row.name == "champion" else f"{row.branch}, the starting recipe,"
    return (
        f"Worse than before training: {what} solves {percent(row.score)} of unseen tasks, the base policy "
        f"{percent(rows['base'].score)} ({points(lost['mean'])} points {point_range(lost['low'], lost['high'])})"
    )


def search_headline(view: RunView) -> str:
    """Headline of a run that is not certified."""
    champion = view.branches.get(view.champion)
    score = champion.mean("search") if champion else None
    base = view.branches.get("base")
    read = [(s, base.mean(s)) for s in ("search", "gate", "cert")] if base else []
    told = ", ".join(f"{percent(x)} on {s}" for s, x in read if x is not None)
    if told and not view.noise and not any(b.trials for b in view.branches.values() if b is not base):
        return f"The policy solves {told}"
    if champion is None or score is None:
        return "No training has a result yet" + (f"; the base policy solves {told}" if told else "")
    return f"Champion so far: {champion.name}, {percent(score)} on the search split; not certified"


def noise_line(view: RunView) -> str:
    """The noise floor as it is now, and what it was measured on: the A/A trials, and the branches so far with them."""
    if not view.noise:
        return "not measured"
    text = f"{points(view.noise[-1].noise_floor, sign=False)} points, from the A/A trials"
    pooled = [view.branches.get(n.branch) for n in view.noise[1:]]
    own = sum(1 for b in pooled if b and b.matches)
    also = f", {counted(len(pooled) - own, 'branch')} and {counted(own, 'control')} so far"
    return text + (also if own else f" and {counted(len(pooled), 'branch')} so far" if pooled else "")


def task_lines(view: RunView) -> list[tuple[str, str]]:
    """What the run is judged on, and its error budget where runs share one; none of runs of earlier versions."""
    return [("tasks", line)] if (line := told(view.opened)) else []


WIDE = " (wide: how far trainings differ when decoded greedily is known from these alone)"
"""Said once of greedy intervals on cert: one attempt a task, and no other trainings read so lend their spread."""


def comparison_lines(view: RunView) -> list[tuple[str, str, str]]:
    """(what, difference with interval, reading) for every certified comparison."""
    out: list[tuple[str, str, str]] = []
    if view.certified is None:
        return out
    for name, c in view.certified.comparisons.items():
        a, _, b = name.partition("-")
        low, high = c.get("low"), c.get("high")
        shown = f"{points(c.get('mean'))} points {point_range(low, high)}"
        than = "before training" if b == "base" else next((r.branch for r in view.certified.rows if r.name == b), b)
        if low is None or high is None:
            reading = "no interval"
        elif "same_weights" in c:
            reading = "the same weights"
        elif low > 0:
            reading = f"better than {than}"
        elif high < 0:
            reading = f"worse than {than}"
        else:
            reading = "no difference shown: the interval holds 0"
        if (p := c.get("p")) is not None:
            reading += f", p = {p:.2g}"
        if g := view.certified.greedy.get(name):
            reading += f"; greedy {points(g['mean'])} points {point_range(g['low'], g['high'])}"
            if low is not None and high is not None and g["high"] - g["low"] > 2 * (high - low):
                reading += WIDE if not any(WIDE in r for _, _, r in out) else ""
        told = [c, view.certified.greedy.get(name)]
        if (g := view.certified.chosen.get(name)) and not any(_same(g, x) for x in told):
            how = {r.name: r.decoding for r in view.certified.rows}
            reading += (
                f"; each decoded as search prefers ({a} {how[a]}, {b} {how[b]}) {points(g['mean'])} points "
                f"{point_range(g['low'], g['high'])}"
            )
        out.append((f"{a} minus {b}", shown, reading))
    return out


def _same(a: Mapping[str, float | None], b: Mapping[str, float | None] | None) -> bool:
    """Are both the same difference with the same interval?"""
    return b is not None and all(a.get(k) == b.get(k) for k in ("mean", "low", "high"))


def topup_lines(b: BranchView) -> list[str]:
    """What became of the seeds that were asked for beyond the first."""
    return [
        f"{t.wanted} asked for: {t.refused}"
        if t.refused
        else f"{t.wanted} asked for: {b.name} {_seeds(t.seeds)}, {t.control} {_seeds(t.control_seeds)}"
        for t in b.topups
    ]


def _seeds(seeds: Iterable[int]) -> str:
    return "+ " + (", ".join(map(str, seeds)) or "none")


def fresh_line(r: Reestimated) -> str:
    """The effect on fresh seeds in one sentence."""
    e = r.effect
    text = (
        f"{points(e.mean)} points {point_range(e.low, e.high)} at {confidence(e.confidence)} against {r.control} "
        "on fresh seeds"
    )
    if not r.control_fresh:
        text += f" ({r.control}'s seeds are those of the selection)"
    if r.start:
        text += f"; {points(r.start.mean)} {point_range(r.start.low, r.start.high)} against the starting recipe"
    return text


def verdict_sentence(v: Verdict) -> str:
    """What the judge says, with the figure once: its own sentence holds it, but in verdicts of early versions."""
    e = v.effect
    figure = f"{points(e.mean)} points {point_range(e.low, e.high)}; " if e and " points [" not in v.reason else ""
    return figure + v.reason


def control_line(b: BranchView, view: RunView) -> str:
    """What a branch was judged against, where that is not its parent: the parent trained for as long, and why."""
    name = b.verdict.control if b.verdict else next((x.name for x in view.branches.values() if x.matches == b.name), "")
    control = view.branches.get(name)
    if control is None or control.matches != b.name or control.intervention is None:
        return ""
    why = f"{control.parent} trained for as long as {b.name} ({change_of(control)}), as {b.name} took more compute"
    gate = next((g for g in b.verdict.gates if g.gate == "compute"), None) if b.verdict else None
    return f"{name}: {why}" + (f"; beside it {b.name} {gate.message}" if gate else "")


def state(view: RunView) -> tuple[str, str]:
    """(`closed`, `running` or `open`, sentence)."""
    if view.closed:
        return "closed", f"Ended after {counted(len(view.rounds), 'round')}: {view.closed.reason}"
    waiting = [t for t in view.trials if not t.finished]
    if view.driver is not None:
        who = f"process {view.driver}" if view.driver else "another process"
        told = progress.of_view(view).line()
        return "running", f"Running, by {who}: {told}. What is shown is final as far as it goes."
    text = "Not finished: " + (stopped(view) or "the ledger has no closing event")
    if waiting:
        text += f"; {counted(len(waiting), 'trial')} without a result"
    return "open", text + ". What is shown is final as far as it goes."


def stopped(view: RunView) -> str:
    """The error of a trial that stopped a run which stands; empty where none did."""
    failed = next((t for t in view.trials if t.error and not t.finished), None)
    return f"trial {failed.id} failed: {failed.error}" if failed and not view.closed and view.driver is None else ""


def change_of(b: BranchView) -> str:
    """`factor: old → new`, or what the branch is instead."""
    if b.intervention:
        return change(b.intervention.factor, b.intervention.old, b.intervention.new)
    if b.recipe is None:
        return "base policy, before any training"
    if b.recipe_diff:  # no intervention, and other than its parent: a search training
        return "; ".join(change(f, old, new) for f, (old, new) in b.recipe_diff.items())
    return "starting recipe again, the shortcut closed" if b.round else "starting recipe"


def not_measured(view: RunView) -> list[str]:
    """Everything a careful reader would ask for and this run cannot answer."""
    parts = (_run_gaps, _branch_gaps, _silent_backtests, _blind_detectors, _metric_gaps)
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
        for t in done:
            out += [f"{b.name}: {flip_line(t.id, f)}." for f in (t.finished.canary_flips if t.finished else ())]
    return out


def _silent_backtests(view: RunView) -> list[str]:
    tests = [(b.name, b.backtest.backtest) for b in view.branches.values() if b.backtest]
    silent = _branches_by((t.reason, name) for name, t in tests if t.verdict == "silent")
    return [f"Backtest of {', '.join(names)}: silent, {reason}." for reason, names in silent.items()]


def _blind_detectors(view: RunView) -> list[str]:
    found = [(b.name, f) for b in view.branches.values() for _, f in b.blind]
    told = [
        (f"{f.detector} found no input ({', '.join(map(input_told, f.missing))} missing)", name) for name, f in found
    ]
    blind = _branches_by(told)
    return [f"Detector {what} in {_branches(view, names)}." for what, names in blind.items()]


def _branches_by(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What is lacking -> the branches that lack it."""
    out: dict[str, list[str]] = {}
    for what, name in dict.fromkeys(pairs):
        out.setdefault(what, []).append(name)
    return out


def _metric_gaps(view: RunView) -> list[str]:
    """Unseen metrics, those that lack the same field in one line."""
    unseen: dict[tuple[str, ...], dict[str, dict[str, None]]] = {}
    for b in view.branches.values():
        for m in b.metrics:
            if m.flag == "unseen":
                unseen.setdefault(m.missing, {}).setdefault(m.name, {})[b.name] = None
    out = []
    for fields, metrics in unseen.items():
        where = dict.fromkeys(b for names in metrics.values() for b in names)
        named = ", ".join(f'"{words.metric(m)}"' for m in metrics)
        what = f"Metric{'s' if len(metrics) > 1 else ''} {named}"
        out.append(f"{what} in {_branches(view, where)}: {', '.join(fields) or 'its fields'} missing.")
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
    if told := view.seat.told():
        out.append(("Seat", told, "", None))
    if told := view.reader.spent.told():
        out.append(("Reader", told, "", None))
    return out
