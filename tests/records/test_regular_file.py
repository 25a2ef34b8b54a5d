"""`records.regular_file`, and every place where a folder that others write to is read: none waits, none runs full."""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents.carriers import SeatTurn
from evotrainer.agents.seat.carriers.command import _written_answer
from evotrainer.agents.seat.carriers.queue import QueueCarrier
from evotrainer.config.load import load_task
from evotrainer.envs.admission import Cache
from evotrainer.envs.data.rows import read_file
from evotrainer.envs.data.tables import read_source
from evotrainer.envs.user_files import load_module
from evotrainer.errors import EvoTrainerError, StoreError, TaskSetError
from evotrainer.executors.cache.store import CacheEntry, TrialCache
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.path_map import read_places
from evotrainer.executors.spec import TrialSpec, read_heartbeat, read_spec
from evotrainer.importers import Source, detect
from evotrainer.importers.lenient_json import beginning, is_compressed, lines, read_json
from evotrainer.importers.zipped import Archive
from evotrainer.records.durable import WriterLock, sha256_file, writer_of
from evotrainer.records.head import read_head
from evotrainer.records.reading import read_checksum, stored_parts
from evotrainer.records.regular_file import MOST, UnreadableError, check_regular, open_regular, read_bytes, read_text
from evotrainer.skills.library import content_hash, read_library
from evotrainer.skills.validate import check_format, check_skill
from evotrainer.trainers.continued import read_note
from evotrainer.views.heartbeats import read_errors, read_heartbeats
from evotrainer.views.progress import read_settings
from evotrainer.views.report import check_report

SECONDS = 5
"""Within which any of these places must have said what it found."""


