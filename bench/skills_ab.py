"""Do skills help? The same task with and without them: same seeds, same budget, pairs of runs, one table.

    python -m bench.skills_ab tasks/math.toml --skills skills/ --out compare/ --repeats 5

Each repeat is a pair of runs whose RL seeds are the task file's, shifted; within a pair everything but `run.skills` is
the same, also the agent's random draws. A pair's runs share no computation, so each arm pays for its own noise floor.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError

if TYPE_CHECKING:
    from evotrainer.executors import MakeExecutor

ARMS = ("without", "with")
SHIFT = 1000
"""Added to every RL seed per repeat."""
CONFIDENCE = 0.95
MEASURES = {
    "cert": "champion minus starting recipe on cert, points",
    "gate": "champion's gain over the starting recipe on gate, points",
    "first": "trials until the first promotion",
    "regret": "regret per branch, points",
}
"""Measure -> what it is; of the first two more is better, of the others less."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of the comparison."""

    repeat: int
    arm: str
    run: str
    cert: float | None
    """Score units; 0 where the starting recipe stayed champion."""
    gate: float
    """Sum of the effects along the champion's path, each as the judge reports it."""
    first: int
    """Trained trials of branches up to and including the first promoted one; all of them where there was none."""
    promoted: bool
    regret: float | None
    """Mean over the branches of: best gain seen in either arm minus the running champion's."""
    branches: int
    trials: int
    cpu_s: float
    used: int
    """Times a skill moved the prior of a branch that was trained."""


@dataclass(frozen=True, slots=True)
class Paired:
    """With minus without over the repeats, score units (`first`: trials)."""

    measure: str
    without: float | None
    with_: float | None
    difference: float | None
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """All runs, and the paired differences."""

    task: str
    libraries: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    paired: tuple[Paired, ...]


Watch = Callable[[Path], AbstractContextManager[Any]]
"""Run folder -> observer of the run."""


def compare(
    task: Path,
    overrides: Sequence[str],
    libraries: Sequence[str],
    out: Path,
    repeats: int,
    watch: Watch,
    executor: MakeExecutor | None = None,
) -> Comparison:
    """Run what is missing of the pairs, then write results.md and results.json.
    ConfigError where `out` holds other runs."""
    from evotrainer import api
    from evotrainer.config.load import load_task
    from evotrainer.executors.spec import write_atomic
    from evotrainer.run.skills import collect

    given = [x if x == "builtin" else str(Path(x).resolve()) for x in libraries]
    if not collect(given):
        raise ConfigError(f"no skills in {', '.join(libraries)}: there is nothing to compare with")
    base = load_task(task, overrides)
    runs: list[tuple[int, str, api.Run]] = []
    for i in range(repeats):
        for arm in ARMS:
            folder = out / f"r{i}-{arm}"
            own = [*overrides, *_seeds(base, i), f"run.skills={json.dumps(given if arm == 'with' else [])}"]
            runs.append((i, arm, _run(task, own, folder, watch, executor)))
    done = summarise(base.task.name, given, [(i, arm, r.folder.name, r.events()) for i, arm, r in runs])
    write_atomic(out / "results.json", json.dumps(asdict(done), indent=1) + "\n")
    write_atomic(out / "results.md", render(done))
    return done


def _seeds(base: Any, repeat: int) -> list[str]:
    """Overrides that give a repeat seeds of its own, and gate and cert that both runs of it are judged on."""
    from evotrainer.envs import open_environment
    from evotrainer.envs.base import can_redraw

    with contextlib.closing(open_environment(base.environment, accept_tier_e=base.sandbox.accept_tier_e)) as opened:
        drawn = [f"evaluation.draw={base.run.seed + SHIFT * repeat}"] if can_redraw(opened) else []
    shifted = {
        "seed": base.run.seed + repeat,
        "seeds": [s + SHIFT * repeat for s in base.run.seeds],
        "certify_seeds": [s + SHIFT * repeat for s in base.run.certify_seeds],
    }
    return [*(f"run.{k}={json.dumps(v)}" for k, v in shifted.items()), *drawn]


