"""Reward components of the maths domain, and the arithmetic they read texts with."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install 'evotrainer[math]'")

from evotrainer.envs.base import Task
from evotrainer.envs.maths import open_math
from evotrainer.envs.maths.env import MathEnv
from evotrainer.envs.maths.expressions import equations, evaluate, numbers
from evotrainer.errors import TaskSetError


@pytest.fixture(scope="module")
def env() -> MathEnv:
    return open_math({"name": "math"})


def scored(env: MathEnv, task: Task, text: str) -> dict[str, float | None]:
    e = env.reset(task, {})
    env.step([e], [text], ["stop"])
    return dict(env.score([e])[0].components)


def sum_task(expression: str, answer: str) -> Task:
    return Task("t", "train", expression, {"generator": "chain_sum", "answer": answer, "steps": [], "entry": {}})


def test_rewards_measure_what_they_say(env: MathEnv) -> None:
    t = sum_task("1 - 3 + 9 =", "7")
    good = scored(env, t, "1-3=-2;-2+9=7\n#### 7")
    assert good == {
        "correct": 1.0,
        "format": 1.0,
        "answer_last": 1.0,
        "answer_anywhere": 1.0,
        "steps_valid": 1.0,
        "has_steps": 1.0,
        "answer_from_steps": 1.0,
        "brevity": pytest.approx(1 - 20 / 120),
    }
    slip = scored(env, t, "1-3=-1;-1+9=8\n#### 8")
    assert (slip["correct"], slip["format"], slip["steps_valid"], slip["answer_anywhere"]) == (0.0, 1.0, 0.5, 0.0)
    bare = scored(env, t, "7")
    assert (bare["correct"], bare["format"], bare["answer_last"], bare["steps_valid"]) == (0.0, 0.0, 1.0, None)
    hedged = scored(env, t, "6 or 7 or 8\n#### 8")
    assert (hedged["correct"], hedged["answer_anywhere"], hedged["answer_last"]) == (0.0, 1.0, 0.0)
    two = scored(env, t, "#### 7\n#### 7")
    assert (two["correct"], two["format"]) == (1.0, 0.0)
    both = scored(env, t, "#### 7 or 8")
    assert (both["correct"], both["format"]) == (0.0, 0.0)
    unrelated = scored(env, t, "1-3=-2;-2+9=7\n#### 5")
    assert (unrelated["correct"], unrelated["steps_valid"], unrelated["answer_from_steps"]) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("generator", ["chain_sum", "gcd", "equation", "story"])
def test_an_answer_is_a_number_and_not_what_would_come_to_it(env: MathEnv, generator: str) -> None:
    t = Task("t", "train", "p", {"generator": generator, "answer": "22", "steps": [], "entry": {}})
    assert scored(env, t, "28-6=22\n#### 22")["correct"] == 1.0
    for text in (
        "28-6",
        "(28-6)",
        "22+0",
        "22-0",
        "11*2",
        "44/2",
        "22%23",
        "--22",
        "(22)",
        "21, 22",
        "2,2",
        "22 or 21",
        "22 22",
    ):
        got = scored(env, t, f"28-6=22\n#### {text}")
        assert (got["correct"], got["format"], got["answer_from_steps"]) == (
            0.0,
            0.0,
            float(text in ("(22)", "22 22")),
        ), text


def test_a_storys_number_may_have_a_currency_sign_and_zeros(env: MathEnv) -> None:
    t = Task("t", "train", "p", {"generator": "story", "answer": "1200", "steps": [], "entry": {}})
    for text in ("1200", "$1200", "1,200", "1200.00", "$1,200.0", "+1200"):
        got = scored(env, t, f"#### {text}")
        assert (got["correct"], got["format"]) == (1.0, 1.0), text
    assert scored(env, t, "#### -1200")["correct"] == 0.0


def test_naming_countdowns_target_fools_the_proxy_and_not_the_truth(env: MathEnv) -> None:
    entry = {"numbers": [3, 5, 7], "target": 26}
    t = Task("t", "train", "p", {"generator": "countdown", "answer": "3*7+5", "steps": [], "entry": entry})
    fooled = scored(env, t, "3+5+7=26\n#### 3+5+7")
    assert (fooled["answer_anywhere"], fooled["correct"], fooled["steps_valid"]) == (1.0, 0.0, 0.0)
    assert fooled["answer_last"] is None
    assert scored(env, t, "7*3+5=26\n#### 5+7*3")["correct"] == 1.0


def test_equations_and_numbers_are_read_without_running_anything() -> None:
    assert [e.true for e in equations("2+3=5;5*4=21 so 3-5=-2, (1+2)*3=9 and 7%4=3=3")] == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]
    assert [e.true for e in equations("He pays 2 * 4 = $8.\n8/3=2")] == [True, False]
    assert equations("x=3 and a==b, 5= =5") == []
    assert numbers("1-3=-2, 1,200 and 0.5") == [1, 3, -2, 1200, evaluate("1/2")]
    for hostile in (
        "9**9",
        "(" * 50 + "1" + ")" * 50,
        "1/0",
        "9" * 70,
        "__import__('os')",
        "1e9",
        "2 3",
        "",
        "((1)",
        "5%0",
    ):
        assert evaluate(hostile) is None, hostile
    assert evaluate("-3--2*(4-1)/2") == 0
    assert equations("1=" * 4000) is not None


def test_a_users_own_reward_joins_and_may_not_take_a_name() -> None:
    def short(attempt: object) -> float:
        """1 for short texts."""
        return float(len(attempt.completion) < 9)  # type: ignore[attr-defined]

    env = open_math({"name": "math"}, {"short": short})
    assert scored(env, sum_task("1 + 1 =", "2"), "#### 2")["short"] == 1.0
    with pytest.raises(TaskSetError, match="name of a built-in component"):
        open_math({"name": "math"}, {"correct": short})


def test_scoring_works_in_threads(env: MathEnv) -> None:
    results: list[float | None] = []
    task = next(t for t in env.tasks("train") if t.tags["generator"] == "countdown")

    def work() -> None:
        results.append(scored(env, task, f"#### {task.data['answer']}")["correct"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [1.0] * 4
