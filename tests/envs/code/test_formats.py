"""`envs.code.formats`: TACO's, LiveCodeBench's and others' programming problems, read whole, graded in the sandbox,
admitted by their solutions.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs.admission import Cache
from evotrainer.envs.code.admission import admit_code, keep_admitted
from evotrainer.envs.code.answers import adapted, same_value
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.formats import CodeDataConfig, code_source
from evotrainer.envs.code.problems import private_tests
from evotrainer.errors import TaskSetError
from evotrainer.sandbox import Sandbox
from evotrainer.testing import check_environment
from tests.envs.helpers import grade, jsonl, shared_data

MAIN = (
    "import sys\ndef main():\n    n = int(sys.stdin.buffer.readline())\n    print(2 * n)\nif __name__ == '__main__':\n"
    "    main()\n"
)
STDIN = {
    "question": "Double it.",
    "solutions": json.dumps(["print('no')", MAIN]),
    "starter_code": "",
    "input_output": json.dumps({"inputs": ["1\n", "5\n", "-2\n"], "outputs": ["2\n", "10\n", ["-4"]]}),
    "difficulty": "EASY",
}
CLASS = "class Solution:\n    def add(self, a: List[int], b: int) -> int:\n"
CALL = {
    "question": "Sum of a and b.",
    "solutions": json.dumps([CLASS + "        return sum(a) + b\n"]),
    "starter_code": CLASS,
    "input_output": json.dumps({"fn_name": "add", "inputs": [[[1, 2], 3], [[], 0]], "outputs": [[6], [0]]}),
    "difficulty": "HARD",
}
TESTS = [{"input": "[3, 4]\n5", "output": "12", "testtype": "functional"}]
LCB = {
    "question_title": "Add",
    "question_content": "Add them.",
    "platform": "leetcode",
    "question_id": "3000",
    "contest_date": "2025-01-04T00:00:00",
    "starter_code": CLASS + "        ",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "[1]\n2", "output": "3", "testtype": "functional"}]),
    "private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(json.dumps(TESTS)))).decode(),
    "metadata": json.dumps({"func_name": "add"}),
}


def env(box: Sandbox, path: Path, *rows: Mapping[str, Any], **options: Any) -> CodeEnv:
    source = code_source(CodeDataConfig(source=str(jsonl(path, rows)), **options))
    return CodeEnv(source, open_sandbox=lambda: box)


def test_tacos_programs_and_functions_run(box: Sandbox, tmp_path: Path) -> None:
    w = env(box, tmp_path / "t.jsonl", STDIN, CALL)
    assert w.describe()["data"]["format"] == "taco"
    double, add = w.tasks("cert")
    assert double.prompt == "Double it.\n\nWrite a Python program that reads standard input and prints the answer.\n"
    assert add.prompt.endswith(f"Write it in Python as `add`.\n\n{CLASS}".rstrip() + "\n")
    assert [s.outcome for s in grade(w, [double] * 2, [MAIN, "print(2)"])] == ["correct", "incorrect"]
    answers = {
        "class": CLASS + "        return sum(a) + b\n",
        "function": "def add(a, b):\n    return sum(a) + b\n",
        "fenced": "```python\n" + CLASS + "        return reduce(operator.add, a, b)\n```",
        "a list of one stands for it": "def add(a, b):\n    return [sum(a) + b]\n",
        "other": "def add(a, b):\n    return 6\n",
        "true is not one": "def add(a, b):\n    return bool(a) and 6\n",
        "no such name": "def sub(a, b):\n    return sum(a) + b\n",
        "no program": "def add(",
    }
    scores = grade(w, [add] * len(answers), list(answers.values()))
    right = {k for k, s in zip(answers, scores, strict=True) if s.outcome == "correct"}
    assert right == {"class", "function", "fenced", "a list of one stands for it"}


def test_livecodebenchs_packed_tests_are_read_and_graded(box: Sandbox, tmp_path: Path) -> None:
    stdin = [
        {"input": "1\n", "output": "2\n", "testtype": "stdin"},
        {"input": "4\n", "output": "8\n", "testtype": "stdin"},
    ]
    plain = {
        **LCB,
        "question_title": "Twice",
        "question_content": "Twice the number.",
        "starter_code": "",
        "public_test_cases": json.dumps(stdin[:1]),
        "private_test_cases": json.dumps(stdin[1:]),
        "metadata": "{}",
    }
    w = env(box, tmp_path / "l.jsonl", LCB, plain)
    add, twice = w.tasks("cert")
    assert add.id == "livecodebench-l-1-3000"
    assert (add.data["visible"], add.data["hidden"]) == ([[[[1], 2], 3]], [[[[3, 4], 5], 12]])
    assert add.tags["difficulty"] == "easy" and w.proxy == ("visible", "hidden")
    good, shown = grade(w, [add] * 2, ["def add(a, b):\n    return sum(a) + b", "def add(a, b):\n    return 3"])
    assert (good.outcome, shown.outcome, shown.components["visible"]) == ("correct", "incorrect", 1.0)
    assert grade(w, [twice], [MAIN])[0].outcome == "correct"
    assert "Twice\n\nTwice the number." in twice.prompt
    dated = code_source(CodeDataConfig(source=str(tmp_path / "l.jsonl"), where={"contest_date": {"min": "2025-01-01"}}))
    assert dated.sizes() == {"cert": 2}


class Bomb:
    """What a pickle can carry: code that runs when it is read."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.place, "ran"))


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_no_code_in_a_pickle_runs(tmp_path: Path) -> None:
    place = tmp_path / "ran"
    bomb = packed(Bomb(place))
    with pytest.raises(
        TaskSetError, match=r"row 1: field 'private_test_cases' cannot be read \(UnpicklingError: it names"
    ):
        private_tests({"private_test_cases": bomb}, "row 1")
    assert not place.exists()
    pickle.loads(zlib.decompress(base64.b64decode(bomb)))
    assert place.exists()  # what plain pickle would have done
    for value in ([1, 2], {"a": 1}, 3, None):
        with pytest.raises(TaskSetError, match="cannot be read"):
            private_tests({"private_test_cases": packed(value)}, "row 1")
    assert private_tests({"private_test_cases": packed("[]")}, "row 1") == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("not base64!", "cannot be read .Error"),
        (base64.b64encode(b"no zlib").decode(), "cannot be read .error"),
        (base64.b64encode(zlib.compress(pickle.dumps("x" * 999))[:-6]).decode(), "is cut, or unpacks to more"),
        (base64.b64encode(zlib.compress(b"\x80\x04\x8c")).decode(), "cannot be read|damaged pickle"),
        (packed("no json"), "cannot be read .JSONDecodeError"),
        ("[1", "is not JSON"),
    ],
)
def test_damaged_private_tests_are_refused_with_their_row(value: str, message: str) -> None:
    with pytest.raises(TaskSetError, match=f"^row 9: field 'private_test_cases' .*({message})|{message}"):
        private_tests({"private_test_cases": value}, "row 9")


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (STDIN, {"input_output": "{"}, r"t.jsonl, row 2: field 'input_output' is not JSON"),
        (STDIN, {"input_output": json.dumps({"inputs": ["1"]})}, "must hold the lists inputs and outputs"),
        (STDIN, {"input_output": json.dumps({"inputs": ["1"], "outputs": []})}, "has 1 input and 0 outputs"),
        (STDIN, {"input_output": json.dumps({"inputs": [], "outputs": []})}, "has 0 inputs"),
        (STDIN, {"solutions": "[1]"}, "field 'solutions' must be a list of programs"),
        (STDIN, {"question": 3}, "field 'question' is int, str expected"),
        (STDIN, {"question": ""}, "the question is empty"),
        (
            CALL,
            {"input_output": json.dumps({"fn_name": "a b", "inputs": [[1]], "outputs": [1]})},
            "fn_name .* is 'a b'",
        ),
        (
            CALL,
            {"input_output": json.dumps({"fn_name": "f", "inputs": [1], "outputs": [1]})},
            "input 1 of function f is no list",
        ),
        (LCB, {"private_test_cases": ""}, "it has no private tests"),
        (
            LCB,
            {"public_test_cases": json.dumps([{"input": "1"}])},
            "must be a list of tests with the texts input, output",
        ),
        (
            LCB,
            {"public_test_cases": json.dumps([{**TESTS[0], "testtype": "stdin"}])},
            "testtype must be stdin or functional, the same",
        ),
        (LCB, {"metadata": "{}", "starter_code": ""}, r"neither metadata \(func_name\) nor starter_code"),
        (LCB, {"public_test_cases": json.dumps([{**TESTS[0], "input": "x"}])}, "a functional test is not JSON"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, base: dict[str, Any], change: dict[str, Any], message: str) -> None:
    path = jsonl(tmp_path / "t.jsonl", [base, {**base, **change}])
    with pytest.raises(TaskSetError, match=rf"t.jsonl, row 2: .*{message}|{message}"):
        code_source(CodeDataConfig(source=str(path), duplicates="merge"))


