"""A recorded choice of an arm on more fresh seeds: `python -m bench.claim.prove_again TASK FOLDER --of ARM-REPEAT`.

`real/<task>.jsonl` holds three fresh seeds a side, which say little where trainings of one recipe differ by 9 points.
This trains the choice of one row and the person's recipe on `--seeds` of them (the three among them), reads cert, and
keeps the difference with the judge's own 95% interval in `proved/<task>.jsonl`: as sampled, by greedy decoding, and
with each side decoded as its search split prefers, so that sharpening is no gain. Give the overrides of the row's run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

from bench.claim.real import HERE, fresh, played, reference, rows_of
from bench.compare.proof import RunProver
from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.judge import cost_ratio
from evotrainer.judge.readings import greedy_of
from evotrainer.judge.stats import effect, scores_of
from evotrainer.projections.branches import START
from evotrainer.records.events import TrialFinished
from evotrainer.rules.certificate import decoding


def prove(row: dict[str, Any], task_file: Path, overrides: list[str], out: Path, seeds: int) -> dict[str, Any]:
    """The choice of a row minus the person's recipe, on cert."""
    task = load_task(task_file, overrides)
    start = reference(task.task.name)
    task = task.model_copy(update={"recipe": start})
    recipe = start.with_changes(row["changes"])
    if recipe.hash != row["recipe"]:
        raise SystemExit(f"the row's recipe {row['recipe']} is not what its changes make of the reference here")
    prover = RunProver(task, out, seeds, lambda folder, own: played(folder, own, None, None))
    for r in (start, recipe):
        prover(r, row["repeat"])
    sides = [read_cert(out, r.hash, row["repeat"]) for r in (recipe, start)]
    sampled, greedy = ([read(side, "cert") for side in sides] for read in (scores_of, greedy_of))
    states = [api.open_run(out / "proofs" / f"{r.hash}-{row['repeat']}").state for r in (recipe, start)]
    ways = [decoding(s, START) or "sampled" for s in states]
    chosen = [greedy[i] if way == "greedy" else sampled[i] for i, way in enumerate(ways)]
    found = effect(*sampled)
    cost = cost_ratio(*(fresh(out, r.hash, row["repeat"]) for r in (recipe, start)))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout
    return {
        "arm": row["arm"],
        "repeat": row["repeat"],
        "recipe": recipe.hash,
        "changes": row["changes"],
        "seeds": seeds,
        "gain": found.mean,
        "low": found.low,
        "high": found.high,
        "greedy": {k: round(x, 6) for k, x in effect(*greedy).model_dump().items() if k in ("mean", "low", "high")},
        "chosen": {k: round(x, 6) for k, x in effect(*chosen).model_dump().items() if k in ("mean", "low", "high")},
        "decoding": ways,
        "scores": [[t.seed, *(s.score for s in t.scores if s.split == "cert")] for t in sides[0]],
        "reference": [[t.seed, *(s.score for s in t.scores if s.split == "cert")] for t in sides[1]],
        "compute": round(cost.ratio, 3) if cost else None,
        "date": str(date.today()),
        "commit": commit.strip(),
    }


def read_cert(out: Path, recipe: str, repeat: int) -> list[TrialFinished]:
    """The evaluations on cert of a recipe's trainings under fresh seeds."""
    events = api.open_run(out / "proofs" / f"{recipe}-{repeat}").events()
    done = [e.body for e in events if e.kind == "finished" and e.body.branch == START]
    return [t for t in done if any(s.split == "cert" for s in t.scores)]


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.claim.prove_again", description=__doc__)
    ask.add_argument("task", type=Path)
    ask.add_argument("folder", type=Path)
    ask.add_argument("overrides", nargs="*", metavar="section.name=value")
    ask.add_argument("--of", required=True, metavar="ARM-REPEAT")
    ask.add_argument("--seeds", type=int, default=12)
    given = ask.parse_intermixed_args()
    name = load_task(given.task, given.overrides).task.name
    there = {f"{r['arm']}-{r['repeat']}": r for r in rows_of(name)}
    if given.of not in there:
        raise SystemExit(f"{given.of} is no row of real/{name}.jsonl; there are: {', '.join(there)}")
    row = prove(there[given.of], given.task, given.overrides, given.folder / f"{name}-again", given.seeds)
    (HERE / "proved").mkdir(exist_ok=True)
    kept = HERE / "proved" / f"{name}.jsonl"
    rows = [json.loads(x) for x in kept.read_text(encoding="utf-8").splitlines()] if kept.is_file() else []
    rows = [x for x in rows if (x["arm"], x["repeat"]) != (row["arm"], row["repeat"])]
    kept.write_text("".join(json.dumps(x) + "\n" for x in (*rows, row)), encoding="utf-8")
    gain, low, high = (100 * row[k] for k in ("gain", "low", "high"))
    print(f"{given.of}: {gain:+.1f} [{low:+.1f}, {high:+.1f}] on cert, {given.seeds} seeds a side, {row['compute']} x")


if __name__ == "__main__":
    main()
