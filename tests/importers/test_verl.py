"""verl's rollout and validation dumps."""

from __future__ import annotations

import json
from pathlib import Path

from evotrainer.importers.base import Source
from evotrainer.importers.formats.verl import IMPORTER
from evotrainer.importers.jsonl import IMPORTER as JSONL
from evotrainer.records.rollout import Rollout
from evotrainer.testing import check_importer

PROMPT = "system\nYou are helpful.\nuser\nWhat is 2+2?\nassistant\n"


def dump(folder: Path, step: int, rows: list[dict[str, object]]) -> Path:
    """As verl's trainer writes it: one object a line, named by the step."""
    path = folder / f"{step}.jsonl"
    path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n")
    return path


def read(path: Path) -> list[Rollout]:
    return [r for r in IMPORTER.read(path) if isinstance(r, Rollout)]


def test_a_dump_with_the_verdict_of_the_reward_function(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"input": PROMPT, "output": f"It is {i}", "gts": "4", "score": s, "step": 12, "acc": a, "pred": str(i)}
        for i, (s, a) in enumerate([(1.0, True), (-1.0, False), (-1.0, False), (1.0, 1.0)])
    ]
    path = dump(tmp_path, 12, rows)
    check_importer(IMPORTER, path, count=4)
    assert not JSONL.recognises(Source(path))
    out = read(path)
    assert [r.outcome for r in out] == ["correct", "incorrect", "incorrect", "correct"]
    assert [r.reward for r in out] == [1, -1, -1, 1]
    assert [r.k for r in out] == [0, 1, 2, 3] and len({r.group for r in out}) == 1 and len({r.task for r in out}) == 1
    r = out[1]
    assert r.step == 12 and r.prompt == PROMPT and r.completion == "It is 1"
    assert r.detail["gts"] == "4" and r.detail["pred"] == "1" and r.components == {"acc": 0.0}


def test_a_score_alone_is_no_verdict_and_older_dumps_have_no_gts(tmp_path: Path) -> None:
    (r,) = read(dump(tmp_path, 3, [{"input": "q", "output": "a", "score": 0.5, "step": 3, "format": 1.0}]))
    assert (r.reward, r.outcome, r.components, r.step) == (0.5, "unknown", {"format": 1.0}, 3)
    (r,) = read(dump(tmp_path, 4, [{"input": "q", "output": "a", "gts": None, "score": None}]))
    assert (r.reward, r.outcome, r.step, r.error_kind) == (None, "unknown", 4, None)


def test_an_agents_calls_are_read_from_the_text(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call>'
    output = f"I look.\n{call}\nuser\n<tool_response>\nError: nothing\n</tool_response>\nassistant\nSo: none."
    (r,) = read(dump(tmp_path, 1, [{"input": "q", "output": output, "gts": "", "score": 0, "step": 1}]))
    assert [t.role for t in r.turns] == ["user", "assistant", "tool", "assistant"]
    (made,) = r.turns[1].tool_calls
    assert (made.name, made.arguments, made.ok) == ("search", '{"q": "x"}', False)
    assert r.turns[2].text == "Error: nothing" and r.turns[3].text == "So: none."
