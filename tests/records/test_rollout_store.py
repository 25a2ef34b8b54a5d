"""The rollout store in good times: round trips, idempotence, sealing, reading beside a writer, bad text."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import StoreError
from evotrainer.records.arrow_schema import VERSION_KEY, arrow_schema, decode, encode
from evotrainer.records.reading import check_folder, load, scan
from evotrainer.records.rollout import SCHEMA_VERSION, Rollout, Turn, groups_of
from evotrainer.records.store import RolloutStore
from tests.records.strategies import rollouts
from tests.small_records import flat, group, rollout

WRITER = Path(__file__).with_name("crash_writer.py")


@settings(max_examples=80, deadline=None)
@given(st.lists(rollouts, min_size=1, max_size=5))
def test_a_rollout_comes_back_exactly_as_it_went_in(batch: list[Rollout]) -> None:
    assert decode(encode(batch)) == batch


def test_a_tail_that_is_already_a_part_is_not_sealed_again(tmp_path: Path) -> None:
    """As a kill leaves it between the part's rename and the fresh tail."""
    with RolloutStore(tmp_path) as store:
        store.append([group(0), group(1)])
        tail = (tmp_path / "tail.log").read_bytes()
        store.seal()
    (tmp_path / "tail.log").write_bytes(tail)
    with RolloutStore(tmp_path) as store:
        assert sum(p.rows for p in store.seal()) == len(flat([group(0), group(1)]))


