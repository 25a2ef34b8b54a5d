"""kill -9 at random moments: `python -m bench.store.kills [KILLS]` (default 100).

A child appends groups to a store and an event each to a ledger, seals now and then, and says what is acknowledged.
It is killed at a random moment, recovery included, and started again on the same files. After each kill the parent
reads both without repairing them and counts what is lost, repeated or changed.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evotrainer.records.events import RunClosed
from evotrainer.records.ledger import Ledger
from evotrainer.records.reading import check_folder, load
from evotrainer.records.rollout import Rollout, Turn, rollout_id
from evotrainer.records.store import RolloutStore

GROUP = 8
KILLS_PER_FOLDER = 10
SEAL_BYTES = 15_000


def group(n: int) -> list[Rollout]:
    """The n-th group, the same at every call."""
    chance = random.Random(n)

    def one(k: int) -> Rollout:
        words = " ".join(chance.choices(["if", "return", "x", "for", "print", "0"], k=chance.randint(50, 400)))
        return Rollout(rollout_id("kills", "b0", 0, n, "t", k), "t", (Turn("assistant", words),), k / 8, k=k)

    return [one(k) for k in range(GROUP)]


def body(n: int) -> RunClosed:
    return RunClosed(reason=f"group {n}", champion="b0", cpu_s=n, wall_s=n / 3, peak_rss_mb=0)


def write(folder: Path) -> None:
    """The child: goes on where the files end, until it is killed."""
    import pyarrow.parquet  # noqa: F401  (imported before the clock starts)

    print("go", flush=True)
    with (
        Ledger.open(folder / "ledger.db", create=True) as ledger,
        RolloutStore(folder / "store", seal_bytes=SEAL_BYTES) as store,
    ):
        n = len(ledger.events())
        while True:
            store.append([group(n)])
            ledger.append("closed", f"g{n}", body(n))
            print(f"ack {n}", flush=True)
            n += 1


def kill_once(folder: Path, wait_s: float, at_work: bool) -> int:
    """Run the child, kill it `wait_s` after it opens its files or, `at_work`, after its first acknowledgement.

    Returns the number of groups it acknowledged, 0 if none.
    """
    command = [sys.executable, "-m", "bench.store.kills", "--child", str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    first = [child.stdout.readline()] if at_work else []
    time.sleep(wait_s)
    child.kill()
    lines = first + child.stdout.read().splitlines()
    assert child.wait() == -signal.SIGKILL, "the writer failed by itself"
    whole = [int(line.removeprefix("ack ")) for line in lines if line.startswith("ack ")]
    return whole[-1] + 1 if whole else 0


def inspect(folder: Path, acked: int) -> dict[str, int]:
    """Compare what is on disk with what was acknowledged."""
    found = load([folder / "store"]) if (folder / "store").is_dir() else []
    ids = [r.id for r in found]
    expected = {r.id: r for n in range(acked + 2) for r in group(n)}
    wrong = sum(r != expected.get(r.id) for r in found)
    must = {r.id for n in range(acked) for r in group(n)}
    problems = check_folder(folder / "store")[0] if found else []
    events, chain = 0, []
    if (folder / "ledger.db").exists() and (acked or (folder / "ledger.db").stat().st_size):
        with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
            chain = ledger.verify()
            bodies = [e.body for e in ledger.events()]
            events = len(bodies)
            wrong += bodies != [body(n) for n in range(events)]
    return {
        "acknowledged rollouts lost": len(must - set(ids)),
        "rollouts repeated": len(ids) - len(set(ids)),
        "rollouts or events changed": wrong,
        "acknowledged events lost": max(0, acked - events),
        "problems found by verify": len(problems) + len(chain),
        "written but not acknowledged (allowed)": len(set(ids) - must) // GROUP,
    }


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        write(Path(sys.argv[2]))
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    chance = random.Random(5)
    totals: dict[str, int] = {}
    groups = parts = 0
    for first in range(0, kills, KILLS_PER_FOLDER):
        folder, acked = Path(tempfile.mkdtemp(prefix="bench-kills-")), 0
        try:
            for n in range(first, min(first + KILLS_PER_FOLDER, kills)):
                acked = max(acked, kill_once(folder, chance.uniform(0.0, 0.4), at_work=n % 3 > 0))
                for name, count in inspect(folder, acked).items():
                    totals[name] = totals.get(name, 0) + count
            groups, parts = groups + acked, parts + len(list((folder / "store").glob("*.parquet")))
        finally:
            shutil.rmtree(folder)
    print(
        f"| {kills} kills, {groups * GROUP:,} rollouts and {groups:,} events acknowledged, {parts} parts | |\n|---|---|"
    )
    for name, count in totals.items():
        print(f"| {name} | {count} |")


if __name__ == "__main__":
    main()
