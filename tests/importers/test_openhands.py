"""OpenHands' evaluations in its three generations of events, and what ends an instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import Skipped, detect, read
from evotrainer.importers.formats import openhands
from evotrainer.records.rollout import Rollout
from evotrainer.studies.audit import audit
from evotrainer.testing import check_importer

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


def call(name: str, arguments: dict[str, Any], id: str) -> dict[str, Any]:
    asked = {"id": id, "function": {"name": name, "arguments": json.dumps(arguments)}}
    model = {"choices": [{"message": {"content": "", "tool_calls": [asked]}}]}
    return {"function_name": name, "tool_call_id": id, "model_response": model}


def event(id: str, command: str, seen: str, code: int) -> list[dict[str, Any]]:
    """A command and what it printed, as OpenHands kept them until 2025."""
    made = call("execute_bash", {"command": command}, id)
    args = {"command": command, "thought": f"I run {command}", "blocking": False, "confirmation_state": "confirmed"}
    action = {"source": "agent", "action": "run", "args": args, "tool_call_metadata": made}
    extras = {"command": command, "metadata": {"exit_code": code}}
    reply = {"source": "agent", "observation": "run", "content": seen, "extras": extras, "tool_call_metadata": made}
    return [action, reply]


def sdk(id: str, command: str, seen: str, code: int) -> list[dict[str, Any]]:
    """The same by its SDK."""
    made = {"id": id, "name": "terminal", "arguments": json.dumps({"command": command})}
    action = {"kind": "ActionEvent", "source": "agent", "thought": [{"type": "text", "text": f"I run {command}"}]}
    action |= {"tool_name": "terminal", "tool_call_id": id, "tool_call": made}
    shown = {"content": [{"type": "text", "text": seen}], "exit_code": code, "is_error": False}
    return [action, {"kind": "ObservationEvent", "tool_call_id": id, "tool_name": "terminal", "observation": shown}]


OLD = [*event("c1", "ls", "a.py", 0), *event("c2", "pytest", "1 failed", 1)]
NEW = [
    {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"type": "text", "text": "You are an agent"}},
    {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": "fix x"}},
    *sdk("c1", "ls", "a.py", 0),
    *sdk("c2", "pytest", "1 failed", 1),
]
PAIRS = [OLD[:2], OLD[2:]]


def row(task: str = "a__a-1", history: Any = OLD, **fields: Any) -> dict[str, Any]:
    return {
        "instance_id": task,
        "instruction": "fix x",
        "test_result": {"git_patch": PATCH},
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "m/one"}},
        "history": history,
        "metrics": {"accumulated_cost": 0.1},
        "error": None,
        "instance": {"patch": "gold", "FAIL_TO_PASS": ["t"], "repo": "a/a"},
    } | fields


def output(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "output.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def rollouts(path: Path) -> list[Rollout]:
    return [r for _, _, r in read([path]) if isinstance(r, Rollout)]


@pytest.mark.parametrize("history", [OLD, PAIRS, NEW], ids=["events", "pairs", "sdk"])
def test_each_generation_gives_the_same_commands_with_their_success(tmp_path: Path, history: Any) -> None:
    path = output(tmp_path, row(history=history))
    assert detect(path).name == "openhands"
    (r,) = rollouts(path)
    calls = [(c.arguments, c.ok) for t in r.turns for c in t.tool_calls]
    assert calls == [('{"command": "ls"}', True), ('{"command": "pytest"}', False)]
    assert [t.text for t in r.turns if t.role == "user"] == ["fix x"]
    assert [t.text for t in r.turns if t.role == "assistant"] == ["I run ls", "I run pytest"]
    assert (r.task, r.policy, r.reward, r.outcome, r.error_kind) == ("a__a-1", "m/one", None, "unknown", None)
    assert (r.detail["patch"], r.detail["gold_patch"], r.detail["fail_to_pass"]) == (PATCH, "gold", ["t"])


@pytest.mark.parametrize(
    ("fields", "kind", "finish"),
    [
        ({}, None, "stop"),
        ({"error": "RuntimeError: Agent reached maximum iteration in headless mode."}, None, "turn_limit"),
        ({"error": "AgentStuckInLoopError: Agent got stuck in a loop"}, None, "turn_limit"),
        ({"error": "LLMContextWindowExceedError: the conversation history exceeds the context window"}, None, "length"),
        ({"error": "BadRequestError: This model's maximum context length is 8192 tokens"}, None, "length"),
        ({"error": "AgentRuntimeDisconnectedError: 502"}, "container", "error"),
        ({"error": "litellm.RateLimitError: quota"}, "model_api", "error"),
        ({"error": "STATUS$ERROR_LLM_OUT_OF_CREDITS"}, "model_api", "error"),
        ({"error": "Timeout after 3600 seconds", "history": None, "metrics": None}, "timeout", "error"),
        ({"history": None, "metrics": None, "test_result": {}}, "other", "error"),
        ({"report": {"resolved": False, "error_eval": True}}, "judge", "error"),
        ({"report": {"resolved": False, "test_timeout": True}}, "timeout", "error"),
        ({"report": {"resolved": False, "empty_generation": True}}, None, "stop"),
        ({"report": {"resolved": False, "failed_apply_patch": True}}, None, "stop"),
    ],
)
def test_whose_doing_an_ending_is(tmp_path: Path, fields: dict[str, Any], kind: str | None, finish: str) -> None:
    (r,) = rollouts(output(tmp_path, row(**fields)))
    assert (r.error_kind, r.finish) == (kind, finish)
    if kind is None and "report" in fields:
        assert r.outcome == "incorrect"


def test_the_report_is_the_verdict_within_or_beside(tmp_path: Path) -> None:
    path = output(tmp_path / "run", row(report={"resolved": True}), row("b__b-2"), row("c__c-3"), row("d__d-4"))
    beside = {"resolved_ids": [], "unresolved_ids": ["b__b-2"], "error_ids": ["c__c-3"], "completed_ids": ["b__b-2"]}
    (tmp_path / "run" / "report.json").write_text(json.dumps(beside))
    found = {r.task: (r.outcome, r.error_kind) for r in rollouts(tmp_path)}
    assert found["a__a-1"] == ("correct", None) and found["b__b-2"] == ("incorrect", None)
    assert found["c__c-3"] == ("unknown", "judge") and found["d__d-4"] == ("unknown", None)
    (source,) = audit([tmp_path], cache=tmp_path / "cache").sources
    assert (source.format, source.rollouts, source.faults) == ("openhands", 4, {"judge": 1})
    assert path.name == "output.jsonl"


def test_rows_of_the_remote_evaluation_are_verdicts(tmp_path: Path) -> None:
    output(tmp_path, row(), row("b__b-2"))
    rows = [
        {"instance_id": "a__a-1", "test_result": {"report": {"resolved": True}}},
        {"instance_id": "b__b-2", "test_result": {"report": {"resolved": False, "error_eval": True}}},
    ]
    (tmp_path / "output.swebench_eval.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    read_ = list(read([tmp_path]))
    assert not [r for _, _, r in read_ if isinstance(r, Skipped)], "the evaluation's file is no source"
    assert [(r.outcome, r.error_kind) for _, _, r in read_ if isinstance(r, Rollout)] == [
        ("correct", None),
        ("unknown", "judge"),
    ]


def test_the_importer_keeps_its_contract(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"task": "1", "text": "x", "reward": 1.0}\n')
    good = output(tmp_path, row(), row("b__b-2", NEW), row("c__c-3", PAIRS, error="Agent got stuck in a loop"))
    check_importer(openhands.IMPORTER, good=good, count=3, foreign=[other])
