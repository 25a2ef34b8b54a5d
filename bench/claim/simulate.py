"""All arms on surfaces: `python -m bench.claim.simulate FOLDER [KIND ...] [--repeats N] [--trainings K]`.

KIND is a class of invented ones (worlds.py), or math, code or swe: the landscape that real trainings left (fitted.py),
where a search begins with the frozen human reference, under the settings of the task file, as in bench.claim.real.

Whole runs (loop, judge, ledger, agents as they are) whose trainings are drawn. Resumable: the same command goes on.
Prints Markdown; `simulated.md` is what it printed once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.claim.fitted import fitted
from bench.claim.real import reference
from bench.claim.worlds import KINDS, scaffold, worlds
from bench.compare import ARMS, compare, open_plan, table
from bench.compare.plan import make_plan
from bench.compare.surface import Surface
from bench.compare.text import spread, write_results
from evotrainer.config.load import load_task
from evotrainer.projections.text import points

FRESH = 3
ROOT = Path(__file__).parents[2]
FITTED = ("math", "code", "swe")


def run(folder: Path, kind: str, arms: list[str], repeats: int, trainings: int) -> dict[str, Any]:
    """One class of worlds, a world per repeat."""
    made: list[Surface]
    if kind in FITTED:
        task = load_task(ROOT / "tasks" / f"{kind}.toml")
        made = [fitted(kind, task, reference(kind))]
        task = task.model_copy(update={"recipe": reference(kind)})
    else:
        path = folder / "letters" / "task.toml"
        # all of an arm's trainings may go into one round's search
        task = load_task(path if path.is_file() else scaffold(folder), ["run.probes=0"])
        made = worlds(kind, repeats, task)
    plan = open_plan(folder / kind, make_plan(task, arms, repeats, trainings, FRESH, 12, made))
    start = time.process_time()

    def tell(what: str, done: int, of: int) -> None:
        if what.endswith(("0", "5")) and done % len(arms) == 0:
            print(f"{kind}: {done}/{of}", file=sys.stderr)

    found = table(compare(plan, task, folder / kind, made, tell=tell)) | {"plan": plan.model_dump()}
    write_results(found, folder / kind)
    return found | {"cpu_s": time.process_time() - start}


def markdown(kind: str, found: Mapping[str, Any]) -> str:
    """A table of one class."""
    names = ["arm", "trainings", "true gain, points", "share of best", f"{found['reference']} minus it", "optimism"]
    more = ["below start", "changed"]
    lines = [f"## {kind}", "", "| " + " | ".join([*names, *more]) + " |", "|---|---|---|---|---|---|---|---|"]
    for a in found["arms"]:
        share = "–" if a["share"] is None else f"{a['share']:.2f}"
        lines.append(
            f"| {a['arm']} | {a['trainings']['mean']:.0f} | {spread(a['true_gain'])} | {share} | "
            f"{spread(a['behind'])} | {spread(a['optimism'])} | {a['worse']} of {a['repeats']} | "
            f"{sum(bool(r['changes']) for r in found['rows'] if r['arm'] == a['arm'])} of {a['repeats']} |"
        )
    curve = {a["arm"]: a["curve"] for a in found["arms"]}
    steps = [n for n, _ in next(iter(curve.values()))]
    shown = steps[2::3]
    lines += ["", "Gain on fresh seeds after so many trainings, points:", ""]
    lines += ["| arm | " + " | ".join(map(str, shown)) + " |", "|---|" + "---|" * len(shown)]
    for arm, found_at in curve.items():
        at = dict(found_at)
        lines.append(f"| {arm} | " + " | ".join(points(at[n]["mean"]) if at[n] else "–" for n in shown) + " |")
    return "\n".join(lines)


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.claim.simulate")
    ask.add_argument("folder", type=Path)
    ask.add_argument("kinds", nargs="*", default=["additive", "pairwise"], metavar="KIND")
    ask.add_argument("--repeats", type=int, default=30)
    ask.add_argument("--trainings", type=int, default=60)
    ask.add_argument("--arms", default=",".join(ARMS))
    given = ask.parse_intermixed_args()
    if wrong := [k for k in given.kinds if k not in (*KINDS, *FITTED)]:
        ask.error(f"unknown class {wrong[0]}; one of {', '.join((*KINDS, *FITTED))}")
    given.folder.mkdir(parents=True, exist_ok=True)
    size = f"{given.repeats} repeats, {given.trainings} trainings each"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    out = [
        f"{time.strftime('%Y-%m-%d')}, commit {commit}: {size}.",
        "",
    ]
    for kind in given.kinds:
        found = run(given.folder, kind, given.arms.split(","), given.repeats, given.trainings)
        (given.folder / f"{kind}.json").write_text(json.dumps(found), encoding="utf-8")
        out += [markdown(kind, found), "", f"{found['cpu_s']:.0f} CPU-s.", ""]
    print("\n".join(out))


if __name__ == "__main__":
    main()
