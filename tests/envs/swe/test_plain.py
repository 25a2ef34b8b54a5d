"""`envs.swe.plain`: what is worked out without the sandbox is what the sandbox answers; all else is left to it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from evotrainer.envs.swe import plain, tools
from evotrainer.envs.swe.demos import SweTeacher, gold_edit, scripts
from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.runner import program
from evotrainer.envs.swe.world import Grade, HiddenCall, Observation, Repo
from evotrainer.sandbox import Program, RunResult, Sandbox
from evotrainer.sandbox.model import CaseResult

TESTS = """from first import f
from second import g

def test_f():
    assert f(3) == 5

def test_g():
    assert g(3) == 5
"""
CALLS = [HiddenCall(m, n, (x,), 0) for m, n in (("first", "f"), ("second", "g")) for x in (-3, 0, 1, 7)]
LINES = (
    "x = x + 2",
    "x = x // (x - 1)",
    "x = 7 % x",
    "x = -x * x",
    "x += y",
    "y = 4",
    "x = y",
    "x = nowhere",
    "x = abs(x)",
    "x = min(x, 3)",
    "x = max(x)",
    "x = abs(x, x)",
    "x = f(x)",
    "x = h(x)",
    "x = h(x, x)",
    "x = None",
    "x = x == 3",
    "x = True",
    "if x < 3: return 0",
    "if x >= 2: x = 1",
    "if x != 1: return",
    "if x > 5: y = 1",
    "return x",
    "x",
    "nowhere(x // 0)",
    "assert x <= 3",
    "pass",
    "'text'",
    "f = 3",
    # no Python
    "x = = 3",
    "x = (x",
    "  x = 3",
    "x = 3x",
    "retrun x",
    # nothing for us
    "x = sum([x])",
    "x = x / 2",
    "x = x ** 2",
    "while x: x -= 1",
    "x = h",
    "x = __name__",
    "import os",
    "x: int = 3",
    "y = x = 3",
    "x, y = 3, 4",
    "x = 'a'",
    "x = 1 if x else 2",
    "x = 0 < x < 3",
    "print(x)",
    "global y",
    "x = 3.0",
    "def inner(): pass",
    "lambda: x",
)
PLAIN_LINES = LINES.index("x = = 3")


def module(rng: random.Random, name: str, head: str = "") -> str:
    lines = rng.choices(LINES[:PLAIN_LINES], k=rng.randint(1, 4)) + rng.choices(LINES, k=rng.random() < 0.4)
    rng.shuffle(lines)
    helper = "def h(x):\n    return x - 1\n\n"
    return f"{head}{helper}def {name}(x):\n" + "".join(f"    {line}\n" for line in [*lines, "return x"])


def drawn(rng: random.Random) -> dict[str, str]:
    """Two modules; the second has a function of the first in half of the cases."""
    head = "from first import f\n\n" if rng.random() < 0.5 else ""
    return {"first.py": module(rng, "f"), "second.py": module(rng, "g", head), "test_all.py": TESTS}


def told(result: Sequence[CaseResult]) -> list[object]:
    return [(c.status, repr(c.value)) for c in result]


def test_random_programs_answer_as_in_the_sandbox(box: Sandbox) -> None:
    rng = random.Random(5)
    trees = [drawn(rng) for _ in range(400)]
    here = [plain.answers(t, ["test_all.py"], CALLS) for t in trees]
    there = box.run([program(t, ["test_all.py"], CALLS) for t in trees])
    known = [(t, a, b) for t, a, b in zip(trees, here, there, strict=True) if a is not None]
    for tree, mine, theirs in known:
        assert told(mine) == told(theirs.cases), tree["first.py"] + tree["second.py"]
    assert len(known) > 250
    names = " ".join(str(value) for _, mine, _ in known for case in mine for value in case.value)
    for error in ("ZeroDivisionError", "UnboundLocalError", "NameError", "TypeError", "AssertionError", "SyntaxError"):
        assert error in names


@pytest.mark.parametrize("plan", [Plan(), Plan(4, 3, (2, 3), indirect=0.5)], ids=["standard", "long"])
def test_recorded_episodes_see_and_score_the_same_with_and_without_it(box: Sandbox, plan: Plan) -> None:
    worlds = [MemoryWorld(lambda: box), MemoryWorld(lambda: box, compute=False)]
    played = scripts(random.Random(3), plan, SweTeacher(wrong_edit=0.6), 60)
    seen: list[list[object]] = []
    for world in worlds:
        out: list[Observation | Grade] = []
        for s in played:
            h = world.open(s.repo, s.knobs)
            out += [world.act([h], [tools.parse(a)])[0] for a in s.actions]
            out += world.grade([h])
        seen.append(list(out))
    assert seen[0] == seen[1]
    assert worlds[0].ran == 0 and worlds[0].computed == worlds[1].ran > 60
    assert worlds[1].computed == 0


SOUND = {"first.py": "def f(x):\n    return x\n", "second.py": "def g(x):\n    return x\n", "test_all.py": TESTS}


@pytest.mark.parametrize("line", LINES[LINES.index("x = sum([x])") :])
def test_whatever_else_a_line_holds_is_the_sandboxs(line: str) -> None:
    tree = {**SOUND, "first.py": f"def h(x):\n    return x\n\ndef f(x):\n    {line}\n    return x\n"}
    assert plain.answers(tree, ["test_all.py"], CALLS) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("first.py", "x = 1\ndef f(x):\n    return x\n"),
        ("first.py", "def f(x=1):\n    return x\n"),
        ("first.py", "def f(*x):\n    return x\n"),
        ("first.py", "@print\ndef f(x):\n    return x\n"),
        ("first.py", "def f(x, x):\n    return x\n"),
        ("first.py", "def f(x: print(1)):\n    return x\n"),
        ("first.py", "def f(x) -> print(1):\n    return x\n"),
        ("first.py", "from second import *\ndef f(x):\n    return x\n"),
        ("first.py", "from second import g as f\n"),
        ("first.py", "from second import missing\ndef f(x):\n    return x\n"),
        ("first.py", "from __future__ import annotations\ndef f(x):\n    return x\n"),
        ("first.py", "import second\ndef f(x):\n    return x\n"),
        ("first.py", "class f:\n    pass\n"),
        ("first.py", "def f(x):\n    return x\nf(1)\n"),
        ("first.py", "def f(x):\n\treturn x\n"),
        ("first.py", "def f(x):\n    return x  # \u00e9\n"),
        ("first.py", "def f(x):\n    return x\n\0"),
        ("first.py", "def f(x):\n    return x\n" + "#" * 5000),
        ("random.py", "def f(x):\n    return x\n"),
        ("solution.py", "def f(x):\n    return x\n"),
        ("pack/first.py", "def f(x):\n    return x\n"),
        ("notes", "x"),
    ],
)
def test_whatever_else_a_file_is_is_the_sandboxs(path: str, text: str) -> None:
    assert plain.answers({**SOUND, path: text}, ["test_all.py"], CALLS) is None
    assert plain.answers(SOUND, ["test_all.py"], CALLS) is not None


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return f(x)\n",
        "def f(x):\n    return h(x) + h(x)\n"
        + "".join(f"def h{'h' * i}(x):\n    return hh{'h' * i}(x) + hh{'h' * i}(x)\n" for i in range(12))
        + f"def h{'h' * 12}(x):\n    return x\n",
        "def f(x):\n    x = 9\n" + "    x = x * x\n" * 200 + "    return x\n",
        f"def f(x):\n    return {'9' * 3000}\n",
        f"def f(x):\n    return {'-' * 3000}x\n",
        f"def f(x):\n    return {'x+' * 1900}x\n",
    ],
    ids=["recursion", "doubling", "squares", "digits", "signs", "terms"],
)
def test_what_grows_is_given_up(text: str) -> None:
    assert plain.answers({**SOUND, "first.py": text}, ["test_all.py"], CALLS) is None


def test_what_is_kept_is_bounded_and_counted(box: Sandbox) -> None:
    repo = repositories(random.Random(11), "train", Plan())
    world = MemoryWorld(lambda: box, keep=3)
    for k in range(6):
        h = world.open(repo, {})
        world.act([h], [tools.parse(f"write note{k}.py\n# {k}"), tools.parse("test")][:1])
        world.act([h], [tools.parse("test")])
        world.grade([h])
        assert len(world.known) <= 3
    assert (world.computed, world.known.hits, world.ran) == (6, 6, 0)
    assert plain.meaning.cache_info().maxsize == plain.KEEP


class Hurried:
    """A sandbox in which the first program runs out of time, as one that is starved would."""

    def __init__(self, box: Sandbox) -> None:
        self.box, self.asked = box, 0

    def run(self, programs: Sequence[Program]) -> list[RunResult]:
        self.asked += 1
        if self.asked > 1:
            return self.box.run(programs)
        return [RunResult((CaseResult("timeout"),) * len(p.calls)) for p in programs]

    def close(self) -> None: ...


def test_a_timeout_is_asked_again(box: Sandbox) -> None:
    repo: Repo = repositories(random.Random(11), "train", Plan())
    hurried = Hurried(box)
    world = MemoryWorld(lambda: hurried, compute=False)  # type: ignore[arg-type, return-value]
    h = world.open(repo, {})
    world.act([h], [tools.parse(gold_edit(repo))])
    (first,) = world.act([h], [tools.parse("test")])
    assert "Timeout" in first.text
    (grade,) = world.grade([h])
    assert all(grade.hidden.values()) and hurried.asked == 2
    world.grade([h])
    assert hurried.asked == 2
