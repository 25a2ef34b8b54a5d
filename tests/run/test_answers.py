"""A human's gates without a terminal: the run waits in its folder, and whoever shares that answers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.status import status_json
from evotrainer.errors import AgentError, ConfigError, StoreError
from evotrainer.records.answers import answer_file, give_answer
from evotrainer.records.events import GateAsked, HumanApproval
from evotrainer.verify import checks
from evotrainer.verify.report import Record
from tests.letters_on_paper import QUICK

ROOT = Path(__file__).parents[2]
GATED = ("run.autonomy=human_gated", "run.rounds=1")
DRIVE = """
import sys
from evotrainer.errors import AbortedError
from tests import letters_on_paper
from tests.paper import Paper
paper = Paper(letters_on_paper.finish, letters_on_paper.rollouts)
try:
    if len(sys.argv) > 2:
        paper.start(sys.argv[2], sys.argv[1], sys.argv[3:])
    else:
        paper.resume(sys.argv[1])
except AbortedError as e:
    print(e)
    sys.exit(e.exit_code)
"""

pytestmark = pytest.mark.xdist_group("loop")


def drive(folder: Path, *start: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", DRIVE, str(folder), *start]
    return subprocess.Popen(words, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def asked(folder: Path) -> str:
    """Id of what the run asks now, once it does."""

    def look() -> str:
        with contextlib.suppress(StoreError):  # just being made
            q = api.open_run(folder).question
            return q.id if q is not None and not answer_file(folder, q.id).exists() else ""
        return ""

    return str(until(look))


def gates(run: api.Run) -> list[tuple[str, str, str]]:
    return [(e.body.to, e.body.answer, e.body.by) for e in run.events() if e.kind == "gate"]


def test_a_run_waits_is_killed_and_takes_the_answers_of_another_shell(task_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    first = drive(folder, str(task_file), *QUICK, *GATED)
    question = asked(folder)
    run = api.Run(folder)
    told = status_json(run)
    assert (told["state"], told["waits"]["id"], told["waits"]["where"]) == ("waiting", question, "diagnosis")
    assert f"evotrainer answer {folder}" in told["next"] and told["waits"]["text"]
    with pytest.raises(ConfigError, match="revise needs words"):
        run.answer("revise")
    with pytest.raises(AgentError, match=f"waits for no answer to r9/gate/diagnosis/asked; {question} waits"):
        run.answer("approve", to="r9/gate/diagnosis/asked")
    first.kill()
    first.wait()
    run.answer("approve", "go on", by="ann")  # while nobody drives the run
    with pytest.raises(AgentError, match=r"answered already: approve by ann at .*; the first counts"):
        run.answer("abort")
    assert status_json(run)["waits"] is None

    second = drive(folder)
    assert asked(folder) == "r1/gate/intervention/asked"
    run.answer("abort", by="bob")
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 9 and "aborted at the intervention gate of round 1 by bob" in said
    with pytest.raises(AgentError, match="asks nobody now"):
        run.answer("approve")

    third = drive(folder)
    assert asked(folder) == "r1/gate/intervention/asked/1", "an older answer answers nothing that is asked later"
    while third.poll() is None:
        if (q := run.question) is not None and not answer_file(folder, q.id).exists():
            run.answer("approve")
        time.sleep(0.05)
    assert third.returncode == 0 and run.closed is not None
    assert gates(run)[:3] == [
        (question, "APPROVE", "ann"),
        ("r1/gate/intervention/asked", "ABORT", "bob"),
        ("r1/gate/intervention/asked/1", "APPROVE", gates(run)[2][2]),
    ]
    assert "@" in gates(run)[2][2]
    report = run.verify()
    assert not [p for p in report.problems if p.area in ("gate", "ledger", "head")]
    assert not {"gate", "gate_asked"} & set(report.chain_only)
    assert not [n for n in report.notes if "gates" in n]


def test_waiting_is_no_time_of_the_budget_and_costs_next_to_nothing(task_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    p = drive(folder, str(task_file), *QUICK, *GATED)
    asked(folder)
    ticks = [os.sysconf("SC_CLK_TCK")]
    for _ in range(2):
        stat = Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()
        ticks.append(int(stat[11]) + int(stat[12]))
        time.sleep(2)
    assert (ticks[2] - ticks[1]) / ticks[0] < 0.5, "CPU-seconds of two that it waited"
    spent = status_json(api.Run(folder))["spent"]["wall_s"]
    time.sleep(1.2)
    assert status_json(api.Run(folder))["spent"]["wall_s"] == pytest.approx(spent, abs=0.5)
    p.kill()
    p.wait()


def test_what_nobody_can_read_is_no_answer(task_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    p = drive(folder, str(task_file), *QUICK, *GATED)
    file = answer_file(folder, asked(folder))
    p.kill()
    p.wait()
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"answer": "APPR')
    api.Run(folder).answer("approve")
    with pytest.raises(AgentError, match="answered already"):
        api.Run(folder).answer("approve")
    assert not list(file.parent.glob(".*")), "nothing is left behind"


def test_a_function_and_another_shell_race_and_the_first_counts(
    task_file: Path, tmp_path: Path, letters_paper: Any
) -> None:
    folder = tmp_path / "r"

    def slow(where: str, text: str) -> tuple[str, str]:
        if where == "diagnosis":
            give_answer(folder, api.Run(folder).events(), "approve", by="shell")
            return "ABORT", "too late"
        return "APPROVE", ""

    run = letters_paper.start(task_file, folder, [*QUICK, *GATED], ask=slow)
    assert run.closed is not None and gates(run)[0][1:] == ("APPROVE", "shell")


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("gate", {"to": "r7/gate/diagnosis/asked"}, "which was not asked before it"),
        ("gate", {"answer": "ABORT"}, "ABORT to r1/gate/diagnosis/asked is recorded elsewhere"),
        ("gate", {"by": ""}, "an answer of nobody"),
        ("gate_asked", {"round": 2}, "a question at the diagnosis gate of round 2"),
    ],
)
def test_a_forged_answer_is_found(
    task_file: Path, tmp_path: Path, letters_paper: Any, kind: str, change: dict[str, Any], says: str
) -> None:
    run = letters_paper.start(task_file, tmp_path / "r", [*QUICK, *GATED], ask=lambda where, text: ("APPROVE", ""))
    events = run.events()
    at = next(i for i, e in enumerate(events) if e.kind == kind)
    assert isinstance(events[at].body, GateAsked | HumanApproval)
    forged = replace(events[at], body=events[at].body.model_copy(update=change))
    record = Record(run.folder, [*events[:at], forged, *events[at + 1 :]])
    assert [p for p in checks()[kind](record, forged) if says in p.message]
