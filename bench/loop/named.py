"""Kills at every named step of a run: `python -m bench.loop.named`.

The test suite kills a driver at each fourth of its named steps and a trial at each second; this kills at all of them (some
3 CPU-minutes) and exits like pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = "tests/run/test_resume.py"


def main() -> int:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", TESTS, "-k", "killed_at_named_steps", "-v", "--durations=2"]
    return subprocess.run(command, cwd=root, env={**os.environ, "EVOTRAINER_ALL_KILLS": "1"}).returncode


if __name__ == "__main__":
    raise SystemExit(main())
