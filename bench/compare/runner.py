"""Runs a comparison: every repeat of every arm is an ordinary run folder, resumed where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.compare.agents import register
from bench.compare.arms import ARMS, arm_task
from bench.compare.choices import Choice, at, choices, trainings_of
from bench.compare.plan import ComparePlan
from bench.compare.proof import Prover, RunProver, SurfaceProver, surface_of
from bench.compare.surface import Surface, surface_executor
from evotrainer import api
from evotrainer.config.task import TaskFile
from evotrainer.errors import BudgetError
from evotrainer.records.recipe import Recipe, diff

if TYPE_CHECKING:
    from evotrainer.executors import MakeExecutor
    from evotrainer.run.observer import Observer

Tell = Callable[[str, int, int], None]
"""(what was done, how many units are done, of how many)."""
View = Callable[[Path], "Observer | None"]
"""Who watches the run in a folder."""


def compare(
    plan: ComparePlan,
    task: TaskFile,
    out: Path,
    surfaces: Sequence[Surface] = (),
    *,
    tell: Tell = lambda what, done, of: None,
    view: Observer | None = None,
    executor: MakeExecutor | None = None,
) -> list[dict[str, Any]]:
    """Play what is left of a comparison; returns a row per repeat of an arm (see `row_of`).

    Repeat by repeat, so that a stopped comparison has as many of each arm. `executor`: in place of the task file's,
    for tests.
    """
    known = list(surfaces)
    made = {n: surface_executor(s) for n, s in enumerate(known)}

    def go_on(folder: Path, own: TaskFile, repeat: int) -> api.Run:
        runs = made[(repeat - 1) % len(known)] if known else executor
        return played(folder, own, runs, view)

    rows = []
    units = [(r, a) for r in range(1, plan.repeats + 1) for a in plan.arms]
    prover: Prover
    for done, (repeat, arm) in enumerate(units):
        tell(f"{arm}, repeat {repeat}", done, len(units))
        own = arm_task(task, arm, plan.trainings, repeat, paper=bool(known))
        run = go_on(out / f"{arm}-{repeat}", own, repeat)
        if known:
            prover = SurfaceProver(known, plan.fresh)
        else:
            prover = RunProver(task, out, plan.fresh, lambda folder, t, r=repeat: go_on(folder, t, r))  # type: ignore[misc]
        best = surface_of(known, repeat).best if known else None
        row = row_of(plan, task.recipe, arm, repeat, run, prover)
        rows.append(row | {"best": best.gain if best else None})
    tell("", len(units), len(units))
    return rows


def played(folder: Path, task: TaskFile, executor: MakeExecutor | None, view: Observer | None) -> api.Run:
    """The run in this folder, played to its end or to the end of its budget."""
    register()
    try:
        if (folder / "ledger.db").is_file():
            return api.resume(folder, executor=executor, view=view)
        return api.start(task, folder, executor=executor, view=view)
    except BudgetError:  # its proof did not fit any more: what it had promoted by then is its choice
        return api.open_run(folder)


def row_of(plan: ComparePlan, start: Recipe, arm: str, repeat: int, run: api.Run, prover: Prover) -> dict[str, Any]:
    """What one repeat of an arm came to, as JSON; scores in score units.

    gain: cert score of the choice minus the start's, mean over the same fresh seeds. optimism: reported search score
    minus the choice's search score on fresh seeds. curve: (trainings, gain of what stood then).
    """
    events = run.events()
    found = choices(events, ARMS[arm].control)
    last = at(found, plan.trainings)  # a judged run's last branch may pass the number; what it brought does not count
    human, best = prover(start, repeat), prover(last.recipe, repeat)
    gains = [best.cert[s] - human.cert[s] for s in sorted(best.cert.keys() & human.cert.keys())]
    searched = _mean(best.search.values())
    return {
        "arm": arm,
        "repeat": repeat,
        "run": run.folder.name,
        "proof": best.run,
        "trainings": min(plan.trainings, trainings_of(events)),
        "changes": {f: new for f, (_, new) in diff(start, last.recipe).items()},
        "recipe": last.recipe.hash,
        "reported": last.reported,
        "fresh_search": searched,
        "optimism": None if last.reported is None or searched is None else last.reported - searched,
        "start": _mean(human.cert.values()),
        "score": _mean(best.cert.values()),
        "gain": _mean(gains),
        "true_gain": None if best.true is None or human.true is None else best.true - human.true,
        "invalid": best.invalid,
        "curve": curve(plan, start, found, repeat, prover),
    }


def curve(
    plan: ComparePlan, start: Recipe, found: Sequence[Choice], repeat: int, prover: Prover
) -> list[tuple[int, float | None]]:
    """(trainings, gain on fresh seeds of what stood then), at `plan.points` places, the last one the end."""
    human = prover(start, repeat)
    out: list[tuple[int, float | None]] = []
    for k in range(1, plan.points + 1):
        n = round(plan.trainings * k / plan.points)
        then = prover(at(found, n).recipe, repeat)
        seeds = sorted(then.cert.keys() & human.cert.keys())
        out.append((n, _mean([then.cert[s] - human.cert[s] for s in seeds])))
    return out


def _mean(values: Any) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
