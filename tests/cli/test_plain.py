"""`--json` of the commands that read a run: it says what the text says, and holds no score of a single task."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.doctor import CHECK
from evotrainer.cli.show import show
from evotrainer.cli.status import status
from evotrainer.cli.verify import verify
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.records.reading import load

pytestmark = pytest.mark.xdist_group("loop")


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_status_as_json_names_every_branch_with_its_effect(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    status(finished.folder, as_json=True)
    told = printed(capsys)
    rows = {b["branch"]: b for b in told["branches"]}
    assert rows.keys() == {"base", *finished.state.branches}
    assert [b for b, row in rows.items() if row["champion"]] == [told["champion"]] == [finished.champion]
    last = {v.branch: v for v in finished.verdicts}
    for v in last.values():
        assert rows[v.branch]["status"] in (v.kind, "invalid", "withheld")
        if v.effect and not rows[v.branch]["on_fresh_seeds"]:
            assert rows[v.branch]["effect"]["mean"] == v.effect.mean


def test_show_without_a_name_is_the_champion(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    show(finished.folder)
    default = capsys.readouterr().out
    show(finished.folder, finished.champion)
    assert capsys.readouterr().out == default
    show(finished.folder, as_json=True)
    told = printed(capsys)
    assert told["branch"] == finished.champion
    assert {t["trial"] for t in told["trials"]} >= {f"{finished.champion}-s1", f"{finished.champion}-s2"}


def test_show_as_json_tells_a_trial_and_a_rollout(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    show(finished.folder, "b1-s1", as_json=True)
    trial = printed(capsys)
    (search,) = [s["score"] for s in trial["result"]["scores"] if s["split"] == "search"]
    recorded = next(e.body for e in finished.events() if e.kind == "finished" and e.body.trial == "b1-s1")
    assert search == next(s.score for s in recorded.scores if s.split == "search")
    r = load([finished.folder / "rollouts" / "b1-s1"], split="search", limit=1)[0]
    show(finished.folder, r.id[:12], as_json=True)
    assert printed(capsys)["turns"][-1]["text"] == r.turns[-1].text
    with pytest.raises(ConfigError, match="no branch, trial or readable rollout"):
        show(finished.folder, "nothing", as_json=True)


def test_no_json_holds_a_score_of_a_single_gate_task(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [e.body for e in finished.events() if e.kind == "finished"]
    gate = {task for b in bodies for s in b.scores if s.split == "gate" for task in s.per_task}
    assert gate
    said = []
    for command in (show, why):
        command(finished.folder, as_json=True)
        said.append(capsys.readouterr().out)
    for what in ("b0", "b1", "b1-s1"):
        show(finished.folder, what, as_json=True)
        said.append(capsys.readouterr().out)
    assert not [task for task in gate if any(json.dumps(task) in text for text in said)]


def test_why_as_json_gives_the_events_and_the_recomputation(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    why(finished.folder, "b1", as_json=True)
    told = printed(capsys)
    assert told["recomputed"] and told["differences"] == []
    kinds = {e["kind"] for e in told["events"]}
    assert {"branch", "judged"} <= kinds
    verdict = next(e["body"]["verdict"] for e in told["events"] if e["kind"] == "judged")
    assert verdict["branch"] == "b1"


def test_verify_as_json_says_ok_and_names_what_does_not_hold(
    copy: Any, finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    verify(finished.folder)
    assert not re.search(r"\b1 [a-z ]+s\b", capsys.readouterr().out.splitlines()[0]), "one thing, in the singular"
    verify(finished.folder, as_json=True)
    told = printed(capsys)
    assert told["ok"] and not told["problems"] and told["checked"]["events"] == len(finished.events())
    run = copy()
    (run.folder / "trials" / "b1-s1" / "policy" / "model.safetensors").write_bytes(b"another")
    with pytest.raises(IntegrityError):
        verify(run.folder, as_json=True)
    told = printed(capsys)
    assert not told["ok"] and any("b1-s1" in p["message"] for p in told["problems"])


def test_a_line_of_doctor_is_read_back() -> None:
    found = CHECK.match("[warn] 1.2 GB free here")
    assert found and (found[1], found[2]) == ("warn", "1.2 GB free here")
    assert CHECK.match("       a detail of the line before") is None
