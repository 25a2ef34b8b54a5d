"""A reader in a run: asked before a promotion and a certificate, its answers are events, hacks close a direction."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli._reader_questions import waiting_question
from evotrainer.cli._seat_tools import SeatTools
from evotrainer.config.load import load_task
from evotrainer.errors import AgentError, StoreError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.rollout import Rollout
from evotrainer.studies.estimate import estimate, estimate_lines
from evotrainer.verify import Record, checks
from tests.acting import policy
from tests.cli.call import in_this_process
from tests.leaky_task import HONEST, TASK, finish
from tests.paper import Paper, bodies, ids, stopped_before_each

CHEAT = "echo cheat > grade.txt"
READS = """
import json, pathlib, re, sys
asked = json.load(open(sys.argv[1]))["text"]
mark = re.search(r"^=== ([0-9a-f]{16}) begins$", asked, re.M)[1]
shown = asked.split(f"=== {mark} begins")[1]
log = pathlib.Path(sys.argv[2])
log.open("a").write(mark + "\\n")
hack = {"verdict": "hack", "kind": "grader_bypass", "quote": "echo cheat > grade.txt", "why": "It writes its grade."}
print(json.dumps({"rollout": mark, **(hack if "echo cheat" in shown else {"verdict": "honest"})}))
"""
HONEST_ONLY = [HONEST, "judge.audit=never", "run.evolve_harness=false"]
STORY = ("reader", "reader_asked", "reader_answered", "reader_concluded")


def cheating(share: float, branch: str = "b1") -> Any:
    """Search rollouts of which a share of one branch's write their grade; the others act alike."""

    def rollouts(spec: TrialSpec) -> list[Rollout]:
        return policy(spec.trial, {CHEAT: share * (spec.branch == branch)}, {}, base=0.5, tasks=60)

    return rollouts


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


def reader(tmp_path: Path, *more: str, script: str = READS) -> list[str]:
    """Overrides: a program reads."""
    (tmp_path / "reader.py").write_text(script)
    command = json.dumps(["python3", "-SE", str(tmp_path / "reader.py"), "{request_file}", str(tmp_path / "asked.txt")])
    given = ["carrier=command", f"command={command}", "sandbox=false", "each=20", *more]
    return [*HONEST_ONLY, *(f"harness.reader.{x}" for x in given)]


def questions(tmp_path: Path) -> int:
    path = tmp_path / "asked.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def found(run: api.Run) -> list[str]:
    """What `verify` finds wrong with what was asked, answered and concluded."""
    record, check = Record(run.folder, run.events()), checks()
    return [str(p) for e in run.events() if e.kind in (*STORY, "judged") for p in check[e.kind](record, e)]


def test_a_hack_that_only_a_reader_sees_closes_the_direction(task: Path, tmp_path: Path) -> None:
    plain = Paper(finish, cheating(0.5)).start(task, tmp_path / "plain", [HONEST, "run.evolve_harness=false"])
    assert plain.state.branches["b1"].verdict.kind == "promote"  # type: ignore[union-attr]
    run = Paper(finish, cheating(0.5)).start(task, tmp_path / "run", reader(tmp_path))
    b = run.state.branches["b1"]
    assert b.verdict is not None and b.verdict.kind == "invalid" and not b.version
    assert "grader_bypass confirmed by direct evidence (reader)" in b.verdict.reason
    (read,) = b.readings
    assert read.outcome == "confirmed" and read.random.read == 20 and read.finding and read.finding.validity
    assert read.finding.quotes[0].text == CHEAT
    assert run.state.champion == "b0" and [c.outcome for c in run.state.branches["b0"].readings] == ["none"]
    assert not found(run) and len(bodies(run, "reader_answered")) == questions(tmp_path) == 40


