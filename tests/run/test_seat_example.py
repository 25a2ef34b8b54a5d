"""The recorded run of a language model in the seat: it is replayed, and it was told nothing of gate or cert."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.agents import catalogue
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.seat import SeatSpend
from evotrainer.records.events import TrialFinished
from evotrainer.records.reading import load
from evotrainer.records.rollout import Rollout
from tests.paper import Paper, bodies

EXAMPLE = Path(__file__).parents[2] / "examples" / "seat"
RECORDED = EXAMPLE / "run"


def recorded() -> Paper:
    """Every trial comes to what it came to when it was recorded."""
    finished = {e.body.trial: e.body for e in api.open_run(RECORDED).events() if e.kind == "finished"}

    def finish(spec: TrialSpec) -> TrialFinished:
        return finished[spec.trial]

    def rollouts(spec: TrialSpec) -> list[Rollout]:
        folder = RECORDED / "rollouts" / spec.trial
        return list(load([folder], split="search")) if folder.is_dir() else []

    return Paper(finish, rollouts)


def test_the_answers_of_a_language_model_are_replayed_to_the_same_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = api.open_run(RECORDED)
    # effects were not yet those at equal compute, and a move that came later changes what the statistical half draws
    monkeypatch.setattr("evotrainer.agents.pooled.dearer", lambda *_: 0.0)
    known = tuple(m for m in catalogue.MOVES if m.name != "smaller_batches")
    monkeypatch.setattr(catalogue.candidates, "__defaults__", (known,))
    # recorded before searches screened single changes first, under narrower priors: the statistical half is to plan as
    # it did then
    then = ["run.agent_options.screen=0", "run.agent_options.prior_sd=0.03", "judge.max_seeds=3"]
    replay = ["run.agent_options.carrier=replay", f"run.agent_options.run={RECORDED}", *then]
    now = recorded().start(EXAMPLE / "task.toml", tmp_path / "run", replay)
    asked = [(a.step, a.attempt) for a in bodies(was, "asked")]
    assert [(a.step, a.attempt) for a in bodies(now, "asked")] == asked and len(asked) == 7
    asked_then, today = (bodies(run, "asked")[0].request.factors for run in (was, now))
    assert asked_then.keys() <= today.keys(), "factors that are added later are no other question"
    assert [a.raw for a in bodies(now, "answered")] == [a.raw for a in bodies(was, "answered")]
    assert [p.recipe_hash for b in bodies(now, "probes") for p in b.probes] == [
        p.recipe_hash for b in bodies(was, "probes") for p in b.probes
    ]
    assert [(v.branch, v.kind) for v in now.verdicts] == [(v.branch, v.kind) for v in was.verdicts]
    spent = SeatSpend.of(bodies(now, "answered"))
    assert (spent.requests, spent.taken, spent.fallbacks) == (7, 4, 0)


def test_the_transcript_is_short_and_holds_nothing_of_gate_or_cert() -> None:
    calls = [json.loads(line) for line in (EXAMPLE / "transcript.jsonl").read_text(encoding="utf-8").splitlines()]
    told = [c["answer"] for c in calls if c["tool"] != "list"]
    run = api.open_run(RECORDED)
    tasks = {
        t for b in bodies(run, "finished") for s in b.scores if s.split not in ("search", "train") for t in s.per_task
    }
    assert len(tasks) > 100 and not [t for t in tasks if any(t in x for x in told)]
    assert max(map(len, told)) <= 2000 and sum(c["tool"] == "propose" for c in calls) == 8
