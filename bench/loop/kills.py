"""Random kills of a whole run: `python -m bench.loop.kills [--kills 100]`.

A small real run (real policy, real RL, real store) is killed by SIGKILL at random moments, driver or trial, and
resumed, again and again, on one run folder after another until the kills are done. Each run must end exactly like the
uninterrupted one: same weights, same scores, same verdicts; no orphan, nothing acknowledged lost, nothing paid twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from evotrainer import api
from evotrainer.cli.init import init
from evotrainer.records.verdicts import Verdict

OVERRIDES = [
    "policy.warm_start.steps=60",
    "recipe.steps=10",
    "recipe.prompts_per_step=8",
    "evaluation.search_tasks=20",
    "evaluation.gate_tasks=30",
    "evaluation.cert_tasks=30",
    "run.rounds=2",
    "run.branches=2",
    "judge.max_cost=9",  # trainings of half a second: whether one is dearer is chance
    "run.checkpoint_every=2",
    "evaluation.draw=5",  # all of them are evaluated on the same tasks
]


def cli(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "evotrainer.cli", *args, "--plain"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def trial_pids(folder: Path) -> list[int]:
    """Live trial processes of a run."""
    out = []
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = p.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/" in line and "evotrainer.executors" in line:
            out.append(int(p.parent.name))
    return out


def outcome(run: api.Run) -> tuple[object, ...]:
    """What a run found, without what it cost."""
    finished = {e.body.trial: e.body for e in run.events() if e.kind == "finished"}
    return (
        {t: b.policy_sha256 for t, b in finished.items()},
        {t: b.scores for t, b in finished.items()},
        [decided(v) for v in run.verdicts],
        run.certification,
    )


def decided(v: Verdict) -> dict[str, Any]:
    """A verdict without the measured CPU-seconds of its trainings, which no two runs share."""
    said = v.model_dump()
    for gate in said["gates"]:
        if gate["gate"] == "compute":
            gate["numbers"], gate["message"] = {}, ""
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    root = Path(tempfile.mkdtemp(prefix="evotrainer-kills-"))
    init(root / "task", name="letters")
    task = str(root / "task" / "task.toml")
    begin = time.time()
    whole = cli("run", task, *OVERRIDES, "--out", str(root / "whole" / "r"))
    _, err = whole.communicate()
    assert whole.returncode == 0, err
    length = time.time() - begin
    truth = outcome(api.Run(root / "whole" / "r"))
    print(f"uninterrupted run: {length:.0f} s, {len(truth[0])} trials", flush=True)

    kills = {"driver": 0, "trial": 0}
    bad = {"other result": 0, "orphans": 0, "paid twice": 0, "not verified": 0, "error": 0}
    runs = 0
    while sum(kills.values()) < args.kills:
        folder = root / f"k{runs}" / "r"
        runs += 1
        p = cli("run", task, *OVERRIDES, "--out", str(folder))
        while True:
            try:
                p.wait(rng.uniform(0.2, length / 4))
            except subprocess.TimeoutExpired:
                pids = trial_pids(folder)
                if pids and rng.random() < 0.3:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    kills["trial"] += 1
                    continue
                p.kill()
                kills["driver"] += 1
            _, err = p.communicate()
            if p.returncode == 0:
                break
            if p.returncode != -signal.SIGKILL:
                bad["error"] += 1
                print(err.decode(), flush=True)
                break
            deadline = time.monotonic() + 10
            while trial_pids(folder) and time.monotonic() < deadline:
                time.sleep(0.02)
            bad["orphans"] += len(trial_pids(folder))
            p = (
                cli("resume", str(folder))
                if (folder / "task.toml").exists()
                else cli("run", task, *OVERRIDES, "--out", str(folder))
            )
        run = api.Run(folder)
        bad["other result"] += outcome(run) != truth
        intended = [e.body.trial for e in run.events() if e.kind == "intended"]
        bad["paid twice"] += len(intended) - len(set(intended))
        bad["not verified"] += not run.verify().ok
        print(f"run {runs}: kills so far {kills}, faults {bad}", flush=True)
    print(f"{sum(kills.values())} kills ({kills['driver']} driver, {kills['trial']} trial) over {runs} runs: {bad}")
    if any(bad.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
