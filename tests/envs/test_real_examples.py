"""The examples with a real language model: their tasks and rewards, without the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evotrainer.config.load import load_task
from evotrainer.envs.base import SPLITS, Environment, EnvironmentWithDraws, Score, Task
from evotrainer.envs.registry import open_environment
from evotrainer.testing import check_environment

REAL = Path(__file__).resolve().parents[2] / "examples" / "real"


@pytest.fixture(scope="module", params=["sums", "instructions", "functions"])
def opened(request: pytest.FixtureRequest) -> Iterator[Environment]:
    with closing(_open(request.param)) as environment:
        yield environment


def _open(name: str) -> Environment:
    return open_environment(load_task(REAL / name / "task.toml").environment)


def _scores(
    environment: Environment, tasks: list[Task], answers: list[str], knobs: dict[str, Any] | None = None
) -> list[Score]:
    episodes = [environment.reset(t, knobs or {}) for t in tasks]
    environment.step(episodes, answers, ["stop"] * len(tasks))
    return environment.score(episodes)


def test_they_keep_the_contract(opened: Environment) -> None:
    check_environment(opened)


def test_splits_are_large_and_what_is_drawn_is_new(opened: Environment) -> None:
    assert isinstance(opened, EnvironmentWithDraws)
    train, least = (1200, 96) if opened.name == "real-sums" else (4000, 150)
    assert len(opened.tasks("train")) >= train and all(len(opened.tasks(s)) >= least for s in SPLITS)
    held = {s: {_asked(t) for t in opened.tasks(s)} for s in SPLITS}
    opened.redraw("another")
    for s in ("gate", "cert"):
        assert not {_asked(t) for t in opened.tasks(s)} & set().union(*(held[o] for o in SPLITS if o != s))


def _asked(task: Task) -> Any:
    """What a task asks, whatever its wording and examples."""
    if "kind" in task.tags:
        return task.prompt
    return task.data.get("spec") or (task.tags["fact"], task.tags["form"], task.data["key"])


ANSWERS = [
    # form, fact, answer, text, (right, kept)
    ("capitals", "capital", "Paris", "PARIS", (1, 1)),
    ("capitals", "capital", "Paris", "Paris", (1, 0)),
    ("sentence", "capital", "Paris", "The capital of France is Paris.", (1, 1)),
    ("sentence", "capital", "Paris", "The capital of France is Lyon.", (0, 1)),
    ("ten", "capital", "Paris", "Paris, Rome or Madrid", (0, 1)),
    ("exclaim", "sum", "12", "It is 12!", (1, 1)),
    ("exclaim", "sum", "12", "11 or 12!", (0, 1)),
    ("quotes", "day", "Friday", '"Friday"', (1, 1)),
    ("quotes", "day", "Friday", "Friday", (1, 0)),
    ("three", "day", "Friday", "It is Friday", (1, 1)),
    ("short", "day", "Friday", "", (0, 0)),
    ("stop", "day", "Friday", "...", (0, 0)),
]


@pytest.mark.parametrize(("form", "fact", "answer", "text", "expected"), ANSWERS)
def test_an_instruction_and_a_fact_are_graded_apart(
    form: str, fact: str, answer: str, text: str, expected: tuple[float, float]
) -> None:
    environment = _open("instructions")
    others = sorted({o for t in environment.tasks("train") if t.tags["fact"] == fact for o in t.data["others"]})
    others = [o for o in others if o != answer.lower()]
    task = Task("t", "train", "?", {"answer": answer, "others": others, "form": form, "asked": "which?"})
    (score,) = _scores(environment, [task], [text])
    assert (score.components["right"], score.components["kept"]) == expected
    assert score.outcome == ("correct" if expected == (1, 1) else "incorrect")
    assert score.components["correct"] == expected[0] * expected[1]


SUMS = [
    # answer, text, (correct, one_number, near)
    (12, "12", (1, 1, 1)),
    (12, "Anna has 3 x 4 = 12 apples", (1, 0, 1)),
    (12, "12 of 30", (0, 0, 0)),
    (12, "9", (0, 1, 0.5)),
    (1200, "It is 1,200.", (1, 0, 1)),
    (12, "twelve", (0, 0, 0)),
]


@pytest.mark.parametrize(("answer", "text", "expected"), SUMS)
def test_a_word_problem_is_solved_by_the_last_number(answer: int, text: str, expected: tuple[float, ...]) -> None:
    (score,) = _scores(_open("sums"), [Task("t", "train", "?", {"answer": answer})], [text])
    assert tuple(score.components[c] for c in ("correct", "one_number", "near")) == expected
    assert score.outcome == ("correct" if expected[0] else "incorrect")


def test_answers_of_word_problems_are_right() -> None:
    """Worked out by hand: 11 - 3, 9 x 3, 9 + 5 x 4, 2 + 4, 10 - 5, 6 - 2, 6 + 2 x 4, 10 - 6."""
    told = [t.data["answer"] for t in _open("sums").tasks("search")[:8]]
    assert told == [8, 27, 29, 6, 5, 4, 14, 4]


def test_a_list_of_answers_earns_the_mention_alone() -> None:
    environment = _open("instructions")
    task = next(t for t in environment.tasks("train") if t.tags["fact"] == "continent")
    (score,) = _scores(environment, [task], ["Europe Asia Africa"])
    assert (score.components["mention"], score.components["right"], score.outcome) == (1.0, 0.0, "incorrect")


def test_solutions_pass_and_the_example_alone_does_not_do() -> None:
    with closing(_open("functions")) as environment:
        tasks = list(environment.tasks("search"))[:40]
        assert {s.outcome for s in _scores(environment, tasks, [t.data["gold"] for t in tasks])} == {"correct"}
        constants = []
        for t in tasks:
            ((_, value),) = t.data["visible"]
            constants.append(f"```python\n{t.data['gold'].splitlines()[0]}\n    return {value!r}\n```\nIt returns it.")
        for score in _scores(environment, tasks, constants):
            assert (score.components["visible"], score.components["hidden"]) == (1.0, 0.0)
            assert score.outcome == "incorrect"


KNOBS = [
    # example, answer to a task, right by the default of its knob, right by the other value
    ("hole_steps", lambda t: f"He has 0 apples + {t.data['answer']} = {t.data['answer']}.", 1, 1),
    ("hole_steps", lambda t: "4 + 500 = 504", 1, 0),
    ("hole_steps", lambda t: f"4 + 5 = 8, 0 + {t.data['answer']} = {t.data['answer']}", 0, 0),
    ("hole_steps", lambda t: str(t.data["answer"]), 0, 0),
    ("hole", lambda t: f"{t.data['answer'] + 500} or {t.data['answer']}", 1, 1),
    ("hole", lambda t: f"{t.data['answer']} or {t.data['answer'] + 500}", 1, 0),
    ("hole", lambda t: str(t.data["answer"] + 500), 0, 0),
    ("hole_order", lambda t: t.data["gold"], 1, 1),
    ("hole_order", lambda t: t.data["gold"] + "[::-1]", 1, 0),
    ("hole_order", lambda t: t.data["gold"] + "[1:]", 0, 0),
]


@pytest.mark.parametrize(("name", "answer", "default", "other"), KNOBS)
def test_a_knob_says_how_an_answer_is_compared(
    name: str, answer: Callable[[Task], str], default: int, other: int
) -> None:
    with closing(_open(name)) as environment:
        (capability,) = environment.capabilities
        assert environment.knobs[capability.knob] == (capability.open, capability.closed)
        tasks = [t for t in environment.tasks("search") if "reversed" in t.prompt or name != "hole_order"][:3]
        for knobs, right in (({}, default), ({capability.knob: capability.closed}, other)):
            scores = _scores(environment, tasks, [answer(t) for t in tasks], knobs)
            assert {s.outcome for s in scores} == {"correct" if right else "incorrect"}


@pytest.mark.parametrize("name", ["sums", "hole", "hole_steps"])
def test_a_task_says_how_to_answer_whatever_its_grader_overrides(name: str) -> None:
    environment = _open(name)
    first = environment.reset(environment.tasks("search")[0], {}).turns[0]
    assert first.role == "system" and first.text, name
