"""A program in the seat beside the default agent, at equal trainings, all of them search:
`python -m bench.seat.measure FOLDER [KIND ...] --seat COMMAND`.

A KIND is a class of invented worlds (bench/claim/worlds.py), `math` or `code` (the landscape that real trainings left,
bench/claim/fitted.py, where a search begins with the frozen human reference), or a file of kept trainings
(bench/claim/trainings/X.jsonl, with --task tasks/X.toml), to which one effect per value and pair is fitted. The program
(carrier `command`, told the request on stdin) names a share of the trainings; an arm is measured by what it settles on.

Resumable: the same command goes on. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.claim.fitted import fitted
from bench.claim.real import reference
from bench.claim.simulate import FITTED, ROOT
from bench.claim.surface import fit, kept_in
from bench.claim.worlds import KINDS, scaffold, worlds
from bench.compare import compare, open_plan, table
from bench.compare.arms import ARMS, ArmKind
from bench.compare.plan import make_plan
from bench.compare.surface import Surface
from bench.compare.text import spread
from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.projections.text import points
from evotrainer.projections.trials import distinct_ideas, labelled

ALONE: dict[str, Any] = {"search_only": True, "agent_options": {"worth": 0.0}}
ONE = ArmKind("statistical", "the default agent", control=True, settings=ALONE)
CPU_S = 30.0
"""CPU-seconds of a training where the worlds are invented: about those of a maths training here."""


def drawn_from(kind: str, folder: Path, task: Path | None, repeats: int) -> tuple[TaskFile, list[Surface], float]:
    """(task, surfaces to draw trainings from, CPU-seconds of a training) of a KIND."""
    if kind in FITTED:
        known = load_task(ROOT / "tasks" / f"{kind}.toml")
        seen = list(kept_in(ROOT / "bench" / "claim" / "trainings" / f"{kind}.jsonl"))
        made = [fitted(kind, known, reference(kind))]
        return known.model_copy(update={"recipe": reference(kind)}), made, sum(s.cpu_s for s in seen) / len(seen)
    path = task or folder / "letters" / "task.toml"
    # all of an arm's trainings may go into one round's search
    known = load_task(path if path.is_file() else scaffold(folder), ["run.probes=0"])
    if kind in KINDS:
        return known, worlds(kind, repeats, known), CPU_S
    seen = list(kept_in(Path(kind)))
    return known, [fit(known.recipe, seen, known.task.name)], sum(s.cpu_s for s in seen) / len(seen)


def play(
    folder: Path,
    kind: str,
    task: TaskFile,
    surfaces: Sequence[Surface],
    repeats: int,
    trainings: int,
    arms: Mapping[str, str],
) -> dict[str, Any]:
    """All arms (name -> what it is) on some surfaces: the comparison's table, and what was counted in its runs."""
    out = folder / f"{Path(kind).stem}-{'-'.join(arms)}"
    plan = open_plan(out, make_plan(task, list(arms), repeats, trainings, 3, 1, list(surfaces)))
    found = table(compare(plan, task, out, list(surfaces)))
    return found | {"counted": {arm: counted(out, arm, repeats) for arm in arms}, "arm_names": arms}


def seated(command: str, shares: Sequence[float]) -> dict[str, ArmKind]:
    """Arms in which a program names a share of the trainings, all of them search."""
    made = {}
    for share in shares:
        told = f"a program, {share:.0%} of the trainings"
        options = {
            "carrier": "command",
            "command": shlex.split(command),
            "share": share,
            "sandbox": False,
            "timeout_s": 2400,
        }
        options = {**ALONE["agent_options"], **options}
        made[f"seat_{100 * share:.0f}"] = ArmKind(
            "seat", told, control=True, settings=ALONE | {"agent_options": options}
        )
    return made


def counted(out: Path, arm: str, repeats: int) -> dict[str, Any]:
    """Labels of all trials of an arm, its promotions, and distinct ideas per run."""
    labels: Counter[str] = Counter()
    promotions, ideas = 0, 0
    for r in range(1, repeats + 1):
        run = api.open_run(out / f"{arm}-{r}")
        trials = labelled(run.events())
        labels.update(t.label for t in trials)
        ideas += len(distinct_ideas(trials))
        promotions += sum(v.previous is not None for v in run.state.versions)
    return {"labels": dict(labels.most_common()), "promotions": promotions, "ideas": ideas / repeats}


def markdown(kind: str, found: Mapping[str, Any], cpu_s: float) -> str:
    """A table of one class."""
    head = ["agents", "true gain, points", "share of best", "the default minus it", "below start", "promotions"]
    head += ["distinct ideas", "points per CPU-hour", "labels"]
    lines = [f"## {kind}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    by_arm = {a["arm"]: a for a in found["arms"]}
    gains = {(r["arm"], r["repeat"]): r["true_gain"] for r in found["rows"]}
    first = next(iter(found["arm_names"]))
    for arm, name in found["arm_names"].items():
        a, c = by_arm[arm], found["counted"][arm]
        behind = interval_of([gains[first, r] - gain for (name, r), gain in gains.items() if name == arm])
        hours = a["trainings"]["mean"] * cpu_s / 3600
        told = ", ".join(f"{k} {n}" for k, n in c["labels"].items())
        share = "–" if a["share"] is None else f"{a['share']:.2f}"
        lines.append(
            f"| {name} | {spread(a['true_gain'])} | {share} | {behind} | {a['worse']} of {a['repeats']} | "
            f"{c['promotions']} | {c['ideas']:.0f} | {points(a['true_gain']['mean'] / hours)} | {told} |"
        )
    return "\n".join(lines)


def interval_of(values: list[float]) -> str:
    from bench.compare.table import interval

    return spread(interval(values)) if any(values) else "–"


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.seat.measure")
    ask.add_argument("folder", type=Path)
    ask.add_argument("kinds", nargs="*", default=["additive", "pairwise"], metavar="KIND")
    ask.add_argument("--repeats", type=int, default=10)
    ask.add_argument("--trainings", type=int, default=40)
    ask.add_argument("--task", type=Path, help="of a file of kept trainings")
    ask.add_argument("--seat", metavar="COMMAND", required=True, help="a program that answers requests")
    ask.add_argument("--share", type=float, action="append", help="of the program; repeatable (default: 1 and 0.5)")
    given = ask.parse_intermixed_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    ARMS.update(kinds := {"one": ONE, **seated(given.seat, given.share or (1.0, 0.5))})
    arms = {name: kind.about for name, kind in kinds.items()}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(
        f"{time.strftime('%Y-%m-%d')}, commit {commit}, {os.cpu_count()} cores of {platform.machine()}: "
        f"{given.repeats} repeats, {given.trainings} trainings each, all of them search.\n"
    )
    for kind in given.kinds:
        start = time.process_time()
        task, surfaces, cpu_s = drawn_from(kind, given.folder, given.task, given.repeats)
        found = play(given.folder, kind, task, surfaces, given.repeats, given.trainings, arms)
        print(markdown(kind, found, cpu_s))
        print(f"\n{time.process_time() - start:.0f} CPU-s; {cpu_s:.0f} CPU-s a training.\n", flush=True)


if __name__ == "__main__":
    main()