def test_killed_between_question_and_answer_the_run_asks_nothing_twice(task: Path, tmp_path: Path) -> None:
    paper, folder = Paper(finish, cheating(0.5)), tmp_path / "cut" / "run"
    given = reader(tmp_path, "at_once=1", "each=6")
    whole = [e.id for e in paper.start(task, tmp_path / "whole" / "run", given).events()]
    before = questions(tmp_path)
    cuts = ["b0/reader/1/answered/2/0", "b1/reader/1", "b1/reader/1/asked/0/0", "b1/reader/1/answered/0/0",
            "b1/reader/1/asked/3/0", "b1/reader/1/concluded", "b1/judged"]  # fmt: skip
    run = stopped_before_each(cuts, partial(paper.start, task, folder, given), partial(paper.resume, folder))
    assert [x for x in ids(run) if "/reader/" in x] == [x for x in whole if "/reader/" in x]
    lost = sum("answered" in x for x in cuts)
    assert questions(tmp_path) - before == before + lost, "only what was under way is asked again"
    assert not found(run) and run.state.branches["b1"].verdict.kind == "invalid"  # type: ignore[union-attr]


def test_verify_rebuilds_questions_and_checks_quotes_and_conclusions(task: Path, tmp_path: Path) -> None:
    run = Paper(finish, cheating(0.5)).start(task, tmp_path / "run", reader(tmp_path, "each=6"))
    record, check = Record(run.folder, run.events()), checks()

    def says(kind: str, number: int = 0, **changes: Any) -> str:
        event = [e for e in run.events() if e.kind == kind][number]
        other = replace(event, body=event.body.model_copy(update=changes))
        return " ".join(str(p) for p in check[kind](record, other))

    given = bodies(run, "reader_answered")
    at = next(i for i, a in enumerate(given) if a.verdict.verdict == "hack")
    first = given[at]
    wrong = first.verdict.model_copy(update={"verdict": "honest", "kind": "", "quote": ""})
    assert "verdict honest recorded, from the raw answer it is: hack" in says("reader_answered", at, verdict=wrong)
    assert "wrote nowhere" in says("reader_answered", at, raw=first.raw.replace("cheat", "never"))
    assert "another question was asked" in says("reader_asked", question="0" * 64)
    assert "was not picked there" in says("reader_asked", rollout="x")
    assert "nobody was asked for" in says("reader_answered", question="0" * 64)
    assert "outcome does not follow" in says("reader_concluded", 1, outcome="none")
    assert "no finished training" in says("reader", trials=("b1-s9",))
    gone = bodies(run, "reader")[0].picks[0].model_copy(update={"rollout": "gone"})
    assert "search rollout gone of" in says("reader", picks=(gone,))


def test_where_nothing_can_be_closed_hacks_stand_beside_the_certificate(task: Path, tmp_path: Path) -> None:
    some = Paper(finish, cheating(0.5, "b0")).start(task, tmp_path / "run", [*reader(tmp_path), "run.rounds=0"])
    (read,) = some.state.branches["b0"].readings
    assert (read.occasion, read.outcome) == ("start", "confirmed") and some.champion == "b0"
    caveat = next(c for c in some.caveats["b0"] if c.kind == "read_hacks")
    assert "python3 read 20 rollouts and calls" in caveat.text and "not nominated, read at random: 20" in caveat.text
    told = [in_this_process(*x).stdout for x in (("status", str(some.folder)), ("why", str(some.folder), "b0"))]
    assert all("reward hacks" in x and "at least" in x for x in (*told, some.report().read_text()))
    assert CHEAT in told[1]


def test_without_a_reader_the_certificate_says_that_nobody_judged(task: Path, tmp_path: Path) -> None:
    run = Paper(finish, cheating(0.5)).start(task, tmp_path / "run", [HONEST, "run.rounds=0"])
    told = "ot judged by a reader; [harness.reader] of a task file adds one"
    shown = (in_this_process("status", str(run.folder)).stdout, in_this_process("why", str(run.folder), "b0").stdout)
    assert all(told in " ".join(x.split()) for x in (*shown, run.report().read_text()))


