"""ATIF trajectories and Harbor trials, by hand-made files of the published layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats.atif import IMPORTER
from evotrainer.records.rollout import Rollout

WRONG: list[Any] = [None, 3, True, "x\x00\ud800", [], [None, 1, "x", [[]], {}], {}, {"a": {"b": [1]}}, 10**400]


def trajectory(**fields: Any) -> dict[str, Any]:
    base = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s1",
        "agent": {"name": "terminus-2", "version": "2", "model_name": "openai/gpt"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "S"},
            {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "make it"}]},
            {
                "step_id": 3,
                "source": "agent",
                "message": "I look",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"tool_call_id": "1", "function_name": "bash", "arguments": {"cmd": "ls"}},
                    {"tool_call_id": "2", "function_name": "bash", "arguments": {"cmd": "false"}},
                ],
                "observation": {
                    "results": [
                        {"source_call_id": "2", "content": "bad", "extra": {"exit_code": 1}},
                        {"source_call_id": "1", "content": "a.py"},
                    ]
                },
                "metrics": {"completion_tokens": 2, "completion_token_ids": [5, 6], "logprobs": [-0.5, -1.5]},
            },
        ],
        "final_metrics": {"total_completion_tokens": 2},
    }
    return base | fields


def result(**fields: Any) -> dict[str, Any]:
    base = {
        "id": "r1",
        "task_name": "hello-world",
        "trial_name": "hello-world__abc",
        "config": {"job_id": "J"},
        "agent_info": {"name": "terminus-2", "model_info": {"name": "gpt"}},
        "agent_result": {},
        "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None,
    }
    return base | fields


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def harbor(folder: Path, outcome: dict[str, Any], **fields: Any) -> Path:
    write(folder / "result.json", outcome)
    return write(folder / "agent" / "trajectory.json", trajectory(**fields))


def one(path: Path) -> Rollout:
    (r,) = IMPORTER.read(path)
    assert isinstance(r, Rollout), r
    return r


def test_a_trajectory_alone_has_no_reward(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", trajectory())
    assert IMPORTER.recognises(Source(path))
    r = one(path)
    assert (r.reward, r.outcome, r.finish, r.error_kind) == (None, "unknown", None, None)
    assert [t.role for t in r.turns] == ["system", "user", "assistant", "tool", "tool"]
    assert r.turns[2].text == "hm\nI look" and r.turns[1].text == "make it" and r.turns[2].tokens == 2
    assert [(c.arguments, c.ok) for c in r.turns[2].tool_calls] == [
        ('{"cmd": "ls"}', None),
        ('{"cmd": "false"}', False),
    ]
    assert (r.token_ids, r.logprobs, r.mean_logprob, r.tokens) == ((5, 6), (-0.5, -1.5), -1.0, 2)
    assert (r.policy, r.run, r.task) == ("openai/gpt", "s1", "s1")


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.2", "ATIF-v1.6", "ATIF-v1.7"])
def test_every_version_is_recognised(tmp_path: Path, version: str) -> None:
    assert IMPORTER.recognises(Source(write(tmp_path / "t.json", trajectory(schema_version=version))))


@pytest.mark.parametrize(
    ("rewards", "reward", "outcome"),
    [
        ({"reward": 1.0}, 1.0, "correct"),
        ({"reward": 0}, 0.0, "incorrect"),
        ({"reward": 0.4, "style": 1}, 0.4, "unknown"),
        ({"passed": 1}, 1.0, "correct"),
        ({"a": 1, "b": 0}, None, "unknown"),
    ],
)
def test_the_trials_result_gives_the_reward(tmp_path: Path, rewards: Any, reward: Any, outcome: str) -> None:
    path = harbor(tmp_path / "job" / "hello-world__abc", result(verifier_result={"rewards": rewards}))
    r = one(path)
    assert (r.reward, r.outcome, r.task, r.run, r.error_kind) == (reward, outcome, "hello-world", "J", None)
    assert dict(r.components) == {k: float(v) for k, v in rewards.items()}
    assert list(IMPORTER.read(tmp_path / "job" / "hello-world__abc" / "result.json")) == []
    folder = tmp_path / "job" / "hello-world__abc"
    assert IMPORTER.recognises(Source(folder)) and one(folder).id == r.id


@pytest.mark.parametrize(
    ("exception", "finish", "kind"),
    [
        ("AgentTimeoutError", "turn_limit", None),
        ("VerifierTimeoutError", "error", "judge"),
        ("RewardFileNotFoundError", "error", "judge"),
        ("EnvironmentStartTimeoutError", "error", "container"),
        ("CancelledError", "error", "cancelled"),
        ("litellm.RateLimitError", "error", "model_api"),
        ("RuntimeError", "error", "other"),
    ],
)
def test_exceptions_of_a_trial_are_read(tmp_path: Path, exception: str, finish: str, kind: str | None) -> None:
    info = {"exception_type": exception, "exception_message": "it broke", "exception_traceback": "..."}
    done = result(exception_info=info, verifier_result={"rewards": {"reward": 0.0}})
    r = one(harbor(tmp_path / "t", done))
    assert (r.finish, r.error_kind) == (finish, kind)
    assert (r.reward, r.outcome) == ((None, "unknown") if kind else (0.0, "incorrect"))


def test_a_verifier_that_left_no_reward_is_a_fault_unless_it_was_switched_off(tmp_path: Path) -> None:
    assert one(harbor(tmp_path / "a", result(verifier_result=None))).error_kind == "judge"
    off = result(verifier_result=None, config={"verifier": {"disable": True}})
    assert one(harbor(tmp_path / "b", off)).error_kind is None


def test_a_trial_without_a_trajectory_is_read_from_its_result(tmp_path: Path) -> None:
    info = {"exception_type": "EnvironmentStartTimeoutError", "exception_message": "no image"}
    path = write(tmp_path / "t" / "result.json", result(exception_info=info, verifier_result=None))
    assert IMPORTER.recognises(Source(path))
    r = one(path)
    assert (r.error_kind, r.turns, r.task) == ("container", (), "hello-world")


def test_trials_of_one_task_share_a_group_and_not_an_id(tmp_path: Path) -> None:
    found = [one(harbor(tmp_path / n, result(trial_name=n, id=n))) for n in ("a", "b")]
    assert found[0].group == found[1].group and found[0].id != found[1].id


def test_a_continuation_is_read_with_its_trajectory_and_is_no_attempt(tmp_path: Path) -> None:
    path = harbor(tmp_path / "t", result(), continued_trajectory_ref="trajectory.cont-1.json")
    more = [
        {"step_id": 1, "source": "agent", "message": "I look", "is_copied_context": True},
        {"step_id": 2, "source": "agent", "message": "done"},
    ]
    part = trajectory(steps=more, continued_trajectory_ref="trajectory.json")  # a loop, too
    beside = write(path.parent / "trajectory.cont-1.json", part)
    r = one(path)
    assert r.completion == "hm\nI look\ndone" and r.token_ids is None and r.detail["parts"] == 2
    (skip,) = IMPORTER.read(beside)
    assert isinstance(skip, Skipped) and "continuation" in skip.reason


def test_context_copied_into_a_first_part_is_what_the_policy_was_shown(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "agent", "message": "before", "is_copied_context": True},
        {"step_id": 2, "source": "agent", "message": "now"},
    ]
    assert one(write(tmp_path / "t.json", trajectory(steps=steps))).completion == "now"


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", b"null", b"[]", b'{"a": 1}'])
def test_broken_files_are_one_named_skip(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(data)
    assert not IMPORTER.recognises(Source(path))
    found = list(IMPORTER.read(path))
    assert len(found) == 1 and isinstance(found[0], Skipped)


def test_a_broken_result_leaves_the_trajectory_without_reward(tmp_path: Path) -> None:
    path = harbor(tmp_path / "t", result())
    (tmp_path / "t" / "result.json").write_text("{cut")
    assert one(path).reward is None


def test_a_wrong_type_in_any_field_is_read_or_named(tmp_path: Path) -> None:
    whole = trajectory()
    for value in WRONG:
        for key in (*whole, "notes", "extra", "subagent_trajectories", "continued_trajectory_ref"):
            path = write(tmp_path / "t.json", whole | {key: value})
            IMPORTER.recognises(Source(path))
            assert len(list(IMPORTER.read(path))) == 1
        for key in (*whole["steps"][2], "is_copied_context", "llm_call_count"):
            assert one(write(tmp_path / "t.json", trajectory(steps=[whole["steps"][2] | {key: value}]))).turns
        for key in ("completion_token_ids", "logprobs", "completion_tokens"):
            metrics = {"completion_token_ids": [1], "logprobs": [-1.0]} | {key: value}
            one(write(tmp_path / "t.json", trajectory(steps=[whole["steps"][2] | {"metrics": metrics}])))
        for key in result():
            assert len(list(IMPORTER.read(harbor(tmp_path / "trial", result() | {key: value})))) == 1
            IMPORTER.recognises(Source(tmp_path / "trial" / "result.json"))
