"""`envs.maths.latex`: MATH's, GSM8K's and Big-Math's forms, and the judge of LaTeX answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="needs pip install 'evotrainer[math]'")

from evotrainer.envs import open_environment
from evotrainer.envs.maths.latex import LatexJudge, boxed
from evotrainer.errors import SandboxError, TaskSetError
from evotrainer.testing import check_environment
from tests.envs.helpers import jsonl

MATH = {
    "problem": "Half and a quarter?",
    "level": "Level 1",
    "type": "Prealgebra",
    "solution": "It is $\\boxed{\\frac{3}{4}}$.",
}


@pytest.fixture(scope="module")
def judge() -> Iterator[LatexJudge]:
    judge = LatexJudge()
    yield judge
    judge.close()


def score(env: Any, task: Any, text: str) -> Any:
    e = env.reset(task, {})
    env.step([e], [text], ["stop"])
    return env.score([e])[0]


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("\\frac{3}{4}", ("\\frac34", "\\dfrac{3}{4}", "0.75", "3/4"), ("\\frac43", "0.7", "")),
        ("\\pm 2\\sqrt{2}", ("\\pm\\sqrt{8}",), ("2\\sqrt{2}",)),
        ("[1,\\infty)", ("\\left[1, \\infty\\right)",), ("(1,\\infty)",)),
        ("(1,2)", ("(1, 2)",), ("(2,1)",)),
        ("x^2+2x+1", ("(x+1)^2", "1+2x+x^2"), ("x^2+1", "(x+1)^{2x}")),
        ("\\text{Evelyn}", ("Evelyn", "evelyn"), ("nlyeve", "E")),
        ("(C)", ("C", "\\text{(C)}", "c"), ("B", "(A)")),
        ("120^\\circ", ("120", "120^{\\circ}"), ("60+60", "121")),
        ("70,000", ("\\$70000", "70{,}000"), ("70", "7 or 70000", "2*35000")),
    ],
)
def test_answers_are_compared_as_mathematics(
    judge: LatexJudge, gold: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    assert {a: judge.same(gold, a) for a in right} == dict.fromkeys(right, True)
    assert {a: judge.same(gold, a) for a in wrong} == dict.fromkeys(wrong, False)


def test_work_left_to_the_grader_is_no_answer(judge: LatexJudge) -> None:
    for undone in ("\\int_0^1 x\\,dx", "\\sum_{k=1}^{3} k", "3!", "\\binom{4}{2}", "\\lim_{x\\to0} x"):
        assert not judge.same("\\frac{1}{2}", undone)
        assert not judge.same("6", undone)


def test_a_hostile_answer_ends_in_time_and_takes_nothing_with_it(judge: LatexJudge) -> None:
    assert not judge.same("x^2+1", "9^{9^{9^{9}}}")
    assert judge.same("x^2+1", "1+x^2")
    assert not judge.same("x^2+1", "(" * 150 + "x" + ")" * 150)
    assert not judge.same("x^2+1", "x" * 10_000)


def test_a_killed_grader_is_started_again_and_one_that_cannot_is_no_wrong_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = LatexJudge()
    assert judge.same("x+1", "1+x")
    assert judge._process is not None
    judge._process.kill()
    judge._process.wait()
    assert judge.same("x+2", "2+x")
    judge.close()
    env = open_environment({"name": "math", "source": str(jsonl(tmp_path / "m.jsonl", [MATH]))})
    (t,) = env.tasks("cert")

    def broken(*_: Any) -> bool:
        raise SandboxError("no memory")

    monkeypatch.setattr(env.source.judge, "_ask", broken)
    s = score(env, t, "\\boxed{0.75}")
    assert (s.outcome, s.error_kind) == ("unknown", "sandbox")
    env.close()


def test_boxes_are_read_with_their_braces() -> None:
    assert boxed("a \\boxed{1} then \\boxed{\\frac{1}{2}}.") == "\\frac{1}{2}"
    assert boxed("\\boxed{\\{1\\}}") == "\\{1\\}"
    assert boxed("\\boxed{1") is None
    assert boxed("none") is None


def test_maths_form_is_graded_by_its_boxes(tmp_path: Path) -> None:
    rows = [MATH, {**MATH, "problem": "Given?", "answer": "\\frac{1}{2}", "solution": "no box"}]
    env = open_environment({"name": "math", "source": str(jsonl(tmp_path / "m.jsonl", rows))})
    first, given = env.tasks("cert")
    assert first.prompt == "Half and a quarter?\nPut the answer in \\boxed{}.\n"
    assert (first.data["answer"], given.data["answer"]) == ("\\frac{3}{4}", "\\frac{1}{2}")
    assert first.tags == {"part": "m", "level": "Level 1", "subject": "Prealgebra"}
    s = score(env, first, "1/2 + 1/4 is \\boxed{\\dfrac{3}{4}}")
    assert (s.outcome, s.components["format"]) == ("correct", 1.0)
    for text in ("3/4", "\\boxed{3/4} or \\boxed{2/4}", "\\boxed{3/4", ""):
        assert score(env, first, text).outcome == "incorrect", text
    env.close()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**MATH, "solution": "it is 3/4"}, r"m.jsonl, row 2: field 'solution' has no \\boxed"),
        ({**MATH, "solution": None}, r"row 2: field 'solution' is NoneType, str expected"),
        ({**MATH, "problem": " "}, "row 2: the question is empty"),
        ({"problem": "?", "level": "1"}, r"row 2: no column 'solution'"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskSetError, match=message):
        open_environment({"name": "math", "source": str(jsonl(tmp_path / "m.jsonl", [MATH, row]))})


def test_big_maths_form_takes_texts_and_numbers(tmp_path: Path) -> None:
    rows = [
        {
            "problem": f"Thrice {i}?",
            "answer": 3 * i,
            "source": "made",
            "domain": ["Arithmetic"],
            "llama8b_solve_rate": i / 60,
        }
        for i in range(60)
    ]
    shares = {"train": 0.4, "search": 0.2, "gate": 0.2, "cert": 0.2}
    config = {"name": "math", "source": str(jsonl(tmp_path / "b.jsonl", rows)), "splits": shares}
    env = open_environment({**config, "where": {"llama8b_solve_rate": {"min": 0.2}}})
    assert env.describe()["data"]["format"] == "big-math"
    assert sum(env.describe()["splits"].values()) == 48
    check_environment(env)
    t = env.tasks("train")[0]
    assert score(env, t, f"\\boxed{{{t.data['answer']}}}").outcome == "correct"
    env.close()
    marked = open_environment({**config, "marks": ["####"]})
    t = marked.tasks("train")[0]
    assert t.prompt.endswith("End with #### and the answer.\n")
    assert score(marked, t, f"#### {t.data['answer']}").outcome == "correct"
    marked.close()
    for bad in ({}, " ", None, True):
        path = jsonl(tmp_path / "bad.jsonl", [{"problem": "?", "answer": bad}])
        with pytest.raises(TaskSetError, match=r"row 1: field 'answer' is .*, a text or number expected"):
            open_environment({"name": "math", "source": str(path), "format": "big-math"})
