"""What is told between the base policy's measurement and the trainings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.harness import HarnessContext
from evotrainer.harness.versions import Harness
from evotrainer.records.events import TrialFinished
from evotrainer.records.rollout import Rollout
from evotrainer.run.checks.measured import health_doubts
from tests import letters_on_paper
from tests.harness_inputs import groups, recipe, rollout
from tests.letters_on_paper import QUICK
from tests.paper import Paper

STRONGER = "start from a stronger policy.base"


def told(rollouts: Sequence[Rollout], score: float, **weights: float) -> list[str]:
    health = Harness.default().read(
        rollouts, "base@0 search", HarnessContext(recipe=recipe(rewards=weights or {"x": 1.0}))
    )
    return health_doubts(health, score, "boxed", rollouts[0].turns[-1].text, STRONGER if score < 0.1 else "")


def kinds(notes: list[str]) -> list[str]:
    """Which cause each note is of, in their order; they are counted."""
    known = {
        "truncated": "cut",
        "groups are dead": "dead",
        "does the grader fit": "never",
        "it is a constant": "constant",
        STRONGER: "weak",
    }
    numbers = [re.findall(r"\((\d) of (\d)\)", n)[0] for n in notes if len(notes) > 1]
    assert numbers == [(str(i), str(len(notes))) for i in range(1, len(notes) + 1) if len(notes) > 1]
    return [next(name for words, name in known.items() if words in n) for n in notes]


def attempts(n: int, **fields: object) -> list[Rollout]:
    """Four attempts at each of `n` tasks, all wrong, each paid for its form."""
    return [
        rollout(
            f"t{g}",
            k,
            text=f"It is {37 * g + k}.",
            reward=1.0,
            correct=False,
            components={"form": 1.0, "boxed": 0.0},
            **fields,
        )
        for g in range(n)
        for k in range(4)
    ]


def test_a_grader_that_never_says_right_and_a_constant_reward_are_told_before_a_stronger_policy() -> None:
    notes = told(attempts(20, finish="stop"), 0.0, form=1.0)
    assert kinds(notes) == ["dead", "never", "constant", "weak"]
    assert (
        "the outcome (boxed) is 0 for each of 80 attempts, as for 'It is 0.'" in notes[1]
        and "recipe.rewards" in notes[2]
    )


def test_answers_that_are_all_cut_come_first() -> None:
    notes = told(attempts(20, finish="length"), 0.0, form=1.0)
    assert kinds(notes) == ["cut", "dead", "never", "constant", "weak"] and "recipe.max_tokens" in notes[0]


def test_attempts_that_all_earn_the_same_are_told_of_a_strong_policy_too() -> None:
    same = [
        rollout(f"t{g}", k, text=f"It is {37 * g + k}.", reward=0.2, correct=k % 2 == 0)
        for g in range(20)
        for k in range(4)
    ]
    (note,) = told(same, 0.5)
    assert note.startswith("trainings may learn little: ") and "groups" in note and "recipe." in note


def test_a_weak_policy_with_sound_attempts_is_told_that_alone() -> None:
    few = groups([[0, 1, 0, 1]] * 20)
    assert told(few, 0.05) == [f"trainings may learn little: {STRONGER}"]


def test_a_policy_that_sometimes_succeeds_is_told_nothing() -> None:
    assert told(groups([[0, 1, 0, 1]] * 20), 0.5) == []
    assert told(groups([[0, 0, 0, 0]] * 14 + [[0, 1, 0, 1]] * 6), 0.15) == [], "more than half of the groups, not all"


def test_a_policy_that_solves_few_is_told_only_what_holds_of_all_its_attempts() -> None:
    dead = groups([[0, 0, 0, 0]] * 18 + [[0, 1, 0, 1]] * 2)
    assert told(dead, 0.05) == [f"trainings may learn little: {STRONGER}"], "nine groups of ten are dead, not all"


@pytest.mark.parametrize("differs", [False, True])
def test_a_base_that_never_succeeds_stops_before_the_trainings(differs: bool, task_file: Path, tmp_path: Path) -> None:
    def finish(spec: TrialSpec) -> TrialFinished:
        done = letters_on_paper.finish(spec)
        none = tuple(s.model_copy(update={"score": 0.0}) for s in done.scores)
        return done.model_copy(update={"scores": none}) if spec.branch == "base" else done

    def rollouts(spec: TrialSpec) -> list[Rollout]:
        return [
            replace(r, outcome="incorrect", reward=0.1 * r.k * differs, components={"sorted_word": 0.0})
            for r in letters_on_paper.rollouts(spec)
        ]

    paper, run = Paper(finish, rollouts), tmp_path / "run"
    if differs:
        assert paper.start(task_file, run, [*QUICK, "run.rounds=0"]).closed is not None
        return
    with pytest.raises(ConfigError, match=rf"the base policy never succeeds.*evotrainer resume {run}"):
        paper.start(task_file, run, [*QUICK, "run.rounds=0"])
    assert [e.body.trial for e in api.open_run(run).events() if e.kind == "finished"] == ["base"]
    assert paper.resume(run).closed is not None
