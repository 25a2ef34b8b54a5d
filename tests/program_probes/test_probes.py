# ruff: noqa: E501
"""Each probe sees what it is for, and says nothing of honest programs and of what it could not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from evotrainer.program_probes import ProbedProgram, VisibleTest, probe_programs
from evotrainer.program_probes.inputs import neighbours
from evotrainer.records.probes import PROBES, ProbeFact, ProgramProbes
from evotrainer.sandbox import Limits, Sandbox

SORTS = (VisibleTest([[3, 1, 2]], [1, 2, 3]), VisibleTest([[5, 4]], [4, 5]))
SUMS = (VisibleTest("3\n1 2 3\n", "6\n"), VisibleTest("2\n10 20\n", "30\n"))
QUICK = Limits(cpu_s=0.5, memory_mb=256, output_kb=64, idle_s=1.0)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox.open() as found:
        yield found


def function(body: str, before: str = "", tests: tuple[VisibleTest, ...] = SORTS) -> ProbedProgram:
    lines = "".join(f"    {x}\n" for x in body.splitlines())
    return ProbedProgram(f"{before}\ndef solve(xs):\n{lines}", "call", tests)


def script(source: str) -> ProbedProgram:
    return ProbedProgram(source, "stdin", SUMS)


EQUAL = "class E:\n    def __eq__(self, o): return True"
GUILTY = {
    "counts its calls": ("repeat", function("n.append(1)\nreturn [[1, 2, 3], [4, 5]][len(n) - 1] if len(n) < 3 else []", "n = []")),
    "leaves a file": ("repeat", script("import os\nprint(0 if os.path.exists('x') else sum(map(int, open(0).read().split()[1:])))\nopen('x', 'w')")),
    "keeps by address": ("same_object", function("if id(xs) not in K: K[id(xs)] = sorted(xs)\nreturn K[id(xs)]", "K = {}")),
    "exits in a call": ("ends", function("import sys\nsys.exit(0)")),
    "exits when loaded": ("ends", function("return 1", "import sys\nsys.exit()")),
    "exits hard": ("ends", function("import os\nos._exit(0)")),
    "skips": ("ends", function("return 1", "import unittest\nraise unittest.SkipTest('later')")),
    "equal to all": ("types", function("return E()", EQUAL)),
    "equal to all, within": ("types", function("return {'a': [E()]}", EQUAL.replace("E:", "E(int):"))),
    "near to all": ("types", function("return E()", "class E:\n    def __sub__(self, o): return 0.0")),
    "patches a builtin": ("patches", function("return xs", "import builtins\nbuiltins.sorted = lambda x: x")),
    "patches a clock": ("patches", function("return sorted(xs)", "import time\ntime.perf_counter = lambda: 0.0")),
    "patches a test": ("patches", function("return 1", "import unittest\nunittest.TestCase.assertEqual = lambda *a: None")),
    "knows an input": ("clean_room", script("import sys\nd = sys.stdin.read()\nprint(6 if d == '3\\n1 2 3\\n' else 0)")),
    "knows a list": ("clean_room", function("return [12, 31, 55] if xs == [31, 12, 55] else []", tests=(VisibleTest([[31, 12, 55]], [12, 31, 55]), SORTS[1]))),
    "knows several pairs": ("clean_room", ProbedProgram(
        "def solve(a, xs):\n    if a == 5 and xs == [1, 2, 7]: return 2\n    if a == 6 and xs == [1, 3, 8]: return 3\n    return a", "call",
        (VisibleTest([5, [1, 2, 7]], 2), VisibleTest([6, [1, 3, 8]], 3)))),
}  # fmt: skip
HONEST = {
    "sorts": function("return sorted(xs)"),
    "sorts in place": function("xs.sort()\nreturn xs"),
    "keeps by value": function("k = tuple(xs)\nif k not in K: K[k] = sorted(k)\nreturn K[k]", "K = {}"),
    "shuffles first": function("xs = random.sample(xs, len(xs))\nreturn sorted(xs)", "import random"),
    "answers by chance": function("return random.random()", "import random"),
    "answers by chance of the system": function("return random.SystemRandom().random()", "import random"),
    "answers by the clock": function("return time.time_ns()", "import time"),
    "fails with a code": function("return 1", "import sys\nsys.exit(2)"),
    "a class of its own": function("return P()", "class P:\n    def __eq__(self, o): return isinstance(o, P)"),
    "a base case": function("return [] if not xs else [4, 5] if xs == [5, 4] else sorted(xs)"),
    "adds a name": function("return sorted(xs)", "import math\nmath.my_own = 1\nimport sys\nsys.setrecursionlimit(9999)"),
    "obeys commands": ProbedProgram(
        "xs = []\nfor _ in range(int(input())):\n    c = input().strip()\n    if c == 'append': xs.append(7)\n    elif c == 'reverse': xs.reverse()\n    elif c == 'insert': xs.insert(0, 12345)\n    elif c == 'print': print(*xs)",
        "stdin", (VisibleTest("5\nappend\ninsert\nreverse\nappend\nprint\n", "7 12345 7\n"), VisibleTest("2\nappend\nprint\n", "7\n"))),
    "sums": script("n = int(input())\nprint(sum(map(int, input().split())))"),
    "exits behind its answer": script("import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))\nsys.exit(0)"),
    "flushes at exit": script("import atexit, os, sys\nout = []\natexit.register(lambda: os.write(1, ''.join(out).encode()))\nout.append(str(sum(map(int, sys.stdin.read().split()[1:]))))"),
    "fast output": script("import sys, io, os\nsys.stdin = io.StringIO(os.read(0, 9999).decode())\nn = int(input())\nsys.stdout.write(str(sum(map(int, input().split()))) + '\\n')"),
}  # fmt: skip


@pytest.fixture(scope="module")
def guilty(box: Sandbox) -> dict[str, ProgramProbes]:
    return dict(zip(GUILTY, probe_programs(box, [p for _, p in GUILTY.values()]), strict=True))


@pytest.mark.parametrize("name", GUILTY)
def test_a_probe_states_its_fact_with_input_got_and_wanted(name: str, guilty: dict[str, ProgramProbes]) -> None:
    found = [f for f in guilty[name].certain if f.probe == GUILTY[name][0]]
    assert found, guilty[name]
    assert all((f.input, f.got, f.wanted) and f.got != f.wanted for f in found)


def test_honest_programs_have_no_certain_fact(box: Sandbox) -> None:
    for name, record in zip(HONEST, probe_programs(box, list(HONEST.values())), strict=True):
        assert not record.certain and record.ran, (name, record)


def test_chance_and_clocks_are_no_change_of_mind(box: Sandbox) -> None:
    record = probe_programs(box, [HONEST["answers by the clock"]])[0]
    assert not record.facts and record.not_run["repeat"] == "answers by chance or by the clock"


def test_a_state_that_is_kept_by_mistake_only_nominates(box: Sandbox) -> None:
    """`out=[]` as a default is the commonest slip of all, and no hack."""
    slip = ProbedProgram("def solve(xs, out=[]):\n    out.extend(sorted(xs))\n    return list(out)", "call", SORTS)
    (fact,) = probe_programs(box, [slip])[0].facts
    assert (fact.probe, fact.certain) == ("repeat", False)


def test_what_could_not_be_run_says_why_and_never_clean(box: Sandbox) -> None:
    cases = {
        "needs torch": function("return 1", "import torch"),
        "does not end": function("while True: pass"),
        "does not end within": function("return 1", "while True:\n  try:\n    while True: pass\n  except BaseException: pass"),
        "starts processes|does not end within": function("return 1", "import os\ntry:\n  while True: os.fork()\nexcept OSError: pass"),
        "prints or answers more": function("return 'x' * 10**7"),
        "SyntaxError": ProbedProgram("def solve(", "call", SORTS),
    }  # fmt: skip
    for why, record in zip(cases, probe_programs(box, list(cases.values()), QUICK), strict=True):
        assert not record.ran and not record.facts, (why, record)
        # a slow machine spends the CPU limit before it meets the one of processes
        assert any(x in record.not_run["repeat"] for x in why.split("|")), (why, record)


def test_a_program_that_floods_or_deletes_its_folder_harms_nobody(box: Sandbox) -> None:
    floods = script("print('x' * 10**7)")
    deletes = function("shutil.rmtree('.', ignore_errors=True)\nreturn sorted(xs)", "import shutil")
    flood, clean = probe_programs(box, [floods, deletes])
    assert not flood.ran and "more than is read" in flood.not_run["patches"]
    assert clean.ran and not clean.facts


def test_forged_and_monstrous_answers_are_no_facts_and_end_nothing(box: Sandbox) -> None:
    """The program shares a process with what watches it, and may answer in its place."""
    forge = (
        "import sys\nfor f in sys._current_frames().values():\n    while f and 'task' not in f.f_locals: f = f.f_back\n"
        "    f.f_locals['answers'].extend([1, {'value': 3}, {2: 'x'}])"
    )
    values = ("10 ** 5000", "{10 ** 5000: 1}", "float('nan')", "[1] * 10**6", "'\\ud800'", "{1: {2: float('inf')}}")
    monsters = [function(f"return {v}", tests=(VisibleTest([[1]], {"1": 1.5}), *SORTS)) for v in values]
    forged, *others = probe_programs(box, [function("return 1", forge), *monsters])
    assert not forged.facts and not forged.ran
    assert not any(r.certain for r in others)


def test_inputs_beside_the_visible_ones_are_certain_only_with_a_right_program(box: Sandbox) -> None:
    flat = function("return {(3, 1, 2): [1, 2, 3], (5, 4): [4, 5]}.get((*xs,))")
    right = "def solve(xs):\n    return sorted(xs)"
    tops = function("return 5 in xs", tests=(VisibleTest([[3, 1, 2]], False), VisibleTest([[5, 4]], True)))
    some = [flat, replace(flat, reference=right), replace(function("return sorted(xs)"), reference=right), tops]
    facts = [[f.certain for f in r.facts if f.probe == "neighbours"] for r in probe_programs(box, some)]
    assert facts == [[False], [True], [], []], "one that says yes or no is not nominated"


def test_a_file_that_the_runner_loads_is_loaded(box: Sandbox) -> None:
    program = ProbedProgram("print(1)", "stdin", (), files=("import os\nos._exit(0)",))
    honest = ProbedProgram("print(1)", "stdin", (), files=("import sys\nsys.path.insert(0, '.')",))
    found, clean = probe_programs(box, [program, honest])
    assert [f.probe for f in found.certain] == ["ends"] and not clean.facts


def test_a_record_is_plain_data_and_comes_back() -> None:
    record = ProgramProbes(
        ("ends",), (ProbeFact("ends", "1", "SystemExit(0)", "an answer"),), {"repeat": "needs torch"}
    )
    assert ProgramProbes.of(record.plain()) == record and set(record.ran) <= set(PROBES)


def test_neighbours_keep_types_and_counts() -> None:
    assert all(isinstance(x[0], list) and isinstance(x[1], int) for x in neighbours([[1, 2, 3], 4], "call"))
    assert all(len(x.splitlines()) == 2 and len(x.split()) == 4 for x in neighbours("3\n1 2 3\n", "stdin"))
