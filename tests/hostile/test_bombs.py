"""Small files that name terabytes: each is shown to expand, and then refused before it has."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evotrainer.envs.data.rows import read_file
from evotrainer.errors import ConfigError, StoreError, TaskSetError
from evotrainer.importers import Skipped, read
from evotrainer.importers.lenient_json import parse
from evotrainer.records import caps, frames, parquet_footer
from evotrainer.records.arrow_schema import arrow_schema
from evotrainer.records.reading import load, scan
from evotrainer.studies.audit import audit

MIB = 2**20


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caps that a test reaches in milliseconds."""
    monkeypatch.setenv("EVOTRAINER_CAP_EXPANDED_MB", "2")
    monkeypatch.setenv("EVOTRAINER_CAP_RATIO", "20")
    monkeypatch.setenv("EVOTRAINER_CAP_ROWS", "1000")
    monkeypatch.setenv("EVOTRAINER_CAP_JSON_VALUES", "10000")


def eval_of(path: Path, method: int, megabytes: int) -> Path:
    """An Inspect log whose one sample is a long run of blanks."""
    with zipfile.ZipFile(path, "w", method) as z:
        z.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}))
        with z.open("samples/1_epoch_1.json", "w") as f:
            for _ in range(megabytes):
                f.write(b" " * MIB)
            f.write(b"{}")
    return path


def bounded(code: str, limit_mb: int, *args: str) -> tuple[int, str]:
    """(exit status, output) of a Python process that may take `limit_mb` MiB more than its imports."""
    head = f"""
        import resource, sys
        from evotrainer.studies.audit import audit
        from evotrainer.importers import read
        now = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (now + ({limit_mb} << 20),) * 2)
    """
    p = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code), *args],
        capture_output=True, text=True, timeout=120, env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return p.returncode, p.stdout + p.stderr


# -- archives ------------------------------------------------------------------------------------------------------


def test_a_bzip2_member_expands_whole_before_its_first_byte_is_seen(tmp_path: Path) -> None:
    path = eval_of(tmp_path / "a.eval", zipfile.ZIP_BZIP2, 120)
    assert path.stat().st_size < 2000
    naive = (
        "import zipfile; z = zipfile.ZipFile(sys.argv[1]); z.open('samples/1_epoch_1.json').read(1); print('read one')"
    )
    status, said = bounded(naive, 80, str(path))
    assert status and "MemoryError" in said, "one byte asked for, 120 MiB taken"
    ours = "print([str(x[2].reason) for x in read([sys.argv[1]])])"
    status, said = bounded(ours, 80, str(path))
    assert status == 0 and "member is compressed with method 12; pack it with deflate or Zstandard" in said, said


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_members_of_every_method_are_bounded(tmp_path: Path, method: int, small: None) -> None:
    path = eval_of(tmp_path / "a.eval", method, 16)
    got = [x for _, _, x in read([path])]
    said = " ".join(x.reason for x in got if isinstance(x, Skipped))
    assert len(got) <= 2 and ("pack it with deflate" in said or "decompresses to more than 1 MiB" in said), said


def test_an_archive_is_bounded_as_a_whole(tmp_path: Path, small: None) -> None:
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}))
        for i in range(40):
            z.writestr(f"samples/{i}_epoch_1.json", b" " * 500_000 + b"{}")
    reasons = [x.reason for _, _, x in read([path]) if isinstance(x, Skipped)]
    assert sum("decompresses to more than" in r for r in reasons) >= 36, "4 of 40 are within 2 MiB"


# -- lines -----------------------------------------------------------------------------------------------------------


def test_a_gzip_of_lines_stops_at_the_ratio(tmp_path: Path, small: None) -> None:
    path = tmp_path / "a.jsonl.gz"
    row = json.dumps({"task": "t", "text": "x" * 1000, "reward": 1.0}).encode() + b"\n"
    path.write_bytes(gzip.compress(row * 20_000))
    size = path.stat().st_size
    assert len(gzip.decompress(path.read_bytes())) > 200 * size, "unbounded it expands 200 times and more"
    got = [x for _, _, x in read([path])]
    assert isinstance(got[-1], Skipped) and "EVOTRAINER_CAP_EXPANDED_MB" in got[-1].reason
    assert 0 < len(got) * len(row) < 4 * MIB, "what came before the cap is there"


