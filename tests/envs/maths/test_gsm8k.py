"""GSM8K: splits, columns, errors with their row, and a grader that agrees with published labels."""

from __future__ import annotations

import json
import multiprocessing
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="needs pip install 'evotrainer[math]'")

from evotrainer.envs.base import SPLITS
from evotrainer.envs.maths import equality, open_math
from evotrainer.envs.maths.dataset import gold_answer
from evotrainer.envs.maths.env import MathEnv
from evotrainer.envs.maths.equality import harmless, same_number
from evotrainer.errors import TaskSetError
from evotrainer.testing import check_environment

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "gsm8k"


def opened(path: Path, **options: Any) -> MathEnv:
    return open_math({"name": "math", "source": str(path), "format": "gsm8k", "unmarked": True, **options})


def rows(n: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "question": f"Ann has {i} pens and buys 2. How many?",
            "answer": f"She has {i}+2=<<{i}+2={i + 2}>>{i + 2}.\n#### {i + 2}",
        }
        for i in range(start, start + n)
    ]


def write(path: Path, content: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in content))
    return path


def graded(env: MathEnv, index: int, text: str, split: str = "cert") -> dict[str, float | None]:
    e = env.reset(env.tasks(split)[index], {})
    env.step([e], [text], ["stop"])
    return dict(env.score([e])[0].components)


def test_a_file_is_all_cert_and_shares_split_it_stably(tmp_path: Path) -> None:
    path = write(tmp_path / "some.jsonl", rows(200))
    assert opened(path).describe()["splits"] == {"cert": 200}
    shares = {"train": 0.5, "search": 0.2, "gate": 0.2, "cert": 0.1}
    env = opened(path, splits=shares)
    sizes = env.describe()["splits"]
    assert sum(sizes.values()) == 200
    assert 70 < sizes["train"] < 130
    check_environment(env)
    where = {t.data["question"]: s for s in SPLITS for t in env.tasks(s)}
    fewer = opened(write(tmp_path / "b.jsonl", rows(50, 100)), splits=shares)
    for s in fewer.describe()["splits"]:
        assert all(where[t.data["question"]] == s for t in fewer.tasks(s))


def test_a_folder_has_its_own_splits_or_named_files(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(100))
    write(tmp_path / "test.jsonl", rows(30, 500))
    sizes = opened(tmp_path).describe()["splits"]
    assert sizes["cert"] == 30
    assert sizes["train"] + sizes["search"] + sizes["gate"] == 100
    named = opened(tmp_path, parts={"train": "train", "test": "gate"})
    assert named.describe()["splits"] == {"train": 100, "gate": 30}


def test_columns_have_the_names_one_gives(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "1+1?", "a": "#### 2"}])
    env = opened(path, columns={"question": "q", "answer": "a"})
    assert graded(env, 0, "#### 2")["correct"] == 1.0


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"question": "q"}, "row 3: no column 'answer'"),
        ({"question": 3, "answer": "#### 1"}, "row 3: field 'question' is int, str expected"),
        ({"question": " ", "answer": "#### 1"}, "row 3: the question is empty"),
        ({"question": "q", "answer": "it is 7"}, "row 3: field 'answer' does not end in `#### NUMBER`"),
        ({"question": "q", "answer": "#### seven"}, "row 3: field 'answer' does not end in `#### NUMBER`"),
        ({"question": "q", "answer": ["#### 7"]}, "row 3: field 'answer' is list"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, row: dict[str, Any], complaint: str) -> None:
    path = write(tmp_path / "bad.jsonl", [*rows(2), row])
    with pytest.raises(TaskSetError) as e:
        opened(path)
    assert complaint in str(e.value) and "bad.jsonl" in str(e.value)


def test_the_same_question_in_two_splits_is_refused(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"{name}.jsonl", rows(4))
    with pytest.raises(TaskSetError, match="ask the same in splits"):
        opened(tmp_path)


def test_answers_are_equal_as_numbers_not_as_texts() -> None:
    for text in (
        "70000", "70,000", "$70,000", "70000.00", r"\boxed{70000}", "70,000 dollars", "= 70000", "$70000$.",
        "x = 70000", "The answer is 70,000.", "35000*2 = 70000", "He pays 35,000 * 2 = $70,000.",
        r"70000 \text{ dollars}", "70000 km/day", r"It takes 3 years: \boxed{70,000}", "70000 (70,000 dollars)",
    ):  # fmt: skip
        assert same_number("70000", text), text
    for text in ("7000", "70,001", "-70000", "", "seventy thousand", "70000 or 60000 or 50000 x", "7 0 0 0 0"):
        assert not same_number("70000", text), text
    assert same_number("0.5", "1/2")
    assert gold_answer("x\n#### 1,080") == "1080"


