"""Independent counts of split heldout4; see counts.py."""

from __future__ import annotations

import json
from collections.abc import Callable

from bench.detectors.corpus.counting import Count, Files, of, rows


def trajectories(files: Files) -> Count:
    """Trajectories, what the reports beside them name as resolved, and runs that end early or without a status."""
    n = won = faults = 0
    for p, c in files:
        data = json.loads(c)
        if p.endswith(".traj"):
            n += 1
            faults += data["info"].get("exit_status") in {None, "early_exit"}
        else:
            won += len(data.get("resolved_ids", data.get("resolved", [])))
    return of([None] * n, None, won, faults)


def nyuctf(files: Files) -> Count:
    some = [json.loads(c) for _, c in files]
    failed = [bool(r.get("exception_info")) for r in some]
    return of([float(r["solved"]) for r in some], None, sum(r["solved"] for r in some), sum(failed))


def super_bench(files: Files) -> Count:
    """Notebooks that are there (one is too large), and the rewards of the metrics.json beside them."""
    scores: dict[str, float] = {}
    books = set()
    for p, c in files:
        if p.endswith("metrics.json"):
            scores[p.rpartition("/")[0]] = json.loads(c)["output_match"]
        else:
            books.add(p.rpartition("/")[0])
    return of([x for p, x in scores.items() if p in books], None, None)


def kernel_ralph(files: Files) -> Count:
    """Rows; those that name an error."""
    some = [r for p, c in files if p.endswith("results.jsonl") for r in rows(c)]
    right = [bool((r.get("eval_result") or {}).get("correctness")) for r in some]
    return of([float(x) for x in right], None, sum(right), sum(bool(r.get("error")) for r in some))


def cuda_l1(files: Files) -> Count:
    some = [r["score_default"] for _, c in files for r in rows(c) if r["custom_code"]]
    return of([float(x) if str(x)[0].isdigit() else None for x in some], None, None)


def mapcoder(files: Files) -> Count:
    won = [bool(r["is_solved"]) for _, c in files for r in rows(c)]
    return of([float(x) for x in won], None, sum(won))


def lats(files: Files) -> Count:
    won = [bool(r["is_solved"]) for _, c in files for r in rows(c) if isinstance(r.get("solution"), str)]
    return of([float(x) for x in won], None, sum(won))


def game24(files: Files) -> Count:
    some = [r for _, c in files for r in json.loads(c)]
    won = [i["r"] for r in some for i in r["infos"]]
    return of([float(x) for x in won], len(some), sum(won))


def tinker_logs(files: Files) -> Count:
    said = [x for _, c in files for x in c.decode("utf-8", "replace").split("\n") if "| reward=" in x]
    return of([float(x.split("reward=")[1].split()[0]) for x in said], None, None)


def banana(files: Files) -> Count:
    n = sum(len(v) for _, c in files for v in json.loads(c).values() if isinstance(v, list))
    return of([None] * n, None, None)


FOURTH: dict[str, Callable[[Files], Count]] = {
    f.__name__.replace("_", "-"): f
    for f in (nyuctf, super_bench, kernel_ralph, cuda_l1, mapcoder, lats, game24, tinker_logs, banana)
}
FOURTH |= {"multi-swe-java": trajectories, "coder": trajectories, "enigma-ctf": trajectories}