def _run(task: Path, overrides: Sequence[str], folder: Path, watch: Watch, executor: MakeExecutor | None) -> Any:
    """Start, resume, or take a run as it is."""
    from evotrainer import api
    from evotrainer.config.load import load_task

    if not (folder / "ledger.db").is_file():
        with watch(folder) as view:
            return api.start(task, folder, overrides, view=view, executor=executor)
    now, was = load_task(task, overrides), load_task(folder / "task.toml")
    differs = [
        k for k in ("recipe", "environment", "evaluation", "judge", "run", "budget") if _said(now, k) != _said(was, k)
    ]
    if differs:
        raise ConfigError(
            f"{folder} was run with another {', '.join(differs)} section; give the same task and overrides, "
            "or another --out"
        )
    run = api.open_run(folder)
    if run.closed:
        return run
    with watch(folder) as view:
        return api.resume(folder, view=view, executor=executor)


def _said(task: Any, section: str) -> Any:
    value = getattr(task, section)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def summarise(task: str, libraries: Sequence[str], runs: Sequence[tuple[int, str, str, Sequence[Any]]]) -> Comparison:
    """The comparison from ledgers alone. `runs`: (repeat, arm, name, events)."""
    stories = {(i, arm): _story(events) for i, arm, _, events in runs}
    outcomes = []
    for i, arm, name, events in runs:
        best = max([0.0, *(g for a in ARMS if (i, a) in stories for g in stories[i, a].seen)])
        outcomes.append(_outcome(i, arm, name, events, stories[i, arm], best))
    return Comparison(task, tuple(libraries), tuple(outcomes), tuple(_paired(m, outcomes) for m in MEASURES))


@dataclass(frozen=True, slots=True)
class _Story:
    """Gains over the starting recipe in the order of judging."""

    seen: list[float]
    """Of every measured branch that kept its standing."""
    running: list[float]
    """Of the champion after each judged branch."""
    champion: float


def _story(events: Sequence[Any]) -> _Story:
    from evotrainer.projections.state import RunState

    tree = RunState.of(events)
    fresh = {e.body.branch: e.body.effect.mean for e in events if e.kind == "reestimated"}
    gains: dict[str, float] = {}
    for b in tree.branches.values():
        v = b.verdict
        effect = fresh.get(b.branch, v.effect.mean if v and v.effect else 0.0)
        gains[b.branch] = 0.0 if b.parent is None else gains.get(b.parent, 0.0) + effect
    measured = [b for b in tree.branches.values() if b.verdict and b.verdict.effect and b.invalid is None]
    promoted = {p.branch for p in tree.versions}
    running, now = [], 0.0
    for name in dict.fromkeys(e.body.verdict.branch for e in events if e.kind == "judged"):
        if name in promoted and tree.branches[name].invalid is None:
            now = gains[name]
        running.append(now)
    return _Story([gains[b.branch] for b in measured], running, gains.get(tree.champion or "", 0.0))


def _outcome(i: int, arm: str, name: str, events: Sequence[Any], story: _Story, best: float) -> Outcome:
    purposes = {e.body.trial: e.body.purpose for e in events if e.kind == "intended"}
    trained = [e for e in events if e.kind == "finished" and e.body.steps and purposes.get(e.body.trial) == "branch"]
    first = next((e.seq for e in events if e.kind == "promoted" and e.body.previous is not None), None)
    certified = next((e.body for e in events if e.kind == "certified"), None)
    rows = {r.name: r.score for r in certified.rows} if certified else {}
    cert = None
    if "start" in rows:
        end = rows.get("champion", rows["base"] if certified and certified.champion == "base" else rows["start"])
        cert = end - rows["start"]
    return Outcome(
        repeat=i,
        arm=arm,
        run=name,
        cert=cert,
        gate=story.champion,
        first=sum(e.seq < first for e in trained) if first is not None else len(trained),
        promoted=first is not None,
        regret=sum(best - g for g in story.running) / len(story.running) if story.running else None,
        branches=len(story.running),
        trials=len(trained),
        cpu_s=round(sum(e.body.cpu_s for e in events if e.kind == "finished"), 1),
        used=sum(
            len(e.body.intervention.skills) for e in events if e.kind == "branch" and e.body.intervention is not None
        ),
    )