def test_a_task_is_admitted_by_one_of_its_solutions(box: Sandbox, tmp_path: Path) -> None:
    wrong = {**STDIN, "question": "Nobody can.", "solutions": json.dumps(["print(1)", "syntax("])}
    idle = {**STDIN, "question": "Nothing to do.", "solutions": json.dumps(["pass"])}
    idle["input_output"] = json.dumps({"inputs": ["1"], "outputs": [""]})
    bare = {**STDIN, "question": "No solution.", "solutions": ""}
    w = env(box, tmp_path / "t.jsonl", STDIN, CALL, wrong, idle, bare)
    tasks = list(w.tasks("cert"))
    cache = Cache(tmp_path / "kept")
    report = admit_code(w, tasks, cache)
    refused = {v.task: v.reasons for v in report.refused}
    assert refused == {
        "taco-t-3": ("its own solution does not pass: test 1 expects '2', it gives '1'",),
        "taco-t-4": ("a program that does nothing passes: no test asks for anything",),
    }
    ran = w.grader.ran
    again = admit_code(w, tasks, cache)
    assert again.admitted == report.admitted and w.grader.ran == ran
    assert [v.kept for v in again.verdicts] == [True, True, True, True, False]


def test_refused_tasks_are_left_out_and_named(box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evotrainer.envs.admission.cache_root", lambda: tmp_path / "cache")
    wrong = {**STDIN, "question": "Nobody can.", "solutions": json.dumps(["print(1)"])}
    w = env(box, tmp_path / "t.jsonl", STDIN, wrong)
    before = w.describe()["hash"]
    keep_admitted(w)
    assert [t.id for t in w.tasks("cert")] == ["taco-t-1"]
    assert w.tasks("cert")[0].data["gold"] == MAIN  # the second one, which passes
    assert list(w.describe()["data"]["refused"]) == ["taco-t-2"] and w.describe()["hash"] != before
    alone = env(box, tmp_path / "u.jsonl", wrong)
    monkeypatch.setattr(alone, "close", lambda: None)  # the sandbox is the session's
    with pytest.raises(TaskSetError, match="no task is admitted"):
        keep_admitted(alone)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("mbpp", "mbpp_sanitized_for_code_generation.jsonl"), {"MbppEval/56"}),  # in HumanEval's columns
        (("humaneval", "HumanEval.jsonl.gz"), set()),
    ],
)
def test_the_real_sets_are_recognised_and_admitted(
    box: Sandbox, tmp_path: Path, parts: tuple[str, ...], expected: set[str]
) -> None:
    """The first 58; all of them: docs/datasets.md."""
    w = CodeEnv(code_source(CodeDataConfig(source=str(shared_data(*parts)), limit=58)), open_sandbox=lambda: box)
    assert w.describe()["data"]["format"] == parts[0]
    report = admit_code(w, list(w.tasks("cert")), Cache(tmp_path))
    assert len(report.verdicts) == 58 and {v.task for v in report.refused} == expected


