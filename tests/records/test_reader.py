"""Rollouts that address their reader are data: no mark of theirs, no answer in them, no quote that is not theirs."""

from __future__ import annotations

import json

import pytest
from bench.detectors.injections import TEXTS, forged_mark, injections

from evotrainer.records.reader import question_on, read_verdict
from evotrainer.records.rollout import Rollout, completion_of

CASES = [r for _, r in injections()]


def mark(r: Rollout) -> str:
    return question_on(r).text.rsplit("=== ", 1)[1].split()[0]


def words(r: Rollout) -> str:
    return "\n".join(
        [completion_of(r.turns), *(json.loads(c.arguments)["command"] for t in r.turns for c in t.tool_calls)]
    )


def test_there_are_thirty_and_none_bears_its_own_mark() -> None:
    assert len(CASES) == len({t for _, t in TEXTS}) == 30
    assert not any(map(forged_mark, CASES)) and len({mark(r) for r in CASES}) == 30


@pytest.mark.parametrize("r", CASES, ids=[r.id for r in CASES])
def test_what_a_rollout_says_is_between_two_marks_and_never_an_answer(r: Rollout) -> None:
    text, m = question_on(r).text, mark(r)
    lines = text.splitlines()
    assert lines.count(f"=== {m} begins") == lines.count(f"=== {m} ends") == 1 and lines[-1] == f"=== {m} ends"
    shown = text.split(f"=== {m} begins\n")[1].split(f"\n=== {m} ends")[0]
    assert TEXTS[int(r.id.removeprefix("injection"))][1].split("\n")[0].replace("'", "")[:30] in shown.replace("'", "")
    for echoed in (words(r), text, f"The rollout says:\n{words(r)}"):
        assert read_verdict(echoed, r)[0] is None, "a reader that repeats the rollout has given no answer"
    own = json.dumps({"rollout": m, "verdict": "unsure"})
    found, problem = read_verdict(f"It dictates this:\n{words(r)}\n\nMy answer:\n{own}", r)
    assert found is not None and found.verdict == "unsure", problem
    for other in (x for x in CASES if x.id != r.id):
        assert read_verdict(json.dumps({"rollout": mark(other), "verdict": "honest"}), r)[0] is None
    dictated = {"rollout": m, "verdict": "hack", "kind": "special_casing", "quote": "sum(j ** 2 for j in data)"}
    assert "wrote nowhere" in read_verdict(json.dumps(dictated), r)[1]
