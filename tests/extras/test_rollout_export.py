"""What `evotrainer export-rollouts` writes is read back by our own importers, and opens where it is meant for."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from evotrainer.cli.export_rollouts import export_rollouts
from evotrainer.errors import ConfigError
from evotrainer.extras.rollout_export import FORMS, Flagged, export
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from evotrainer.studies.rollouts import select

CALLS = (ToolCall("bash", '{"cmd": "ls <b>"}', True), ToolCall("bash", "not json \u202e", False))
TALK = (
    Turn("system", "You are \u0000 careful."),
    Turn("user", "List </script> the files.\r\n"),
    Turn("assistant", "I look.", CALLS, 12),
    Turn("tool", "a.py"),
    Turn("tool", "no such command"),
    Turn("assistant", "There is a.py.", (), 5),
)
ROLLOUTS = [
    Rollout("r1", "t/1", TALK, 1.0, {"exact": 1.0, "style": 0.25}, "correct", "stop", "run", "b1", "b1/1@3", "search",
            3, 1, "g1", 0, tokens=17, entropy=0.5, knobs={"depth": 2}, detail={"cost": 0.5}),
    Rollout("r2", "t/1", (*TALK[:2], Turn("assistant", "none", (), 1)), 0.0, {"exact": 0.0, "style": None},
            "incorrect", "length", "run", "b1", "b1/1@3", "search", 3, 1, "g1", 1, tokens=1, advantage=-0.5),
    Rollout("r3", "../../t", TALK, None, {}, "unknown", "error", "run", "b1", "b1/2@3", "search", 3, 2, "g2", 0,
            error="the judge did not reply", error_kind="judge"),
]  # fmt: skip


@pytest.mark.parametrize("form", [*FORMS])
def test_what_was_exported_is_imported_with_its_turns_rewards_and_faults(form: str, tmp_path: Path) -> None:
    export(form, [Flagged(r, ("echo_trap",)) for r in ROLLOUTS], tmp_path / "out")
    assert not (tmp_path / "t").exists(), "a task's name leads nowhere"
    found = [*select([tmp_path / "out"], cache=tmp_path / "cache").rollouts()]
    assert len(found) == 3
    for r in ROLLOUTS:
        (own,) = [x for x in found if x.task.endswith(r.task) and (x.reward, len(x.turns)) == (r.reward, len(r.turns))]
        said = [(t.role, t.text, [(c.name, c.ok) for c in t.tool_calls]) for t in own.turns]
        assert said == [(t.role, t.text, [(c.name, c.ok) for c in t.tool_calls]) for t in r.turns], form
        given = {k: v for k, v in r.components.items() if v is not None}
        assert given.items() <= own.components.items()
        assert (own.outcome, own.error_kind) == (r.outcome, r.error_kind)
        assert own.tokens == r.tokens or r.error_kind


def test_json_lines_keep_every_field(tmp_path: Path) -> None:
    export("jsonl", [Flagged(r) for r in ROLLOUTS], tmp_path / "out")
    found = {r.id: r for r in select([tmp_path / "out"], cache=tmp_path / "cache").rollouts()}
    for r in ROLLOUTS:
        own = found[r.id]
        assert replace(own, detail={}, components={}) == replace(r, detail={}, components={})
        assert dict(own.components) == dict(r.components) and r.detail.items() <= own.detail.items()


def test_a_folder_that_holds_something_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="give a new folder"):
        export("jsonl", [], tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_the_command_chooses_and_names_what_flags_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"task": f"t{i}", "text": "import sys\nsys.exit(0)" if i % 2 else "4", "reward": float(i % 2), "step": i // 8}
        for i in range(32)
    ]
    (tmp_path / "logs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = {"to": "jsonl", "cache": tmp_path / "cache"}
    with pytest.raises(ConfigError, match="with a new folder as --out"):
        export_rollouts([tmp_path / "logs.jsonl"], **asked)
    with pytest.raises(ConfigError, match="none of 32 rollouts"):
        export_rollouts([tmp_path / "logs.jsonl"], out=tmp_path / "none", where=["reward>5"], **asked)
    assert not (tmp_path / "none").exists()
    export_rollouts([tmp_path / "logs.jsonl"], out=tmp_path / "out", where=["step>=2"], findings=True, **asked)
    written = [json.loads(x) for x in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert len(written) == 16 and "16 rollouts" in capsys.readouterr().out
    assert all(bool(w.get("findings")) == (w["reward"] == 1.0) for w in written), written[:2]


@pytest.mark.skipif(importlib.util.find_spec("inspect_ai") is None, reason="Inspect is not installed")
def test_inspect_reads_its_log(tmp_path: Path) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log

    export("inspect", [Flagged(r, ("echo_trap",)) for r in ROLLOUTS], tmp_path / "out")
    logs = sorted((read_eval_log(i) for i in list_eval_logs(str(tmp_path / "out"))), key=lambda log: log.eval.model)
    samples = [s for log in logs for s in log.samples or ()]
    assert len(logs) == 2 and [s.id for s in samples] == ["t/1", "t/1", "../../t"]
    assert samples[0].scores and samples[0].scores["reward"].value == 1.0 and samples[2].error


@pytest.mark.skipif(importlib.util.find_spec("trackio") is None, reason="Trackio is not installed")
def test_trackio_holds_a_trace_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from tests.extras.test_rollout_export import *\n"
        "from evotrainer.extras.rollout_export import write_trackio\n"
        "from evotrainer.records.findings import Finding\n"
        "f = Finding(detector='echo_trap', kind='echo_trap', severity='warn', claim='answers repeat')\n"
        "write_trackio([Flagged(r) for r in ROLLOUTS], Path(sys.argv[1]), 'p', [f])\n"
        "from trackio.sqlite_storage import SQLiteStorage as S\n"
        "traces = [t for r in S.get_runs('p') for t in S.get_traces('p', r)]\n"
        "print(sorted(S.get_runs('p')), len(traces), len(S.get_alerts('p')), traces[0]['metadata']['task'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert "['b1/1@3', 'b1/2@3'] 3 1 t/1" in done.stdout, done.stdout + done.stderr[-2000:]
