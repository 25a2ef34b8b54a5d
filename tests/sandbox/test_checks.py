"""Test code and candidate in separate processes: HumanEval and MBPP style."""

from __future__ import annotations

import pytest

from evotrainer.sandbox import Check, Limits, Sandbox

QUICK = Limits(cpu_s=0.3, idle_s=1.0)


@pytest.mark.parametrize(
    "test",
    [
        "assert double(3) == 6",
        "def check(candidate):\n    assert candidate(3) == 6\n    assert double(0) == 0",
        "def test():\n    for x in range(20): assert double(x) == 2 * x\ntest()",
        "assert list(map(double, [1, 2])) == [2, 4]",
        "assert double(x=3) == 6",
        "assert double([1]) == [1, 1] and isinstance(double([1]), list)",
        "try:\n    double(None)\n    raise SystemError\nexcept TypeError as error:\n"
        "    assert 'NoneType' in str(error)",
    ],
)
def test_right_candidates_pass(box: Sandbox, test: str) -> None:
    result = box.run_checks([Check("def double(x): return x * 2", "double", test)])[0]
    assert result.passed, result


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("def double(x): return x", "error"),
        ("def other(x): return 2 * x", "error"),
        ("def double(x:", "error"),
        ("def double(x): raise SystemExit(0)", "error"),
        ("import sys; sys.exit(0)", "error"),
        ("def double(x):\n    while True: pass", "timeout"),
        ("while True: pass", "timeout"),
        ("import time\ndef double(x): time.sleep(99)", "timeout"),
        ("import os\ndef double(x): os._exit(0)", "error"),
        ("def double(x): return 'x' * 10 ** 7", "output"),
    ],
)
def test_wrong_candidates_do_not(box: Sandbox, source: str, status: str) -> None:
    assert box.run_checks([Check(source, "double", "assert double(3) == 6", QUICK)])[0].status == status


def test_a_failing_check_names_its_reason(box: Sandbox) -> None:
    result = box.run_checks([Check("def f(x): return x", "f", "assert f(1) == 2, 'one is not two'")])[0]
    assert result.error == ("AssertionError", "one is not two")


def test_arguments_changed_in_place_are_seen_by_the_tests(box: Sandbox) -> None:
    test = "data = [3, 1, 2]\nassert sort(data) is None\nassert data == [1, 2, 3]"
    assert box.run_checks([Check("def sort(data): data.sort()", "sort", test)])[0].passed


def test_objects_of_the_candidate_can_be_handed_back(box: Sandbox) -> None:
    source = "class Node:\n    def __init__(self, v): self.v = v\ndef make(v): return Node(v)\ndef value(n): return n.v"
    test = "node = make(7)\nassert value(node) == 7\nassert node != 7 and node != make(7)"
    assert box.run_checks([Check(source, "make", test, names=("value",))])[0].passed


def test_a_function_named_check_can_be_tested(box: Sandbox) -> None:
    source = "def helper(n): return n\ndef check(n): return n > 1"
    test = "def check(candidate):\n    assert check(2) == True\n    assert check(1) == False"
    assert box.run_checks([Check(source, "helper", test, names=("check",))])[0].passed


def test_many_checks_run_side_by_side(box: Sandbox) -> None:
    checks = [Check(f"def f(): return {i}", "f", f"assert f() == {i - i % 2}") for i in range(10)]
    assert [result.passed for result in box.run_checks(checks)] == [True, False] * 5


def test_an_answer_before_the_call_is_none(box: Sandbox) -> None:
    early = 'import os\nos.write(4, b\'{"v": 5, "m": []}\\n\')\ndef add(a, b):\n    return 0\n'
    result = box.run_checks([Check(early, "add", "import time\ntime.sleep(0.5)\nassert add(2, 3) == 5")])[0]
    assert (result.passed, result.error) == (
        False,
        ("ProtocolError", "the candidate spoke without being called"),
    )
