"""Tests that are slow and rarely break: `python -m bench.slow`.

`make test` leaves out what is marked `slow`, among it the trial killed at its named steps, and kills a driver at each
fourth of its own. This runs the marked tests and all the kills, one after the other, and writes results.md next to
this file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results.md"
KILLS = "killed_at_named_steps"
PARTS = {
    "marked slow": ["-m", "slow", "-k", f"not {KILLS}"],
    "kills at every named step": ["-m", "slow or not slow", "-k", KILLS],
}


def run(options: list[str]) -> tuple[int, str, float]:
    """(exit code, what pytest printed, CPU-seconds of it and its children)."""
    before = os.times()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations=0", "--durations-min=1", *options]
    env = {**os.environ, "EVOTRAINER_ALL_KILLS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.returncode, done.stdout + done.stderr, cpu


def main() -> int:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    rows, worst = [], 0
    for name, options in PARTS.items():
        began = time.monotonic()
        code, said, cpu = run(options)
        last = next((x for x in reversed(said.splitlines()) if re.search(r"\d+ (passed|failed)", x)), "nothing ran")
        counts = ", ".join(re.findall(r"\d+ (?:passed|failed|skipped)", last))
        rows.append(f"| {name} | {counts} | {cpu:.0f} | {time.monotonic() - began:.0f} |")
        print(said)
        worst = max(worst, code)
    head = f"`python -m bench.slow`, {date.today()}, commit {commit.strip()}, {os.cpu_count()} cores."
    RESULTS.write_text(
        f"# Slow tests\n\n{head}\n\n| part | outcome | CPU-s | wall s |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    print(RESULTS.read_text())
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