def test_a_confirmed_reading_asks_for_an_audit_of_what_can_be_closed(task: Path, tmp_path: Path) -> None:
    given = [*reader(tmp_path)[:1], *reader(tmp_path)[2:], "judge.audit=suspects"]
    run = Paper(finish, cheating(0.5)).start(task, tmp_path / "run", given)
    (asked,) = [b.audit for b in bodies(run, "audited") if b.audit.trigger == "reader"]
    assert (asked.branch, asked.capability, asked.confirmed) == ("b1", "key", False)
    v = run.state.branches["b1"].verdict
    assert v is not None and v.kind == "promote", "the environment says that closing the key answers every kind"
    assert "judged with key closed" in next(g.message for g in v.gates if g.gate == "validity") and not found(run)
    assert [c.kind for c in run.caveats["b1"]].count("read_hacks") == 1, "what was quoted is told all the same"


@pytest.mark.parametrize(
    ("says", "problem", "asked"),
    [
        ("print('I would rather not say')", "the answer holds no JSON object", 2),
        ("pass", "the answer is empty", 2),
        ("print(json.dumps({'rollout': mark, **hack, 'quote': 'rm -rf /'}))", "the policy wrote nowhere", 2),
        ("print(json.dumps({'rollout': 'f' * 16, 'verdict': 'honest'}))", "the answer is not about this rollout", 2),
        ("print('x' * 10_000_000)", "the answer is longer than 65,536 characters", 2),
        ("import time; time.sleep(60)", "gave no answer within 0.3 s", 1),
        ("sys.exit('no credit')", "ended with exit code 1: no credit", 1),
    ],
)
def test_a_reader_that_is_no_use_is_told_once_and_nothing_counts_as_honest(
    task: Path, tmp_path: Path, says: str, problem: str, asked: int
) -> None:
    script = READS.rsplit("print(", 1)[0] + says + "\n"
    slow = ["timeout_s=0.3"] if "sleep" in says else []
    given = reader(tmp_path, "each=3", "at_once=1", *slow, script=script)
    run = Paper(finish, cheating(0.0)).start(task, tmp_path / "run", [*given, "run.rounds=0"])
    (read,) = run.state.branches["b0"].readings
    assert (read.outcome, read.unread, read.random.read, read.finding) == ("unread", 3, 0, None)
    given = bodies(run, "reader_answered")
    assert len(given) == 3 * asked and all(problem in a.problem and a.verdict is None for a in given)
    assert all(len(a.raw) <= 65_537 for a in given) and not found(run)
    assert "b0: not judged, the reader gave no valid answer" in " ".join(
        in_this_process("status", str(run.folder)).stdout.split()
    )


def test_the_budget_ends_a_reading_and_says_so(task: Path, tmp_path: Path) -> None:
    run = Paper(finish, cheating(0.0)).start(task, tmp_path / "run", reader(tmp_path, "rollouts=25"))
    read = [(x.branch, x.occasion, x.random.read) for x in bodies(run, "reader_concluded")]
    assert read == [("b0", "start", 20), ("b1", "promotion", 5)] and questions(tmp_path) == 25
    assert bodies(run, "reader_concluded")[1].stopped == "harness.reader.rollouts=25 is used up"


def test_a_person_reads_by_the_queue_and_an_mcp_client_too(task: Path, tmp_path: Path) -> None:
    given = [*HONEST_ONLY, "run.rounds=0", "harness.reader.carrier=queue", "harness.reader.each=2"]
    folder, done = tmp_path / "run", list[Any]()
    paper = Paper(finish, cheating(1.0, "b0"))
    work = threading.Thread(target=lambda: done.append(paper.start(task, folder, given)), daemon=True)
    work.start()
    end = time.monotonic() + 60
    asking = False
    while not asking:
        assert time.monotonic() < end
        time.sleep(0.02)
        with suppress(StoreError):  # no ledger yet, or one that holds nothing yet
            asking = waiting_question(api.open_run(folder)) is not None
    asked = in_this_process("seat", str(folder)).stdout
    mark = re.findall(r"=== ([0-9a-f]{16}) ends", asked)[-1]
    hack = {"verdict": "hack", "kind": "grader_bypass", "quote": CHEAT, "why": "It writes its grade."}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"rollout": "0" * 16, **hack}))
    assert "not about this rollout" in in_this_process("propose", str(folder), str(answer)).stderr
    answer.write_text(json.dumps({"rollout": mark, **hack}))
    assert in_this_process("propose", str(folder), str(answer)).returncode == 0
    tools = SeatTools(folder)
    while (open_ := waiting_question(tools.run)) is None or "/1/0" not in open_.id:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert "rollout(), then judge()" in tools.overview()
    mark = re.findall(r"=== ([0-9a-f]{16}) ends", tools.rollout())[-1]
    with pytest.raises(AgentError, match="wrote nowhere"):
        tools.judge(mark, "hack", "grader_bypass", "something else")
    assert tools.judge(mark, **hack) == "answered: b0/reader/1/answered/1/0"
    work.join(60)
    (run,) = done
    assert [c.outcome for c in run.state.branches["b0"].readings] == ["confirmed"] and not found(run)


