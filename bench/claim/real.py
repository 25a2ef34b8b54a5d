"""The claim on real trainings: `python -m bench.claim.real TASK FOLDER [--arms A,B] [--repeats N] [OVERRIDE ...]`.

Every arm begins with the human reference (`references/<task>.toml`, frozen by its hash before any arm ran), has the
same number of trainings, and what it chooses is trained on fresh seeds and read on cert beside the reference. A
finished repeat of an arm goes to `real/<task>.jsonl` and is not played again, so that the work can be spread over days
and machines; within a repeat the same command goes on in FOLDER. All rows that there are go into real.md, which
`--repeats 0` writes anew without playing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

from bench.compare import ARMS, check_arms, table
from bench.compare.arms import arm_task
from bench.compare.plan import make_plan
from bench.compare.proof import RunProver
from bench.compare.runner import played, row_of
from bench.compare.text import spread
from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.judge import cost_ratio
from evotrainer.projections.branches import START
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import Recipe, parse_recipe

HERE = Path(__file__).parent
FRESH = 3


def reference(name: str) -> Recipe:
    """The frozen recipe of a task's human reference."""
    path = HERE / "references" / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(sorted(x.stem for x in path.parent.glob("*.toml")))
        raise SystemExit(f"task {name} has no frozen reference; there are: {there} (bench.claim.references makes one)")
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    recipe = parse_recipe(json.loads(found["recipe"]))
    if recipe.hash != found["hash"]:
        raise SystemExit(
            f"references/{name}.toml holds recipe {recipe.hash}, and says that it was frozen as {found['hash']}"
        )
    return recipe


