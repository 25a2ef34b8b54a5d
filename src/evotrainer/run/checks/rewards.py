"""Rewards are tried on demonstrations, on empty answers, on all of these once more, and on answers of every small
length."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from evotrainer.config.task import TaskFile
from evotrainer.envs.base import Environment, Score, Task
from evotrainer.envs.return_checks import answers_of_lengths, demonstrations_of
from evotrainer.envs.user_files import call
from evotrainer.errors import TaskSetError
from evotrainer.executors.written import with_written
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import no_reward
from evotrainer.records.text import quoted
from evotrainer.run.checks.base import BeforeRun, Found

PROBED = 32
"""Demonstrations that the outcome is tried on; they are asked for in this number."""
Tries = Sequence[tuple[Task, str]]


def tried(at: BeforeRun) -> Found:
    """What a user's own environment gives the answers that it is tried on makes sense."""
    if at.own:
        yield from try_rewards(at.task, at.environment)


def try_rewards(task: TaskFile, environment: Environment) -> Iterator[str]:
    """Notes on what the environment's grading gives answers that it is tried on; TaskSetError where it raises, gives no
    reward, or None where a number is needed. Nothing of environments that take several turns."""
    if (try_class := getattr(environment, "try_class", None)) is not None:
        try_class()
    tries = list(_tries(task, environment))
    several = task.recipe.max_turns > 1 and not getattr(environment, "one_turn", False)
    if not tries or several or getattr(environment, "environment_factory", None) is not None:
        return
    # as a training scores: what the recipe holds as code is tried with the rest
    with with_written(environment, task.recipe, task.environment, task.sandbox.accept_tier_e) as whole:
        yield from _notes(task, whole, tries)


def _tries(task: TaskFile, environment: Environment) -> Iterator[tuple[Task, str]]:
    """Training tasks with what their demonstrations answer, and the first ones with an empty answer."""
    known = {t.prompt: t for t in environment.tasks("train")} if environment.describe()["splits"].get("train") else {}
    yield from ((t, "") for t in list(known.values())[:2])
    for demo in demonstrations_of(environment, PROBED, task.policy.warm_start.seed):
        if len(demo) == 2 and demo[0] in known:
            yield known[demo[0]], demo[1]


def _notes(task: TaskFile, environment: Environment, tries: Tries) -> Iterator[str]:
    grading = f"the grading of environment {environment.name}"
    cut = [(tries[0][0], text) for text in answers_of_lengths([text for _, text in tries])]
    first, again = (
        call(grading, functools.partial(_scores, task, environment, x), answers=len(x)) for x in (tries, [*tries, *cut])
    )
    shown = "demonstrations and empty answers" if any(text for _, text in tries) else "empty answers"
    for scores, what in ((first, shown), (again, f"{shown}, and some of every small length")):
        refuse_nonsense([*tries, *cut], scores)
        if fault := next((s.error for s in scores if s.error_kind == "reward"), None):
            yield f"{fault} when it was tried on {what}; a training stops where it does so"
            break
    if not any(s.error_kind is None for s in first):
        return
    truth = next(iter(getattr(environment, "outcome_components", ()) or (environment.proxy or ())[1:]), "")
    yield from none_right(truth or "the outcome", tries, first)
    yield from pays_nothing(task.recipe, environment.name, truth, tries, first)
    yield from constant(task.recipe, truth, tries, again)
    yield from differing(tries, first, again)


def _scores(task: TaskFile, environment: Environment, tries: Tries) -> list[Score]:
    """Scores of the tried answers, as the task's trainer has them; none where the environment asks for more turns."""
    if task.trainer.name == "trl" and (grade := getattr(environment, "grade", None)) is not None:  # its loop scores
        return list(grade(tries))
    episodes = [environment.reset(t, dict(task.recipe.knobs)) for t, _ in tries]
    environment.step(episodes, [text for _, text in tries], ["stop"] * len(tries))
    return environment.score(episodes) if all(e.done for e in episodes) else []