@pytest.mark.parametrize(
    "text",
    [
        "9*2", "9 * 2", r"9 \times 2", "(28-10)", "18+0", "36/2", "18/1", r"\frac{36}{2}", "20 - 2", "9(2)", "18 - x",
        "18%", r"18\%", "17, 18", "17,18", "18, 17", r"18\text{ or }19", "18 or 19", "17 18", "(17, 18)", r"\{17, 18\}",
        "17 < 18", r"\boxed{17} \boxed{18}", "x = 17 or x = 18", "17 = 18", "18 = 9*2", r"18 \pm 1", r"\sqrt{324}",
        "3 packs of 6 is 18",
    ],
)  # fmt: skip
def test_arithmetic_left_undone_and_several_numbers_are_no_answer(text: str) -> None:
    assert not same_number("18", text)


@pytest.mark.parametrize(
    "text",
    [
        "18²", "18½", "½ 18", "18k", "18 million", "18 squared", "18 dozen", "minus 18", "negative 18", "not 18",
        "x ≠ 18", "18 millions", "18 bn", "18 dozens", "isn't 18", "never 18", "twice 18", "√(18)",
        "the square root of 18", "18 times two", "anything but 18", "√18", "¬18", "~ 18", "18 thousand",
    ],
)  # fmt: skip
def test_words_and_signs_that_make_another_number_of_it_are_read(text: str) -> None:
    assert re.findall(r"\d+", text.replace("½", "")) == ["18"], "who takes the digits alone believes it"
    assert not same_number("18", text)


@pytest.mark.parametrize("text", ["He does not pay. 18", "18 (not more)", "no dozen: 18", "half a kilo is 18 dollars"])
def test_the_same_words_elsewhere_deny_nothing(text: str) -> None:
    assert same_number("18", text)


HOSTILE = (
    "9**9**9**9", "10^10^10^10", "9" * 5000, "(" * 5000, "99999999999!", r"\frac{" * 200 + "1", "1e999999999",
    "-" * 4000, r"\sum_{i=1}^{10^9} i", "{" * 300, "1/" * 140 + "1", "\\" * 290, "x" * 300, "2 " * 140,
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: t[:12])
def test_a_hostile_answer_never_reaches_the_computer_algebra(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    monkeypatch.setattr(equality, "_parsed", lambda answer: reached.append(answer) or (1,))
    assert not same_number("18", text)
    assert reached == []


def test_what_is_harmless_is_told_by_its_form() -> None:
    assert not harmless("3**3")
    assert harmless("16 - 3 - 4 = 9 eggs, 9 * 2 = $18")


def _in_process(queue: Any) -> None:
    queue.put([same_number("18", "$18"), same_number("18", "19")])


def test_grading_works_in_threads_and_processes() -> None:
    found: list[bool] = []
    threads = [threading.Thread(target=lambda i=i: found.append(same_number("18", f"{18 + i % 2}"))) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [False] * 4 + [True] * 4
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    p = context.Process(target=_in_process, args=(queue,))
    p.start()
    assert queue.get(timeout=60) == [True, False]
    p.join()


def test_an_attempt_is_graded_by_its_mark_or_its_last_line(tmp_path: Path) -> None:
    env = opened(write(tmp_path / "x.jsonl", rows(1, 16)))
    for text in ("16+2=18\n#### 18", "#### $18.00 \nas I said: 17", "16+2=18\nThe answer is 18.", r"so \boxed{18}"):
        assert graded(env, 0, text)["correct"] == 1.0, text
    for text in ("16+2=18\n#### 17", "18\nno, 20", "#### ", "", "####"):
        assert graded(env, 0, text)["correct"] == 0.0, text
    strict = opened(tmp_path / "x.jsonl", unmarked=False)
    assert graded(strict, 0, "16+2=18")["correct"] == 0.0
    assert graded(env, 0, "16+2=18; 3*3=8\n#### 18")["steps_valid"] == 0.5


PARTS = {"train": {"train": 0.9, "search": 0.05, "gate": 0.05}, "test": "cert"}
"""Its folder holds model solutions, too, which are no problems."""
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"GSM8K is not at {DATA}; it is not shipped")


@needs_data
def test_every_gold_answer_of_gsm8k_is_right_by_our_scorer() -> None:
    env = opened(DATA, parts=PARTS)
    assert sum(env.describe()["splits"].values()) == 7473 + 1319
    for i, t in enumerate(env.tasks("cert")):
        assert graded(env, i, t.data["worked"])["correct"] == 1.0, t.id


@needs_data
def test_we_agree_with_is_correct_on_every_published_model_solution() -> None:
    env = opened(DATA, parts=PARTS)
    index = {t.data["question"]: i for i, t in enumerate(env.tasks("cert"))}
    labels: list[bool] = []
    disagreements = []
    for line in (DATA / "example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for model, attempt in row.items():
            if not isinstance(attempt, dict):
                continue
            labels.append(attempt["is_correct"])
            ours = graded(env, index[row["question"].strip()], attempt["solution"])["correct"]
            if bool(ours) != attempt["is_correct"]:
                disagreements.append((model, row["question"][:40], attempt["solution"][-60:]))
    assert len(labels) == 5276
    assert 1000 < sum(labels) < 4000
    assert disagreements == []