def made(kind: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as s:
            s.bind(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "too large":
        with path.open("wb") as f:
            f.truncate(MOST + 1)
    else:
        path.symlink_to({"device": "/dev/zero", "circle": path.name, "nowhere": "not there"}[kind])


KINDS = ("pipe", "socket", "folder", "device", "circle", "nowhere", "too large")


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def asked(folder: Path) -> object:
    turn = SeatTurn("answer", folder, "r1", 0.05, ())
    return QueueCarrier().ask(None, turn)  # type: ignore[arg-type]  # what is asked does not matter


def result(folder: Path) -> object:
    spec = TrialSpec.model_construct(trial="t", branch="b0", seed=1, cpu_limit_s=None)
    return LocalExecutor(folder, 1).result(spec)


PLACES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "an entry of the cache": ("x.trial", lambda f: CacheEntry(f / "x.trial")),
    "what a writer of the cache left": ("tmp/left", lambda f: TrialCache(f, "0" * 16, 1 << 20).open()),
    "a heartbeat": ("heartbeat", read_heartbeat),
    "heartbeats, to be shown": ("trials/t/heartbeat", read_heartbeats),
    "an error, to be shown": ("trials/t/error", read_errors),
    "a specification": ("spec.json", read_spec),
    "a result": ("trials/t/result.json", result),
    "where a trial's files are": ("places.json", read_places),
    "an earlier training": ("start/trained.json", read_note),
    "an answer of the queue": ("answer.answer.json", asked),
    "an answer of a program": ("answer.json", lambda f: _written_answer(f / "answer.json")),
    "a skill": ("skill/SKILL.md", lambda f: check_format(f / "skill")),
    "evidence of a skill": ("skill/evidence.json", lambda f: (content_hash(f / "skill"), check_skill(f / "skill"))),
    "a library": ("one/evidence.json", read_library),
    "the note on a ledger": ("ledger.head", lambda f: read_head(f / "ledger.db")),
    "the task of a run": ("task.toml", read_settings),
    "a task file": ("task.toml", lambda f: load_task(f / "task.toml")),
    "a writer's lock": ("lock", lambda f: writer_of(f / "lock")),
    "a lock to be taken": ("lock", lambda f: WriterLock(f / "lock", "it")),
    "a part": ("part-00000.parquet", stored_parts),
    "a part's checksum": ("part-0.parquet.sha256", lambda f: read_checksum(f / "part-0.parquet")),
    "a file that is hashed": ("x", lambda f: "as long as it takes" if (f / "x").is_file() else sha256_file(f / "x")),
    "an import": ("x.jsonl", lambda f: detect(f / "x.jsonl")),
    "the beginning of an import": ("x.jsonl", lambda f: (is_compressed(f / "x.jsonl"), Source(f / "x.jsonl").head)),
    "lines of an import": ("x.jsonl", lambda f: [n for n, _ in lines(f / "x.jsonl")][:1]),
    "one value of an import": (
        "x.json",
        lambda f: "read in full" if (f / "x.json").is_file() else read_json(f / "x.json"),
    ),
    "rows": ("x.jsonl", lambda f: "read in full" if (f / "x.jsonl").is_file() else read_file(f / "x.jsonl")),
    "a user's code": ("x.py", lambda f: "read in full" if (f / "x.py").is_file() else load_module(f / "x.py")),
    "a verdict on a task": ("x.json", lambda f: Cache(f).get("x")),
    "a report": ("report.html", check_report),
    "an archive": ("x.eval", lambda f: Archive(f / "x.eval")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_whatever_lies_in_the_place_of_a_file_is_told_at_once(place: str, kind: str, tmp_path: Path) -> None:
    name, read = PLACES[place]
    made(kind, tmp_path / name)
    said = "nothing amiss"
    with at_once():
        try:
            read(tmp_path)
        except (EvoTrainerError, OSError, ValueError) as e:
            said = str(e)
    assert said and "\n" not in said, "one line"


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "too large"])
def test_the_error_names_what_lies_there_and_is_one_for_every_reader(kind: str, tmp_path: Path) -> None:
    made(kind, tmp_path / "x")
    said = {"pipe": "is a named pipe, no", "socket": "is a socket", "folder": "is a folder", "device": "is a device"}
    for read in (read_bytes, read_text):
        with at_once(), pytest.raises(UnreadableError, match=said.get(kind, "has more than 268,435,456 bytes")) as e:
            read(tmp_path / "x")
        assert isinstance(e.value, StoreError) and isinstance(e.value, OSError) and str(tmp_path / "x") in str(e.value)
    if kind != "too large":
        with pytest.raises(UnreadableError):
            check_regular(tmp_path / "x")
        with pytest.raises(OSError, match="no regular file"):
            open_regular(tmp_path / "x")


def test_a_regular_file_is_read_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one\r\ntwo\n")
    assert read_bytes(path) == b"one\r\ntwo\n" and read_text(path) == "one\ntwo\n" == path.read_text()
    (tmp_path / "link").symlink_to("x")
    assert read_bytes(tmp_path / "link", 9) == read_bytes(path)
    with pytest.raises(UnreadableError, match="more than 8 bytes"):
        read_bytes(path, 8)
    with pytest.raises(OSError, match="symbolic link"):
        read_bytes(tmp_path / "link", flags=os.O_NOFOLLOW)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")
    assert read_text(Path("/proc/self/stat")), "a file that tells no size"


def test_a_first_line_that_is_too_long_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evotrainer.importers.lenient_json.MAX_LINE", 200_000)
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"task": "t", "text": "' + 300_000 * "a" + '"}\n' + 2 * '{"task": "t", "text": "b", "reward": 1}\n'
    )
    assert Source(path).first == {"task": "t", "text": "b", "reward": 1} and detect(path).name == "jsonl"
    assert [(n, line is None) for n, line in lines(path)] == [(1, True), (2, False), (3, False)]
    (packed := tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert Source(packed).first == Source(path).first and beginning(packed, 8) == b'{"task":'


def test_more_components_than_anybody_reads_are_left_out_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evotrainer.studies.audit.bulk import FileStretch, ImportResult, stream

    monkeypatch.setenv("EVOTRAINER_CAP_COMPONENTS", "3")
    path = tmp_path / "x.jsonl"
    rows = [f'{{"task": "t{i}", "text": "b", "reward": 1, "components": {{"c{i}": 1, "same": 1}}}}\n' for i in range(5)]
    path.write_text("".join(rows))
    done = ImportResult()
    found = [set(r.components) for r in stream([FileStretch(path, "jsonl")], done)]
    assert found == [{"c0", "same"}, {"c1", "same"}, {"same"}, {"same"}, {"same"}]
    assert [(s.where, s.reason.split(";")[0]) for s in done.skipped] == [
        (str(path), "has more than 3 distinct names of components")
    ]


def test_what_lies_in_the_place_of_rows_or_code_is_named(tmp_path: Path) -> None:
    for name, read in {"x.jsonl": lambda p: read_source(str(p), "own"), "x.py": load_module}.items():
        made("pipe", tmp_path / name)
        with at_once(), pytest.raises(TaskSetError, match=rf"{name} is a named pipe, no file"):
            read(tmp_path / name)
        with pytest.raises(TaskSetError, match="no file "):
            read(tmp_path / f"none-{name}")