def test_a_raised_cap_reads_the_rest(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(
        gzip.compress(b'{"task": "t", "text": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "reward": 1}\n' * 40_000)
    )
    monkeypatch.setenv("EVOTRAINER_CAP_EXPANDED_MB", "16")
    assert not any(isinstance(x, Skipped) for _, _, x in read([path]))
    monkeypatch.setenv("EVOTRAINER_CAP_EXPANDED_MB", "many")
    with pytest.raises(ConfigError, match="EVOTRAINER_CAP_EXPANDED_MB='many': give a whole number"):
        caps.limit(1)


def test_a_file_of_nothing_readable_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evotrainer.importers import lines

    monkeypatch.setattr(lines, "MAX_SKIPPED", 1000)
    path = tmp_path / "a.jsonl"
    path.write_text('{"task": "t", "text": "x", "reward": 1}\n' + "{}\n" * 5000)
    got = [x for _, _, x in read([path], "jsonl")]
    assert len(got) == 1002 and got[-1].reason == "1,000 records could not be read; the rest is unread"  # type: ignore[union-attr]


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_a_json_text_of_empty_lists_takes_twenty_times_its_length(tmp_path: Path, small: None) -> None:
    text = b"[" + b"[]," * 100_000 + b"[]]"
    held = json.loads(text)
    assert sum(map(sys.getsizeof, held)) + sys.getsizeof(held) > 20 * len(text)
    with pytest.raises(caps.TooLargeError, match="EVOTRAINER_CAP_JSON_VALUES"):
        parse(text)
    for name, form in (("a.json", text), ("a.jsonl", b'{"task": "t", "text": "x", "a": ' + text + b"}\n")):
        (tmp_path / name).write_bytes(form)
        assert {type(x) for _, _, x in read([tmp_path / name], "jsonl")} == {Skipped}
        with pytest.raises(TaskSetError, match="EVOTRAINER_CAP_JSON_VALUES"):
            read_file(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    ['{"task": "t", "text": "x", "a": ' + "[" * 200_000 + "]" * 200_000 + "}", '{"a":' * 50_000,
     '{"reward": 1' + "0" * 10_000 + "}",
     '{"reward": 1e400, "task": "t", "text": "x"}', '{"step": ' + "9" * 5000 + ', "task": "t", "text": "x"}'],
    ids=["nested lists", "nested objects", "long number", "infinite", "long step"],
)  # fmt: skip
def test_deep_nests_and_huge_numbers_are_skipped_records(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text + "\n" + '{"task": "t", "text": "fine", "reward": 1}\n')
    got = [x for _, _, x in read([path], "jsonl") if not isinstance(x, Skipped)]
    assert got and got[-1].reward == 1, "the next record is read"
    with suppress(TaskSetError):
        read_file(path)


# -- Parquet -----------------------------------------------------------------------------------------------------------


def repeated(path: Path, rows: int, text: str, groups: int = 1) -> Path:
    """A TRL-like log that says one thing `rows` times: a dictionary of one value, and run lengths."""
    same = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()).take(pa.array([0] * rows)), pa.array([text]))
    table = pa.table(
        {"step": pa.array([1] * rows), "prompt": same, "completion": same, "reward": pa.array([1.0] * rows),
         "advantage": pa.array([0.0] * rows)}
    )  # fmt: skip
    pq.write_table(table, path, compression="zstd", row_group_size=rows // groups)
    return path


def test_a_parquet_file_with_more_rows_than_bytes_is_not_begun(tmp_path: Path, small: None) -> None:
    path = repeated(tmp_path / "a.parquet", 400_000, "x")
    assert path.stat().st_size < 20_000
    got = [x for _, _, x in read([path])]
    assert len(got) == 1 and isinstance(got[0], Skipped) and "EVOTRAINER_CAP_ROWS" in got[0].reason
    with pytest.raises(TaskSetError, match="400,000 rows"):
        read_file(path)


def test_a_value_that_every_row_repeats_stops_at_the_cap(tmp_path: Path, small: None) -> None:
    path = repeated(tmp_path / "a.parquet", 900, "y" * 100_000)
    with pq.ParquetFile(path) as file:
        first = next(file.iter_batches(batch_size=100, columns=["completion"])).column(0).dictionary_decode()
    assert first.nbytes > 100 * path.stat().st_size, "100 of 900 rows expand a hundredfold"
    got = [x for _, _, x in read([path])]
    assert isinstance(got[-1], Skipped) and "what its rows take in memory" in got[-1].reason
    with pytest.raises(TaskSetError, match="what its rows take in memory"):
        read_file(path)


def test_batches_are_as_short_as_the_longest_repeated_value_demands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repeated(tmp_path / "a.parquet", 400, "y" * 100_000)
    monkeypatch.setattr(caps, "BATCH", MIB)
    with pq.ParquetFile(path) as file:
        sizes = [b.nbytes for b in caps.batches(file, path, columns=["completion"])]
    assert sum(sizes) > 40 * 10**6 and max(sizes) < 2 * MIB
    plain = pa.table({"text": [str(i) * 100 for i in range(2000)]})
    pq.write_table(plain, path, use_dictionary=False, compression="none")
    with pq.ParquetFile(path) as file:
        assert [b.num_rows for b in caps.batches(file, path, most=2000)] == [2000], "nothing repeated: whole"


def test_one_row_of_a_billion_list_items_is_not_begun(tmp_path: Path, small: None) -> None:
    path = tmp_path / "a.parquet"
    column = pa.ListArray.from_arrays(pa.array([0, 2_000_000], pa.int32()), pa.array([7] * 2_000_000, pa.int64()))
    pq.write_table(pa.table({"prompt": ["p"], "completion": ["c"], "reward": [1.0], "step": [1], "x": column}), path)
    assert path.stat().st_size < 20_000
    with pytest.raises(TaskSetError, match="2,000,004 values"):
        read_file(path)
    assert {type(x) for _, _, x in read([path], "trl")} == {Skipped}


def test_the_directory_is_read_as_pyarrow_reads_it(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y", None] * 50, "b": [[1, 2], [], None] * 50, "c": [{"d": 1.5}] * 150})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=40, compression="zstd")
    meta = pq.ParquetFile(tmp_path / "a.parquet").metadata
    for i, g in enumerate(parquet_footer.groups(tmp_path / "a.parquet")):
        theirs = meta.row_group(i)
        columns = [theirs.column(c) for c in range(theirs.num_columns)]
        assert g.rows == theirs.num_rows and g.values == sum(c.num_values for c in columns)
        assert g.size == sum(c.total_uncompressed_size for c in columns)
    assert i == meta.num_row_groups - 1


def test_a_damaged_directory_is_an_error_and_never_ends_the_process(tmp_path: Path) -> None:
    """pyarrow's own `column` ends the process where a directory lacks a column's metadata."""
    path = repeated(tmp_path / "a.parquet", 10, "x")
    whole = path.read_bytes()
    rng = random.Random(1)
    length = int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data) - 8 - length, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            parquet_footer._groups(str(path), len(data), rng.getrandbits(60), 0)
        except ValueError:
            refused += 1
    assert 100 < refused < 1500


# -- run folders that somebody else made -------------------------------------------------------------------------------


def hostile_part(folder: Path, rows: int, text: str) -> Path:
    """A part with the columns of a store, whose every text is one and the same."""
    folder.mkdir(parents=True)
    columns = []
    for f in arrow_schema():
        value: object = text if pa.types.is_string(f.type) else None
        columns.append(pa.array([value] * rows, f.type))
    pq.write_table(
        pa.Table.from_arrays(columns, schema=arrow_schema()), folder / "part-00000.parquet", compression="zstd"
    )
    return folder


@pytest.mark.parametrize("use", [lambda f: load([f]), lambda f: scan([f]).collect()], ids=["load", "scan"])
def test_a_store_with_more_rows_than_its_size_allows_is_refused(
    tmp_path: Path, small: None, use: Callable[[Path], object]
) -> None:
    folder = hostile_part(tmp_path / "store", 40_000, "")
    assert (folder / "part-00000.parquet").stat().st_size < 40_000
    with pytest.raises(StoreError, match="EVOTRAINER_CAP_ROWS"):
        use(folder)
    assert not audit([folder]).rollouts


def test_a_store_whose_rows_repeat_one_text_stops_at_the_cap(tmp_path: Path, small: None) -> None:
    folder = hostile_part(tmp_path / "store", 200, "z" * 20_000)
    with pytest.raises(StoreError, match="what its rows take in memory"):
        load([folder])
    assert not audit([folder]).rollouts


def test_a_tail_that_claims_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    whole = frames.schema_frame()
    data = frames._codec().compress(pa.py_buffer(bytes(64 * MIB)), asbytes=True)
    head = frames._HEADER.pack(frames.BATCH, len(data), 2**32 - 1, zlib.crc32(data))
    frame = head + frames._CRC.pack(zlib.crc32(head)) + data
    (tmp_path / "tail.log").write_bytes(whole + frame)
    assert len(data) < 10_000
    with pytest.raises(StoreError, match=r"4,294.* bytes from .*EVOTRAINER_CAP_EXPANDED_MB"):
        load([tmp_path])


def test_data_sets_in_gzip_stop_at_the_cap(tmp_path: Path, small: None) -> None:
    for name in ("a.jsonl.gz", "a.csv.gz", "a.json.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b'{"a": 1}\n' + b" " * (8 * MIB)))
        with pytest.raises(TaskSetError, match="EVOTRAINER_CAP_EXPANDED_MB"):
            read_file(tmp_path / name)
