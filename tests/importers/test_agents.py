"""SWE-agent and mini-swe-agent: the real trajectories, and hand-made ones for the endings those do not show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats import mini_swe_agent, swe_agent
from evotrainer.records.rollout import Rollout

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "rollouts" / "swe_agent"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the shared SWE-agent trajectories are not at {REAL}")
SWE, MINI = swe_agent.IMPORTER, mini_swe_agent.IMPORTER
WRONG: list[Any] = [None, 3, True, "x\x00\ud800", [], [None, 1, "x", [[]], {}], {}, {"a": {"b": [1]}}, 10**400]


def step(action: str = "ls", observation: str = "a.py", **more: Any) -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": f"I do {action}", "thought": "I do"} | more


def traj(path: Path, **fields: Any) -> Path:
    base: dict[str, Any] = {
        "environment": "main",
        "trajectory": [step(), step("submit", "diff")],
        "history": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "info": {"exit_status": "submitted", "submission": "diff --git a b"},
    }
    path.write_text(json.dumps(base | fields))
    return path


def mini(path: Path, **fields: Any) -> Path:
    base: dict[str, Any] = {
        "instance_id": "repo__1",
        "info": {"exit_status": "Submitted", "submission": "diff", "config": {"model": {"model_name": "m"}}},
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": "THOUGHT\n```bash\nls\n```"},
            {"role": "user", "content": "<returncode>1</returncode>\n<output>\nno\n</output>"},
        ],
        "trajectory_format": "mini-swe-agent-1",
    }
    path.write_text(json.dumps(base | fields))
    return path


def only(found: Any) -> Rollout:
    rows = list(found)
    assert len(rows) == 1 and isinstance(rows[0], Rollout), rows
    return rows[0]


@real
@pytest.mark.parametrize("name", ["default", "function_calling", "xml_window"])
def test_the_three_real_generations_are_read(name: str) -> None:
    path = REAL / f"{name}.traj"
    raw = json.loads(path.read_text())
    assert SWE.recognises(Source(path)) and not MINI.recognises(Source(path))
    r = only(SWE.read(path))
    calls = [c for t in r.turns for c in t.tool_calls]
    assert [c.arguments for c in calls] == [s["action"] for s in raw["trajectory"]]
    assert [c.name for c in calls] == [s["action"].split()[0] for s in raw["trajectory"]]
    assert [t.text for t in r.turns if t.role == "tool"] == [s["observation"] for s in raw["trajectory"]]
    assert [t.role for t in r.turns[:2]] == ["system", "user"] and "TimeDelta" in r.prompt
    assert r.detail["patch"] == raw["info"]["submission"]
    assert (r.reward, r.outcome, r.finish, r.error_kind) == (None, "unknown", "stop", None)
    broke = [s["action"] for s in raw["trajectory"] if "introduced new syntax error" in s["observation"]]
    assert [c.arguments for c in calls if c.ok is False] == broke and len(broke) == 1
    if name != "default":
        assert (r.task, r.policy) == ("marshmallow-code__marshmallow-1867", "gpt-4o")


@real
def test_the_real_mini_swe_agent_trajectory() -> None:
    path = REAL / "mini_swe_agent.traj.json"
    raw = json.loads(path.read_text())
    assert MINI.recognises(Source(path)) and not SWE.recognises(Source(path))
    r = only(MINI.read(path))
    codes = [m["content"].startswith("<returncode>0<") for m in raw if m["content"].startswith("<returncode>")]
    calls = [c for t in r.turns for c in t.tool_calls]
    assert [c.ok for c in calls] == [*codes, None] and codes.count(False) == 2
    assert len(r.turns) == len(raw) and calls[1].arguments == "ls -la"
    assert r.finish == "stop" and r.detail["patch"].startswith("diff --git a/tests/missing_colon.py")


@pytest.mark.parametrize(
    ("status", "finish", "kind"),
    [
        ("submitted", "stop", None),
        ("exit_cost", "turn_limit", None),
        ("submitted (exit_cost)", "turn_limit", None),
        ("exit_context", "length", None),
        ("submitted (exit_context)", "length", None),
        ("exit_format", "error", None),
        ("exit_api", "error", "model_api"),
        ("exit_environment_error", "error", "container"),
        ("submitted (exit_error)", "error", "other"),
        ("evaluation_format_error (max_steps)", "turn_limit", None),
        ("evaluation_format_error (submit)", "stop", None),
        ("autosubmission (exit_api)", "error", "model_api"),
        ("early_exit", "error", "cancelled"),
        (None, None, None),
        ("exit_something_new", None, None),
    ],
)
def test_swe_agents_exit_status_is_read(tmp_path: Path, status: Any, finish: Any, kind: Any) -> None:
    r = only(SWE.read(traj(tmp_path / "i.traj", info={"exit_status": status})))
    assert (r.finish, r.error_kind, r.reward, r.outcome) == (finish, kind, None, "unknown")
    assert (r.error is None) == (kind is None)


def test_replay_config_as_text_and_steps_with_a_query(tmp_path: Path) -> None:
    config = {"agent": {"model": {"name": "m"}}, "problem_statement": {"id": "repo__7"}}
    steps = [step(query=[{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}])]
    path = traj(tmp_path / "x.traj", replay_config=json.dumps(config), history=None, trajectory=steps)
    r = only(SWE.read(path))
    assert (r.task, r.policy, r.prompt) == ("repo__7", "m", "S\nQ")


def test_demonstrations_are_no_doing_of_the_policy(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": "demo", "is_demo": True},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "mine"},
    ]
    r = only(SWE.read(traj(tmp_path / "x.traj", history=history)))
    assert [t.role for t in r.turns] == ["system", "user", "user", "assistant", "tool", "assistant", "tool"]


def test_a_step_without_an_action_has_no_call(tmp_path: Path) -> None:
    r = only(SWE.read(traj(tmp_path / "x.traj", trajectory=[step("", "your format was wrong")])))
    assert [t.role for t in r.turns[2:]] == ["assistant", "user"] and not r.turns[2].tool_calls


def test_attempts_of_a_retrying_agent_are_one_group(tmp_path: Path) -> None:
    tries = [{"trajectory": [step("a")], "info": {"exit_status": s}} for s in ("exit_cost", "submitted")]
    rows = list(SWE.read(traj(tmp_path / "x.traj", attempts=tries)))
    assert all(isinstance(r, Rollout) for r in rows)
    assert [(r.k, r.finish) for r in rows if isinstance(r, Rollout)] == [(0, "turn_limit"), (1, "stop")]
    assert len({r.group for r in rows if isinstance(r, Rollout)}) == 1


@pytest.mark.parametrize(
    ("status", "finish", "kind"),
    [
        ("Submitted", "stop", None),
        ("LimitsExceeded", "turn_limit", None),
        ("ContextWindowExceededError", "length", None),
        ("UserInterruption", "error", "cancelled"),
        ("RateLimitError", "error", "model_api"),
        ("DockerError", "error", "container"),
        ("KeyError", "error", "other"),
        ("", None, None),
    ],
)
def test_exit_status_of_mini_swe_agent(tmp_path: Path, status: str, finish: Any, kind: Any) -> None:
    r = only(MINI.read(mini(tmp_path / "x.traj.json", info={"exit_status": status})))
    assert (r.finish, r.error_kind, r.reward) == (finish, kind, None)


def test_the_second_generation_is_read(tmp_path: Path) -> None:
    path = mini(tmp_path / "x.traj.json")
    assert MINI.recognises(Source(path))
    r = only(MINI.read(path))
    assert (r.task, r.policy, r.detail["patch"]) == ("repo__1", "m", "diff")
    assert [t.role for t in r.turns] == ["system", "user", "assistant", "tool"]
    assert [(c.name, c.arguments, c.ok) for c in r.turns[2].tool_calls] == [("bash", "ls", False)]


def test_the_third_generation_with_actions_tool_replies_and_an_exit_message(tmp_path: Path) -> None:
    actions = [{"command": "ls", "tool_call_id": "1"}, {"command": "pytest", "tool_call_id": "2"}]
    messages = [
        {"role": "user", "content": "fix it"},
        {"role": "assistant", "content": "both", "extra": {"actions": actions}},
        {"role": "tool", "tool_call_id": "2", "content": "failed", "extra": {"returncode": 1}},
        {"role": "tool", "tool_call_id": "1", "content": "a", "extra": {"returncode": 0}},
        {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded", "submission": ""}},
    ]
    path = mini(tmp_path / "x.traj.json", messages=messages, info={}, trajectory_format="mini-swe-agent-1.1")
    r = only(MINI.read(path))
    assert [(c.arguments, c.ok) for c in r.turns[1].tool_calls] == [("ls", True), ("pytest", False)]
    assert r.finish == "turn_limit" and [t.role for t in r.turns] == ["user", "assistant", "tool", "tool"]


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"3", b'{"a": 1}', b"[]"])
def test_broken_files_are_one_named_skip(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.traj.json"
    path.write_bytes(data)
    for importer in (SWE, MINI):
        assert not importer.recognises(Source(path))
        rows = list(importer.read(path))
        assert len(rows) == 1 and isinstance(rows[0], Skipped) and rows[0].reason


def test_a_wrong_type_in_any_field_is_read_or_named(tmp_path: Path) -> None:
    for value in WRONG:
        for key in ("environment", "trajectory", "history", "info", "replay_config", "attempts"):
            path = traj(tmp_path / "x.traj", **{key: value})
            SWE.recognises(Source(path))
            assert len(list(SWE.read(path))) == 1
        for key in step():
            assert isinstance(only(SWE.read(traj(tmp_path / "x.traj", trajectory=[step() | {key: value}]))), Rollout)
        for key in ("instance_id", "info", "messages", "trajectory_format"):
            path = mini(tmp_path / "x.traj.json", **{key: value})
            MINI.recognises(Source(path))
            assert len(list(MINI.read(path))) == 1
        for key in ("role", "content", "extra", "tool_calls"):
            path = mini(tmp_path / "x.traj.json", messages=[{"role": "assistant", "content": "x"} | {key: value}])
            assert only(MINI.read(path)).turns


def test_hostile_text_is_read_in_linear_time(tmp_path: Path) -> None:
    text = "x```bash \n " * 200_000
    r = only(MINI.read(mini(tmp_path / "x.traj.json", messages=[{"role": "assistant", "content": text}])))
    assert not r.turns[0].tool_calls and r.turns[0].text == text
