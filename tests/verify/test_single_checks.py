"""Single checks of `verify`, on the least that each reads: what a whole run seldom shows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.errors import IntegrityError
from evotrainer.records.events import RoundOpened, SplitScore, TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.verify import search, task_sets, trials, verdicts
from evotrainer.verify.chain_and_files import CHECKS
from evotrainer.verify.report import Problem, guarded


def event(body: Any, **fields: Any) -> Any:
    return SimpleNamespace(**{"id": "x", "kind": "x", "seq": 9, "body": body} | fields)


def record(state: Any = None, **fields: Any) -> Any:
    return SimpleNamespace(state_before=lambda e: state, before=lambda e, kind="": [], checked=Counter(), **fields)


def test_a_round_that_leaves_a_confirmed_shortcut_open_is_found() -> None:
    state = SimpleNamespace(champion=None, confirmed={"history": "scrubbed"})
    body = RoundOpened(round=1, champion="base", harness="h0")
    (found,) = CHECKS["round"](record(state), event(body))
    assert "is evaluated with {} closed; audits had confirmed {'history': 'scrubbed'}" in found.message


def test_a_task_that_a_score_leaves_out_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    score = SplitScore(split="gate", step=1, score=1.0, attempts=1, per_task={"a": 1.0})
    t = TrialFinished(
        trial="b1-s1", branch="b1", seed=1, status="complete", cpu_s=1, wall_s=1, steps=1, scores=(score,), parts=("p",)
    )
    monkeypatch.setattr(trials, "graded", lambda folder, t: {("gate", 1): {"a": 1.0, "b": 0.0}})
    (found,) = trials.scores(record(folder=None), event(t))
    assert "1 gate scores do not follow from its rollouts, e.g. task b: None in the ledger, 0.0" in found.message


def test_a_training_of_either_side_that_no_event_explains_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "judged_trials", lambda record, branch, event: [])
    for extra in ("b0", "b1"):
        monkeypatch.setattr(verdicts, "unexplained", lambda r, x, e, own=extra: [f"{x}-s9"] if x == own else [])
        verdict = SimpleNamespace(branch="b1", control="b0", kind="promote")
        body = SimpleNamespace(verdict=verdict, trials=(), evaluations=())
        found = next(verdicts.judged(record(), event(body)))
        assert f"{extra}-s9 was trained as well, and no event added its seed" in found.message


def test_search_trainings_of_all_batches_of_a_round_are_counted() -> None:
    def probe(n: int) -> Any:
        recipe = Recipe(lr=1e-4 * n)
        return SimpleNamespace(probe=f"p{n}", round=1, seed=100 + n, recipe=recipe, recipe_hash=recipe.hash, changes={})

    state = SimpleNamespace(incumbent=None, probes={"p1": probe(1), "p2": probe(2)}, branches={})
    run = SimpleNamespace(probes=3, seeds=(1,), certify_seeds=(), changes=1)
    body = SimpleNamespace(incumbent="base", round=1, probes=(probe(3),), choice=None)
    asked = record(state, task=SimpleNamespace(run=run))
    assert list(search.probes(asked, event(body))) == []
    body.probes = (probe(3), probe(4))
    (found,) = search.probes(asked, event(body))
    assert "more search trainings than run.probes=3" in found.message


def test_a_check_whose_rollouts_are_gone_is_a_problem_and_not_locked() -> None:
    def gone(record: Any, event: Any) -> Iterator[Problem]:
        raise IntegrityError("rollouts of b1-s1 are gone")
        yield

    asked = record(locked=[])
    (found,) = guarded("judged", gone)(asked, event(None))
    assert "cannot be computed again: rollouts of b1-s1 are gone" in found.message and not asked.locked


def test_each_end_reveals_the_key_that_the_end_before_committed_to() -> None:
    first, second = b"1" * 32, b"2" * 32
    sha = [hashlib.sha256(x).hexdigest() for x in (first, second)]
    ends = [event(SimpleNamespace(key=first.hex(), next_key_sha256=sha[1]))]
    asked = record(opened=SimpleNamespace(key_sha256=sha[0]))
    assert list(task_sets.key_revealed(asked, ends[0])) == []
    asked.before = lambda e, kind="": ends
    assert list(task_sets.key_revealed(asked, event(SimpleNamespace(key=second.hex(), next_key_sha256="")))) == []
    (found,) = task_sets.key_revealed(asked, event(SimpleNamespace(key=first.hex(), next_key_sha256="")))
    assert "is not the one that the run committed to" in found.message
