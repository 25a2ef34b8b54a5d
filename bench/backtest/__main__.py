"""What a backtest costs: `python -m bench.backtest [--n 100000]`. Writes results.md beside it.

The commands as a user starts them, on a store of rollouts of 2 KB (bench/audit/generate.py): first reading, then with
what was read kept. Beside them a plain pass that reads only the columns the arithmetic needs (Polars and numpy).
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from bench.audit.__main__ import Cost, command
from bench.audit.generate import rollouts
from evotrainer.records.ingest import ingest

RESULTS = Path(__file__).parent / "results.md"
PAID = ("--paid", "visible=1")
KINDS: dict[str, tuple[str, ...]] = {
    "reward": ("rewards.hidden=1", "rewards.visible=0", *PAID),
    "filter": ("group_filter=snr_top_p", *PAID),
    "curriculum": ("curriculum.kind=pass_rate_band", "curriculum.low=0.1", *PAID),
}
COLUMNS = {
    "reward": ("group", "components", "outcome"),
    "filter": ("group", "reward"),
    "curriculum": ("task", "outcome"),
}


def plain(kind: str, store: Path) -> float:
    """CPU-seconds of the least that answers the question, from the columns it needs alone."""
    began = time.process_time()
    frame = pl.read_parquet(str(store / "part-*.parquet"), columns=list(COLUMNS[kind]))
    if kind == "reward":
        named = frame.with_row_index().explode("components").drop_nulls("components").unnest("components")
        wide = named.pivot(on="name", index=["index", "group", "outcome"], values="value")
        stds = wide.group_by("group").agg(pl.col("visible").std(), pl.col("hidden").std())
        _ = (stds["visible"] < 1e-3).mean(), (stds["hidden"] < 1e-3).mean()
        right = (wide["outcome"] == "correct").to_numpy()
        group = wide["group"].rank("dense").to_numpy().astype(int)
        for c in ("visible", "hidden"):  # pairs in order, of rewards that are 0 or 1
            paid = wide[c].to_numpy() > 0.5
            _ = (np.bincount(group, right & paid) * np.bincount(group, ~right & ~paid)).sum()
    elif kind == "filter":
        v = frame.group_by("group").agg(pl.col("reward").var())["reward"].drop_nulls().sort(descending=True)
        _ = (v.cum_sum() / v.sum() < 0.9).mean()
    else:
        rate = frame.group_by("task").agg((pl.col("outcome") == "correct").mean())["outcome"]
        _ = ((rate >= 0.1) & (rate <= 0.95)).mean()
    return time.process_time() - began


def measured(kind: str, store: Path) -> float:
    """`plain` in a process of its own, one thread, without imports; the median of three."""
    out = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-m", "bench.backtest", "--plain", kind, "--store", str(store)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )
        out.append(float(done.stdout))
    return sorted(out)[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--plain", choices=list(KINDS))
    parser.add_argument("--store", type=Path)
    args = parser.parse_args()
    if args.plain:
        print(plain(args.plain, args.store))
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        print(f"generating {args.n:,} rollouts", flush=True)
        ingest(rollouts(args.n), store)
        rows: list[tuple[str, Cost, Cost, float]] = []
        for kind, change in KINDS.items():
            cache = Path(folder) / f"cache-{kind}"
            first = command("backtest", str(store), *change, "--cache", str(cache), "--json")
            again = command("backtest", str(store), *change, "--cache", str(cache), "--json")
            rows.append((kind, first, again, measured(kind, store)))
            print(
                f"{kind:12} first {first.cpu_s:6.1f} CPU-s, again {again.cpu_s:6.1f}, plain {rows[-1][3]:6.2f}",
                flush=True,
            )
    start = command("backtest", "--help")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    lines = [
        "# What a backtest costs",
        "",
        f"`python -m bench.backtest --n {args.n}`, {date.today()}, commit {commit.strip()}; {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.1f}.",
        "",
        f"{args.n:,} rollouts of 2.2 KB in a store. Whole commands, start of Python included (`--help` alone: "
        f"{start.cpu_s:.2f} CPU-s). First: the text is read for the first time (known-invalid rollouts, detectors). "
        "Again: what was read is kept. Plain: Polars on the columns the arithmetic needs, imports not counted, "
        "one thread.",
        "",
        "| kind | first: wall s | CPU-s | rollouts per CPU-s | again: wall s | CPU-s | rollouts per CPU-s | "
        "plain CPU-s | again over plain | peak MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind} | {a.wall_s:.1f} | {a.cpu_s:.1f} | {args.n / a.cpu_s:,.0f} | {b.wall_s:.1f} | {b.cpu_s:.1f} | "
        f"{args.n / b.cpu_s:,.0f} | {p:.2f} | {b.cpu_s / p:.1f} | {max(a.peak_mb, b.peak_mb):,.0f} |"
        for kind, a, b, p in rows
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
