"""Faults that decide: those of a format's own fields. What only speaks of an error keeps its reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import read
from evotrainer.importers.faults import EVERY_REPLY, silence
from evotrainer.importers.formats import inspect as inspect_ai
from evotrainer.records.rollout import Rollout
from tests.importers.test_inspect import log, sample


def jsonl(tmp_path: Path, **fields: Any) -> Rollout:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"task": "t", "text": "4", "reward": 0.0} | fields) + "\n")
    ((_, _, r),) = read([path])
    assert isinstance(r, Rollout)
    return r


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"error_kind": "judge"}, "judge"),
        ({"error": "it broke"}, "other"),
        ({"mask_sample": True}, "masked"),
        ({"judge_error": "rate limited"}, None),
        ({"failure_mode": "sandbox_timeout"}, None),
        ({"judge_response": ""}, None),
        ({"exception": "openai.RateLimitError: slow down"}, None),
    ],
)
def test_only_the_formats_own_fields_take_the_reward_away(
    tmp_path: Path, fields: dict[str, Any], kind: str | None
) -> None:
    r = jsonl(tmp_path, **fields)
    assert (r.error_kind, r.reward) == (kind, None if kind else 0.0)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["API error", "API error (id 3fa9)"], "API error (id #fa#)"),
        (["Tool call failed, connection refused\n  at x"], "Tool call failed, connection refused"),
        (["API error", "3 files"], None),
        (["Error: invalid action"] * 3, None),
        (["connection.py", "api.py"], None),
        (["Error: command timed out"] * 3, None),
        (["ok", "ok"], None),
    ],
)
@pytest.mark.parametrize("role", ["tool", "user"])
def test_errors_of_an_api_that_answered_every_action_are_noted(
    tmp_path: Path, role: str, said: list[str], found: str | None
) -> None:
    turns = [{"role": "user", "text": "book a flight"}]
    for words in said:
        turns += [{"role": "assistant", "text": "search()"}, {"role": role, "text": words}]
    r = jsonl(tmp_path, text=None, turns=turns)
    assert (r.error_kind, r.reward, r.detail.get(EVERY_REPLY)) == (None, 0.0, found)


LONG = "Error code: 400 - This model's maximum context length is 8192 tokens"


def test_a_context_that_the_policy_filled_is_no_fault(tmp_path: Path) -> None:
    r = jsonl(tmp_path, error=LONG)
    assert (r.error_kind, r.reward, r.finish, r.detail["ended"]) == (None, 0.0, "length", LONG)
    assert jsonl(tmp_path, error=LONG, text="").error_kind == "other", "a prompt too long is somebody else's"
    assert jsonl(tmp_path, error=LONG, error_kind="model_api").error_kind == "model_api", "said by hand, it stands"
    assert jsonl(tmp_path, error="Rate limit: 8192 tokens per minute").error_kind == "other"


def reply(content: Any, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content}, **choice}]}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (reply(""), "empty"),
        (reply([]), "empty"),
        (reply("A", finish_reason="stop"), None),
        (reply("", finish_reason="content_filter"), "filtered"),
        (reply([], stop_reason="content_filter"), "filtered"),
        ({"choices": [{"message": {"content": None, "tool_calls": [{"name": "grade"}]}}]}, None),
        ({"output": [], "status": "failed", "error": {"code": "server_error"}}, "errored"),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "[[A=B]]"}]}]}, None),
        ({"response": {"output": []}, "verdict_label": None}, "empty"),
        ({"response": reply("no idea"), "verdict_label": None}, "unparsable"),
        ({"response": reply("[[A=B]]"), "verdict_label": "[[A=B]]"}, None),
        ({"score": 0.2}, None),
    ],
)
def test_a_judges_reply_is_silent_or_not(value: dict[str, Any], found: str | None) -> None:
    assert silence(value) == found


def scored(*replies: dict[str, Any], older: bool = False, score: Any = None) -> dict[str, Any]:
    """A sample whose scorer got these replies of a model."""
    begin: list[dict[str, Any]] = [
        {"event": "span_begin", "id": "s", "type": "scorers", "name": "scorers"},
        {"event": "span_begin", "id": "q", "parent_id": "s", "type": "scorer", "name": "qa"},
        {"event": "span_begin", "id": "in", "parent_id": "q", "type": "subtask", "name": "ask"},
    ]
    if older:
        begin = [{"event": "step", "action": "begin", "type": "scorer", "name": "qa"}]
    said = [{"event": "model", "model": "j", "span_id": "" if older else "in", **r} for r in replies]
    own = {"event": "model", "model": "m/x", "span_id": "solve", "output": reply("", stop_reason="stop")}
    return sample(events=[own, *begin, *said], scores=score or {"qa": {"value": "I"}})


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ([{"output": reply([], stop_reason="content_filter")}], "filtered"),
        ([{"output": reply("")}], "empty"),
        ([{"output": {}, "error": "overloaded"}], "errored"),
        ([{"output": reply("a thought")}, {"output": reply("")}], "empty"),
        ([{"output": reply("")}, {"output": reply("GRADE: I")}], None),
        ([{"output": reply("")}, {"model": "second judge", "output": reply("GRADE: I")}], None),
        ([], None),
    ],
)
def test_a_scorer_whose_model_gave_no_verdict_is_a_judges_fault(
    tmp_path: Path, older: bool, replies: list[dict[str, Any]], why: str | None
) -> None:
    path = log(tmp_path / "x.eval", [scored(*replies, older=older)])
    (r,) = (x for x in inspect_ai.IMPORTER.read(path) if isinstance(x, Rollout))
    if why is None:
        assert (r.error_kind, r.reward) == (None, 0.0)
    else:
        assert (r.error_kind, r.reward, r.outcome, r.components) == ("judge", None, "unknown", {})
        assert r.error == f"qa: the reply of the model that scores is {why}"


def test_a_second_scorer_without_verdict_costs_its_component_only(tmp_path: Path) -> None:
    silent = scored({"output": reply("")}, score={"match": {"value": "C"}, "qa": {"value": "I"}})
    (r,) = (x for x in inspect_ai.IMPORTER.read(log(tmp_path / "x.eval", [silent])) if isinstance(x, Rollout))
    assert (r.error_kind, r.reward, r.components) == (None, 1.0, {"match": 1.0})


def test_a_grade_that_inspect_did_not_find_is_no_wrong_answer(tmp_path: Path) -> None:
    score = {"qa": {"value": "I", "explanation": "Grade not found in model output: I cannot say."}}
    path = log(tmp_path / "x.eval", [sample(scores=score)])
    (r,) = (x for x in inspect_ai.IMPORTER.read(path) if isinstance(x, Rollout))
    assert (r.error_kind, r.reward) == ("judge", None) and "unparsable" in (r.error or "")


def test_a_sample_that_was_invalidated_is_masked(tmp_path: Path) -> None:
    path = log(tmp_path / "x.eval", [sample(invalidation={"author": "me", "reason": "wrong image"})])
    (r,) = (x for x in inspect_ai.IMPORTER.read(path) if isinstance(x, Rollout))
    assert (r.error_kind, r.error, r.reward) == ("masked", "invalidated: wrong image", None)
