"""verifiers: results of v0 in its layouts, traces of v1 in theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import read as read_all
from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats.verifiers import IMPORTER
from evotrainer.records.rollout import Rollout
from evotrainer.studies.audit import audit
from evotrainer.testing import check_importer

PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Reverse abc."}]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def read(path: Path) -> list[Rollout]:
    out = list(IMPORTER.read(path))
    assert all(isinstance(r, Rollout) for r in out), out
    return [r for r in out if isinstance(r, Rollout)]


def result(**other: Any) -> dict[str, Any]:
    return {
        "example_id": 0,
        "prompt": PROMPT,
        "completion": [{"role": "assistant", "content": "cba"}],
        "answer": "cba",
        "info": {"level": 1},
        "reward": 0.75,
        "error": None,
        "timing": {"total_ms": 10.0},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "max_turns_reached",
        "metrics": {"lcs": 1.0, "format": 0.5},
        "tool_defs": None,
        "token_usage": {"input_tokens": 20.0, "output_tokens": 5.0},
        "lcs": 1.0,
        "format": 0.5,
        **other,
    }


def trace(**other: Any) -> dict[str, Any]:
    call = {"id": "c1", "name": "shell", "arguments": '{"cmd": "ls"}'}
    return {
        "version": 1,
        "id": "deadbeef",
        "task": {"type": "MyTask", "data": {"idx": 3, "prompt": "list", "answer": "a"}, "hash": "0f"},
        "agent": {"config": {"model": "m/1"}, "name": "agent"},
        "nodes": [
            {"message": {"role": "user", "content": "list"}, "sampled": False},
            {
                "parent": 0,
                "message": {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
                "sampled": True,
                "token_ids": [1, 2, 3],
                "mask": [False, True, True],
                "logprobs": [-0.5, -0.25],
            },
            {"parent": 1, "message": {"role": "tool", "tool_call_id": "c1", "content": "<returncode>1</returncode>"}},
            {
                "parent": 2,
                "message": {"role": "assistant", "content": "a"},
                "sampled": True,
                "token_ids": [4],
                "mask": [True],
                "logprobs": [-0.75],
                "advantages": [0.5],
            },
        ],
        "calls": [{"node": 3, "finish_reason": "stop", "model": "m/1"}],
        "rewards": {"correct": {"score": 1.0, "weight": 1.0}, "brief": {"score": 0.5, "weight": 0.2}},
        "metrics": {"turns": 2.0},
        "is_completed": True,
        "ok": True,
        "stop_condition": "agent_completed",
        "errors": [],
        **other,
    }


def test_v0_results_are_read_with_their_metadata(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text(json.dumps({"env_id": "reverse", "model": "m", "avg_reward": 0.5}))
    rows = [result(example_id=i // 2, completion=[{"role": "assistant", "content": f"c{i}"}]) for i in range(6)]
    path = write(tmp_path / "results.jsonl", *rows)
    check_importer(IMPORTER, path, count=6)
    out = read(path)
    assert [r.task for r in out] == ["reverse/0"] * 2 + ["reverse/1"] * 2 + ["reverse/2"] * 2
    assert [r.k for r in out] == [0, 1] * 3 and len({r.group for r in out}) == 3
    r = out[0]
    assert r.reward == 0.75 and r.outcome == "unknown" and r.components == {"lcs": 1.0, "format": 0.5}
    assert r.finish == "turn_limit" and r.tokens == 5 and r.policy == "m"
    assert r.detail["answer"] == "cba" and r.detail["info"] == {"level": 1} and "lcs" not in r.detail


def test_the_first_v0_layout_has_metrics_beside_the_rest_and_calls_as_text(tmp_path: Path) -> None:
    call = json.dumps({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}})
    row = {
        "id": 4,
        "prompt": "plain",
        "completion": [
            {"role": "assistant", "content": "x", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "Error: no"},
        ],
        "task": "default",
        "answer": "",
        "reward": 1,
        "accuracy": 1.0,
        "generation_ms": 3.0,
        "scoring_ms": 1.0,
        "total_ms": 4.0,
    }
    path = write(tmp_path / "results.jsonl", row)
    assert IMPORTER.recognises(Source(path))
    (r,) = read(path)
    assert r.task == "4" and r.components == {"accuracy": 1.0} and r.detail["task"] == "default"
    assert r.turns[1].tool_calls[0].name == "f" and r.turns[1].tool_calls[0].ok is False


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            {"error": "SandboxError", "error_chain_repr": "SandboxError() -> TimeoutError()", "error_chain_str": ""},
            "timeout",
        ),
        ({"error": "SandboxError", "error_chain_repr": "SandboxError('gone')", "error_chain_str": ""}, "container"),
        (
            {"error": "ModelError", "error_chain_repr": "ModelError -> RateLimitError", "error_chain_str": ""},
            "model_api",
        ),
        ("InfraError('x')", "container"),
        ("ValueError('x')", "other"),
    ],
)
def test_v0_errors_are_faults_by_class(tmp_path: Path, error: Any, kind: str) -> None:
    (r,) = read(write(tmp_path / "results.jsonl", result(error=error, reward=0.0, completion=None)))
    assert (r.error_kind, r.reward, r.outcome) == (kind, None, "unknown")
    assert r.error and r.detail["reward_of_fault"] == 0.0


def test_a_context_that_ran_over_is_the_policys_own(tmp_path: Path) -> None:
    (r,) = read(write(tmp_path / "results.jsonl", result(error="OverlongPromptError()", reward=0.0)))
    assert (r.error_kind, r.reward, r.finish) == (None, 0.0, "length")


def test_v1_traces_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", trace(), trace(id="feed"))
    check_importer(IMPORTER, path, count=2)
    a, b = read(path)
    assert a.group == b.group and (a.k, b.k) == (0, 1) and a.task == "3"
    assert a.reward == pytest.approx(1.1) and a.components == {"turns": 2.0, "correct": 1.0, "brief": 0.5}
    assert [t.role for t in a.turns] == ["user", "assistant", "tool", "assistant"]
    assert a.turns[1].text == "hm" and a.turns[1].tool_calls[0].ok is False
    assert a.tokens == 3 and a.mean_logprob == pytest.approx(-0.5) and a.advantage == 0.5
    assert a.finish == "stop" and a.policy == "m/1" and a.detail["answer"] == "a"


def test_v1_faults_and_scores_that_did_not_run(tmp_path: Path) -> None:
    error = {"type": "SandboxError", "message": "pod gone"}
    rows = [
        trace(ok=False, errors=[error], rewards={"correct": None}, stop_condition="error"),
        trace(ok=False, errors=[], is_completed=False, stop_condition=None),
        trace(rewards={"correct": None, "brief": {"score": 1.0}}),
        trace(ok=True, errors=[error]),
    ]
    a, b, c, d = read(write(tmp_path / "traces.jsonl", *rows))
    assert (a.error_kind, a.error, a.reward) == ("container", "SandboxError: pod gone", None)
    assert (b.error_kind, b.reward) == ("cancelled", None)
    assert (c.error_kind, c.reward) == (None, None)
    assert (d.error_kind, d.reward) == (None, pytest.approx(1.1))  # an earlier attempt failed, this one is good


def test_the_first_v1_layout_has_plain_rewards_and_the_task_as_it_is(tmp_path: Path) -> None:
    row = trace(task={"idx": 8, "prompt": "list"}, rewards={"correct": 1.0})
    del row["ok"]
    (r,) = read(write(tmp_path / "traces.jsonl", row))
    assert r.task == "8" and r.reward == 1.0 and r.error_kind is None
    row = trace(stop_condition="error", error={"type": "ProviderError", "message": "503"})
    del row["ok"]
    (r,) = read(write(tmp_path / "traces.jsonl", row))
    assert r.error_kind == "model_api" and r.reward is None


def test_a_row_of_neither_generation_is_skipped(tmp_path: Path) -> None:
    (s,) = IMPORTER.read(write(tmp_path / "results.jsonl", {"example_id": 1, "reward": 1}))
    assert isinstance(s, Skipped) and "completion" in s.reason


def episode(*traces: Any, **other: Any) -> dict[str, Any]:
    task = {"type": "MyTask", "data": {"idx": 3, "prompt": "list"}, "key": "0f"}
    return {"id": "e1", "env": {"id": "files"}, "task": task, "ok": True, "errors": [], "traces": traces} | other


def agents_trace(id: str, name: str = "agent", **other: Any) -> dict[str, Any]:
    return trace(id=id, agent={"config": {"model": "m/1"}, "name": name, "trainable": name != "critic"}, **other)


FAILED: dict[str, Any] = {"ok": False, "rewards": {}, "nodes": [], "stop_condition": "provider_error"}
PROVIDER = [{"type": "ProviderError", "message": "502", "status_code": 502}]


def test_every_trace_of_an_episode_is_a_rollout_and_agents_are_read_apart(tmp_path: Path) -> None:
    rows = [
        episode(agents_trace("a1", "solver"), agents_trace("a2", "critic", rewards={}), group={"id": "g"}),
        episode(agents_trace("b1", "solver"), agents_trace("b2", "critic", rewards={}), group={"id": "g"}),
    ]
    path = write(tmp_path / "traces.jsonl", *rows)
    check_importer(IMPORTER, path, count=4)
    found = read(path)
    assert [(r.policy, r.k, r.reward) for r in found] == [
        ("m/1 as solver", 0, pytest.approx(1.1)),
        ("m/1 as critic", 0, None),
        ("m/1 as solver", 1, pytest.approx(1.1)),
        ("m/1 as critic", 1, None),
    ]
    assert len({r.group for r in found}) == 2 and found[1].detail["trainable"] is False
    assert [r.subject for r in audit([path]).sources[0].readings] == ["m/1 as critic", "m/1 as solver"]


def test_episodes_that_broke_are_faults_and_no_reward_of_0(tmp_path: Path) -> None:
    env_error = [{"type": "EnvError", "message": "run: sandbox pool is gone"}]
    rows = [
        episode(agents_trace("a", **FAILED, errors=PROVIDER), ok=False),
        episode(ok=False, errors=env_error),  # it ended before any agent began
        episode(agents_trace("c"), ok=False, errors=env_error),  # finalize failed after the agent was scored
        episode(agents_trace("d"), agents_trace("e", "critic", **FAILED, errors=PROVIDER), ok=False),
        episode(agents_trace("f"), errors=PROVIDER),  # an earlier attempt failed, this one is good
        episode({}, None, ok=False),
    ]
    a, b, c, d, e, f, g = read(write(tmp_path / "traces.jsonl", *rows))
    assert (a.error_kind, a.reward, a.finish) == ("model_api", None, "error")
    assert (b.error_kind, b.reward, b.turns[0].text) == ("other", None, "list")
    assert (c.error_kind, c.reward, c.detail["reward_of_fault"]) == ("other", None, pytest.approx(1.1))
    assert c.error == "the episode is not ok: EnvError: run: sandbox pool is gone"
    assert (d.error_kind, d.reward, e.error_kind) == (None, pytest.approx(1.1), "model_api")
    assert (f.error_kind, f.reward) == (None, pytest.approx(1.1))
    assert (g.error_kind, g.reward, g.turns[0].text) == ("other", None, "list")


def test_prime_rl_writes_a_folder_a_step_and_no_rollout_counts_twice(tmp_path: Path) -> None:
    for step in (0, 1):
        for split in ("train", "eval"):
            rows = [episode(agents_trace(f"{split}{step}{k}"), id=f"{step}{k}") for k in range(3)]
            for subset, some in (("all", rows), ("effective", rows[:2])):
                folder = tmp_path / "run" / "rollouts" / f"step_{step}" / split / subset
                folder.mkdir(parents=True)
                write(folder / "traces.jsonl", *some)
    found = [r for _, _, r in read_all([tmp_path]) if isinstance(r, Rollout)]
    assert len(found) == len({r.id for r in found}) == 12 and {(r.step, r.split) for r in found} == {
        (step, split) for step in (0, 1) for split in ("train", "eval")
    }
    assert len({r.group for r in found}) == 4
    (source,) = audit([tmp_path]).sources
    assert (source.rollouts, [r.subject for r in source.readings]) == (12, ["eval", "train"])
    both = sorted(tmp_path.rglob("step_1/train/*/traces.jsonl"))
    assert sum(s.rollouts for s in audit(both).sources) == 3, "what is named by itself is one by its trace's id"
