"""How trials scale on a cluster: `python -m bench.scaling [--workers 1 2] [--simulated 100 1000 2000] [--seconds 8]`.

Three parts, each with the real driver (`executors.cluster`, ledger, plain view) in a process of its own:

1. Real trials (small policy, real RL) on real Ray clusters of 1 to N one-CPU nodes on this machine, and on the local
   executor.
2. A simulated cluster of up to thousands of workers: every worker is a timer that gives signs of life and ends after a
   time drawn from those measured in part 1, as `--slower` times that; result files are written as a node would. Its own
   CPU time is measured by itself and taken off the driver's.
3. Ray's share, which the simulation lacks: the driver asks 1,000 open questions of actors that answer for many keepers
   each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.scaling.drive import DURATIONS


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(r) for r in rows)]
    return "\n".join(f"| {x} |" for x in lines)


def part(name: str, **options: object) -> dict[str, float]:
    """One measurement in a process of its own."""
    args = [f"--{k.replace('_', '-')}={v}" for k, v in options.items()]
    command = [sys.executable, "-m", "bench.scaling.drive", name, *args]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_DISABLE_IMPORT_WARNING": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--simulated", type=int, nargs="*", default=[100, 1000, 2000])
    parser.add_argument("--slower", type=float, nargs="*", default=[1.0, 10.0])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--keepers", type=int, nargs="*", default=[100, 1000])
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{time.strftime('%Y-%m-%d')}, commit {commit}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"load {os.getloadavg()[0]:.1f}\n", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="evotrainer-scaling-") as scratch:
        durations = Path(scratch) / DURATIONS
        part("prepare", durations=durations, scratch=scratch)
        rows = []
        for kind in ("local", "ray"):
            for n in args.workers:
                m = part(kind, workers=n, trials=args.trials, durations=durations, scratch=scratch)
                rows.append([kind, f"{n}", f"{m['trials']:.0f}", f"{m['wall_s']:.1f}",
                             f"{3600 * m['trials'] / m['wall_s']:.0f}", f"{m['driver_cpu_s']:.2f}",
                             f"{m['driver_mb']:.0f}"])  # fmt: skip
        print(
            table(["executor", "workers", "trials", "wall s", "trials/h", "driver CPU s", "driver MB"], rows),
            "\n",
            flush=True,
        )
        rows = []
        for slower in args.slower:
            for n in args.simulated:
                m = part(
                    "simulated", workers=n, slower=slower, seconds=args.seconds, durations=durations, scratch=scratch
                )
                rows.append([f"{n}", f"{m['mean_s']:.1f}", f"{m['offered']:.1f}", f"{m['trials_s']:.1f}",
                             f"{100 * m['trials_s'] / m['offered']:.0f}%", f"{100 * m['cpu_share']:.0f}%",
                             f"{m['ms_per_trial']:.1f}", f"{m['intended_ms']:.1f}",
                             f"{m['first_s']:.1f}" if m["first_s"] >= 0 else "never",
                             f"{m['driver_mb']:.0f}"])  # fmt: skip
        print(table(["workers", "mean trial s", "offered trials/s", "finished trials/s", "share", "driver, of one core",
                     "driver ms/trial", "wall ms to intend one", "s until all run", "driver MB"], rows),
              "\n", flush=True)  # fmt: skip
        rows = []
        for n in args.keepers:
            m = part("calls", workers=n, seconds=args.seconds, durations=durations, scratch=scratch)
            rows.append([f"{n}", f"{m['reports_s']:.0f}", f"{100 * m['cpu_share']:.0f}%", f"{m['ms_per_report']:.2f}",
                         f"{m['driver_mb']:.0f}"])  # fmt: skip
        print(
            table(["open questions", "reports/s", "driver, of one core", "driver ms/report", "driver MB"], rows),
            flush=True,
        )


if __name__ == "__main__":
    main()
