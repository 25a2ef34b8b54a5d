"""`envs.code.functions` and `envs.code.formats`: MBPP, HumanEval and users' files, graded in the same sandbox,
malformed rows refused by name.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs.code.admission import admit_code
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.formats import CodeDataConfig, code_source
from evotrainer.envs.code.functions import preamble_of
from evotrainer.envs.code.task_list import ListSource
from evotrainer.envs.data.rows import check_shares, split_of
from evotrainer.envs.data.tables import read_source
from evotrainer.errors import TaskSetError
from evotrainer.sandbox import Sandbox
from tests.envs.helpers import grade, shared_data

COMPLETION = {
    "task_id": "T/1",
    "prompt": 'import math\n\ndef helper(x):\n    return x + 1\n\ndef root(n):\n    """Whole square root of n."""\n',
    "entry_point": "root",
    "canonical_solution": "    return helper(math.isqrt(n)) - 1\n",
    "test": "def check(candidate):\n    assert candidate(9) == 3\n    assert candidate(8) == helper(1)\n"
    "    assert candidate(0) == 0\n",
}
MBPP = {
    "task_id": 7,
    "text": "Write a function to double a number.",
    "code": "def other(x):\n    return x\ndef double(x):\n    return other(x) * 2",
    "test_list": ["assert double(2) == 4", "assert double(-1) == -2", "assert math.isclose(double(0.5), 1.0)"],
    "test_setup_code": "import math",
    "challenge_test_list": [],
}


def write(path: Path, *rows: Mapping[str, Any]) -> str:
    text = "".join(json.dumps(r) + "\n" for r in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


def source_of(path: str | Path, form: str, **options: Any) -> ListSource:
    return code_source(CodeDataConfig(source=str(path), format=form, **options))


@pytest.mark.parametrize(
    ("kind", "parts", "failing"),
    [
        ("mbpp", ("mbpp", "mbpp_sanitized_for_code_generation.jsonl"), {"MbppEval/56"}),
        ("humaneval", ("humaneval", "HumanEval.jsonl.gz"), set()),
    ],
)
def test_gold_solutions_of_the_real_sets_pass(
    box: Sandbox, kind: str, parts: tuple[str, ...], failing: set[str]
) -> None:
    """The first 60; the whole count is in docs/domains/mbpp-humaneval.md."""
    world = CodeEnv(source_of(shared_data(*parts), kind), open_sandbox=lambda: box)
    report = admit_code(world, world.tasks("cert")[:60])
    assert len(report.verdicts) == 60
    assert {v.task for v in report.refused} == failing


def test_a_function_is_graded_by_its_tests_in_another_process(box: Sandbox, tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "h.jsonl.gz", COMPLETION), "humaneval", visible=1)
    env = CodeEnv(source, open_sandbox=lambda: box)
    (t,) = env.tasks("cert")
    assert t.prompt.startswith("# assert root(9) == 3\nimport math")
    answers = {
        "body": COMPLETION["canonical_solution"],
        "two blanks": "  return math.isqrt(n)\n",
        "whole function": "```python\ndef root(n):\n    return helper(math.isqrt(n)) - 1\n```",
        "visible only": "    return 3\n",
        "wrong": "    return n\n",
        "forged": "    class Any:\n        def __eq__(self, other): return True\n    return Any()\n",
        "leaves": "    import os\n    os._exit(0)\n",
        "no program": "    return (\n",
    }
    scores = dict(zip(answers, grade(env, [t] * len(answers), list(answers.values())), strict=True))
    right = {k for k, s in scores.items() if s.outcome == "correct"}
    assert right == {"body", "two blanks", "whole function"}
    assert scores["visible only"].components["visible"] == 1.0
    assert scores["wrong"].components["visible"] == 0.0
    assert scores["no program"].components["format"] == 0.0
    assert scores["body"].components["robust"] is None
    assert env.proxy == ("visible", "hidden")


def test_mbpps_own_columns_are_read_too(box: Sandbox, tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", MBPP, {**MBPP, "task_id": 8, "text": "Same."})
    env = CodeEnv(source_of(path, "mbpp", visible=2), open_sandbox=lambda: box)
    assert len(admit_code(env, env.tasks("cert")).admitted) == 2
    t = env.tasks("cert")[0]
    assert t.data["entry_point"] == "double"
    assert t.prompt.startswith("# assert double(2) == 4\n# assert double(-1) == -2\nWrite a function")
    wrong, partly = grade(env, [t] * 2, ["def double(x):\n    return 0", "def double(x):\n    return int(x) * 2"])
    assert (wrong.components["visible"], partly.components["visible"], partly.components["hidden"]) == (0.0, 1.0, 0.0)


def test_a_failing_gold_solution_is_reported_with_its_cause(box: Sandbox, tmp_path: Path) -> None:
    bad = {
        **COMPLETION,
        "task_id": "T/2",
        "prompt": "# Another one.\n" + COMPLETION["prompt"],
        "canonical_solution": "    return n / 0\n",
    }
    world = CodeEnv(source_of(write(tmp_path / "h.jsonl", COMPLETION, bad), "humaneval"), open_sandbox=lambda: box)
    (refused,) = admit_code(world, world.tasks("cert")).refused
    assert refused.task == "T/2"
    assert refused.reasons[0].startswith("its own solution does not pass: test 1 ends in error (ZeroDivisionError")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entry_point": None}, r"row 2: field 'entry_point' is NoneType, str expected"),
        ({"test": "def check(:"}, r"row 2: field 'test' is not Python"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "h.jsonl", COMPLETION, {**COMPLETION, "task_id": "T/2", **change})
    with pytest.raises(TaskSetError, match=message):
        source_of(path, "humaneval")


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    row = {k: v for k, v in COMPLETION.items() if k != "test"}
    with pytest.raises(TaskSetError, match=r"row 1: no column 'test' \(format humaneval\); it has: task_id, prompt"):
        source_of(write(tmp_path / "h.jsonl", row), "humaneval")
    with pytest.raises(TaskSetError, match=r"row 1: the tests call no function"):
        source_of(write(tmp_path / "m.jsonl", {**MBPP, "test_list": ["assert True"]}), "mbpp")
    with pytest.raises(TaskSetError, match=r"row 1: field 'test_list' is no list"):
        source_of(write(tmp_path / "m2.jsonl", {**MBPP, "test_list": "assert True"}), "mbpp")


@pytest.mark.parametrize(
    ("path", "message"),
    [("", "source is empty"), ("./none.jsonl", "no file or folder none.jsonl"), ("/no/such/folder/x", "no file")],
)
def test_a_missing_file_is_named(path: str, message: str) -> None:
    with pytest.raises(TaskSetError, match=message):
        read_source(path, "code")


def test_damaged_files_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(TaskSetError, match=r"a\.jsonl, line 2: not JSON"):
        read_source(str(tmp_path / "a.jsonl"), "code")
    (tmp_path / "b.jsonl").write_text("[1]\n")
    with pytest.raises(TaskSetError, match=r"b\.jsonl, line 1: list instead of an object"):
        read_source(str(tmp_path / "b.jsonl"), "code")
    (tmp_path / "c.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(TaskSetError, match="cannot read"):
        read_source(str(tmp_path / "c.jsonl.gz"), "code")


def test_a_preamble_holds_what_tests_and_rewrites_need() -> None:
    assert preamble_of(COMPLETION["prompt"], "root").endswith("return x + 1\n\n")
    assert preamble_of("import re\ndef a():\n    pass\n", "b") == "import re\n"


def stdin_rows(n: int) -> list[dict[str, Any]]:
    tests = [[f"{i}\n", f"{i + 1}\n"] for i in range(5)]
    return [
        {"prompt": f"Task {k}: add one.\n", "tests": tests, "solution": "print(int(input()) + 1)"} for k in range(n)
    ]


def test_a_users_own_stdin_tasks_train_and_grade(box: Sandbox, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", *stdin_rows(60))
    shares = {"train": 0.7, "search": 0.1, "gate": 0.1, "cert": 0.1}
    env = CodeEnv(source_of(path, "stdin", visible=2, show=True, splits=shares), open_sandbox=lambda: box)
    sizes = env.describe()["splits"]
    assert sum(sizes.values()) == 60
    assert set(sizes) == {"train", "search", "gate", "cert"}
    t = env.tasks("train")[0]
    assert t.prompt.endswith("add one.\n\nInput:\n0\nOutput:\n1\n\nInput:\n1\nOutput:\n2\n")
    assert env.reset(t, {"visible_tests": "not_shown"}).turns[0].text == t.data["spec"]
    gold, wrong = grade(env, [t] * 2, ["print(int(input()) + 1)", "print(min(int(input()) + 1, 2))"])
    assert (gold.outcome, gold.components["heldout"], gold.components["robust"]) == ("correct", None, None)
    assert (wrong.components["visible"], wrong.outcome) == (1.0, "incorrect")
    demos = env.demonstrations(100, seed=1)
    assert len(demos) == 100
    assert {p for p, _ in demos} <= {x.prompt for x in env.tasks("train")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": 3}, "row 2: field 'prompt' is int, str expected"),
        ({"tests": []}, "row 2: field 'tests' must be a list of pairs"),
        ({"tests": [["1", 2]]}, "row 2: field 'tests' must be a list of pairs"),
        ({"tests": [["1", "2"], ["2", "3"]]}, "row 2: 2 visible tests leave no hidden one"),
    ],
)
def test_a_malformed_user_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    first, second = stdin_rows(2)
    path = write(tmp_path / "mine.jsonl", first, {**second, **change})
    with pytest.raises(TaskSetError, match=message):
        source_of(path, "stdin", visible=2)


def test_a_row_keeps_its_split_when_rows_are_added() -> None:
    shares = check_shares({"train": 7, "search": 1, "gate": 1, "cert": 1})
    drawn = [split_of(f"task {i}", shares) for i in range(4000)]
    assert 0.66 < drawn.count("train") / 4000 < 0.74
    assert 0.08 < drawn.count("cert") / 4000 < 0.12
    assert drawn[17] == split_of("task 17", shares)
    for bad in ({"test": 1.0}, {"train": -1.0, "cert": 2.0}, {"train": 0.0}):
        with pytest.raises(TaskSetError, match="splits"):
            check_shares(bad)
