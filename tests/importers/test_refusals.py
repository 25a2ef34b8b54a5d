"""A file that cannot be read is refused with its cause and a remedy."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest

from evotrainer.errors import ConfigError
from evotrainer.importers import detect, read
from evotrainer.records.rollout import Rollout


def zipped(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name in names:
            z.writestr(name, "x")
    return out.getvalue()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"1" * 64 + b"\nsize 9\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", POINTER, "Git LFS pointer, not the file: run git lfs pull"),
        ("a.jsonl", b"<!DOCTYPE html>\n<html>", "is a web page"),
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"\n \n", "nothing but white space"),
        (
            "a.jsonl.gz",
            gzip.compress(json.dumps({"task": "t", "text": "x" * 9999}).encode())[:40],
            "gzip file .*cut off",
        ),
        ("a.parquet", b"PAR1" + b"x" * 99, "Parquet file that was cut off"),
        ("a.json", b'{\n "results": [\n  {"prompt": "a', "broken JSON .*cut off"),
        ("a.pt", zipped("archive/data.pkl"), "PyTorch file .*convert"),
        ("a.pt", b"PK\x03\x04 and no more", "PyTorch file .*convert"),
        ("b.pt", POINTER, "Git LFS pointer"),
        ("a.json", b"{}\n[]\n", "nothing but empty objects or lists"),
        ("a.csv", b"item;answer\n1;2, 3\n", "its columns are item, answer"),
        ("a.zip", zipped("a.jsonl"), "zip file .*unpack"),
        ("a.pkl", b"\x80\x04\x95junk", "Python pickle"),
        ("run-1.wandb", b":W&B\0\0\0", "W&B's own log"),
        ("events.out.tfevents.1.host", b"\x18\0\0\0", "TensorBoard events"),
        ("a.db", b"SQLite format 3\0", "SQLite database"),
        ("a.bin", b"\x00\x01\x02", "binary file of no known kind"),
    ],
    ids=lambda x: "" if isinstance(x, bytes) else x,  # archives hold the time at which they were made
)
def test_what_is_no_file_of_rollouts_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        detect(tmp_path / name)


def test_a_file_of_rows_is_refused_with_its_columns_and_the_map_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [{"item_id": 2, "decoded_output": f"say {i}", "scalar_reward": 0.5 * i} for i in range(2)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(ConfigError, match="columns are item_id, decoded_output, scalar_reward; .*--map task=COLUMN"):
        detect(path)
    columns = {"task": "item_id", "text": "decoded_output", "reward": "scalar_reward"}
    got = [r for _, _, r in read([path], map=columns) if isinstance(r, Rollout)]
    assert [(r.task, r.reward) for r in got] == [("2", 0.0), ("2", 0.5)]
