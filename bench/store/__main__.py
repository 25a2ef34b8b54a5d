"""Rollout store against raw zstd: `python -m bench.store [ROLLOUTS]` (default 100,000 of about 2 KB each).

Text is cut from the standard library's sources; groups of 8, 32 groups an `append`, as a training step would.
Costs are CPU-seconds of the process with all its threads; building the Python objects is not counted.
"""

from __future__ import annotations

import platform
import random
import resource
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evotrainer.records.reading import load, scan
from evotrainer.records.rollout import Rollout, Turn, rollout_id
from evotrainer.records.store import RolloutStore

GROUP, GROUPS_PER_STEP = 8, 32
Step = list[list[Rollout]]


def corpus() -> str:
    """A few megabytes of real program text."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "\n".join(f.read_text("utf-8", "ignore") for f in files)


def steps(rollouts: int) -> Iterator[Step]:
    """The rollouts, one training step at a time; the same at every call."""
    text, chance = corpus(), random.Random(7)

    def one(step: int, task: int, k: int) -> Rollout:
        a, n = chance.randrange(len(text) - 4000), chance.randint(1300, 2500)
        reward = float(chance.random() < (task % 7) / 6)
        return Rollout(
            id=rollout_id("bench", "b0", 0, step, f"t{task}", k),
            task=f"t{task}",
            turns=(Turn("user", text[a : a + n // 5]), Turn("assistant", text[a + n // 5 : a + n], tokens=n // 4)),
            reward=reward,
            components={"visible": reward, "hidden": float(chance.random() < 0.5), "format": 1.0},
            outcome="correct" if reward else "incorrect",
            finish="stop",
            run="bench",
            branch="b0",
            policy=f"b0/0@{step}",
            split="train",
            step=step,
            group=f"b0/0@{step}/t{task}",
            k=k,
            tokens=n // 4,
            advantage=chance.gauss(0, 1),
            mean_logprob=-chance.random(),
            entropy=chance.random(),
        )

    for step in range(rollouts // (GROUP * GROUPS_PER_STEP)):
        tasks = range(step * GROUPS_PER_STEP, (step + 1) * GROUPS_PER_STEP)
        yield [[one(step, t, k) for k in range(GROUP)] for t in tasks]


class Clock:
    """CPU-seconds and wall-clock seconds by name."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu
        self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall


def ingest(folder: Path, rollouts: int, clock: Clock) -> tuple[int, int, int]:
    """Store everything both ways; returns rollouts, bytes of text, bytes of raw zstd."""
    import os

    import pyarrow as pa

    codec = pa.Codec("zstd", compression_level=3)
    rows = text_bytes = 0
    raw = (folder / "raw.zst").open("wb")
    with RolloutStore(folder / "store") as store:
        for step in steps(rollouts):
            texts = [t.text for g in step for r in g for t in r.turns]
            with clock("raw zstd"):
                joined = "".join(texts).encode()
                raw.write(codec.compress(joined, asbytes=True))
                raw.flush()
                os.fsync(raw.fileno())
            rows, text_bytes = rows + len(step) * GROUP, text_bytes + len(joined)
            with clock("append"):
                store.append(step)
        with clock("seal"):
            store.seal()
    raw.close()
    return rows, text_bytes, (folder / "raw.zst").stat().st_size


def queries(store: Path) -> dict[str, Callable[[], object]]:
    """What readers ask, by name."""
    import polars as pl

    last = pl.col("turns").list.last().struct.field("text")
    return {
        "scan opens (ids checked once)": lambda: scan([store]),
        "reward variance of each group": lambda: scan([store]).group_by("group").agg(pl.col("reward").var()).collect(),
        "mean of a reward component": lambda: (
            scan([store])
            .select(pl.col("components").explode())
            .unnest("components")
            .group_by("name")
            .agg(pl.col("value").mean())
            .collect()
        ),
        "regex over every answer": lambda: (
            scan([store]).select(last.str.contains(r"sys\.exit\(|open\([^)]*tests?/").sum()).collect()
        ),
        "load one step as Rollout objects": lambda: load([store], step=100),
        "load 10,000 as Rollout objects": lambda: load([store], limit=10_000),
    }


def main() -> None:
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    folder = Path(tempfile.mkdtemp(prefix="bench-store-"))
    clock = Clock()
    try:
        next(steps(GROUP * GROUPS_PER_STEP))
        rows, text_bytes, raw_bytes = ingest(folder, rollouts, clock)
        stored = sum(f.stat().st_size for f in (folder / "store").iterdir())
        print(f"{rows:,} rollouts, {text_bytes / 1e6:.0f} MB of text, Python {platform.python_version()}\n")
        print("| what | CPU-s | wall s | rollouts per CPU-s | x raw zstd |\n|---|---|---|---|---|")
        raw = clock.cpu["raw zstd"]
        total = clock.cpu["append"] + clock.cpu["seal"]
        for name, cpu, wall in [
            ("raw zstd of the text, fsync a step", raw, clock.wall["raw zstd"]),
            ("append: objects to durable tail", clock.cpu["append"], clock.wall["append"]),
            ("seal the rest into Parquet", clock.cpu["seal"], clock.wall["seal"]),
            ("ingest, all of it", total, clock.wall["append"] + clock.wall["seal"]),
        ]:
            print(f"| {name} | {cpu:.2f} | {wall:.2f} | {rows / max(cpu, 1e-9):,.0f} | {cpu / raw:.2f} |")
        print(f"\nOn disk {stored / 1e6:.0f} MB, raw zstd {raw_bytes / 1e6:.0f} MB.\n")
        print("| query | CPU-s | wall s |\n|---|---|---|")
        for name, query in queries(folder / "store").items():
            query()  # page cache and imports warm
            with clock(name):
                query()
            print(f"| {name} | {clock.cpu[name]:.3f} | {clock.wall[name]:.3f} |")
        print(f"\nPeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB.")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
