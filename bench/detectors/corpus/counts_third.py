"""Independent counts of split heldout3; see counts.py."""

from __future__ import annotations

import json
from collections.abc import Callable

from bench.detectors.corpus.counting import Count, Files, of, rows


def acr_sweagent(files: Files) -> Count:
    """Trajectories, and what the reports of the three runs name as resolved."""
    n = won = faults = 0
    for p, c in files:
        data = json.loads(c)
        if p.endswith(".traj"):
            n += 1
            faults += data["info"].get("exit_status") is None
        else:
            won += sum(len(v) for v in data["resolved_per_project"].values())
    return of([None] * n, None, won, faults)


def autogen_humaneval(files: Files) -> Count:
    won = []
    for _, c in files:
        said = [m["content"] or "" for m in json.loads(c)["user_proxy"] if m["role"] == "user"]
        won.append(float(any("ALL TESTS PASSED !#!#" in x for x in said if x.startswith("exitcode: "))))
    return of([*won], None, sum(map(int, won)))


def live_swe(files: Files) -> Count:
    n = won = 0
    for p, c in files:
        n += p.endswith(".traj.json")
        won += p.endswith("report.json") and b'"resolved": true' in c
    return of([None] * n, n, won)


def robot_shutdown(files: Files) -> Count:
    ends = [rows(c)[-1]["message"] for _, c in files]
    return of([None] * len(ends), None, None, sum(x.startswith("Unexpected error") for x in ends))


def gptoss_graders(files: Files) -> Count:
    some = [r for _, c in files for r in json.loads(c)]
    return of([None] * len(some), len({r["prompt_idx"] for r in some}), None)


def chats(files: Files) -> Count:
    n = sum(len(rows(c)) for _, c in files)
    return of([None] * n, n, None)


def ldb(files: Files) -> Count:
    won = [bool(r["is_solved"]) for _, c in files for r in rows(c)]
    return of([float(x) for x in won], None, sum(won))


def cot_monitor(files: Files) -> Count:
    """Rows of the monitor (YES is 1, NO is 0, UNKNOWN a fault), and answers that it never saw."""
    said: list[str] = []
    seen, alone = set(), 0
    for p, c in files:
        for r in rows(c):
            at = (p.rpartition("/")[2], r["sample_id"])
            if p.startswith("monitor_results/"):
                said.append(r["monitor_prediction"])
                seen.add(at)
            else:
                alone += at not in seen
    judged: list[float | None] = [None if x == "UNKNOWN" else float(x == "YES") for x in said]
    return of(judged + [None] * alone, None, None, said.count("UNKNOWN"))


def rlvr_onset(files: Files) -> Count:
    won = [str(r["correct"]) == "True" for _, c in files for r in rows(c)]
    return of([float(x) for x in won], len(won), sum(won))


def leetcode_rl(files: Files) -> Count:
    return of([r.get("reward/mean") for _, c in files for r in rows(c)], None, None)


THIRD: dict[str, Callable[[Files], Count]] = {
    f.__name__.replace("_", "-"): f
    for f in (
        acr_sweagent, autogen_humaneval, live_swe, robot_shutdown, gptoss_graders, ldb, cot_monitor, rlvr_onset,
        leetcode_rl,
    )
}  # fmt: skip
THIRD |= {"school-hacks": chats, "realistic-hacks": chats}
