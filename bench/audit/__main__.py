"""One million rollouts of 2 KB: import, whole harness, second audit of a grown store. `python -m bench.audit [--n N]`.

CPU-seconds are of all processes together; memory is the largest sum of resident sizes of the process tree. Adds a
section to bench/audit/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from bench.audit.generate import rollouts
from evotrainer.records.ingest import ingest
from evotrainer.records.reading import stored_parts

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float
    peak_mb: float
    out: str = ""


def command(*args: str) -> Cost:
    """Run an `evotrainer` command as a user would; its cost."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    p = subprocess.Popen([sys.executable, "-m", "evotrainer.cli", *args], stdout=subprocess.PIPE, text=True)
    peak = [0.0]
    watch = threading.Thread(target=_watch, args=(p.pid, peak), daemon=True)
    watch.start()
    out, _ = p.communicate()
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert p.returncode == 0, f"evotrainer {' '.join(args)}: exit {p.returncode}"
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, peak[0], out)


def _watch(pid: int, peak: list[float]) -> None:
    while True:
        try:
            tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            peak[0] = max(peak[0], sum(p.memory_info().rss for p in tree) / 2**20)
        except psutil.Error:
            if not psutil.pid_exists(pid):
                return
        time.sleep(0.1)


def write_plain(path: Path, n: int) -> int:
    """Rollouts in the plain JSONL form (task, prompt, text, reward, group, step); bytes written."""
    with path.open("w", encoding="utf-8") as f:
        for r in rollouts(n, seed=7):
            row = {"task": r.task, "prompt": r.prompt, "text": r.completion, "reward": r.reward or 0.0}
            f.write(json.dumps(row | {"group": r.group, "step": r.step}) + "\n")
    return path.stat().st_size


def decompression_s(store: Path) -> tuple[float, int]:
    """(CPU-s, bytes of text) of decompressing the turns of every row: what no reader of the text can go below."""
    began, size = time.process_time(), 0
    for part in stored_parts(store):
        with pq.ParquetFile(part) as f:
            for g in range(f.num_row_groups):
                table = f.read_row_group(g, columns=["turns"], use_threads=False)
                size += table.nbytes
    return time.process_time() - began, size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, help="a store generated before, of --n rollouts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        store = here / "store"
        if args.store:
            shutil.copytree(args.store, store)
        else:
            print(f"generating {args.n:,} rollouts (about {args.n * 2e-4:.0f} CPU-s)", flush=True)
            ingest(rollouts(args.n), store)
        plain = here / "plain.jsonl"
        n_plain = min(args.n, 300_000)
        size = write_plain(plain, n_plain)
        print("importing", flush=True)
        imported = command("import", str(plain), "--out", str(here / "imported"))
        print("first audit", flush=True)
        cache = str(here / "cache")
        first = command("audit", str(store), "--cache", cache, "--json")
        grown = max(1000, args.n // 100)
        ingest(rollouts(grown, first=args.n), store)
        print("second audit", flush=True)
        second = command("audit", str(store), "--cache", cache, "--json")
        again = command("audit", str(store), "--cache", cache, "--json")
        floor, text = decompression_s(store)
        assert json.loads(second.out)["rollouts"] == args.n + grown
        found = sorted({f"{f['detector']} ({f['severity']})"
                        for s in json.loads(first.out)["sources"] for r in s["readings"]
                        for f in r["health"]["findings"] if not f["missing"]})  # fmt: skip
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout
        load = os.getloadavg()[0]
        cores = len(os.sched_getaffinity(0))
        lines = [
            f"## {date.today()}, whole", "",
            f"`python -m bench.audit`, {date.today()}, commit {commit.strip()}; {platform.machine()}, {cores} cores, "
            f"Python {platform.python_version()}, load average {load:.1f}.", "",
            f"{args.n:,} rollouts, {text / args.n / 1000:.1f} KB of turns each "
            f"({sum(p.stat().st_size for p in stored_parts(store)) / 1e6:,.0f} MB as Parquet): 45% mathematics, "
            "35% programs with tests beside them, 20% agent episodes (bench/audit/generate.py).", "",
            "| what | wall s | CPU-s | peak MB | rate |", "|---|---|---|---|---|",
            f"| import of {n_plain:,} plain JSONL rows ({size / n_plain / 1000:.1f} KB) | {imported.wall_s:.1f} | "
            f"{imported.cpu_s:.1f} | {imported.peak_mb:,.0f} | {n_plain / imported.wall_s:,.0f} rows/s |",
            f"| whole harness, first audit | {first.wall_s:.1f} | {first.cpu_s:.1f} | {first.peak_mb:,.0f} | "
            f"{args.n / first.wall_s:,.0f} rollouts/s |",
            f"| second audit after {grown:,} new rollouts | {second.wall_s:.1f} | {second.cpu_s:.1f} | "
            f"{second.peak_mb:,.0f} | {100 * second.cpu_s / first.cpu_s:.1f}% of the first's CPU |",
            f"| third audit, nothing new | {again.wall_s:.1f} | {again.cpu_s:.1f} | {again.peak_mb:,.0f} | "
            f"{100 * again.cpu_s / first.cpu_s:.1f}% |", "",
            f"Limit for anything that reads the text: decompressing the turns costs {floor:.1f} CPU-s; the first audit "
            f"is {first.cpu_s / floor:.1f} times that.", "",
            "Found: " + ", ".join(found) + ".",
        ]  # fmt: skip
        with (HERE / "results.md").open("a", encoding="utf-8") as results:
            results.write("\n".join(["", *lines, ""]))
        print("\n".join(lines))


if __name__ == "__main__":
    main()
