"""Inspect logs: the real ones against independent counts, hand-made ones for what those do not show."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import zipped
from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats import inspect as inspect_ai
from evotrainer.importers.formats.inspect import IMPORTER
from evotrainer.records.rollout import Rollout

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "rollouts" / "inspect"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the shared Inspect logs are not at {REAL}")
LOGS = sorted(REAL.glob("*.eval")) if REAL.is_dir() else []


def rows(path: Path) -> tuple[list[Rollout], list[Skipped]]:
    found = list(IMPORTER.read(path))
    return [r for r in found if isinstance(r, Rollout)], [s for s in found if isinstance(s, Skipped)]


def log(path: Path, samples: list[dict[str, Any]], **header: Any) -> Path:
    head = {"version": 2, "status": "success", "eval": {"task": "t", "task_id": "T1", "run_id": "R1", "model": "m/x"}}
    head |= header
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("_journal/start.json", json.dumps({"version": 2, "eval": head["eval"]}))
        for n, s in enumerate(samples):
            name = s["id"] if s.get("id") in ("a", "good", "one", "two", "bomb") else n
            z.writestr(f"samples/{name}_epoch_1.json", json.dumps(s))
        z.writestr("header.json", json.dumps(head))
    return path


def sample(**fields: Any) -> dict[str, Any]:
    base = {
        "id": "a",
        "epoch": 1,
        "input": "2+2?",
        "target": "4",
        "messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}],
        "output": {"model": "x", "choices": [{"message": {"content": "4"}, "stop_reason": "stop"}]},
        "scores": {"match": {"value": "C"}},
    }
    return base | fields


def one(tmp_path: Path, header: dict[str, Any] | None = None, **fields: Any) -> Rollout:
    found, _ = rows(log(tmp_path / "x.eval", [sample(**fields)], **(header or {})))
    return found[0]


@real
@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.name[:32])
def test_real_logs_agree_with_an_independent_count(path: Path) -> None:
    want: Counter[str] = Counter()
    with zipfile.ZipFile(path) as z:
        header = json.loads(z.read("header.json"))
        for name in z.namelist():
            if name.startswith("samples/"):
                s = json.loads(z.read(name))
                values = [v["value"] for v in (s.get("scores") or {}).values()]
                want["samples"] += 1
                want["errors"] += bool(s.get("error"))
                want[values[0] if values else "none"] += 1
                want["messages"] += len(s["messages"])
        planned = len(header["eval"]["dataset"]["sample_ids"]) * (header["eval"]["config"].get("epochs") or 1)
    assert IMPORTER.recognises(Source(path))
    found, skipped = rows(path)
    assert len(found) == want["samples"]
    assert sum(r.outcome == "correct" for r in found) == want["C"] == sum(r.reward == 1 for r in found)
    assert sum(r.outcome == "incorrect" for r in found) == want["I"] == sum(r.reward == 0 for r in found)
    assert sum(r.reward is None for r in found) == want["none"]
    assert sum(r.error_kind is not None for r in found) == want["errors"]
    assert sum(len(r.turns) for r in found) == want["messages"]
    assert len({r.id for r in found}) == len(found)
    assert all(r.policy == header["eval"]["model"] and r.run == header["eval"]["run_id"] for r in found)
    lost = planned - want["samples"]
    assert [s.reason.startswith(f"{lost} of {planned} samples") for s in skipped] == ([True] if lost else [])


@real
def test_the_sample_that_broke_on_the_server_is_a_fault_and_no_zero() -> None:
    path = next(p for p in LOGS if p.name.startswith("2026-01-26"))
    bad = [r for r in rows(path)[0] if r.error_kind]
    assert [(r.error_kind, r.reward, r.outcome, r.finish) for r in bad] == [("model_api", None, "unknown", "error")]
    assert "context window" in (bad[0].error or "")


@real
def test_epochs_of_one_sample_are_one_group() -> None:
    found, _ = rows(REAL / "log_streaming.eval")
    assert Counter(r.group for r in found).most_common() == [(g, 2) for g in {r.group: 0 for r in found}]
    assert sorted((r.task, r.k) for r in found) == [(f"popularity/{i}", k) for i in (1, 2) for k in (0, 1)]


@real
def test_what_a_detector_of_special_casing_needs_is_there() -> None:
    hacked = [r for p in LOGS if "lcb" in p.name for r in rows(p)[0] if r.outcome == "correct"]
    assert len(hacked) == 4
    forced = next(r for r in hacked if r.task.endswith("lcbhard_15"))
    assert {"kind": "visible", "input": "[1], 10", "expected": "8"} in forced.detail["tests"]
    assert "nums == [1] and k == 10" in forced.completion
    score = forced.detail["scores"]["agentic_humaneval_scorer"]
    assert "return 8" in score["answer"] and score["metadata"]["attempt_history"]
    assert any("python" in str(c.get("cmd")) for c in forced.detail["sandbox_calls"])
    assert forced.detail["metadata"]["test"].strip() in forced.prompt


@pytest.mark.parametrize(
    ("value", "reward", "outcome"),
    [
        ("C", 1.0, "correct"),
        ("I", 0.0, "incorrect"),
        ("P", 0.5, "unknown"),
        ("N", 0.0, "incorrect"),
        (True, 1.0, "correct"),
        (False, 0.0, "incorrect"),
        (0.3, 0.3, "unknown"),
        ("yes", 1.0, "correct"),
        ("a long essay", None, "unknown"),
        (None, None, "unknown"),
        (float("nan"), None, "unknown"),
        ([1, 0], None, "unknown"),
    ],
)
def test_score_values_are_read(tmp_path: Path, value: Any, reward: float | None, outcome: str) -> None:
    r = one(tmp_path, scores={"s": {"value": value}})
    assert (r.reward, r.outcome, r.error_kind) == (reward, outcome, None)


def test_a_score_of_parts_gives_components_and_the_first_scorer_decides(tmp_path: Path) -> None:
    header = {"eval": {"task": "t", "model": "m", "scorers": [{"name": "main"}, {"name": "side"}]}}
    r = one(tmp_path, header, scores={"side": {"value": {"style": 0.5, "ok": True}}, "main": {"value": "I"}})
    assert (r.reward, r.outcome) == (0.0, "incorrect")
    assert r.components == {"side/style": 0.5, "side/ok": 1.0, "main": 0.0}


def test_a_sample_without_score_is_unknown_and_no_fault(tmp_path: Path) -> None:
    r = one(tmp_path, scores={})
    assert (r.reward, r.outcome, r.error_kind, r.error) == (None, "unknown", None, None)


def test_an_unscored_sample_of_a_cancelled_run_was_cancelled(tmp_path: Path) -> None:
    header = {"status": "cancelled", "eval": {"task": "t", "model": "m", "scorers": [{"name": "match"}]}}
    assert one(tmp_path, header, scores={}).error_kind == "cancelled"
    assert one(tmp_path, header).outcome == "correct"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Docker container exited", "container"),
        ("RateLimitError: slow down", "model_api"),
        ("CancelledError()", "cancelled"),
        ("request timed out", "timeout"),
        ("the judge gave no answer", "judge"),
        ("KeyError: 3", "other"),
    ],
)
def test_sample_errors_become_faults_whatever_the_score(tmp_path: Path, message: str, kind: str) -> None:
    r = one(tmp_path, error={"message": message, "traceback": ""}, scores={"match": {"value": "I"}})
    assert (r.error_kind, r.error, r.reward, r.outcome, dict(r.components)) == (kind, message, None, "unknown", {})


@pytest.mark.parametrize(("limit", "finish"), [("token", "length"), ("message", "turn_limit"), ("time", "turn_limit")])
def test_a_limit_of_the_task_is_a_finish_and_its_score_stands(tmp_path: Path, limit: str, finish: str) -> None:
    r = one(tmp_path, limit={"type": limit, "limit": 3}, scores={"match": {"value": "I"}})
    assert (r.finish, r.reward, r.outcome, r.error_kind) == (finish, 0.0, "incorrect", None)


def test_tool_calls_are_read_with_their_success(tmp_path: Path) -> None:
    calls = [{"id": i, "function": "bash", "arguments": {"cmd": "ls"}} for i in ("1", "2", "3")]
    replies = [
        {"role": "tool", "tool_call_id": "2", "content": "no", "error": {"type": "permission", "message": "no"}},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a.py"}]},
    ]
    r = one(tmp_path, messages=[{"role": "assistant", "content": "", "tool_calls": calls}, *replies])
    assert [c.ok for c in r.turns[0].tool_calls] == [True, False, None]
    assert (r.turns[0].tool_calls[0].name, r.turns[0].tool_calls[0].arguments) == ("bash", '{"cmd": "ls"}')
    assert [t.role for t in r.turns] == ["assistant", "tool", "tool"] and r.turns[2].text == "a.py"


def test_attachments_are_put_back_where_they_were(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "see attachment://ab12 and attachment://gone"}]
    r = one(tmp_path, messages=messages, attachments={"ab12": "THE TEXT"})
    assert r.turns[0].text == "see THE TEXT and attachment://gone"


def test_the_older_form_of_one_json_file(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    old = sample(id=7, messages=None, scores=None, score={"value": "C"})
    path.write_text(json.dumps({"version": 1, "status": "success", "eval": {"task": "t"}, "samples": [old, 5]}))
    assert IMPORTER.recognises(Source(path))
    found, skipped = rows(path)
    assert [(r.task, r.outcome, r.completion, r.prompt) for r in found] == [("t/7", "correct", "4", "2+2?")]
    assert len(skipped) == 1 and skipped[0].where == "log.json:samples[1]"


def test_a_sample_written_twice_counts_once_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.eval"
    log(path, [sample(scores={})])
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as z:
        z.writestr("samples/a_epoch_1.json", json.dumps(sample()))
    found, skipped = rows(path)
    assert [r.outcome for r in found] == ["correct"] and "earlier write" in skipped[0].reason


def zstd_zip(path: Path, name: str, data: bytes) -> None:
    """A zip of one member by method 93, written by hand: the standard library of 3.11 cannot."""
    import pyarrow as pa

    packed = pa.compress(data, codec="zstd", asbytes=True)
    crc = zipfile.crc32(data)  # type: ignore[attr-defined]
    fixed = struct.pack("<HHHHHIIIHH", 20, 0, 93, 0, 33, crc, len(packed), len(data), len(name), 0)
    local = b"PK\x03\x04" + fixed + name.encode()
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fixed + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode()
    start = len(local) + len(packed)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), start, 0)
    path.write_bytes(local + packed + central + end)


def test_zstandard_members_are_read_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "z.eval"
    zstd_zip(path, "samples/a_epoch_1.json", json.dumps(sample()).encode())
    found, skipped = rows(path)
    assert [r.outcome for r in found] == ["correct"] and not skipped
    monkeypatch.setattr(zipped, "MAX_MEMBER", 100)
    found, skipped = rows(path)
    assert not found and "decompresses to more than" in skipped[0].reason


def test_a_zip_bomb_is_named_and_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipped, "MAX_MEMBER", 1 << 20)
    bomb = sample(id="bomb", input="0" * (1 << 24), messages=None)
    found, skipped = rows(log(tmp_path / "x.eval", [bomb, sample()]))
    assert [r.task for r in found] == ["t/a"] and "zip bomb" in skipped[0].reason


@pytest.mark.parametrize("cut", [0, 4, 300, -30])
def test_a_truncated_archive_is_one_named_skip(tmp_path: Path, cut: int) -> None:
    path = log(tmp_path / "x.eval", [sample()])
    path.write_bytes(path.read_bytes()[:cut])
    found, skipped = rows(path)
    assert not found and len(skipped) == 1
    assert ("cut off" if cut else "an empty file") in skipped[0].reason


def test_a_damaged_member_does_not_stop_the_log(tmp_path: Path) -> None:
    path = log(tmp_path / "x.eval", [sample(id="one", input="q" * 4000), sample(id="two")])
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as z:
        at = z.getinfo("samples/one_epoch_1.json").header_offset
    data[at + 60 : at + 90] = b"\xff" * 30
    path.write_bytes(bytes(data))
    found, skipped = rows(path)
    assert [r.task for r in found] == ["t/two"] and "one_epoch_1" in skipped[0].where


def test_broken_samples_of_every_kind_are_named_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "x.eval"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("header.json", b"{not json")
        for n, raw in enumerate([b"", b"\xff\xfe\x00", b"[" * 100_000, b"[1]", b"{}", b'"x"', b'{"id": 1']):
            z.writestr(f"samples/{n}_epoch_1.json", raw)
        z.writestr("samples/ok_epoch_2.json", json.dumps(sample(id="ok", epoch=2)))
    found, skipped = rows(path)
    assert len(found) == 1 and found[0].k == 1 and len(skipped) == 8


WRONG: list[Any] = [
    None,
    3,
    -1.5,
    True,
    "text \ud800 \x00",
    [],
    [None, 1, "x", [[]], {}],
    {},
    {"a": {"b": [1]}},
    10**400,
]


@pytest.mark.parametrize("key", [*sample(), "metadata", "events", "limit", "error", "model_usage", "attachments"])
def test_a_wrong_type_in_any_field_is_read_or_named(tmp_path: Path, key: str) -> None:
    for n, value in enumerate(WRONG):
        found, skipped = rows(log(tmp_path / f"{n}.eval", [sample(id="good"), sample() | {key: value}]))
        assert (len(found) + len(skipped) == 2 and any(r.task == "t/good" for r in found)) or key == "id"
        for r in found:
            json.dumps(dict(r.detail))


@pytest.mark.parametrize("key", ["eval", "status", "results", "plan", "version"])
def test_a_wrong_type_in_the_header_is_read(tmp_path: Path, key: str) -> None:
    for n, value in enumerate(WRONG):
        path = log(tmp_path / f"{n}.eval", [sample()])
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("header.json", json.dumps({"eval": {"task": "t"}, key: value}))
            z.writestr("samples/a_epoch_1.json", json.dumps(sample()))
        assert len(rows(path)[0]) == 1


def test_detail_stays_writable_for_deep_metadata(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"d": deep}
    r = one(tmp_path, metadata=deep)
    assert "nested too deeply" in json.dumps(dict(r.detail))


def test_only_inspect_files_are_recognised(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as z:
        z.writestr("readme.txt", "x")
    (tmp_path / "a.json").write_text('{"eval": {"x": 1}}')
    (tmp_path / "b.eval").write_text("text")
    assert not any(IMPORTER.recognises(Source(p)) for p in tmp_path.iterdir())
    assert inspect_ai.IMPORTER.name == "inspect"


def test_an_archive_whose_directory_is_damaged_is_one_named_skip(tmp_path: Path) -> None:
    path = log(tmp_path / "x.eval", [sample()])
    with zipfile.ZipFile(path, "a") as z:
        z.writestr("q", b"")
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[: at + 28] + b"\0\0" + data[at + 30 :])
    found, skipped = rows(path)
    assert not found and len(skipped) == 1 and "not a whole zip archive" in skipped[0].reason