def test_mbpp_as_csv_holds_its_lists_as_json(box: Sandbox, tmp_path: Path) -> None:
    row = {
        "task_id": "7",
        "text": "Double it.",
        "code": "def d(x):\n    return 2 * x",
        "test_list": json.dumps(["assert d(2) == 4"]),
    }
    import polars as pl

    pl.DataFrame([row]).write_csv(tmp_path / "m.csv")
    w = CodeEnv(code_source(CodeDataConfig(source=str(tmp_path / "m.csv"), visible=1)), open_sandbox=lambda: box)
    (t,) = w.tasks("cert")
    assert t.prompt == "# assert d(2) == 4\nDouble it.\n"
    assert grade(w, [t], [row["code"]])[0].outcome == "correct"


def test_the_task_file_says_how_many_tests_are_visible_and_large_ones_are_left_out(tmp_path: Path) -> None:
    big = {**STDIN, "input_output": json.dumps({"inputs": ["1", "2", "3"], "outputs": ["2", "4", "6" * 40_000]})}
    path = jsonl(tmp_path / "t.jsonl", [big])
    source = code_source(CodeDataConfig(source=str(path), visible=1, show=True, output_kb=16))
    (t,) = source.tasks("cert")
    assert t.data["visible"] == [["1", "2"]] and t.data["hidden"] == [["2", "4"]]
    assert t.prompt.endswith("Input:\n1\nOutput:\n2\n") and source.about["left_out"] == {"tests beyond output_kb": 1}
    assert code_source(CodeDataConfig(source=str(path), tests=1)).tasks("cert")[0].data["hidden"] == [["1", "2"]]
    with pytest.raises(TaskSetError, match="3 visible tests leave no hidden one; lower environment.visible"):
        code_source(CodeDataConfig(source=str(path), visible=3))


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ((1, 2), [1, 2], True),
        ([1, 2.0], [1, 2], True),
        (True, 1, False),
        (1, True, False),
        ("1", 1, False),
        (None, None, True),
        ({1: [2]}, {"1": [2]}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ([[1]], [1], False),
    ],
)
def test_values_are_compared_as_json_says_them(got: Any, expected: Any, same: bool) -> None:
    assert same_value(got, expected, either=False) is same


