"""No wrong solution is graded right, neither by values nor by test code; and none passes as a fault of the sandbox."""

from __future__ import annotations

import pytest

from evotrainer.sandbox import Call, Check, Limits, Program, Sandbox, same

from .forgeries import LOOSE, MESSAGES, SCRIPT_MESSAGES, SCRIPT_TESTS, SCRIPTS, SOLUTIONS, TESTS
from .frames import FRAMES, Frame

LIMITS = Limits(cpu_s=1.0, idle_s=2.0)
ASSERTS = "\n".join(f"assert add(*{arguments}) == {expected}" for arguments, expected in TESTS)
MAPPED = f"assert all(map(lambda test: add(*test[0]) == test[1] and type(add(*test[0])) is int, {TESTS}))"


def graded(box: Sandbox, source: str) -> list[bool]:
    """As an environment grades: values come back, the comparison is ours."""
    program = Program(source, calls=[Call("add", arguments) for arguments, _ in TESTS], limits=LIMITS)
    result = box.run([program])[0]
    assert not result.faulty, "a program cannot make its failure look like ours"
    return [case.ok and same(case.value, expected) for case, (_, expected) in zip(result.cases, TESTS, strict=True)]


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(SOLUTIONS) + len(MESSAGES) + len(SCRIPTS) + len(SCRIPT_MESSAGES) >= 54


def test_an_honest_solution_passes(box: Sandbox) -> None:
    source = "def add(a, b): return a + b"
    assert all(graded(box, source))
    assert box.run_checks([Check(source, "add", ASSERTS, LIMITS)])[0].passed
    assert box.run_checks([Check(source, "add", MAPPED, LIMITS)])[0].passed


@pytest.mark.parametrize("name", SOLUTIONS)
def test_no_forgery_passes_by_values(box: Sandbox, name: str) -> None:
    assert not any(graded(box, SOLUTIONS[name]))


@pytest.mark.parametrize("name", SOLUTIONS)
def test_no_forgery_passes_test_code(box: Sandbox, name: str) -> None:
    for test in (MAPPED,) if name in LOOSE else (ASSERTS, MAPPED):
        result = box.run_checks([Check(SOLUTIONS[name], "add", test, LIMITS)])[0]
        assert not result.passed
        assert result.status != "sandbox"


@pytest.mark.parametrize("name", MESSAGES)
def test_no_forged_message_is_a_pass(box: Sandbox, name: str) -> None:
    assert not any(graded(box, MESSAGES[name]))
    result = box.run_checks([Check(MESSAGES[name], "add", ASSERTS, LIMITS)])[0]
    assert not result.passed
    assert result.status != "sandbox"


def test_forged_times_do_not_hide_a_slow_program(box: Sandbox) -> None:
    source = """
import json, os, signal, time
signal.setitimer(signal.ITIMER_PROF, 0)
end = time.process_time() + 0.7
while time.process_time() < end: pass
for value in (5, 6, 15):
    os.write(4, json.dumps({"s": "ok", "v": value, "t": 0.0}).encode() + b"\\n")
os._exit(0)
"""
    program = Program(source, calls=[Call("add", a) for a, _ in TESTS], limits=Limits(cpu_s=0.3))
    assert {case.status for case in box.run([program])[0].cases} == {"timeout"}


# -- scripts -----------------------------------------------------------------------------------------------------------


def printed(box: Sandbox, source: str) -> list[bool]:
    """As an environment grades: texts come back, the comparison is ours."""
    result = box.run([Program(source, stdins=[given for given, _ in SCRIPT_TESTS], limits=LIMITS)])[0]
    assert not result.faulty, "a program cannot make its failure look like ours"
    return [case.ok and case.stdout == expected for case, (_, expected) in zip(result.cases, SCRIPT_TESTS, strict=True)]


def test_an_honest_script_passes(box: Sandbox) -> None:
    assert all(printed(box, "print(sum(map(int, input().split())))"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_forged_script_passes(box: Sandbox, name: str) -> None:
    assert not any(printed(box, SCRIPTS[name]))


@pytest.mark.parametrize("name", SCRIPT_MESSAGES)
def test_no_forged_message_of_a_script_is_a_pass(box: Sandbox, name: str) -> None:
    assert not any(printed(box, SCRIPT_MESSAGES[name]))


# -- frames, sent by programs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [f for f in FRAMES if len(f.line) < 20_000], ids=lambda f: f.name)
def test_no_frame_of_a_program_ends_the_grader(box: Sandbox, frame: Frame) -> None:
    send = f"import os\nos.write(4, {frame.line!r} + b'\\n')\nos._exit(0)"
    if frame.calls:
        assert not any(graded(box, f"{send}\ndef add(a, b): return 0"))
    else:
        assert not any(printed(box, send))


@pytest.mark.parametrize("claimed", [0.9 * len(TESTS), 0.6])
def test_a_program_that_claims_more_time_than_the_kernel_counted_is_wrong(box: Sandbox, claimed: float) -> None:
    lines = [f'{{"s": "ok", "t": {claimed / len(TESTS):.4f}, "v": {value}}}\\n' for _, value in TESTS]
    source = f"import os\nos.write(4, b'{''.join(lines)}')\nos._exit(0)"
    result = box.run([Program(source, calls=[Call("add", a) for a, _ in TESTS], limits=LIMITS)])[0]
    assert {case.status for case in result.cases} == {"error"}
    assert "claimed" in str(result.cases[0].error)


def test_a_flood_of_lines_ends_the_program_at_once(box: Sandbox) -> None:
    source = "import os\ndef add(a, b):\n    while True: os.write(4, b'\\n' * 65536)"
    result = box.run([Program(source, calls=[Call("add", (1, 2))], limits=Limits(cpu_s=20.0))])[0]
    assert result.cases[0].status == "error"
    assert result.cpu_s < 5.0, "not only when its time is used up"


def test_a_program_that_disarms_its_timer_and_tells_the_truth_is_late(box: Sandbox) -> None:
    source = """
import signal, time
signal.setitimer(signal.ITIMER_PROF, 0)
def add(a, b):
    signal.setitimer(signal.ITIMER_PROF, 0)
    end = time.process_time() + 0.45
    while time.process_time() < end: pass
    return a + b
"""
    result = box.run([Program(source, calls=[Call("add", (2, 3))], limits=Limits(cpu_s=0.1))])[0]
    assert result.cases[0].status == "timeout"
