"""kill -9 at every named point of store and ledger, at random moments, and a disk that really fills up."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evotrainer.records.durable import WriterLock
from evotrainer.records.faults import VARIABLE
from evotrainer.records.ledger import Ledger
from evotrainer.records.reading import check_folder, load
from evotrainer.records.store import RolloutStore
from tests.small_records import flat, group

WRITER = Path(__file__).with_name("crash_writer.py")
CALLS = 4

STORE_POINTS = [
    "store:frame-written",
    "store:frame-written#2",
    "store:frame-written#5",
    "store:fsynced",
    "store:fsynced#4",
    "store:sealing",
    "store:part-written",
    "store:checksum-written",
    "store:part-renamed",
    "store:sealed",
]
JOURNAL_POINTS = ["start:s1", "before:s1", "committing:s1", "after:s1"]


def run(mode: str, folder: Path, n: int, point: str = "") -> tuple[int, int]:
    """Run the writer, killed at `point` if given; returns its exit status and how many calls it acknowledged."""
    env = {k: v for k, v in os.environ.items() if k != VARIABLE} | ({VARIABLE: point} if point else {})
    done = subprocess.run(
        [sys.executable, WRITER, mode, folder, str(n)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.count("ack")


def check_store(folder: Path, acked: int) -> None:
    """Everything acknowledged is there, once and intact, also to a reader before any repair."""
    found = load([folder]) if folder.exists() else []
    assert found[: acked * 8] == flat([group(n) for n in range(acked * 2)])
    assert len({r.id for r in found}) == len(found)
    with RolloutStore(folder) as store:
        assert len(store) == len(found)
    assert load([folder]) == found
    assert check_folder(folder) == ([], len(found))


@pytest.mark.parametrize("point", STORE_POINTS)
def test_a_store_killed_at_any_point_loses_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "s"
    status, acked = run("store", folder, CALLS, point)
    assert status == -signal.SIGKILL, "the point was never reached"
    check_store(folder, acked)


def test_every_point_that_exists_is_killed_above_and_a_killed_store_can_be_finished(tmp_path: Path) -> None:
    listing, folder = tmp_path / "points", tmp_path / "s"
    status, _ = run("store", folder, CALLS, "store:part-renamed")
    assert status == -signal.SIGKILL
    assert run("store", folder, CALLS, f"list:{listing}") == (0, CALLS)
    run("store", tmp_path / "fresh", CALLS, f"list:{listing}")
    run("journal", tmp_path, 2, f"list:{listing}")
    reached = set(listing.read_text().split())
    assert reached >= {p.partition("#")[0] for p in STORE_POINTS + JOURNAL_POINTS}
    assert reached <= {p.partition("#")[0] for p in STORE_POINTS} | {
        p.replace("s1", s) for p in JOURNAL_POINTS for s in ("s0", "s1")
    }
    assert load([folder]) == flat([group(n) for n in range(CALLS * 2)])


@pytest.mark.parametrize("point", JOURNAL_POINTS)
def test_a_killed_journal_repeats_at_most_the_step_that_was_not_recorded(tmp_path: Path, point: str) -> None:
    status, acked = run("journal", tmp_path, 3, point)
    assert (status, acked) == (-signal.SIGKILL, 1)
    with Ledger.open(tmp_path / "ledger.db", readonly=True) as ledger:
        assert ledger.verify() == []
        recorded = len(ledger.events())
    assert recorded == (2 if point == "after:s1" else 1)
    assert run("journal", tmp_path, 3) == (0, 3)
    with Ledger.open(tmp_path / "ledger.db", readonly=True) as ledger:
        assert [e.id for e in ledger.events()] == ["s0", "s1", "s2"]
        assert ledger.verify() == []
    effects = (tmp_path / "effects").read_text().split()
    assert effects == (["0", "1", "2"] if point in ("start:s1", "after:s1") else ["0", "1", "1", "2"])


def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(2)
    acked = 0
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, WRITER, "store", tmp_path / "s", "100000"], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        writer.kill()
        # A resumed writer replays from call 0, so what counts is the furthest call ever acknowledged.
        acked = max(acked, 1 + writer.stdout.read().count("ack"))
        assert writer.wait() == -signal.SIGKILL
        check_store(tmp_path / "s", acked)


def in_small_file_system(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with a 1 MiB tmpfs on `folder`, in a user and mount namespace of its own."""
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=1m tmpfs {folder}"
    if not shutil.which("unshare") or subprocess.run([*namespace, mount], capture_output=True).returncode:
        pytest.skip("this system lets no user mount a tmpfs (unshare --user --mount)")
    return subprocess.run([*namespace, f"{mount} && {script}"], capture_output=True, text=True, timeout=120)


def test_a_full_disk_is_said_in_one_line_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    done = in_small_file_system(tmp_path, f"{sys.executable} {WRITER} full {tmp_path}")
    assert done.returncode == 0, done.stderr
    store, ledger, last = done.stdout.splitlines()
    assert store.startswith("store: cannot store rollouts")
    assert "the disk is full; free some space" in store
    assert ledger.startswith("ledger:")
    assert "the disk is full; free some space" in ledger
    assert last == "went on"


def test_a_read_only_file_system_can_be_read_and_not_written(tmp_path: Path) -> None:
    read = f"""
from evotrainer.records.ledger import Ledger
from evotrainer.errors import StoreError
print(len(Ledger.open("{tmp_path}/ledger.db", readonly=True).events()))
try:
    Ledger.open("{tmp_path}/ledger.db")
except StoreError as e:
    print(e)
"""
    script = tmp_path.with_suffix(".py")
    script.write_text(read)
    done = in_small_file_system(
        tmp_path,
        f"{sys.executable} {WRITER} journal {tmp_path} 2 && mount -o remount,ro {tmp_path} && {sys.executable} "
        f"{script}",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2] == "2"
    assert "read-only; choose another folder" in done.stdout.splitlines()[-1]


def test_a_lock_left_by_a_dead_process_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "writer.lock").write_text("999999\n")
    lock = WriterLock(tmp_path / "writer.lock", "it")
    assert (tmp_path / "writer.lock").read_text() == f"{os.getpid()}\n"
    lock.release()
