"""Faults that others' records name in fields of their own, and those that only look like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import inspect_ai, read
from evotrainer.importers.faults import ending, named_fault
from evotrainer.importers.foreign import words_of
from evotrainer.importers.judges import silence
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
        ({"judge_error": "rate limited"}, "judge"),
        ({"invalid_judge_response": True}, "judge"),
        ({"reward_model_timeout": 1}, "judge"),
        ({"verifier_timed_out": True}, "judge"),
        ({"eval_timed_out": True}, "judge"),
        ({"judge_response": ""}, "judge"),
        ({"info": {"graderCrashed": True}}, "judge"),
        ({"container_failed": True}, "container"),
        ({"docker_error": "no space left"}, "container"),
        ({"llm_error": "overloaded"}, "model_api"),
        ({"failure_mode": "sandbox_timeout"}, "container"),
        ({"failure_mode": "agent_installation_failed"}, "container"),
        ({"failure_mode": "test_timeout"}, "timeout"),
        ({"failure_mode": "unknown_agent_error"}, "other"),
        ({"exit_reason": "cancelled"}, "cancelled"),
        ({"status": "infra_fail", "detail": "no route to host"}, "container"),
        ({"info": {"status": "infra_error", "reason": "judge timed out"}}, "judge"),
        ({"verdict": "judge_error"}, "judge"),
        ({"judge_response": "I cannot decide", "judge_score": None}, "judge"),
        ({"judge_output": {"error": "429"}}, "judge"),
        ({"judge_output": "Error code: 429 - rate limit"}, "judge"),
        ({"grader_reply": "ERROR: the server is overloaded"}, "judge"),
        ({"judge_reply": "ERROR: timed out"}, "judge"),
        ({"judge_reply": "upstream connect error or disconnect/reset before headers"}, "judge"),
        ({"judge_reply": "502 Bad Gateway"}, "judge"),
        ({"judge_reply": "<html><head><title>503 Service Unavailable</title></head></html>"}, "judge"),
        ({"judge_output": "Rate limit reached for the model in this organization"}, "judge"),
        ({"judge_output": "You exceeded your current quota, please check your plan"}, "judge"),
        ({"grader_output": "litellm.RateLimitError: try again later"}, "judge"),
        ({"judge_response": "Request timed out."}, "judge"),
        ({"judge_response": "Failed to get a response from the model"}, "judge"),
        ({"judge_response": "Traceback (most recent call last):\n  File ..."}, "judge"),
        ({"judge_response": "ERROR"}, "judge"),
        ({"judge_response": "No response"}, "judge"),
        ({"judge_response": [{"role": "assistant", "content": ""}]}, "judge"),
        ({"judge_messages": [{"role": "user", "content": "grade"}, {"role": "assistant", "content": None}]}, "judge"),
        ({"judge": {"role": "assistant", "content": [{"type": "text", "text": " "}]}}, "judge"),
        ({"judge_response": {"message": {"role": "assistant", "content": "Error: 503"}}}, "judge"),
        ({"judge_response": {"choices": [{"message": {"content": "APITimeoutError"}}]}}, "judge"),
        ({"judge_verdict": "PARSE_ERROR"}, "judge"),
        ({"judge_verdict": None, "judge_reasoning": "both are good"}, "judge"),
        ({"judge_finish_reason": "content_filter"}, "judge"),
        ({"judge": {"response": "", "score": 0}}, "judge"),
        ({"judge": {"raw": "so so", "score": None}}, "judge"),
        ({"judge_parse_failed": True}, "judge"),
        ({"judge_parsed": False}, "judge"),
        ({"judge_response": "I’m sorry, but I cannot assist with this content."}, "judge"),
        *(
            ({"judge_response": "I'm sorry, but I can't assist with that.", **beside}, "judge")
            for beside in (
                {"judge_score": 0.0},
                {"score": 0},
                {"passed": False},
                {"judge_score": -1},
                {"verdict": "error"},
                {"judge_verdict": "unknown"},
                {"score_text": "none"},
                {"judge_score": "0.0"},
            )
        ),
        ({"judge": {"response": "I can't help with that.", "score": 0}}, "judge"),
        ({"judge_output": '{"reasoning": "the two', "judge_score": -1}, "judge"),
        ({"judge_reply": "First I look", "judge_stop_reason": "max_tokens", "passed": "unknown"}, "judge"),
        ({"judge_output": '```json\n{"reasoning": "the two dates'}, "judge"),
        ({"judge_reply": "First I look at the units. They", "judge_stop_reason": "max_tokens"}, "judge"),
        ({"reward_model_output": "Traceback (most recent call last):\n... torch.OutOfMemoryError: 2.1 GiB"}, "judge"),
        ({"judge_reply": "", "format_error": 0, "format": "boxed", "judge_called": True}, "judge"),
        ({"judges": [{"reply": "", "score": None}, {"reply": " ", "score": None}]}, "judge"),
        ({"judge_responses": ["", ""]}, "judge"),
        ({"components": {"judge_error": 1.0}}, "judge"),
        ({"judge_output": '{"reasoning": "the two', "reward": 0.0, "correct_answer": "Rome"}, "judge"),
        ({"error_message": "Error code: 503 - overloaded"}, "model_api"),
        ({"exception": "openai.RateLimitError: slow down"}, "model_api"),
        ({"traceback": "Traceback ...\n  x\ndocker.errors.APIError: 500 Server Error"}, "container"),
        ({"failure_reason": "rate_limit"}, "model_api"),
        ({"exit_status": "APIError"}, "model_api"),
        ({"exit_status": "exit_api"}, "model_api"),
        ({"failure_mode": "worker_died"}, "other"),
        ({"failure_mode": "preempted"}, "cancelled"),
        ({"failure_mode": "no_verdict"}, "judge"),
        ({"finish_reason": "abort"}, "cancelled"),
        ({"text": "", "http_status": 503}, "model_api"),
        ({"text": "", "exception_type": "RuntimeError"}, "other"),
        ({"text": "", "exception_info": "docker.errors.ImageNotFound: no such image"}, "container"),
    ],
)
def test_a_field_that_names_a_fault_takes_the_reward_away(tmp_path: Path, fields: dict[str, Any], kind: str) -> None:
    r = jsonl(tmp_path, **fields)
    assert (r.error_kind, r.reward, r.outcome) == (kind, None, "unknown")
    assert r.detail["reward_of_fault"] == 0.0 and r.error
    assert jsonl(tmp_path, **(fields | {"reward": 1.0})).error_kind is None, "what was paid was graded"


@pytest.mark.parametrize(
    "fields",
    [
        {"judge_error": None},
        {"status": "failed", "detail": "docker build of the answer failed"},
        {"status": "error"},
        {"status": "timeout"},
        {"result": "the server of the answer crashed: its sandbox is there and the error is its own, in many words"},
        {"judge_error": "none"},
        {"judge_response": None},
        {"failure_reason": "judge_evaluation_failed"},  # the judge's verdict, in the words of a real server
        {"failure_reason": "model_output_invalid"},
        {"failure_mode": "agent_timeout"},
        {"failure_mode": "context_length_exceeded"},
        {"error_type": "parse_error"},
        {"execution_error": "NameError"},
        {"sandbox_timeout": True},  # may be the program's own endless loop
        {"env_id": "error-prone-env"},
        {"invalid_env_action": True},
        {"tool_server_error_count": 1},
        {"exception_type": "RuntimeError"},  # after the policy spoke: for the audit to ask about
        {"text": "", "agent_error_kind": "other"},
        {"sandbox_code_error": "SyntaxError"},
        {"judge_responses": ["", "A"]},  # one judge of two answered
        {"judge_score": None},  # nobody was asked, for all that is known
        {"judge_reply": "", "judge_skipped": True},
        {"judge_reply": "", "info": {"judge_called": False}},
        {"judge_response": "", "components": {"format_reward": 0.0}},
        {"judge_reply": "", "judge_called": 0},
        {"judge_reply": "", "components": {"used_judge": 0.0}},
        {"judge_response": "", "has_valid_format": False},
        {"judge_response": "I'm sorry, but I can't do better than a score of 0 here."},
        {"judge_response": '{"score": 0, "why": "it names the wrong ci'},
        {"judge_response": '{"score": 0, "why": "a { is missing"}'},
        {"judge_response": "The model answers: I'm sorry, I can't help with that."},
        {"judge_reply": "No. The units differ, so", "judge_finish_reason": "length"},
        {"judge_reply": "[[B]] because the second", "judge_finish_reason": "length"},
        {"judge_reply": "Verdict: incorrect, as the", "judge_finish_reason": "length"},
        {"judge_reply": "so so", "finish_reason": "length"},  # the policy's
        {"judge_response": "Rate limits were reached in its tests, and the answer handles that: score 0"},
        {"judge_response": "Connection errors are handled, the rest is wrong. Grade: 0"},
        {"judge_message": "None"},  # nothing to say beside the reply
        {"judge_response": "None"},  # asked for the errors
        {"judge_response": "The model is overloaded with parameters, so it overfits. 2/5"},
        {"judge_response": "java.lang.NullPointerException is thrown at line 3: FAIL"},
        {"judge_response": "Connection refused is not covered. FAIL"},
        {"judge_response": "internal server error pages are missing. 3/10"},
        {"judge_response": "The server is down in step 2, and nobody says so. 1/5"},
        {"judge_response": "Rate limit of 100 is reached: FAIL"},
        {"judge_response": "Traceback (most recent call last): is what it prints. Verdict: FAIL"},
        {"judge_response": "ValueError"},
        {"judge_response": "requests.Timeout is unhandled: 0"},
        {"judge_response": '{"why": "it forgets the se', "judge_score": 0.0},
        {"judge_response": '{"equivalent": false, "why": "it for'},
        {"judge_response": "Sorry, I can't help but mark it so.", "judge_score": 0.0},
        {"judge_response": "Sorry, I can't help with that.", "judge_verdict": "Incorrect"},
        {"judge_response": "Sorry, I can't help with that.", "judge_score": 2},
        {"judge_response": "I can't help but mark it so."},
        {"judge_reply": "It misses the point.", "judge_finish_reason": "length", "passed": False},
        {"judge_reply": "It misses the point. Therefore incorrect.", "judge_finish_reason": "length"},
        {"judge": {"response": '{"why": "it forgets', "score": 0}},
        {"judge": {"content": "", "verdict": "incorrect"}},
        {"judge": {"content": None, "parsed": {"score": 0}}},
        {"judge": {"content": "", "message": "a good answer"}},
        {"judge_input": {"content": ""}},  # what it was asked
        {"grader_output": "Traceback (most recent call last):\n  File 'solution.py'"},  # of the program that it ran
        {"grader_output": "Timeout"},
        {"judge_messages": [{"role": "user", "content": "grade this"}]},  # what it was asked
        {"judge_messages": [{"role": "assistant", "content": ""}, {"role": "assistant", "content": "no"}]},
        {"judge": {"role": "assistant", "content": "", "reasoning": "It adds where it should multiply."}},
        {"judge": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "grade"}}]}},
        {"text": "", "judge_response": [{"role": "assistant", "content": ""}]},  # it was shown nothing
        {"judge_verdict": "failed"},
        {"judge_verdict": "invalid"},
        {"judge": {"prompt": "2+2?", "answer": "", "score": 0.0}},  # the answer that was judged
        {"text": "", "judge": {"response": "", "score": 0}},  # the judge was shown nothing
        {"verifier_status": "timeout"},  # of the program that is verified
        {"grader_output": "Error: time limit exceeded, timed out"},
        {"verifier_parsed": False},
        {"judge_reply": "Error handling in this answer is poor: it fails on rate limits of 3."},
        {"no_env_error": 1},
        {"components": {"format_error": 1.0}},
        {"execution_error": "openai.RateLimitError: in the program of the policy"},
        {"tool_error": "Error code: 503"},
        {"failure_reason": "tool_api_error"},
        {"http_status": 503},
        {"exit_status": "Timeout"},
        {"status": "aborted"},
    ],
)
def test_what_may_be_the_policys_own_keeps_its_reward(tmp_path: Path, fields: dict[str, Any]) -> None:
    r = jsonl(tmp_path, **fields)
    assert (r.error_kind, r.reward) == (None, 0.0)


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
    said = named_fault({"judge_evaluations": [value]}, False)
    assert said == (("judge", f"judge_evaluations: the judge's reply is {found}") if found else None)


def test_words_of_names() -> None:
    assert words_of("verifierTimedOut") == {"verifier", "timeout"}
    assert words_of("time_out") == {"timeout"} and words_of("rewardModelError") == {"rewardmodel", "error"}
    assert ending(words_of("connection error")) == "model_api" and ending(words_of("submitted")) is None


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
