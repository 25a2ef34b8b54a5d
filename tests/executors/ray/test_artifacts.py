"""`executors.ray.artifacts`: files of trials over fsspec, what arrives is what was sent, or nothing arrives."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.executors.ray.artifacts import Artifacts, Snapshot, _below
from evotrainer.executors.ray.file_copier import FileCopier

TRIAL = "b0-s1"


def trial_files(run_dir: Path, step: int) -> None:
    """What a training leaves by a step: a checkpoint replaced whole, rollouts appended."""
    own = run_dir / "trials" / TRIAL
    new = own / ".checkpoint.writing-1"
    new.mkdir(parents=True)
    (new / "state.pt").write_bytes(bytes([step]) * 1000)
    (new / "rng.bin").write_bytes(bytes([step]) * 10)
    if (own / "checkpoint").exists():
        os.rename(own / "checkpoint", own / ".old")
    os.rename(new, own / "checkpoint")
    shutil.rmtree(own / ".old", ignore_errors=True)
    rollouts = run_dir / "rollouts" / TRIAL
    rollouts.mkdir(parents=True, exist_ok=True)
    with open(rollouts / "tail.log", "ab") as f:
        f.write(bytes([step]) * 100)


def put(store: Artifacts, run_dir: Path, staged: Path, number: int, attempt: int = 1) -> Snapshot:
    copier = FileCopier(run_dir, TRIAL)
    files = copier.take(staged)
    snapshot = Snapshot(attempt, number, False, copier.items(files))
    store.put_snapshot(TRIAL, snapshot, files)
    return snapshot


def store(tmp_path: Path) -> Artifacts:
    return Artifacts(f"file://{tmp_path}/art", "key")


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    trial_files(tmp_path / "a", 1)
    (tmp_path / "a" / "trials" / TRIAL / "lock").touch()
    put(store(tmp_path), tmp_path / "a", tmp_path / "s", 1)
    back = tmp_path / "b"
    (back / "rollouts" / TRIAL).mkdir(parents=True)
    (back / "rollouts" / TRIAL / "part-00000.parquet").write_bytes(b"from another attempt")
    assert store(tmp_path).restore(TRIAL, back) is not None
    assert {str(p.relative_to(back)) for p in back.rglob("*") if p.is_file()} == {
        "trials/b0-s1/checkpoint/state.pt",
        "trials/b0-s1/checkpoint/rng.bin",
        "rollouts/b0-s1/tail.log",
    }
    assert (back / "trials/b0-s1/checkpoint/state.pt").read_bytes() == b"\1" * 1000


@pytest.mark.parametrize("damage", ["torn snapshot", "changed blob", "missing blob"])
def test_a_damaged_snapshot_is_passed_over_for_the_one_before(tmp_path: Path, damage: str) -> None:
    run = tmp_path / "a"
    for step in (1, 2):
        trial_files(run, step)
        last = put(store(tmp_path), run, tmp_path / "s", step)
    at = tmp_path / "art/key/trials" / TRIAL
    blob = at / "blobs" / next(i.sha256 for i in last.items if i.path.endswith("state.pt"))
    if damage == "torn snapshot":
        text = (at / last.name).read_text()
        (at / last.name).write_text(text[: len(text) // 2])
    elif damage == "changed blob":
        blob.write_bytes(b"\7" * 1000)
    else:
        blob.unlink()
    found = store(tmp_path).restore(TRIAL, tmp_path / "b")
    assert found is not None and found.number == 1
    assert (tmp_path / "b/trials/b0-s1/checkpoint/state.pt").read_bytes() == b"\1" * 1000


def test_the_newest_attempt_is_continued(tmp_path: Path) -> None:
    trial_files(tmp_path / "a", 1)
    put(store(tmp_path), tmp_path / "a", tmp_path / "s", 9, attempt=1)
    trial_files(tmp_path / "a", 2)
    put(store(tmp_path), tmp_path / "a", tmp_path / "s", 1, attempt=2)
    found = store(tmp_path).restore(TRIAL, tmp_path / "b")
    assert found is not None and (found.attempt, found.number) == (2, 1)


def test_pruning_keeps_what_newer_snapshots_need(tmp_path: Path) -> None:
    one = store(tmp_path)
    trial_files(tmp_path / "a", 1)
    (tmp_path / "a/trials" / TRIAL / "spec.json").write_text("{}")
    taken = [put(one, tmp_path / "a", tmp_path / "s", 1)]
    trial_files(tmp_path / "a", 2)
    taken.append(put(one, tmp_path / "a", tmp_path / "s", 2))
    one.prune(TRIAL, taken[1:], taken[:1])
    assert [s.number for s in one.snapshots(TRIAL)] == [2]
    assert one.restore(TRIAL, tmp_path / "b") is not None
    blobs = {p.name for p in (tmp_path / "art/key/trials" / TRIAL / "blobs").iterdir()}
    assert blobs == {i.sha256 for i in taken[1].items}


def test_copies_of_a_training_at_work_are_consistent(tmp_path: Path) -> None:
    """While checkpoints are replaced as fast as possible,
    every copy holds one checkpoint whole and all rollouts before it."""
    run, over = tmp_path / "a", threading.Event()
    trial_files(run, 1)

    def work() -> None:
        for step in range(2, 250):
            trial_files(run, step)
            over.wait(0.004)
        over.set()

    def look() -> None:
        while not over.is_set():
            FileCopier(run, TRIAL).listing()  # folders come and go under it

    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(work), pool.submit(look)]
        taken = copies_while_it_grows(run, tmp_path / "s", over)
    for b in busy:
        b.result()
    assert taken


def copies_while_it_grows(run: Path, staged: Path, over: threading.Event) -> int:
    """Copies taken and found consistent."""
    copier, taken = FileCopier(run, TRIAL), 0
    try:
        while not over.is_set() and taken < 8:
            files = copier.take(staged)
            state = files["trials/b0-s1/checkpoint/state.pt"].read_bytes()
            rng = files["trials/b0-s1/checkpoint/rng.bin"].read_bytes()
            assert set(state) == set(rng), "two checkpoints were mixed"
            tail = files["rollouts/b0-s1/tail.log"].read_bytes()
            assert len(tail) >= 100 * (state[0] - 1), "rollouts from before the checkpoint lack"
            taken += 1
    finally:
        over.set()
    return taken


def test_paths_that_leave_the_run_folder_are_refused(tmp_path: Path) -> None:
    for path in ("../x", "/etc/x", "a/../../x", ""):
        with pytest.raises(IntegrityError, match="leaves the folder"):
            _below(tmp_path, path)


def test_an_unknown_file_system_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"artifacts 'nosuch://x' cannot be opened"):
        Artifacts("nosuch://x", "key")
