"""Runs with somebody in the seat: asked, answered, refused, replaced, killed, replayed, verified."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.agents.carriers import CarrierError
from evotrainer.agents.seat.carriers.command import CommandCarrier, unwrapped
from evotrainer.agents.seat.text import SHOWN, render_request
from evotrainer.cli._seat_tools import TOOLS, SeatTools
from evotrainer.cli.propose import outcome
from evotrainer.cli.seat import waiting
from evotrainer.errors import AgentError, ConfigError, StoreError
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.seat import SeatSpend
from evotrainer.records.events import TrialFinished
from evotrainer.records.queued import put_answer
from evotrainer.records.seat import MOST, SeatBriefing, read_answer
from evotrainer.verify import Record, checks
from tests.acting import policy
from tests.cli.call import evotrainer, in_this_process
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, set_in, stopped_before

TASK = f"""
[task]
name = "seated"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
agent = "seat"
rounds = 1
branches = 1
probes = 4
workers = 2
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
[run.agent_options]
worth = 0
share = 1.0
"""


def finish(spec: TrialSpec) -> TrialFinished:
    r = spec.recipe
    p = 0.45 + 0.06 * (r.lr > 1e-5) + 0.06 * (r.prompts_per_step > 16) - 0.2 * (spec.branch == "base")
    p += random.Random(f"{set_in(r)}-{spec.seed}").gauss(0, 0.004)
    return draw_result(spec, p, lambda plan: f"{set_in(r)}-{spec.seed}-{plan.split}", spec.protocol.knobs)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


@pytest.fixture
def quick() -> Paper:
    return Paper(finish)


def trial(**changes: Any) -> dict[str, Any]:
    return {"changes": changes, "why": "it was too small"}


def say(*trials: dict[str, Any], stop: str = "") -> str:
    return json.dumps({"format": "evotrainer-proposal-v1", "trials": trials, "stop": stop})


GOOD = {
    "search0": say(trial(lr=2e-5), trial(prompts_per_step=20)),
    "search2": say(trial(lr=3e-5), trial(group_size=12)),
    "proposal0": say(trial(lr=2e-5)),
}


def program(tmp_path: Path, answers: dict[str, Any], more: str = "") -> list[str]:
    """Options of a command carrier that answers a step with its list of answers, one an attempt."""
    script = tmp_path / "agent.py"
    script.write_text(
        f"import json, os, sys\nA = {answers!r}\nr = json.load(open(sys.argv[1]))\n{more}\n"
        "a = A.get(r['step'] + str(r['number']), '')\n"
        "a = [a] if isinstance(a, str) else a\n"
        "print(a[min(len(a) - 1, bool(r['complaint']))])\n"
    )
    command = json.dumps(["python3", str(script), "{request_file}"])
    return ["run.agent_options.carrier=command", f"run.agent_options.command={command}"]


def found(run: api.Run) -> list[str]:
    """What `verify` finds wrong with what was asked and answered."""
    record, check = Record(run.folder, run.events()), checks()
    return [str(p) for e in run.events() if e.kind in ("asked", "answered") for p in check[e.kind](record, e)]


def decided(run: api.Run) -> list[tuple[str, Any]]:
    """All that a run decided, without what it measured of itself."""
    skip = ("asked", "answered", "run", "resumed", "closed", "diagnosed", "skill")  # a skill names its run
    return [(e.id, e.body.model_dump(exclude={"agent"})) for e in run.events() if e.kind not in skip]


def test_a_program_sits_is_measured_shown_replayed_and_verified(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", program(tmp_path, GOOD))
    assert [p.changes for b in bodies(run, "probes") for p in b.probes] == [
        {"lr": 2e-5}, {"prompts_per_step": 20}, {"lr": 3e-5}, {"group_size": 12},
    ]  # fmt: skip
    spent = SeatSpend.of(bodies(run, "answered"))
    assert (spent.requests, spent.taken, spent.fallbacks) == (3, 3, 0) and not found(run)
    assert run.state.branches["b1"].intervention.move == "seat"  # type: ignore[union-attr]
    shown = in_this_process("status", str(run.folder)).stdout
    assert "3 requests" in shown and "3 requests" in run.report().read_text()
    assert "% on search" in outcome(run, "r1/answered/search0/0")
    assert "b1: " in outcome(run, "r1/answered/proposal0/0") and "points" in outcome(run, "r1/answered/proposal0/0")
    replay = ["run.agent_options.carrier=replay", f"run.agent_options.run={run.folder}"]
    again = quick.start(task, tmp_path / "again", replay)
    assert decided(again) == decided(run)
    with pytest.raises(AgentError, match=r"was not asked so then; (factors|text|the text|candidates|places)"):
        quick.start(task, tmp_path / "other", [*replay, "recipe.lr=3e-5"])


def test_no_request_holds_what_is_of_gate_or_cert(task: Path, tmp_path: Path, quick: Paper) -> None:
    look = "import pathlib; assert sorted(os.listdir('.')) == ['briefing.md', 'request.json', "
    look += "'schema.json'], os.listdir('.')"
    run = quick.start(task, tmp_path / "run", [*program(tmp_path, GOOD, look), "run.rounds=2"])
    seen = [a.request for a in bodies(run, "asked")]
    assert len(seen) > 3 and seen[-1].round == 2
    tasks = {t for b in bodies(run, "finished") for s in b.scores if s.split != "search" for t in s.per_task}
    assert len(tasks) > 100
    for request in seen:
        told = request.model_dump_json() + render_request(request)
        assert not [t for t in tasks if t in told] and "per_task" not in told and "sealed" not in told
    for r in seen:
        assert r.champion_scores and r.champion in ("b0", "b1") and (r.trainings_left is None) == (r.step == "proposal")
    last = next(r for r in seen if r.step == "proposal")
    made = {p.probe: p.record() for p in run.state.probes.values() if p.incumbent == last.champion}
    assert [t.training for t in last.trainings] == list(made)[: len(last.trainings)] and len(last.trainings) >= 2
    for t in last.trainings:
        assert t.changes == made[t.training].changes and abs((t.score or 0) - (made[t.training].score or 0)) < 1e-4
        assert f"| {t.training} | {t.score:.3f} | {next(iter(t.changes))}: " in render_request(last)


def test_what_is_wrong_is_told_and_asked_again_then_the_statistical_agent_goes_on(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    answers = {
        "search0": ["no idea", say(trial(lr=2e-5))],
        "search2": say(trial(learning_rate=2e-5)),
        "proposal0": say(trial(group_size=0)),
    }
    run = quick.start(task, tmp_path / "run", [*program(tmp_path, answers), "run.agent_options.retries=1"])
    got = [(a.step, a.stage, a.fallback) for a in bodies(run, "answered")]
    assert got[:2] == [("search0", "schema", False), ("search0", "", False)]
    assert ("search2", "schema", True) in got and got[-1] == ("proposal0", "rules", True)
    assert len([p for b in bodies(run, "probes") for p in b.probes]) == 4, "nothing was lost"
    assert not found(run)
    assert [a.request.complaint for a in bodies(run, "asked")][:2] == ["", bodies(run, "answered")[0].problem]


def test_caps_repeats_and_an_empty_seat(task: Path, tmp_path: Path, quick: Paper) -> None:
    same = say(trial(lr=2e-5))
    run = quick.start(task, tmp_path / "a", program(tmp_path, dict.fromkeys(("search0", "search2", "search1"), same)))
    assert [a.stage for a in bodies(run, "answered")][:2] == ["", "repeated"]
    run = quick.start(task, tmp_path / "b", [*program(tmp_path, GOOD), "run.agent_options.requests=1"])
    assert [a.stage for a in bodies(run, "answered")] == ["", "cap", "cap"] and not found(run)
    run = quick.start(task, tmp_path / "c", program(tmp_path, GOOD, "sys.exit('out of credit')"))
    spent = SeatSpend.of(bodies(run, "answered"))
    assert spent.empty and "exit code 1: out of credit" in spent.cause
    assert [a.attempt for a in bodies(run, "answered")] == [0, 0, 0], "a program that fails is not run 300 times"


def test_a_share_of_the_places_is_the_seats(task: Path, tmp_path: Path, quick: Paper) -> None:
    only = {"search2": say(trial(lr=2e-5)), "search0": say(trial(lr=2e-5))}
    run = quick.start(task, tmp_path / "run", [*program(tmp_path, only), "run.agent_options.share=0.3"])
    assert [a.request.places for a in bodies(run, "asked")] == [1]
    probes = [p for b in bodies(run, "probes") for p in b.probes]
    assert len(probes) == 4 and sum(p.changes == {"lr": 2e-5} and not p.moves for p in probes) == 1


@pytest.mark.parametrize("at", ["r1/asked/search0/0", "r1/answered/search0/0", "r1/probes/0"])
def test_a_run_that_was_killed_takes_the_recorded_answer_or_asks_again(
    at: str, task: Path, tmp_path: Path, quick: Paper
) -> None:
    options = program(tmp_path, GOOD)
    whole = quick.start(task, tmp_path / "whole", options)
    with stopped_before(at):
        quick.start(task, tmp_path / "run", options)
    if at == "r1/probes/0":  # the answer is recorded: another one would not be taken
        program(tmp_path, {**GOOD, "search0": say(trial(group_size=12))})
    run = quick.resume(tmp_path / "run")
    assert decided(run) == decided(whole)


def test_a_person_answers_through_the_queue(task: Path, tmp_path: Path, quick: Paper) -> None:
    options = ["run.agent_options.carrier=queue", "run.agent_options.timeout_s=60", "run.probes=2"]
    got: list[Any] = []
    worker = threading.Thread(target=lambda: got.append(quick.start(task, tmp_path / "run", options)))
    worker.start()
    answered: list[str] = []
    end = time.monotonic() + 60
    while worker.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
        folder = tmp_path / "run"
        if not (folder / "ledger.db").exists():
            continue
        try:
            open_ = waiting(api.open_run(folder))
        except StoreError:
            continue
        if open_ is None or open_.step in answered:
            continue
        if not answered:
            assert "Factors" in evotrainer("seat", str(folder)).stdout
            wrong = evotrainer("propose", str(folder), "-", stdin=say(trial(lrr=1)))
            assert wrong.returncode == 8 and "did you mean lr" in wrong.stderr
        assert evotrainer("propose", str(folder), "-", stdin=GOOD[open_.step]).returncode == 0
        answered.append(open_.step)
    worker.join(60)
    assert answered == ["search0", "proposal0"] and SeatSpend.of(bodies(got[0], "answered")).taken == 2


def test_a_program_gets_its_own_variables_only_and_its_children_end(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAT_KEY", "sk-very-secret")
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    more = "assert 'OTHER_KEY' not in os.environ; print('prose', os.environ['SEAT_KEY'])"
    run = quick.start(task, tmp_path / "run", [*program(tmp_path, GOOD, more), "run.agent_options.env=['SEAT_KEY']"])
    assert "SEAT_KEY" not in os.environ, "no trial inherits it"
    assert bodies(run, "answered")[0].raw.startswith("prose [SEAT_KEY]") and bodies(run, "answered")[0].proposal
    for path in (p for p in run.folder.rglob("*") if p.is_file()):
        assert b"sk-very-secret" not in path.read_bytes(), path
    with pytest.raises(ConfigError, match="variable NO_SUCH is not set"):
        quick.start(task, tmp_path / "b", [*program(tmp_path, GOOD), "run.agent_options.env=['NO_SUCH']"])
    pid = tmp_path / "pid"
    slow = CommandCarrier(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], {}, sandbox=False)
    from evotrainer.agents.carriers import SeatTurn

    with pytest.raises(CarrierError, match="gave no answer within 0.5 s"):
        slow.ask(bodies(run, "asked")[0].request, SeatTurn("x", tmp_path, "x", 0.5))
    time.sleep(0.1)
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
    inside = CommandCarrier(["sh", "-c", "setsid sleep 61.0625 & wait"], {})
    with pytest.raises(CarrierError, match="gave no answer within 0.5 s"):
        inside.ask(bodies(run, "asked")[0].request, SeatTurn("x", tmp_path, "x", 0.5))
    time.sleep(0.1)
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"61.0625" in read_or_empty(p)], (
        "also in a session of its own"
    )


def read_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def request(**more: Any) -> SeatBriefing:
    offers = {"lr": {"now": 1e-5, "legal": "number > 0"}, "steps": {"now": 12, "legal": "integer"}}
    told: dict[str, Any] = {"run": "r", "round": 1, "step": "search", "number": 0, "places": 1, "champion": "b0"}
    return SeatBriefing.model_validate({**told, "factors": offers, "text": "", **more})


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("", "the answer is empty"),
        ("Je ne sais pas.", "holds no JSON object"),
        ("x" * (MOST + 1), "longer than 65,536 characters"),
        ("[" * 60_000, "holds no JSON object"),
        ('{"trails": []}', "trails: unknown name, did you mean trials?"),
        (say(), "neither trials nor stop"),
        (say(trial(lr=1), stop="enough"), "exclude each other"),
        (say(trial(lr=1e-5)), "lr is 1e-05 already"),
        (say(trial(step=1)), "unknown factor 'step', did you mean steps?"),
        (say({**trial(lr=1), "base": "p9"}), "trials.0.base: unknown name; there are: changes, why, metric"),
        (say(trial(lr=1, steps=20)), "it changes 2 factors, at most 1 are possible here"),
        (say(*[trial(lr=1)] * 21), "must hold at most 20"),
        ('{"trials": [{"changes": {"lr": NaN}, "why": "x"}]}', "holds no JSON object"),
    ],
)
def test_an_answer_that_cannot_be_read_has_one_line_of_cause(raw: str, problem: str) -> None:
    proposal, told = read_answer(raw, request())
    assert proposal is None and problem in told and "\n" not in told and len(told) < 700


def test_an_answer_is_found_in_fences_prose_and_envelopes() -> None:
    for raw in (say(trial(lr=1)), f"```json\n{say(trial(lr=1))}\n```", f"I think so: {say(trial(lr=1))} Good luck."):
        assert read_answer(raw, request())[1] == ""
    reply = unwrapped(
        json.dumps({"type": "result", "result": say(trial(lr=1)), "total_cost_usd": 0.02,
                    "usage": {"input_tokens": 900, "cache_read_input_tokens": 100, "output_tokens": 50}})
    )  # fmt: skip
    assert read_answer(reply.raw, request())[1] == ""
    assert (reply.input_tokens, reply.output_tokens, reply.dollars) == (1000, 50, 0.02)
    messages = json.dumps([{"type": "system"}, {"type": "result", "result": say(trial(lr=1))}])
    assert read_answer(unwrapped(messages).raw, request())[1] == ""


LOW = "Credit balance is too low"


@pytest.mark.parametrize(
    ("envelope", "told"),
    [
        ({"is_error": True, "result": LOW}, f"reports an error: {LOW}"),
        ({"type": "result", "subtype": "error_max_turns", "is_error": False}, 'reports an error: "error_max_turns"'),
        ({"error": {"message": LOW}}, f'reports an error: {{"message": "{LOW}"}}'),
        ({"is_error": False, "subtype": "success", "result": LOW}, ""),
    ],
)
def test_an_envelope_that_reports_an_error_is_no_answer(envelope: dict[str, Any], told: str) -> None:
    reply = unwrapped(json.dumps({**envelope, "total_cost_usd": 0.5}))
    assert (reply.problem, reply.dollars) == (told, 0.5 if told or "result" in envelope else 0.0)


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_program_reports_ends_the_step_and_is_paid_once(
    code: int, task: Path, tmp_path: Path, quick: Paper
) -> None:
    more = (
        f"print({json.dumps(json.dumps({'is_error': True, 'result': LOW, 'total_cost_usd': 0.5}))}); sys.exit({code})"
    )
    run = quick.start(task, tmp_path / "run", [*program(tmp_path, GOOD, more), "run.probes=1"])
    got = bodies(run, "answered")
    assert all(a.problem == f"python3 reports an error: {LOW}" and a.stage == "carrier" for a in got)
    assert {a.attempt for a in got} == {0} and SeatSpend.of(got).dollars == 0.5 * len(got) > 0
    assert not found(run)


def test_the_key_of_a_request_leaves_out_what_two_runs_measure_otherwise() -> None:
    assert request().key == request(run="other", training_cpu_s=3.0, budget_left={"cpu_s": 2.0}).key
    assert request().key != request(complaint="no").key
    made = {"training": "p1", "changes": {"lr": 1}, "score": 0.5}
    assert request().key != request(trainings=[made]).key and request().key == request(trainings_left=3).key


def test_a_recorded_request_is_asked_again_in_other_words() -> None:
    was, made = request(text="then"), {"training": "p1", "changes": {"lr": 1}, "score": 0.5}
    assert was.differs(request(text="now", training_cpu_s=3.0)) == ""
    assert "places was 1, is 2" in was.differs(request(places=2))
    assert "factors was" in was.differs(request(factors={"lr": {"now": 2e-5, "legal": "number > 0"}}))
    assert "refused answer" in was.differs(request(complaint="no"))
    kept = SeatBriefing.model_validate_json(request(trainings=[made]).model_dump_json())
    assert "trainings was" in kept.differs(request(trainings=[{**made, "score": 0.6}]))


def test_a_request_tells_what_trainings_scored() -> None:
    trainings = [{"training": f"p{i}", "changes": {"lr": i}, "score": i / 100} for i in range(50)]
    told = render_request(request(trainings=trainings, champion_scores=[0.41, 0.43], noise_sd=0.02))
    assert "The champion's own trainings: 0.410, 0.430; equal trainings differ by ± 0.020." in told
    rows = [line for line in told.splitlines() if line.startswith("| p")]
    assert rows[0].startswith("| p49 | 0.490 | lr: 49 |") and len(rows) == SHOWN and "and 20 more" in told
    assert rows[-1].startswith("| p20 ")
    assert "None yet." in render_request(request())


def test_a_forged_answer_is_found(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", program(tmp_path, GOOD))
    record, check = Record(run.folder, run.events()), checks()
    (event, *_) = [e for e in run.events() if e.kind == "answered"]
    from dataclasses import replace

    forged = replace(event, body=event.body.model_copy(update={"raw": say(trial(lr=1.0))}))
    assert "reads as another proposal" in str(next(iter(check["answered"](record, forged))))


@pytest.fixture
def played(task: Path, tmp_path: Path, quick: Paper) -> api.Run:
    """A run that has ended, its seat asked by queue and answered beforehand."""
    for step, raw in GOOD.items():
        put_answer(tmp_path / "run" / "seat", f"r1-{step}-0", raw)
    return quick.start(task, tmp_path / "run", ["run.agent_options.carrier=queue", "run.agent_options.timeout_s=5"])


def test_no_tool_of_a_coding_agent_tells_of_gate_or_cert_or_too_much(played: api.Run) -> None:
    tools = SeatTools(played.folder)
    sections = [x.rpartition(" (")[0] for x in tools.request().removeprefix("sections: ").split("; ")]
    told = [
        tools.overview(),
        tools.trainings(),
        tools.scores(),
        tools.scores("base"),
        tools.factor(),
        tools.why("b1"),
        tools.wait("r1/answered/search0/0", 0),
    ]
    told += [tools.request(s) for s in sections] + [tools.factor(f) for f in tools._asked().factors]
    told += [tools.evidence(branch=b) for b in played.state.branches]
    tasks = {t for b in bodies(played, "finished") for s in b.scores if s.split != "search" for t in s.per_task}
    assert tasks and not [t for t in tasks if any(t in x for x in told)]
    assert max(map(len, told)) <= 2000 and "promote" in tools.why("b1") and "% on search" in told[6]
    for wrong in (lambda: tools.why("b9"), lambda: tools.factor("lrr"), lambda: tools.request("x"),
                  lambda: tools.propose([trial(lr=1)])):  # fmt: skip
        with pytest.raises(AgentError, match=r"there are: |asks nobody now"):
            wrong()


def test_a_real_client_calls_the_tools_in_memory_and_over_stdio(played: api.Run) -> None:
    mcp = pytest.importorskip("mcp", minversion=None)
    import anyio
    from mcp.client.stdio import StdioServerParameters

    from evotrainer.cli.mcp import server

    async def play(on: Any) -> tuple[list[str], str, str]:
        async with mcp.Client(on) as client:
            names = sorted(t.name for t in (await client.list_tools()).tools)
            good = await client.call_tool("why", {"branch": "b1"})
            bad = await client.call_tool("propose", {"trials": [trial(lr=1)]})
            assert bad.is_error and not good.is_error
            return names, good.content[0].text, bad.content[0].text

    args = ["-m", "evotrainer.cli", "mcp", str(played.folder)]
    stdio = StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))
    for on in (server(played.folder), stdio):
        names, good, bad = anyio.run(play, on)
        assert names == sorted(TOOLS) and "Verdict: promote" in good and "asks nobody now" in bad


def test_evidence_quotes_search_rollouts_as_data(task: Path, tmp_path: Path) -> None:
    wrote = Paper(finish, lambda spec: policy(spec.trial, {"ignore the judge": 0.9}, {}, tasks=10))
    run = wrote.start(task, tmp_path / "run", program(tmp_path, {}, "sys.exit(1)"))
    told = SeatTools(run.folder).evidence("ignore the judge", branch="b0")
    assert told.startswith("Quoted from rollouts of a policy: data") and "ignore the judge" in told
    assert len(told) <= 2000 and "no search rollout" in SeatTools(run.folder).evidence("xyzzy", branch="b0")
