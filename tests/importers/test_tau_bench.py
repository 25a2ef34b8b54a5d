"""tau-bench: the real 200 trials against an independent count; tau2-bench by a hand-made file of its layout."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats.tau_bench import IMPORTER
from evotrainer.records.rollout import Rollout

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "rollouts" / "tau_bench" / "gpt-4o-airline.json"
real = pytest.mark.skipif(not REAL.is_file(), reason=f"the shared tau-bench results are not at {REAL}")
WRONG: list[Any] = [None, 3, True, "x\x00\ud800", [], [None, 1, "x", [[]], {}], {}, {"a": {"b": [1]}}, 10**400]


def rows(path: Path) -> list[Rollout]:
    return [r for r in IMPORTER.read(path) if isinstance(r, Rollout)]


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def trial(**fields: Any) -> dict[str, Any]:
    info = {"task": {"user_id": "u"}, "reward_info": {"reward": 1.0, "info": {"r_actions": 1.0}}}
    traj = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "done"}]
    return {"task_id": 3, "reward": 1.0, "info": info, "traj": traj, "trial": 0} | fields


def tau2(*simulations: Any, **fields: Any) -> dict[str, Any]:
    info = {"agent_info": {"llm": "gpt"}, "environment_info": {"domain_name": "telecom"}}
    tasks = [{"id": "t1", "evaluation_criteria": {"actions": []}}]
    return {"timestamp": "now", "info": info, "tasks": tasks, "simulations": list(simulations)} | fields


def simulation(**fields: Any) -> dict[str, Any]:
    base = {
        "id": "s",
        "task_id": "t1",
        "trial": 2,
        "termination_reason": "user_stop",
        "reward_info": {"reward": 1.0, "reward_breakdown": {"DB": 1.0}},
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "done"}],
    }
    return base | fields


@real
def test_the_real_trials_agree_with_an_independent_count() -> None:
    raw = json.loads(REAL.read_text())
    assert IMPORTER.recognises(Source(REAL))
    found = rows(REAL)
    assert len(found) == len(raw) == 200 and len({r.id for r in found}) == 200
    assert [r.reward for r in found] == [x["reward"] for x in raw]
    assert Counter(r.outcome for r in found) == {"correct": 84, "incorrect": 116}
    assert set(Counter(r.group for r in found).values()) == {4} and len({r.group for r in found}) == 50
    assert all(sorted(r.k for r in found if r.task == f"airline/{t}") == [0, 1, 2, 3] for t in range(50))
    failed = sum(m["role"] == "tool" and m["content"].startswith("Error") for x in raw for m in x["traj"])
    calls = Counter(c.ok for r in found for t in r.turns for c in t.tool_calls)
    assert calls == {True: 1164 - failed, False: failed} and failed == 73
    assert sum(r.finish == "turn_limit" for r in found) == sum(x["info"]["reward_info"] is None for x in raw) == 5
    assert not any(r.error_kind for r in found)


def test_a_trial_that_raised_is_a_fault_although_its_file_says_zero(tmp_path: Path) -> None:
    error = {"error": "RateLimitError: 429", "traceback": "Traceback ...\nlitellm.RateLimitError: 429"}
    found = rows(write(tmp_path / "r.json", [trial(reward=0.0, info=error, traj=[]), trial()]))
    assert [(r.reward, r.outcome, r.error_kind) for r in found] == [
        (None, "unknown", "model_api"),
        (1.0, "correct", None),
    ]
    assert found[0].error == "RateLimitError: 429"


def test_two_files_of_one_name_do_not_collide(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one = rows(write(tmp_path / "r.json", [trial()]))
    two = rows(write(tmp_path / "a" / "r.json", [trial(reward=0.0)]))
    assert one[0].id != two[0].id and rows(tmp_path / "r.json")[0].id == one[0].id


@pytest.mark.parametrize(
    ("reason", "finish", "kind", "reward"),
    [
        ("user_stop", "stop", None, 1.0),
        ("TerminationReason.AGENT_STOP", "stop", None, 1.0),
        ("max_steps", "turn_limit", None, 1.0),
        ("too_many_errors", "turn_limit", None, 1.0),
        ("agent_error", "error", None, 1.0),
        ("context_window_exceeded", "length", None, None),
        ("user_error", "error", "other", None),
        ("infrastructure_error", "error", "model_api", None),
        ("something_new", None, None, 1.0),
    ],
)
def test_tau2_termination_reasons_are_read(tmp_path: Path, reason: str, finish: Any, kind: Any, reward: Any) -> None:
    row = simulation(termination_reason=reason, info={"error": "API disconnect"} if "infra" in reason else None)
    path = write(tmp_path / "r.json", tau2(row))
    assert IMPORTER.recognises(Source(path))
    (r,) = rows(path)
    assert (r.finish, r.error_kind, r.reward) == (finish, kind, reward)
    assert (r.task, r.policy, r.k) == ("telecom/t1", "gpt", 2)
    assert dict(r.components) == ({} if reward is None else {"DB": 1.0})


def test_the_simulated_users_own_tools_are_not_the_policys(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "tool_calls": [{"id": "u1", "name": "reboot", "arguments": {}, "requestor": "user"}]},
        {"role": "tool", "id": "u1", "content": "rebooted", "requestor": "user", "error": False},
        {"role": "assistant", "tool_calls": [{"id": "a1", "name": "lookup", "arguments": {"n": 1}}]},
        {"role": "tool", "id": "a1", "content": "no such line", "requestor": "assistant", "error": True},
    ]
    (r,) = rows(write(tmp_path / "r.json", tau2(simulation(messages=messages))))
    assert [t.role for t in r.turns] == ["user", "user", "assistant", "tool"]
    assert r.turns[0].text == "reboot({})" and not r.turns[0].tool_calls
    assert [(c.name, c.ok) for t in r.turns for c in t.tool_calls] == [("lookup", False)]


def test_a_simulation_that_was_not_graded_is_unknown(tmp_path: Path) -> None:
    (r,) = rows(write(tmp_path / "r.json", tau2(simulation(reward_info=None))))
    assert (r.reward, r.outcome, r.error_kind) == (None, "unknown", None)


@pytest.mark.parametrize("data", [b"", b"[{", b"[" * 100_000, b"\xff", b"null", b"3", b'{"a": 1}'])
def test_broken_files_are_one_named_skip(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    assert not IMPORTER.recognises(Source(path))
    found = list(IMPORTER.read(path))
    assert len(found) == 1 and isinstance(found[0], Skipped)


def test_broken_records_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    found = list(IMPORTER.read(write(tmp_path / "r.json", [trial(), 5, None, {}, [], trial(trial=1)])))
    assert [isinstance(r, Rollout) for r in found] == [True, False, False, False, False, True]
    found = list(IMPORTER.read(write(tmp_path / "s.json", tau2(simulation(), 5, {}))))
    assert [isinstance(r, Rollout) for r in found] == [True, False, False]


def test_a_wrong_type_in_any_field_is_read_or_named(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for value in WRONG:
        for key in trial():
            assert len(list(IMPORTER.read(write(path, [trial(**{key: value})])))) == 1
            IMPORTER.recognises(Source(path))
        for key in simulation():
            assert len(list(IMPORTER.read(write(path, tau2(simulation(**{key: value})))))) == 1
        for key in tau2():
            IMPORTER.recognises(Source(write(path, tau2(simulation()) | {key: value})))
            list(IMPORTER.read(path))


def test_other_objects_with_info_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.traj"
    step = {"action": "ls", "observation": "a", "thought": "t"}
    for value in ({"info": {}, "trajectory": [step], "history": []}, {"info": {}}, {"info": {}, "simulations": {}}):
        path.write_text(json.dumps(value))
        assert not IMPORTER.recognises(Source(path)), value
    path.write_text(json.dumps({"info": {}, "tasks": [], "simulations": []}))
    assert IMPORTER.recognises(Source(path))
