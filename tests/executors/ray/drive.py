"""A driver in a process of its own: `python -m tests.executors.ray.drive RUN_DIR OPTIONS_JSON SPEC_JSON...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from evotrainer.executors.ray.driver import ClusterExecutor
from evotrainer.executors.ray.executor import RayBackend
from evotrainer.executors.ray.options import parse_cluster_options
from evotrainer.executors.spec import TrialSpec


def main(run_dir: str, options: str, *specs: str) -> None:
    executor = ClusterExecutor(Path(run_dir), parse_cluster_options(json.loads(options)), RayBackend())
    for done in executor.run([TrialSpec.model_validate_json(s) for s in specs]):
        print(done.trial, done.status, flush=True)
    executor.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
