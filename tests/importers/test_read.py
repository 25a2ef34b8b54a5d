"""Finding, recognising and reading sources together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import evotrainer.importers as importers
from evotrainer.errors import ConfigError
from evotrainer.importers import IMPORTERS, Skipped, Source, detect, find_sources, read
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.store import RolloutStore

PLAIN = json.dumps({"task": "t", "text": "x", "reward": 1}) + "\n"
VERL = json.dumps({"input": "q", "output": "a", "gts": "a", "score": 1.0, "step": 1}) + "\n"


def tree(root: Path) -> Path:
    for name, text in {
        "b/plain.jsonl": PLAIN * 3,
        "a/1.jsonl": VERL * 2,
        "a/LICENSE": "x",
        "a/README.md": "x",
        "a/metadata.json": "{}",
        "a/.hidden.jsonl": PLAIN,
        ".git/x.jsonl": PLAIN,
        "a/unknown.bin": "\x00\x01",
        "a/empty.jsonl": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with RolloutStore(root / "run" / "rollouts" / "b0") as store:
        store.append([[Rollout("id0", "t", (Turn("assistant", "x"),), 1.0, group="g")]])
    with RolloutStore(root / "run" / "sealed" / "b0") as store:
        store.append([[Rollout("secret", "t", (Turn("assistant", "x"),), 1.0)]])
    return root


def test_folders_are_walked_in_order_and_a_run_is_one_source(tmp_path: Path) -> None:
    root = tree(tmp_path)
    found = [str(p.relative_to(root)) for p in find_sources([root])]
    assert found == ["run", "a/1.jsonl", "a/empty.jsonl", "a/unknown.bin", "b/plain.jsonl"]
    assert list(find_sources([root / "b", root / "b" / "plain.jsonl"])) == [root / "b" / "plain.jsonl"]
    assert list(find_sources([root / "a" / "README.md"])) == [root / "a" / "README.md"]


def test_everything_is_read_and_what_is_of_no_format_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path)
    out = list(read([root]))
    assert [(p.name, f) for p, f, r in out if isinstance(r, Rollout)] == [
        ("run", "store"),
        *[("1.jsonl", "verl")] * 2,
        *[("plain.jsonl", "jsonl")] * 3,
    ]
    skipped = {p.name: r.reason for p, f, r in out if isinstance(r, Skipped)}
    assert skipped.keys() == {"empty.jsonl", "unknown.bin"}
    assert "empty" in skipped["empty.jsonl"] and "binary" in skipped["unknown.bin"]
    assert "secret" not in {r.id for _, _, r in out if isinstance(r, Rollout)}


def test_a_format_may_be_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(PLAIN + VERL)
    out = [r for _, f, r in read([path], format="verl") if f == "verl"]
    assert [type(r).__name__ for r in out] == ["Skipped", "Rollout"]
    with pytest.raises(ConfigError, match=r"unknown rollout format 'nope'.*verl"):
        list(read([path], format="nope"))
    with pytest.raises(ConfigError, match="there is no"):
        list(read([tmp_path / "missing"]))


def test_no_format_fits_names_the_known_ones_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": 1}')
    with pytest.raises(ConfigError, match=r"nemo_gym.*--format.*reward"):
        detect(path)


def test_files_of_one_name_keep_their_ids_and_groups_apart(tmp_path: Path) -> None:
    for folder in ("x/1", "y/1", "z/2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.jsonl").write_text(VERL * 2)
    out = [r for _, _, r in read([tmp_path]) if isinstance(r, Rollout)]
    assert len({r.id for r in out}) == 6 and len({r.group for r in out}) == 3
    again = [r for _, _, r in read([tmp_path / "z", tmp_path / "y", tmp_path / "x"]) if isinstance(r, Rollout)]
    assert {r.id for r in again} == {r.id for r in out}
    alone = [r for _, _, r in read([tmp_path / "x"]) if isinstance(r, Rollout)]
    assert [r.id for r in alone] == [
        r.id for r in importers.IMPORTERS["verl"].read(tmp_path / "x/1/1.jsonl") if isinstance(r, Rollout)
    ]


class Broken:
    """Fails in the middle of each file, and while recognising some."""

    name = "broken"
    about = "an importer with a bug"

    def recognises(self, source: Source) -> bool:
        if source.path.suffix != ".broken":
            raise RuntimeError("no idea")
        return True

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        yield Rollout("1", "t", (), None, detail={"source": str(path)})
        raise KeyError("turns")


def test_a_bug_in_an_importer_costs_the_rest_of_its_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IMPORTERS, "broken", Broken())
    (tmp_path / "a.broken").write_text("x")
    (tmp_path / "b.jsonl").write_text(PLAIN)
    out = [(p.name, r) for p, _, r in read([tmp_path])]
    assert [(n, type(r).__name__) for n, r in out] == [
        ("a.broken", "Rollout"),
        ("a.broken", "Skipped"),
        ("b.jsonl", "Rollout"),
    ]
    skipped = out[1][1]
    assert isinstance(skipped, Skipped) and "after record 1" in skipped.where and "KeyError" in skipped.reason


def test_a_first_line_longer_than_the_head_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"task": "t", "text": "x" * 200_000, "reward": 1}) + "\n" + PLAIN)
    assert detect(path).name == "jsonl"


def test_a_pipe_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    for format in (None, "jsonl"):
        ((_, _, skipped),) = read([tmp_path], format=format)
        assert isinstance(skipped, Skipped) and "no regular file" in skipped.reason


def test_a_file_of_formats_is_a_format_of_its_name() -> None:
    for file in Path(importers.formats.__file__).parent.glob("[!_]*.py"):
        assert importers.IMPORTERS[file.stem].name == file.stem, file
