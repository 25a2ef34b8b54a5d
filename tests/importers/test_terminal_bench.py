"""Terminal-Bench: trials, runs, what the terminal showed, and whose failure an ending is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import detect, read
from evotrainer.importers.base import Skipped
from evotrainer.records.rollout import Rollout
from evotrainer.studies.audit.engine import sources_of

RUN = "2025-08-07__20-46-16"
SHELL = """\x1b[?2004hroot@1a2b:/app# asciinema rec --stdin /logs/agent.cast\r
\x1b[?2004hroot@1a2b:/app# {setup}\r
{printed}\r
\x1b[?2004hroot@1a2b:/app# exit\r
"""
MINI = """mini-swe-agent (step 1, $0.01):
I look around.
```bash
cat a.py
```

User:
<returncode>1</returncode>
no such file
mini-swe-agent (step 2, $0.02):
Done.
"""


def trial(task: str = "vim", n: int = 1, **fields: Any) -> dict[str, Any]:
    base = {"id": f"{task}-{n}", "trial_name": f"{task}.{n}-of-5.{RUN}", "task_id": task, "instruction": "quit vim"}
    return base | {"is_resolved": True, "failure_mode": "unset", "parser_results": {"test_a": "passed"}} | fields


def written(run: Path, t: dict[str, Any], recording: str = "") -> Path:
    folder = run / t["task_id"] / t["trial_name"]
    (folder / "sessions").mkdir(parents=True)
    (folder / "panes").mkdir()
    (folder / "commands.txt").write_text("['clear', 'Enter']")
    (folder / "results.json").write_text(json.dumps(t))
    (folder / "sessions" / "agent.log").write_text(recording)
    return folder / "results.json"


def rollouts(folder: Path) -> list[Rollout]:
    found = [r for _, _, r in read([folder])]
    assert not [r for r in found if isinstance(r, Skipped)]
    return [r for r in found if isinstance(r, Rollout)]


@pytest.mark.parametrize(
    ("fields", "reward", "kind", "finish"),
    [
        ({}, 1.0, None, "stop"),
        ({"is_resolved": False}, 0.0, None, "stop"),
        ({"is_resolved": False, "failure_mode": "agent_timeout"}, 0.0, None, "turn_limit"),
        ({"is_resolved": True, "failure_mode": "agent_timeout"}, 1.0, None, "turn_limit"),
        ({"is_resolved": False, "failure_mode": "context_length_exceeded"}, 0.0, None, "length"),
        ({"is_resolved": None, "failure_mode": "parse_error"}, None, "judge", "error"),
        ({"is_resolved": None, "failure_mode": "test_timeout"}, None, "timeout", "error"),
        ({"is_resolved": False, "failure_mode": "agent_installation_failed"}, None, "container", "error"),
        ({"is_resolved": False, "failure_mode": "unknown_agent_error"}, None, "other", "error"),
        ({"is_resolved": None}, None, "other", "error"),
    ],
)
def test_an_ending_is_the_policys_or_the_infrastructures(
    tmp_path: Path, fields: dict[str, Any], reward: float | None, kind: str | None, finish: str
) -> None:
    written(tmp_path / RUN, trial(**fields))
    (r,) = rollouts(tmp_path)
    assert (r.reward, r.error_kind, r.finish) == (reward, kind, finish)
    assert r.outcome == {1.0: "correct", 0.0: "incorrect", None: "unknown"}[reward]


def test_an_agent_that_was_never_installed_did_not_fail(tmp_path: Path) -> None:
    setup = "source /installed-agent/install-agent.sh && echo 'INSTALL_SUCCESS'\r\nINSTALL_SUCCESS\r\nroot@1a2b:/app# "
    gone = SHELL.format(setup=f"{setup}mini -t 'quit\r\n> vim'", printed="bash: mini: command not found")
    written(tmp_path / RUN, trial(is_resolved=False), gone)
    own = SHELL.format(setup=f"{setup}mini -t 'quit vim'", printed="I try vmi.\r\nbash: vmi: command not found")
    written(tmp_path / RUN, trial(n=2, is_resolved=False), own)
    written(tmp_path / RUN, trial(n=3), SHELL.format(setup=f"{setup}mini -t 'quit vim'", printed=MINI))
    first, second, third = sorted(rollouts(tmp_path), key=lambda r: r.id != "" and r.detail["trial"])
    assert (first.error_kind, first.reward) == ("container", None)
    assert "bash: mini: command not found" in (first.error or "")
    assert (second.error_kind, second.reward) == (None, 0.0)
    assert [t.role for t in third.turns] == ["user", "assistant", "tool", "assistant"]
    assert [(c.arguments, c.ok) for c in third.turns[1].tool_calls] == [("cat a.py", False)]


def test_an_agent_in_the_terminal_typed_the_commands_itself(tmp_path: Path) -> None:
    written(tmp_path / RUN, trial(), SHELL.format(setup="ls", printed="10%\r 99%\rREADME.md"))
    (r,) = rollouts(tmp_path)
    assert [c.arguments for t in r.turns for c in t.tool_calls] == ["ls"]
    assert r.turns[2].text == "README.md"


def test_a_runs_file_adds_what_has_no_file_of_its_own_and_policies_stay_apart(tmp_path: Path) -> None:
    for agent, model in (("mini", "claude"), ("droid", None)):
        run = tmp_path / f"{agent}_{model}" / RUN
        trials = [trial(id=f"{agent}-{n}", n=n) for n in (1, 2)]
        written(run, trials[0])
        (run / "results.json").write_text(json.dumps({"results": trials, "n_resolved": 2, "resolved_ids": ["vim"]}))
        (run / "run_metadata.json").write_text(json.dumps({"agent_name": agent, "model_name": model}))
    found = rollouts(tmp_path)
    assert sorted((r.policy, r.group) for r in found) == [
        ("droid (droid_None)", "droid (droid_None)/vim"),
        ("droid (droid_None)", "droid (droid_None)/vim"),
        ("mini/claude", "mini/claude/vim"),
        ("mini/claude", "mini/claude/vim"),
    ]
    sources, unknown = sources_of([tmp_path], None)
    assert len(sources) == 2 and not unknown


def test_what_is_no_trial_is_told(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"results": [trial(), 3, {"task_id": "x"}]}))
    assert detect(path).name == "terminal_bench"
    found = [r for _, _, r in read([path])]
    assert [type(r).__name__ for r in found] == ["Rollout", "Skipped", "Skipped"]
