"""NeMo-Gym rollouts: the real files where they are at hand, and each validity field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers.formats.nemo_gym import IMPORTER
from evotrainer.records.rollout import Rollout
from evotrainer.testing import check_importer

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "rollouts" / "nemo_gym"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real NeMo-Gym rollouts are not at hand ({DATA})")


def record(**other: Any) -> dict[str, Any]:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look."}],
            "generation_token_ids": [1, 2],
            "generation_log_probs": [-0.5, -0.25],
        },
        {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "1"},
        {"type": "function_call", "name": "cat", "arguments": '{"p": 1}', "call_id": "2"},
        {"type": "function_call_output", "call_id": "2", "output": '{"exit_code": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": '{"exit_code": 0}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "list"}], "tools": [{"name": "ls"}]},
        "response": {"output": output, "status": "completed", "model": "m", "usage": {"output_tokens": 7}},
        "reward": 0.0,
        "_ng_task_index": 4,
        "_ng_rollout_index": 2,
        "agent_ref": {"name": "a"},
        **other,
    }


def read(folder: Path, *rows: Any) -> list[Rollout]:
    path = folder / "rollouts.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    out = list(IMPORTER.read(path))
    assert all(isinstance(r, Rollout) for r in out), out
    return [r for r in out if isinstance(r, Rollout)]


def test_a_conversation_with_parallel_calls_is_read(tmp_path: Path) -> None:
    (r,) = read(tmp_path, record())
    check_importer(IMPORTER, tmp_path / "rollouts.jsonl", count=1)
    assert [t.role for t in r.turns] == ["user", "assistant", "tool", "tool", "assistant"]
    assert r.turns[1].text == "hm\nI look." and r.turns[1].tokens == 2
    assert [(c.name, c.arguments, c.ok) for c in r.turns[1].tool_calls] == [
        ("ls", "{}", True),
        ("cat", '{"p": 1}', False),
    ]
    assert (r.task, r.k, r.reward, r.outcome, r.finish, r.policy) == ("4", 2, 0.0, "unknown", "stop", "m")
    assert r.tokens == 2 and r.mean_logprob == pytest.approx(-0.375) and r.detail["tools"] == ["ls"]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"mask_sample": True}, "masked"),
        ({"mask_sample": True, "agent_error_kind": "max_iteration"}, "masked"),
        ({"mask_sample": True, "agent_timed_out": True}, "timeout"),
        ({"eval_timed_out": True}, "timeout"),
        ({"error_kind": "sandbox", "mask_sample": True}, "container"),
        ({"error_kind": "model_api_error"}, "model_api"),
        ({"error_kind": "what is this"}, "other"),
        ({"evaluation_completed": False, "resolved": False}, "judge"),
        ({"result": {"termination_reason": "infrastructure_error"}}, "container"),
        ({"result": {"termination_reason": "timeout"}}, "timeout"),
        ({"response": {"output": [], "status": "failed", "error": {"message": "503"}}}, "model_api"),
    ],
)
def test_faults_have_no_reward(tmp_path: Path, fields: dict[str, Any], kind: str) -> None:
    (r,) = read(tmp_path, record(**fields))
    assert (r.error_kind, r.reward, r.outcome) == (kind, None, "unknown")
    assert r.error and r.detail["reward_of_fault"] == 0.0


@pytest.mark.parametrize(
    ("said", "reward", "kind"),
    [
        ("The first answer names", 0.0, "judge"),
        ("They differ in sign. [[A!=B]]", 0.0, None),
        ("</thinking>\n\\boxed{Incorrect}", 0.0, None),
        ("Judgement: no", 0.0, None),
        ("CORRECT", 0.0, None),
        ("The first answer names", 1.0, None),  # another judge decided
    ],
)
def test_a_judges_reply_without_a_verdict_is_a_fault(
    tmp_path: Path, said: str, reward: float, kind: str | None
) -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}]
    (r,) = read(tmp_path, record(reward=reward, judge_evaluations=[{"response": {"output": output}}]))
    assert r.error_kind == kind
    (r,) = read(tmp_path, record(reward=0.0, judge_evaluations=[{"response": {"output": output}, "note": ""}]))
    assert r.error_kind is None, "of a shape that is not known"


def test_what_is_no_fault_is_not_called_one(tmp_path: Path) -> None:
    a, b, c, d = read(
        tmp_path,
        record(
            agent_error_kind="other",
            error_kind=None,
            mask_sample=False,
            agent_timed_out=False,
            resolved=True,
            reward=1.0,
        ),
        record(evaluation_completed=False, patch_applied=False, resolved=False),
        record(
            result={"termination_reason": "max_steps", "reward_info": {"reward": 0.0, "reward_breakdown": {"DB": 0.0}}}
        ),
        record(reward=None),
    )
    assert (a.error_kind, a.outcome, a.reward) == (None, "correct", 1.0)
    assert (b.error_kind, b.outcome, b.reward) == (None, "incorrect", 0.0)
    assert (c.error_kind, c.outcome, c.finish, c.components) == (None, "incorrect", "turn_limit", {"DB": 0.0})
    assert (d.error_kind, d.outcome, d.reward) == (None, "unknown", None)


@real
@pytest.mark.parametrize("path", sorted(DATA.glob("*.jsonl")), ids=lambda p: p.stem[:40])
def test_the_real_files_pass_the_kit(path: Path) -> None:
    check_importer(IMPORTER, path, count=5, foreign=[p for p in (DATA / "LICENSE",) if p.exists()])


@real
def test_the_real_files_say_what_their_authors_recorded() -> None:
    def of(name: str) -> list[Rollout]:
        (path,) = DATA.glob(f"*{name}*.jsonl")
        return [r for r in IMPORTER.read(path) if isinstance(r, Rollout)]

    verified = of("resources_servers_swebench")
    assert [r.error_kind for r in verified] == ["judge", None, None, None, None]
    assert [r.reward for r in verified] == [None, 0.0, 0.0, 0.0, 1.0]
    assert verified[4].task == "axios__axios-4738" and verified[4].outcome == "correct"
    assert verified[4].completion.startswith("diff --git")
    hermes = of("anyswe")
    assert {r.task for r in hermes} == {"astropy__astropy-12907"} and len({r.group for r in hermes}) == 1
    assert sorted(r.k for r in hermes) == [0, 1, 2, 3, 4]
    assert [r.outcome for r in hermes] == ["incorrect", "correct", "incorrect", "incorrect", "correct"]
    assert [sum(len(t.tool_calls) for t in r.turns) for r in hermes] == [9, 14, 16, 11, 18]
    assert hermes[0].detail["gold_patch"].startswith("diff --git") and hermes[0].turns[0].role == "user"
    mini = of("mini_swe_agent_2")
    assert [r.reward for r in mini] == [1.0, 0.0, 0.0, 0.0, 0.0] and mini[0].outcome == "correct"
    oks = [c.ok for t in mini[4].turns for c in t.tool_calls]
    assert (len(oks), oks.count(True), oks.count(False)) == (60, 39, 21)
    tau = of("tau2")
    assert tau[0].task == "retail/50" and {r.outcome for r in tau} == {"correct"}
    assert tau[0].turns[-3].role == "tool" and tau[0].components == {"DB": 1.0}
