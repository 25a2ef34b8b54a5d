"""The verifiers environment in an interpreter that has verifiers, which the tests' own has not.

    python -m venv vf && vf/bin/pip install -e '.[local,verifiers]' pytest pytest-timeout hypothesis
    vf/bin/python -m bench.verifiers

Runs the tests that are skipped elsewhere, a whole small run (training, certificate, verify) on a task set of verifiers,
and asks for each task set of the package what it says it needs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from evotrainer import api
from evotrainer.envs import open_environment
from evotrainer.errors import EvoTrainerError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "tests" / "data" / "verifiers_packages"
OF_THE_PACKAGE = ("openenv", "harbor", "nemo_gym", "textarena")


def main() -> int:
    """Print what was run and found; 0 where all of it held."""
    print(f"verifiers {version('verifiers')}")
    tests = [sys.executable, "-m", "pytest", "-n", "0", "-q", "tests/envs/test_verifiers_env.py"]
    tested = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"tests: exit code {tested.returncode}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        task = Path(place) / "task.toml"
        task.write_text((Path(__file__).with_name("task.toml")).read_text().replace("PATH", str(PACKAGES)))
        run = api.start(task, Path(place) / "run")
        scores = {
            t.trial: {s.split: s.score for s in t.scores} for b in run.state.branches.values() for t in b.complete
        }
        found = run.verify()
        steps = sum(t.steps for b in run.state.branches.values() for t in b.complete)
        print(f"run: {run.closed and run.closed.reason}; {steps} training steps in {len(scores)} trainings, {scores}")
        print(f"verify: {'ok' if found.ok else found.problems}; {time.monotonic() - begun:.0f} s")
    for name in OF_THE_PACKAGE:
        try:
            open_environment({"name": f"verifiers:{name}"})
            print(f"{name}: opened")
        except EvoTrainerError as e:
            print(f"{name}: {e}")
    return tested.returncode or not found.ok


if __name__ == "__main__":
    raise SystemExit(main())
