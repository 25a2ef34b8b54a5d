"""A broken first line does not hide a file, nor does compression."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.importers import IMPORTERS, Skipped, Source, detect, read
from evotrainer.importers.lenient_json import is_compressed
from evotrainer.records.rollout import Rollout

ROWS: dict[str, dict[str, Any]] = {
    "jsonl": {"task": "t", "text": "x", "reward": 1},
    "verl": {"input": "q", "output": "a", "gts": "a", "score": 1.0, "step": 1},
    "nemo_gym": {
        "responses_create_params": {"input": [{"role": "user", "content": "q"}]},
        "response": {"output": [{"type": "message", "role": "assistant", "content": "a"}]},
        "reward": 1.0,
    },
    "verifiers": {"example_id": 1, "prompt": "q", "completion": "a", "reward": 1.0, "metrics": {}},
}
BAD = [b"garbage", b"null", b'{"task": "t", ', b"[]", b'[{"a": 1}]', b"17", b'"x"', b"\xff\x00", b"\xef\xbb\xbf{"]


@pytest.mark.parametrize("name", list(ROWS))
@pytest.mark.parametrize("bad", BAD)
def test_one_bad_first_line_is_one_skip(name: str, bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = json.dumps(ROWS[name]).encode()
    for rows in ([row] * 3, [row[:-1] + b', "long": "' + b"x" * 100_000 + b'"}'] * 3):
        path.write_bytes(b"\n".join([bad, *rows]) + b"\n")
        assert detect(path).name == name
        out = [r for _, _, r in read([path])]
        assert [type(r).__name__ for r in out] == ["Skipped", *["Rollout"] * 3]
        assert isinstance(out[0], Skipped) and " 1" in out[0].where


def test_what_is_one_json_value_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for value in ({"a": {}, "b": [{}, {"c": 1}]}, [{"a": 1}, {"b": 2}]):
        for indent in (0, 1, None):
            path.write_text(json.dumps(value, indent=indent))
            assert Source(path).first == value
    path.write_text('[\n{"a": 1},\n{"b": 2}\n]')
    assert Source(path).first == [{"a": 1}, {"b": 2}]
    path.write_text("[null, " + json.dumps(ROWS["jsonl"]) + "]")
    assert [type(r).__name__ for _, _, r in read([path])] == ["Skipped", "Rollout"]


@pytest.mark.parametrize("name", list(ROWS))
def test_gzip_is_read_as_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    data = "".join(json.dumps({**ROWS[name], "n": os.urandom(9).hex()}) + "\n" for _ in range(500)).encode()
    path.write_bytes(gzip.compress(data))
    assert is_compressed(path) and detect(path).name == name
    assert [type(r) for r in IMPORTERS[name].read(path)] == [Rollout] * 500
    path.write_bytes(gzip.compress(data)[:-2000])
    torn = list(IMPORTERS[name].read(path))
    assert len(torn) < 501 and isinstance(torn[-1], Skipped) and "gzip file is damaged" in torn[-1].reason
    array = tmp_path / "a.json.gz"
    array.write_bytes(gzip.compress(json.dumps([ROWS[name]] * 2).encode()))
    assert [type(r) for r in IMPORTERS[name].read(array)] == [Rollout] * 2


def test_other_compressions_and_pipes_are_named(tmp_path: Path) -> None:
    row = json.dumps(ROWS["jsonl"]).encode()
    for name, data in {"a.bz2": bz2.compress(row), "a.zst": b"\x28\xb5\x2f\xfd" + row}.items():
        path = tmp_path / name
        path.write_bytes(data)
        for format in (None, "jsonl"):
            ((_, _, skipped),) = read([path], format)
            assert isinstance(skipped, Skipped) and "unpack it first" in skipped.reason
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ((_, _, skipped),) = read([pipe], "jsonl")
    assert isinstance(skipped, Skipped) and "write its content to a file first" in skipped.reason
    assert not is_compressed(pipe)
    with pytest.raises(ConfigError, match="standard input is not read"):
        list(read(["-"]))
