"""CPU time decides; every limit has its own status; cases are independent of one another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evotrainer.sandbox import Call, Limits, Program, Sandbox

QUICK = Limits(cpu_s=0.3, memory_mb=128, output_kb=64, idle_s=1.0, file_mb=2)


def status(box: Sandbox, source: str, limits: Limits = QUICK) -> str:
    """How one script without input ends."""
    return box.run([Program(source, stdins=("",), limits=limits)])[0].cases[0].status


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(1)", "ok"),
        ("import sys; sys.exit()", "ok"),
        ("import sys; sys.exit(3)", "error"),
        ("1 / 0", "error"),
        ("def broken(:", "error"),
        ("x = '\\0' + '\0'", "error"),
        ("import os; os._exit(0)", "error"),
        ("import os; os.kill(os.getpid(), 9); import ctypes; ctypes.string_at(0)", "killed"),
        ("while True: pass", "timeout"),
        ("sum(range(10 ** 12))", "timeout"),
        ("import re; re.match('(a+)+b', 'a' * 40)", "timeout"),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "timeout"),
        ("x = bytearray(10 ** 10)", "memory"),
        ("x = [0]\nwhile True: x = x + x", "memory"),
        ("while True: print('x' * 100)", "output"),
        ("import os\nwhile True: os.write(1, b'x' * 1000)", "output"),
        ("open('big', 'wb').write(bytes(8 << 20))", "error"),
    ],
)
def test_each_end_has_its_status(box: Sandbox, source: str, expected: str) -> None:
    # filling memory takes processor time, more of it on a busy machine
    limits = replace(QUICK, cpu_s=5.0) if expected == "memory" else QUICK
    assert status(box, source, limits) == expected


def test_a_program_cannot_raise_its_own_limits(box: Sandbox) -> None:
    source = """
import resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
    hard = resource.getrlimit(kind)[1]
    try:
        resource.setrlimit(kind, (hard + 1, hard + 1))
        print("raised", kind)
    except ValueError:
        pass
"""
    assert box.run([Program(source, stdins=("",))])[0].cases[0].stdout == ""


def test_twelve_at_once_do_not_turn_a_right_answer_into_a_timeout(box: Sandbox) -> None:
    """0.6 CPU-seconds under a limit of 0.8: with a wall clock limit, 12 at once on few cores would fail."""
    source = "import time\nwhile time.thread_time() < 0.6: pass\nprint('done')"
    crowd = Sandbox.open(tier="C", workers=4)
    try:
        programs = [Program(source.replace("0.6", "0.2"), stdins=("",), limits=Limits(cpu_s=0.4))] * 12
        results = crowd.run(programs)
    finally:
        crowd.close()
    assert [r.cases[0].stdout for r in results] == ["done\n"] * 12
    single = box.run([Program(source, stdins=("",), limits=Limits(cpu_s=0.8))])[0]
    assert single.cases[0].stdout == "done\n"


def test_a_sleeper_does_not_hold_up_the_others(box: Sandbox) -> None:
    sleeper = Program("import time; time.sleep(60)", stdins=("",), limits=QUICK)
    quick = Program("print(input())", stdins=("a",))
    results = box.run([sleeper, *[quick] * 20])
    assert results[0].cases[0].status == "timeout"
    assert "asleep" in results[0].cases[0].error[1]  # type: ignore[index]
    assert [r.cases[0].stdout for r in results[1:]] == ["a\n"] * 20


def test_cases_get_fresh_modules_and_their_own_input(box: Sandbox) -> None:
    source = """
try: seen
except NameError: seen = 0
seen += 1
print(seen, input())
"""
    cases = box.run([Program(source, stdins=("a", "b", "c"))])[0].cases
    assert [case.stdout for case in cases] == ["1 a\n", "1 b\n", "1 c\n"]


@pytest.mark.parametrize(
    "source",
    [
        "print(sum(map(int, open(0).read().split())))",
        "import sys\nprint(sum(int(x) for line in sys.stdin for x in line.split()))",
        "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.buffer.read().split()))) + '\\n')",
        "import os\nos.write(1, b'%d\\n' % sum(map(int, os.read(0, 99).split())))",
        "import threading, sys\nsys.setrecursionlimit(10 ** 5)\n"
        "def main(): print(sum(int(input()) for _ in range(2)))\nthreading.Thread(target=main).start()",
        "import atexit\natexit.register(lambda: print(int(input()) + int(input())))",
        "if __name__ == '__main__': print(int(input()) + int(input())); import sys; sys.stdin.close(); "
        "sys.stdout.flush()",
    ],
)
def test_programs_may_read_and_write_as_programs_do(box: Sandbox, source: str) -> None:
    cases = box.run([Program(source, stdins=("1\n2\n", "3\n4\n"))])[0].cases
    assert [case.stdout for case in cases] == ["3\n", "7\n"]


def test_a_dead_case_does_not_take_the_later_ones_along(box: Sandbox) -> None:
    source = "import os\nn = int(input())\nif n == 1: os._exit(1)\nprint(n)"
    cases = box.run([Program(source, stdins=("0", "1", "2", "1", "4"))])[0].cases
    assert [case.stdout for case in cases] == ["0\n", None, "2\n", None, "4\n"]
    assert [case.status for case in cases] == ["ok", "error", "ok", "error", "ok"]


def test_after_a_timeout_the_rest_is_skipped_unless_asked_for(box: Sandbox) -> None:
    source = "n = int(input())\nwhile n == 1: pass\nprint(n)"
    stdins = ("0", "1", "2")
    once = box.run([Program(source, stdins=stdins, limits=QUICK)])[0].cases
    assert [case.status for case in once] == ["ok", "timeout", "timeout"]
    assert "skipped" in once[2].error[1]  # type: ignore[index]
    more = Limits(cpu_s=0.3, timeouts=3)
    assert [c.status for c in box.run([Program(source, stdins=stdins, limits=more)])[0].cases] == [
        "ok",
        "timeout",
        "ok",
    ]


def test_the_same_program_gives_the_same_answer(box: Sandbox) -> None:
    source = "import random\nprint(random.random(), hash('text'), list({'a', 'b', 'c', 'd'}))"
    results = box.run([Program(source, stdins=("",))] * 3)
    assert len({r.cases[0].stdout for r in results}) == 1


def test_exceptions_and_times_are_reported(box: Sandbox) -> None:
    calls = [Call("f", (0,)), Call("f", (2,)), Call("missing")]
    result = box.run([Program("def f(x): return 1 / x", calls=calls)])[0]
    assert result.cases[0].error == ("ZeroDivisionError", "division by zero")
    assert result.cases[1].value == 0.5
    assert result.cases[2].error == ("NameError", "the program defines no missing")
    assert 0 < result.cases[0].cpu_s <= result.cpu_s < 1


def test_large_inputs_and_outputs_pass_whole(box: Sandbox) -> None:
    text = "".join(f"{i}\n" for i in range(60_000))
    program = Program("import sys\nsys.stdout.write(sys.stdin.read())", stdins=(text, "ü\n"))
    assert [c.stdout for c in box.run([program])[0].cases] == [text, "ü\n"]


def test_the_limit_is_of_a_case_and_not_of_all_together(box: Sandbox) -> None:
    source = """
import time
def work(n):
    end = time.process_time() + 0.3
    while time.process_time() < end: pass
    return n
"""
    result = box.run([Program(source, calls=[Call("work", (n,)) for n in range(5)], limits=Limits(cpu_s=0.5))])[0]
    assert [(case.status, case.value) for case in result.cases] == [("ok", n) for n in range(5)]
