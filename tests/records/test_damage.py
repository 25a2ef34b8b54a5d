"""Torn writes and flipped bits in the rollout store: found, named, and nothing good thrown away."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from evotrainer.errors import IntegrityError, StoreError
from evotrainer.records.frames import read_tail
from evotrainer.records.reading import check_folder, load, scan
from evotrainer.records.store import RolloutStore
from tests.small_records import flat, group

GROUPS = [group(n) for n in range(4)]


@pytest.fixture
def tail(tmp_path: Path) -> Path:
    """A tail of four groups."""
    with RolloutStore(tmp_path) as store:
        for g in GROUPS:
            store.append([g])
    return tmp_path / "tail.log"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """A sealed part of four groups."""
    with RolloutStore(tmp_path) as store:
        store.append(GROUPS)
        return store.seal()[0].path


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def test_a_torn_last_frame_is_cut_and_everything_before_it_kept(tail: Path) -> None:
    data = tail.read_bytes()
    last = read_tail(tail).frames[-1]
    for end in range(last.start + 1, last.end, (last.end - last.start) // 12):
        tail.write_bytes(data[:end])
        assert load([tail.parent]) == flat(GROUPS[:3]), "a reader sees what is complete"
        with RolloutStore(tail.parent) as store:
            assert store.recovered.bytes_cut == end - last.start
            assert store.recovered.rows_kept == 12
            assert store.recovered.saved is None
            assert store.append([GROUPS[3]]) == 4
        assert load([tail.parent]) == flat(GROUPS)


def test_a_tail_grown_by_zeros_or_rubbish_is_cut_too(tail: Path) -> None:
    good = tail.read_bytes()
    for rubbish in (bytes(5000), b"EVOF" + bytes(100), random.Random(1).randbytes(300)):
        tail.write_bytes(good + rubbish)
        with RolloutStore(tail.parent) as store:
            assert store.recovered.bytes_cut == len(rubbish)
        assert tail.read_bytes() == good


def test_a_tail_lost_to_its_first_byte_is_an_empty_store(tail: Path) -> None:
    tail.write_bytes(tail.read_bytes()[:10])
    with RolloutStore(tail.parent) as store:
        assert (store.recovered.bytes_cut, len(store)) == (10, 0)
        store.append(GROUPS)
    assert load([tail.parent]) == flat(GROUPS)


def test_a_flipped_bit_inside_a_tail_is_named_by_all_and_repair_keeps_the_other_frames(tail: Path) -> None:
    good, second = tail.read_bytes(), read_tail(tail).frames[2]
    chance = random.Random(3)
    for at in [second.start, second.start + 5, *chance.sample(range(second.start, second.end), 10)]:
        tail.write_bytes(good)
        flip(tail, at, chance.randrange(8))
        damaged = tail.read_bytes()
        for read in (load, scan):
            with pytest.raises(IntegrityError, match=r"tail\.log is damaged .*2 good frames follow") as told:
                read([tail.parent])
            assert "repair=True" not in str(told.value), "who reads has no such option"
        with pytest.raises(IntegrityError, match=r"tail\.log is damaged"):
            RolloutStore(tail.parent)
        assert any("is damaged" in p for p in check_folder(tail.parent)[0])
        assert tail.read_bytes() == damaged, "looking changes nothing"
        with RolloutStore(tail.parent, repair=True) as store:
            assert store.recovered.rows_kept == 12
            assert store.recovered.saved is not None
            assert store.recovered.saved.read_bytes() == damaged
            store.recovered.saved.unlink()
        assert load([tail.parent]) == flat([GROUPS[0], *GROUPS[2:]])


def test_a_flipped_bit_in_the_schema_frame_is_repaired_without_loss(tail: Path) -> None:
    flip(tail, 40)
    with pytest.raises(IntegrityError, match="4 good frames follow"):
        RolloutStore(tail.parent)
    RolloutStore(tail.parent, repair=True).close()
    assert load([tail.parent]) == flat(GROUPS)
    assert check_folder(tail.parent) == ([], 16)


def test_a_complete_last_frame_that_is_damaged_is_not_dropped_silently(tail: Path) -> None:
    last = read_tail(tail).frames[-1]
    flip(tail, last.end - 3)
    with pytest.raises(IntegrityError, match=r"last frame.*checksum"):
        load([tail.parent])
    assert any("last frame" in p for p in check_folder(tail.parent)[0])
    cut = tail.read_bytes()[last.start :]
    with RolloutStore(tail.parent) as store:
        assert store.recovered.bytes_cut == len(cut)
        assert store.recovered.saved is not None
        assert store.recovered.saved.read_bytes() == cut
    assert load([tail.parent]) == flat(GROUPS[:3])


def _refused(part: Path) -> bool:
    """Whether reading the part is refused; what is not refused must be right."""
    try:
        found = load([part.parent])
    except StoreError as e:
        return part.name in str(e)
    assert found == flat(GROUPS)
    return False


def test_any_flipped_bit_in_a_part_is_found_and_no_reader_gets_wrong_rollouts(part: Path) -> None:
    good = part.read_bytes()
    chance = random.Random(4)
    refused = 0
    for at in chance.sample(range(len(good)), 120):
        part.write_bytes(good)
        flip(part, at, chance.randrange(8))
        problems, _ = check_folder(part.parent)
        assert any(part.name in p for p in problems)
        refused += _refused(part)
    assert refused > 60, "page checksums catch damage to the data itself"


def test_a_truncated_part_and_a_missing_checksum_are_named(part: Path) -> None:
    part.with_name(part.name + ".sha256").unlink()
    assert check_folder(part.parent)[0] == [f"{part}: its checksum file is missing"]
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(IntegrityError, match=part.name):
        load([part.parent])
    with pytest.raises(IntegrityError, match=part.name):
        RolloutStore(part.parent)


def test_a_rollout_stored_twice_is_reported_with_both_files(part: Path) -> None:
    for name in (part.name, part.name + ".sha256"):
        copy = part.with_name(name.replace("00000", "00001"))
        content = part.with_name(name).read_bytes()
        copy.write_bytes(content.replace(b"00000", b"00001") if name.endswith(".sha256") else content)
    (problem,) = check_folder(part.parent)[0]
    assert "16 rollouts stored twice" in problem
    assert "part-00000" in problem
    assert "part-00001" in problem
    assert len(load([part.parent])) == 16
    assert scan([part.parent]).collect().height == 16


def test_another_parquet_file_is_not_taken_for_rollouts(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "part-00000.parquet")
    with pytest.raises(StoreError, match="holds no EvoTrainer rollouts"):
        load([tmp_path])


def test_a_tail_that_is_no_regular_file_is_named(tmp_path: Path) -> None:
    """Somebody else's folder may hold a device, a pipe or a file with a hole in its place."""
    for name, make in (
        ("device", lambda p: p.symlink_to("/dev/zero")),
        ("pipe", lambda p: os.mkfifo(p)),
        ("hole", lambda p: os.truncate(os.open(p, os.O_CREAT | os.O_WRONLY), 40 << 30)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        make(folder / "tail.log")
        with pytest.raises(StoreError, match="cannot read .*tail.log"):
            load([folder])
