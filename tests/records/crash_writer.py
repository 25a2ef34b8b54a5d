"""Child process of the crash tests: a writer that says what is acknowledged, and may be killed at any point.

`store FOLDER CALLS`: appends two groups a call, seals after every third, prints `ack N` after each call.
`journal FOLDER STEPS`: runs steps whose effect is a line in `effects`, prints `ack N` after each.
`full FOLDER`: fills a small file system, then reports what store and ledger said and kept.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from evotrainer.errors import StoreError
from evotrainer.records.events import RunClosed
from evotrainer.records.ledger import Journal, Ledger
from evotrainer.records.reading import load
from evotrainer.records.store import RolloutStore
from tests.small_records import group


def write_store(folder: Path, calls: int) -> None:
    with RolloutStore(folder) as store:
        for n in range(calls):
            store.append([group(2 * n), group(2 * n + 1)])
            print(f"ack {n}", flush=True)
            if n % 3 == 2:
                store.seal()


def body(n: int) -> RunClosed:
    return RunClosed(reason=f"step {n} " + "x" * 500, champion="b0", cpu_s=n, wall_s=n / 7, peak_rss_mb=1)


def write_journal(folder: Path, steps: int) -> None:
    def effect(n: int) -> RunClosed:
        with (folder / "effects").open("a") as f:
            f.write(f"{n}\n")
        return body(n)

    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        journal = Journal(ledger)
        for n in range(steps):
            assert journal.step(f"s{n}", "closed", lambda n=n: effect(n)) == body(n)
            print(f"ack {n}", flush=True)


def fill_disk(folder: Path) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    with RolloutStore(folder / "rollouts") as store, Ledger.open(folder / "ledger.db", create=True) as ledger:
        stored = recorded = 0
        try:
            for n in count():
                store.append([group(n, 64)])
                stored += 64
        except StoreError as e:
            print("store:", e)
        try:
            for n in count():
                ledger.append("closed", f"s{n}", body(n))
                recorded += 1
        except StoreError as e:
            print("ledger:", e)
        assert len(load([folder / "rollouts"])) == stored, "nothing acknowledged is lost"
        assert len(ledger.events()) == recorded
        assert ledger.verify() == []
        ballast.unlink()
        store.append([group(10**6)])
        ledger.append("closed", "after", body(0))
    assert len(load([folder / "rollouts"])) == stored + 4
    print("went on")


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "full":
        fill_disk(folder)
    else:
        {"store": write_store, "journal": write_journal}[mode](folder, int(sys.argv[3]))


if __name__ == "__main__":
    main()