def _paired(measure: str, outcomes: Sequence[Outcome]) -> Paired:
    """Mean difference over the pairs that have both, with a t interval from two pairs on."""
    by: dict[int, dict[str, float]] = {}
    for o in outcomes:
        if (x := getattr(o, measure)) is not None:
            by.setdefault(o.repeat, {})[o.arm] = float(x)
    pairs = [(p["without"], p["with"]) for p in by.values() if len(p) == 2]
    if not pairs:
        return Paired(measure, None, None, None, None, None, 0)
    n = len(pairs)
    d = [b - a for a, b in pairs]
    mean = sum(d) / n
    low = high = None
    if n > 1:
        from scipy.special import stdtrit

        half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * (sum((x - mean) ** 2 for x in d) / (n - 1) / n) ** 0.5
        low, high = mean - half, mean + half
    return Paired(measure, sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n, mean, low, high, n)


def render(c: Comparison) -> str:
    """The results as markdown."""
    lines = [
        f"# {c.task}: with and without skills",
        "",
        f"Skills: {', '.join(c.libraries)}. Pairs of runs at the same seeds and budget; intervals: {CONFIDENCE:.0%}, "
        "over pairs.",
        "",
        "| | without | with | with - without | interval | pairs |",
        "|---|---|---|---|---|---|",
    ]
    for p in c.paired:
        scale = 1 if p.measure == "first" else 100
        cells = [_number(x, scale) for x in (p.without, p.with_, p.difference)]
        interval = "one pair" if p.low is None else f"{_number(p.low, scale)} to {_number(p.high, scale)}"
        lines.append(f"| {MEASURES[p.measure]} | {' | '.join(cells)} | {interval} | {p.pairs} |")
    lines += [
        "",
        "| repeat | arm | cert | gate | first promotion after | regret | branches | trials | skills used | CPU-s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for o in c.outcomes:
        first = f"{o.first} trials" if o.promoted else f"none in {o.first}"
        lines.append(
            f"| {o.repeat} | {o.arm} | {_number(o.cert, 100)} | {_number(o.gate, 100)} | {first} | "
            f"{_number(o.regret, 100)} | {o.branches} | {o.trials} | {o.used} | {o.cpu_s:.0f} |"
        )
    lines += [
        "",
        "First promotion: trained trials of branches until then; a run without one counts all of its trials. Regret: "
        "best gain over the starting recipe that either arm of the pair saw on gate, minus the running champion's, "
        "mean over branches.",
    ]
    return "\n".join(lines) + "\n"


def _number(x: float | None, scale: int) -> str:
    return "–" if x is None else f"{scale * x:+.2f}" if scale == 100 else f"{x:.1f}"


def main(argv: Sequence[str] | None = None) -> None:
    """Called again with the same --out, it goes on."""
    import argparse

    from evotrainer.records.console import Console
    from evotrainer.views.terminal import LiveView

    p = argparse.ArgumentParser(description="Do skills help? Pairs of runs with and without them, one table.")
    p.add_argument("task", type=Path, help="task file (TOML)")
    p.add_argument("overrides", nargs="*", help="overrides of the task file, section.name=value")
    p.add_argument("--skills", action="append", required=True, help="library of the arm with skills, repeatable")
    p.add_argument("--out", type=Path, required=True, help="folder for all runs and the results")
    p.add_argument("--repeats", type=int, default=3, help="pairs of runs, each with seeds of its own")
    a = p.parse_intermixed_args(argv)
    done = compare(a.task, a.overrides, a.skills, a.out, a.repeats, lambda run: LiveView(run, Console(), plain=True))
    print(render(done).rstrip())


if __name__ == "__main__":
    main()