def refuse_nonsense(tries: Tries, scores: Sequence[Score]) -> None:
    """TaskSetError where a component's value is no reward."""
    for (t, text), s in zip(tries, scores, strict=False):
        for name, value in s.components.items() if not s.error_kind else ():
            if why := no_reward(value):
                where = f"gave {value} on task {t.id}, completion {quoted(text)}"
                raise TaskSetError(f"reward function {name!r} {where}; {why}")


def none_right(truth: str, tries: Tries, scores: Sequence[Score]) -> Iterator[str]:
    """Notes where no demonstration is correct, or an empty answer is."""
    graded = [(text, s) for (_, text), s in zip(tries, scores, strict=True) if not s.error_kind]
    shown = [(text, s) for text, s in graded if text]
    if shown and not any(s.outcome == "correct" for _, s in shown):
        best = max((v for _, s in shown if (v := s.components.get(truth)) is not None), default=None)
        yield (
            f"none of {len(shown)} demonstrations is correct by {truth} (values up to {best}), as "
            f"{quoted(shown[0][0])}: does the grading fit the form of the answers?"
        )
    if empty := [s for text, s in graded if not text and s.outcome == "correct"]:
        yield f"an empty answer is correct by {truth} ({len(empty)} tasks tried): check that it can be false at all"


def pays_nothing(recipe: Recipe, name: str, truth: str, tries: Tries, scores: Sequence[Score]) -> Iterator[str]:
    """TaskSetError where the outcome or a paid reward gave None for demonstrations too, a note where none were there; a
    note where nothing can be earned."""
    paid = {c: w for c, w in recipe.rewards.items() if w}
    for component in dict.fromkeys([truth, *paid]):
        if not component or any(s.components.get(component) is not None for s in scores if not s.error_kind):
            continue
        problem = f"gave None for each of {len(scores)} answers that it was tried on"
        if component == truth:
            why = "so nothing could be measured; it must return a number, 1 for correct"
            nothing = f"environment {name}: its outcome, {truth!r}, {problem}, {why}"
        else:
            why = "it must return a number where it applies, or leave recipe.rewards"
            nothing = f"reward {component!r}, which is paid, {problem}: it would pay nothing; {why}"
        if any(text for _, text in tries):
            raise TaskSetError(nothing)
        yield nothing
    if paid and max(paid.values()) < 0:
        yield f"every reward is paid with a negative weight ({', '.join(f'{c} = {w:g}' for c, w in paid.items())})"


def constant(recipe: Recipe, truth: str, tries: Tries, scores: Sequence[Score]) -> Iterator[str]:
    """Notes on paid rewards that gave one number for every answer. A low one may just want the right answer, where none
    was shown; of the outcome, `none_right` says so."""
    shown = any(text for _, text in tries)
    for name in (c for c, w in recipe.rewards.items() if w > 0):
        values = {s.components.get(name) for s in scores if not s.error_kind}
        value = next(iter(values), None)
        if len(values) == 1 and value is not None and (value > 0 or (shown and name != truth)):
            yield (
                f"reward {name!r}, which is paid, gave {value} for every answer that was tried ({len(scores)}: "
                f"{'demonstrations, ' if shown else ''}empty ones, some of every small length): a training has no "
                "gradient from it; check that it tells answers apart"
            )


def differing(tries: Tries, first: Sequence[Score], again: Sequence[Score]) -> Iterator[str]:
    """A note on the first component that gives the same answer another value."""
    for (t, text), a, b in zip(tries, first, again, strict=False):
        for name, value in a.components.items() if not (a.error_kind or b.error_kind) else ():
            other = b.components.get(name)
            if value != other:
                yield (
                    f"reward {name!r} gave {value} and then {other} for the same answer to task {t.id}, "
                    f"{quoted(text)}: what is graded so cannot be graded again, and its noise is trained on; take "
                    "random numbers from a seed that the task and the answer give"
                )
                return