@settings(max_examples=15, deadline=None)
@given(st.lists(rollouts, min_size=1, max_size=8, unique_by=lambda r: r.id), st.integers(0, 8))
def test_a_rollout_survives_log_part_and_reopening(batch: list[Rollout], sealed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with RolloutStore(folder) as store:
            store.append([[r] for r in batch[:sealed]])
            store.seal()
            store.append([batch])
        with RolloutStore(folder) as store:
            assert len(store) == len(batch)
            assert store.append([batch]) == 0
        assert load([folder]) == batch
        assert check_folder(Path(folder)) == ([], len(batch))


def test_a_replayed_step_is_stored_once(tmp_path: Path) -> None:
    with RolloutStore(tmp_path) as store:
        assert store.append([group(1), group(2)]) == 8
        size = (tmp_path / "tail.log").stat().st_size
        assert store.append([group(1), group(2)]) == 0
        assert (tmp_path / "tail.log").stat().st_size == size
        assert store.append([group(2, size=6), group(2, size=6)]) == 2, "only what is new, and that once"
    assert len(load([tmp_path])) == 10


def test_sealing_keeps_every_rollout_and_later_appends_go_on(tmp_path: Path) -> None:
    with RolloutStore(tmp_path) as store:
        store.append([group(1)])
        (first,) = store.seal()
        store.append([group(2)])
        assert store.append([group(1)]) == 0, "sealed ids are still known"
        parts = store.seal()
        assert parts[0] == first
        assert [p.rows for p in parts] == [4, 4]
        assert store.seal() == parts, "nothing to seal adds no part"
        store.append([group(3)])
    assert load([tmp_path]) == flat([group(1), group(2), group(3)])
    note = first.path.with_name(first.path.name + ".sha256")
    assert note.read_text() == f"{first.sha256}  part-00000.parquet\n"


def test_a_long_tail_seals_itself(tmp_path: Path) -> None:
    with RolloutStore(tmp_path, seal_bytes=4000) as store:
        for n in range(20):
            store.append([group(n)])
        assert len(list(tmp_path.glob("part-*.parquet"))) > 1
        assert (tmp_path / "tail.log").stat().st_size < 4000
    assert load([tmp_path]) == flat([group(n) for n in range(20)])


def test_the_loader_filters_by_id_split_step_and_limit(tmp_path: Path) -> None:
    everything = flat([group(n) for n in range(10)])
    with RolloutStore(tmp_path) as store:
        store.append([group(n) for n in range(6)])
        store.seal()
        store.append([group(n) for n in range(6, 10)])
    assert load([tmp_path], split="train") == [r for r in everything if r.split == "train"]
    assert load([tmp_path], split="train", step=3) == [r for r in everything if r.split == "train" and r.step == 3]
    wanted = [everything[2].id, everything[38].id, "unknown"]
    assert load([tmp_path], ids=wanted) == [everything[2], everything[38]]
    assert load([tmp_path], ids=[]) == []
    assert load([tmp_path], limit=5) == everything[:5]


def test_scan_sees_parts_and_tails_of_several_folders_each_rollout_once(tmp_path: Path) -> None:
    import polars as pl

    a, b = tmp_path / "a", tmp_path / "b"
    with RolloutStore(a) as store:
        store.append([group(1)])
        store.seal()
        store.append([group(2)])
    with RolloutStore(b) as store:
        store.append([group(2), group(3)])
    frame = scan([a, b, a])
    assert frame.collect_schema().names() == arrow_schema().names
    spread = frame.group_by("group").agg(pl.col("reward").var(), pl.len()).collect()
    assert dict(spread.select("group", "len").iter_rows()) == {"g1": 4, "g2": 4, "g3": 4}
    answer = frame.select(pl.col("turns").list.last().struct.field("text").str.contains("print").all()).collect()
    assert answer.item()
    component = pl.col("components").list.eval(pl.element().struct.field("value")).list.first()
    assert frame.select(component.sum()).collect().item() == pytest.approx(3 * 1.5)


def test_an_empty_store_can_be_scanned_and_loaded(tmp_path: Path) -> None:
    with RolloutStore(tmp_path) as store:
        assert store.append([]) == 0
        assert store.append([[]]) == 0
        assert store.seal() == []
    assert load([tmp_path]) == []
    assert scan([tmp_path]).collect().height == 0
    with pytest.raises(StoreError, match="check the path"):
        load([tmp_path / "nowhere"])


def test_readers_beside_a_sealing_writer_never_miss_or_repeat_a_rollout(tmp_path: Path) -> None:
    calls = 60
    writer = subprocess.Popen(
        [sys.executable, WRITER, "store", tmp_path, str(calls)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acked = 0
    for line in writer.stdout:
        if line.startswith("ack"):
            acked += 1
        if acked % 7 == 1:
            ids = [r.id for r in load([tmp_path])]
            assert len(ids) == len(set(ids))
            assert len(ids) >= acked * 8
            assert scan([tmp_path]).select("id").collect().height >= len(ids)
    assert writer.wait() == 0
    assert len(load([tmp_path])) == calls * 8


def test_the_published_schema_names_its_version_and_every_field() -> None:
    schema = arrow_schema()
    assert schema.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    assert schema.names == list(Rollout.__dataclass_fields__)


def test_lone_surrogates_and_zero_bytes_do_not_stop_the_store(tmp_path: Path) -> None:
    bad = rollout(1, turns=(Turn("assistant", "a\ud800b\0c"),), detail={"\udc00": "\ud83d"}, error="\udfff")
    with RolloutStore(tmp_path) as store:
        assert store.append([[rollout(1, 1), bad]]) == 2
        assert store.append([[bad]]) == 0
    (stored,) = load([tmp_path], ids=[bad.id])
    assert stored == replace(
        bad, turns=(Turn("assistant", "a\ufffdb\0c"),), detail={"\ufffd": "\ufffd"}, error="\ufffd"
    )


@pytest.mark.parametrize(
    "fields",
    [{"tokens": 2**70}, {"detail": {"x": object()}}, {"reward": "high"}, {"token_ids": (2**40,)}, {"error": 5}],
)
def test_a_value_that_does_not_fit_is_refused_by_name_and_nothing_is_stored(tmp_path: Path, fields: dict) -> None:
    bad = rollout(7, **fields)
    with RolloutStore(tmp_path) as store:
        with pytest.raises(StoreError, match=bad.id):
            store.append([group(1), [rollout(7, 1), bad]])
        assert len(store) == 0
        assert store.append([group(1)]) == 4
    assert load([tmp_path]) == group(1)


def test_groups_come_by_group_id_in_order_of_appearance() -> None:
    mixed = [rollout(2, 1), rollout(1, 0), rollout(2, 0)]
    assert groups_of(mixed) == [[rollout(2, 1), rollout(2, 0)], [rollout(1, 0)]]
    nameless = [replace(r, group="") for r in mixed]
    assert [len(g) for g in groups_of(nameless)] == [2, 1]


def test_a_folder_has_one_writer_and_the_second_is_told_who(tmp_path: Path) -> None:
    with RolloutStore(tmp_path):
        with pytest.raises(StoreError, match=f"process {os.getpid()};"):
            RolloutStore(tmp_path)
    RolloutStore(tmp_path).close()


def test_a_forked_child_does_not_keep_the_lock_of_a_writer_that_was_killed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        _store = RolloutStore(tmp_path)
        if os.fork() == 0:
            os.write(writing, f"{os.getpid()}\n".encode())
        signal.pause()
        os._exit(0)
    child = int(os.read(reading, 32))
    try:
        with pytest.raises(StoreError, match=f"process {writer};"):
            RolloutStore(tmp_path)
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        RolloutStore(tmp_path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reading)
        os.close(writing)


def test_a_write_that_fails_halfway_is_undone_and_the_store_goes_on(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RolloutStore(tmp_path) as store:
        store.append([group(1)])
        size = (tmp_path / "tail.log").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            with pytest.raises(StoreError, match="file-size limit"):
                store.append([group(2)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / "tail.log").stat().st_size == size
        assert store.append([group(2), group(3)]) == 8
    assert load([tmp_path]) == flat([group(1), group(2), group(3)])


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="open it again"):
        store.append([group(1)])