def rows_of(name: str) -> list[dict[str, Any]]:
    """What was measured so far."""
    path = HERE / "real" / f"{name}.jsonl"
    return [json.loads(x) for x in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def play(task: TaskFile, out: Path, arm: str, repeat: int, trainings: int) -> dict[str, Any]:
    """One repeat of an arm, and the proof of what it chose."""
    plan = make_plan(task, [arm], repeat, trainings, FRESH, 1, [])
    run = played(out / f"{arm}-{repeat}", arm_task(task, arm, trainings, repeat), None, None)
    prover = RunProver(task, out, FRESH, lambda folder, own: played(folder, own, None, None))
    row = row_of(plan, task.recipe, arm, repeat, run, prover)
    cost = cost_ratio(*(fresh(out, hash_, repeat) for hash_ in (row["recipe"], task.recipe.hash)))
    computed = [e.body.computed_cpu_s for e in run.events() if e.kind == "finished"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout
    row["compute"] = round(cost.ratio, 3) if cost else None
    return row | {"best": None, "cpu_s": round(sum(computed)), "date": str(date.today()), "commit": commit.strip()}


def proved_again(task: TaskFile, out: Path, row: dict[str, Any]) -> dict[str, Any]:
    """A row whose choice and start are trained again on its fresh seeds, and read by today's proof."""
    best = task.recipe.with_changes(row["changes"])
    if best.hash != row["recipe"]:
        raise SystemExit(f"the row's recipe {row['recipe']} is not what its changes make of the reference here")
    prover = RunProver(task, out, FRESH, lambda folder, own: played(folder, own, None, None))
    start, found = prover(task.recipe, row["repeat"]), prover(best, row["repeat"])
    searched = mean(found.search.values())
    new = {"fresh_search": searched, "optimism": row["reported"] - searched, "start": mean(start.cert.values())}
    new |= {"score": mean(found.cert.values()), "invalid": found.invalid}
    cost = cost_ratio(*(fresh(out, r.hash, row["repeat"]) for r in (best, task.recipe)))
    gain = new["score"] - new["start"]
    new["curve"] = [[row["curve"][-1][0], gain]]
    return row | new | {"gain": gain, "compute": round(cost.ratio, 3) if cost else None, "proved": str(date.today())}


def fresh(out: Path, recipe: str, repeat: int) -> list[TrialFinished]:
    """The trainings of a recipe under fresh seeds."""
    return api.open_run(out / "proofs" / f"{recipe}-{repeat}").state.branches[START].complete


def markdown(name: str, rows: list[dict[str, Any]]) -> str:
    """Points on cert over the reference: a row per arm, and what each repeat came to."""
    found = table(rows)
    out = [
        f"## {name}",
        "",
        f"| arm | repeats | trainings | gain on cert, points | {found['reference']} minus it | optimism | invalid | "
        "gain of each repeat (compute of what it chose; commit) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for a in found["arms"]:
        own = [r for r in rows if r["arm"] == a["arm"]]
        each = ", ".join(
            f"{100 * r['gain']:+.1f} ({f'{c:.2f} x' if (c := r.get('compute')) else 'not kept'}; {r['commit'][:8]}"
            f"{', proved again ' + r['proved'] if r.get('proved') else ''})"
            if r["gain"]
            else f"0.0 ({r['commit'][:8]})"
            for r in own
        )
        out.append(
            f"| {a['arm']} | {a['repeats']} | {a['trainings']['mean']:.0f} | {spread(a['gain'])} | "
            f"{spread(a['behind'])} | {spread(a['optimism'])} | {a['invalid']} | {each} |"
        )
    return "\n".join(out)


def write() -> None:
    """real.md: the tables of all domains, and under which commits they were played."""
    parts = [
        "# Real runs",
        "",
        "Written by `python -m bench.claim.real`. Each repeat begins with the person's recipe and has 60 trainings; "
        f"what it chooses is trained on {FRESH} fresh seeds and read on cert beside that recipe. Gain: the chosen one "
        "minus the person's, points, mean and 95% interval over repeats. 0.0: nothing was promoted. Optimism: what the "
        "search reports minus what fresh seeds say. Compute: CPU-seconds of a training of the choice, as a multiple of "
        "one of the person's recipe, both measured on the fresh seeds beside whatever else the machine did; a multiple "
        "above 1.05 is a gain that was partly paid for. An arm played under several commits is several agents: its "
        "interval says how repeats differed, not how today's agent does. `proved/` has choices on more fresh seeds.",
        "",
    ]
    for path in sorted((HERE / "real").glob("*.jsonl")):
        rows = rows_of(path.stem)
        dates, commits = (sorted({r[k] for r in rows}) for k in ("date", "commit"))
        parts += [markdown(path.stem, rows), "", f"{dates[0]} to {dates[-1]}; commits {', '.join(commits)}.", ""]
    (HERE / "real.md").write_text("\n".join(parts), encoding="utf-8")


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.claim.real", description=__doc__)
    ask.add_argument("task", type=Path)
    ask.add_argument("folder", type=Path)
    ask.add_argument("overrides", nargs="*", metavar="section.name=value")
    ask.add_argument("--arms", default="statistical", help=f"of {', '.join(ARMS)}")
    ask.add_argument("--repeats", type=int, default=1)
    ask.add_argument("--trainings", type=int, default=60)
    ask.add_argument("--prove", metavar="ARM-REPEAT", help="train a row's choice and start again, renew its proof")
    given = ask.parse_intermixed_args()
    task = load_task(given.task, given.overrides)
    name = task.task.name
    task = task.model_copy(update={"recipe": reference(name)})
    if given.prove:
        there = rows_of(name)
        named = [f"{r['arm']}-{r['repeat']}" for r in there]
        if given.prove not in named:
            raise SystemExit(f"{given.prove} is no row of real/{name}.jsonl; there are: {', '.join(named)}")
        at = named.index(given.prove)
        there[at] = proved_again(task, given.folder / f"{name}-proved", there[at])
        lines = "".join(json.dumps(r) + "\n" for r in there)
        (HERE / "real" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        write()
        print(json.dumps(there[at]))
        return
    arms = given.arms.split(",")
    check_arms(arms, task, given.trainings)
    (HERE / "real").mkdir(exist_ok=True)
    for repeat in range(1, given.repeats + 1):
        for arm in arms:
            if any((r["arm"], r["repeat"]) == (arm, repeat) for r in rows_of(name)):
                continue
            print(f"{name}: {arm}, repeat {repeat} of {given.repeats}", file=sys.stderr)
            row = play(task, given.folder / name, arm, repeat, given.trainings)
            with open(HERE / "real" / f"{name}.jsonl", "a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
    write()
    print(markdown(name, rows_of(name)))


if __name__ == "__main__":
    main()
