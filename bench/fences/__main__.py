"""The core's tests in copies of the repository, each without one fenced room: `python -m bench.fences [ROOM ...]`.

Prints a row a room: tests that passed and failed, seconds. Without rooms it goes through all, and through all of them
left out together. A clone's worth of disk is needed in the temporary folder.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("envs/swe", "envs/maths", "trainers/trl", "executors/ray", "agents/seat", "extras/verl",
         "extras/tracking")  # fmt: skip
"""Rooms below src/evotrainer."""
CORE = ("tests/judge/test_decide.py", "tests/judge/test_stats.py", "tests/judge/test_certify.py", "tests/rules",
        "tests/algorithm/test_advantages.py", "tests/algorithm/test_rewards.py",
        "tests/records/test_ledger.py", "tests/records/test_recipe.py",
        "tests/executors/test_local.py",
        "tests/harness/whatif",
        "tests/run/test_loop.py", "tests/verify/test_chain_and_files.py", "tests/verify/test_tampering.py")  # fmt: skip
"""Tests of the core."""


def without(rooms: tuple[str, ...], folder: Path) -> tuple[str, float]:
    """(pytest's last line, seconds) of the core's tests in a copy without these rooms."""
    skip = shutil.ignore_patterns("__pycache__", ".git", ".venv", "runs", "*.egg-info", ".mypy_cache", ".ruff_cache")
    shutil.copytree(ROOT, folder, ignore=skip, symlinks=True)
    for room in rooms:
        at = folder / "src" / "evotrainer" / room
        shutil.rmtree(at) if at.is_dir() else at.unlink()
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *CORE]
    began = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    counted = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", done.stdout + done.stderr)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return ", ".join(counted[-3:] or [f"exit {done.returncode}"]) + "".join(f"; {f}" for f in failed), (
        time.monotonic() - began
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", help="below src/evotrainer, e.g. envs/swe; default: each, then all")
    chosen = parser.parse_args().rooms
    sets = [tuple(chosen)] if chosen else [*((r,) for r in ROOMS), ROOMS]
    print("| left out | tests of the core | s |\n|---|---|---|")
    for rooms in sets:
        with tempfile.TemporaryDirectory() as folder:
            told, seconds = without(rooms, Path(folder) / "copy")
        print(f"| {', '.join(rooms)} | {told} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