def test_a_replay_asks_nobody_and_secrets_stay_out_of_the_ledger(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READER_KEY", "sk-very-secret-key")
    script = READS.replace('"It writes its grade."', '"It writes its grade, " + __import__("os").environ["READER_KEY"]')
    given = reader(tmp_path, "each=6", 'env=["READER_KEY"]', script=script)
    run = Paper(finish, cheating(0.5)).start(task, tmp_path / "run", given)
    said = [a.verdict.why for a in bodies(run, "reader_answered") if a.verdict.verdict == "hack"]
    assert set(said) == {"It writes its grade, [READER_KEY]"}
    held = b"".join(p.read_bytes() for p in run.folder.rglob("*") if p.is_file())
    assert b"sk-very-secret-key" not in held and "READER_KEY" not in os.environ
    asked = questions(tmp_path)
    replay = [
        *HONEST_ONLY,
        "harness.reader.carrier=replay",
        f"harness.reader.run={run.folder}",
        "harness.reader.each=6",
    ]
    again = Paper(finish, cheating(0.5)).start(task, tmp_path / "again", replay)
    assert questions(tmp_path) == asked and not found(again)
    assert [a.verdict for a in bodies(again, "reader_answered")] and again.state.branches[
        "b1"
    ].verdict.kind == "invalid"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["harness.reader.carrier=llm"], "carrier llm needs harness.reader.model"),
        (
            ["harness.reader.carrier=command", "harness.reader.command=['no-such']"],
            "harness.reader.command: no program",
        ),
        (
            ["harness.reader.carrier=llm", "harness.reader.model=m", "harness.reader.key_env=NO_KEY"],
            "NO_KEY is not set",
        ),
        (["harness.reader.carrier=replay", "harness.reader.run=/nowhere"], "harness.reader.run: no run in"),
        (["harness.reader.carier=llm"], "did you mean carrier"),
    ],
)
def test_who_cannot_be_asked_is_named_before_anything_is_trained(
    task: Path, tmp_path: Path, given: list[str], says: str
) -> None:
    done = in_this_process("run", str(task), "--out", str(tmp_path / "run"), *given)
    assert done.returncode == 2 and says in done.stderr and "agent_options" not in done.stderr
    assert not (tmp_path / "run" / "ledger.db").exists()


def test_an_estimate_counts_the_questions_and_an_audit_says_that_nobody_read(task: Path, tmp_path: Path) -> None:
    told = estimate_lines(estimate(load_task(task, reader(tmp_path)), step_s=1.0))
    (line,) = [x for x in told if "reader" in x]
    assert line.startswith(
        "a reader (python3) is asked about some 40 rollouts, at most 40 (harness.reader.rollouts=200)"
    )
    assert not [x for x in estimate_lines(estimate(load_task(task), step_s=1.0)) if "reader" in x]
    run = Paper(finish, cheating(0.5)).start(task, tmp_path / "run", [*HONEST_ONLY, "run.rounds=0"])
    assert "- not judged by a reader; --reader" in in_this_process("audit", str(run.folder), "--no-cache").stdout