def test_only_a_missing_function_is_made_of_the_class() -> None:
    assert adapted("def f():\n    pass\nclass Solution:\n    pass\n", "f", "").count("def f(") == 1
    assert "def f(*arguments)" in adapted("class Solution:\n    def f(self): pass\n", "f", "")
    assert adapted("def (", "f", "# x\n") == "# x\ndef ("


def test_a_data_set_is_an_environment_like_any_other(box: Sandbox, tmp_path: Path) -> None:
    rows: Sequence[dict[str, Any]] = [{**STDIN, "question": f"Double, {i}."} for i in range(40)]
    w = env(box, tmp_path / "t.jsonl", *rows, splits={"train": 1, "search": 1, "gate": 1, "cert": 1})
    check_environment(w, sample=2)
    assert {p for p, _ in w.demonstrations(50, 0)} <= {t.prompt for t in w.tasks("train")}


def test_rows_that_cannot_be_read_may_be_left_out_and_are_told(tmp_path: Path) -> None:
    empty = {**STDIN, "input_output": json.dumps({"inputs": [], "outputs": []})}
    path = jsonl(tmp_path / "t.jsonl", [STDIN, empty, {"question": "no tests"}, CALL])
    source = code_source(CodeDataConfig(source=str(path), malformed="skip"))
    assert [t.id for t in source.tasks("cert")] == ["taco-t-1", "taco-t-4"]
    assert source.about["malformed_left_out"] == 2
    assert "row 2: field 'input_output' has 0 inputs" in " ".join(source.about["malformed"])
    with pytest.raises(
        TaskSetError, match="no row is left of 1; the first: .*row 1: field 'input_output' has 0 inputs"
    ):
        code_source(CodeDataConfig(source=str(jsonl(tmp_path / "u.jsonl", [empty])), malformed="skip"))
