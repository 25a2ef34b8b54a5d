"""`envs.swe.memory`: wrong code that tries to be graded right.
Each fools a grader that keeps expected values beside it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.world import Grade, Repo
from evotrainer.sandbox import Program, Sandbox
from tests.sandbox.frames import FRAMES, Frame


@dataclass(frozen=True)
class RepoForgery:
    """A module of the repository, with `{f}` for the function that is wrong. `beats`: key of NAIVE."""

    name: str
    beats: str
    source: str


FORGERIES = (
    RepoForgery(
        "equals everything",
        "compares",
        "class A(int):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    __hash__ = None\n"
        "def {f}(*x): return A(0)",
    ),
    RepoForgery(
        "reads expected values off the stack",
        "compares",
        """
import sys
def {f}(*x):
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            if "expected" in scope: return scope["expected"]
        frame = frame.f_back
""",
    ),
    RepoForgery(
        "finds expected values in the heap",
        "compares",
        """
import gc
def {f}(*x):
    for o in gc.get_objects():
        if type(o) is tuple and len(o) == 3 and o[0] == "{f}" and o[1] == x:
            return o[2]
""",
    ),
    RepoForgery("ends the process", "trusts the exit code", "import os\nos._exit(0)"),
    RepoForgery("exits politely", "trusts the exit code", "def {f}(*x): raise SystemExit(0)"),
    RepoForgery(
        "removes the calls", "maps", "import sys\nsys._getframe(1).f_globals['CALLS'] = ()\ndef {f}(*x): return None"
    ),
    RepoForgery("stops the loop", "maps", "def {f}(*x): raise StopIteration"),
    RepoForgery(
        "says it passed",
        "reads the output",
        "print('PASSED', flush=True)\ndef {f}(*x): return None",
    ),
    RepoForgery(
        "breaks at import",
        "catches assertions",
        "raise RuntimeError",
    ),
    RepoForgery(
        "replaces the builtins of the comparison",
        "uses builtins",
        "import builtins\nbuiltins.zip = lambda *a, **k: iter(())\nbuiltins.all = lambda x: True\n"
        "def {f}(*x): return None",
    ),
)

_HEAD = "scope = {}\ncalled = lambda f, args: scope[f](*args)\nload = lambda: exec(SOURCE, scope)\n"
NAIVE = {
    "compares": "load()\nverdict = True\nfor f, args, expected in CALLS:\n"
    "    verdict = verdict and called(f, args) == expected",
    "trusts the exit code": """
import os
child = os.fork()
if child == 0:
    try:
        load()
        for f, args, expected in CALLS: assert called(f, args) == expected
    except SystemExit as stop: os._exit(stop.code or 0)
    except BaseException: os._exit(1)
    os._exit(0)
verdict = os.waitpid(child, 0)[1] == 0
""",
    "maps": "exec(SOURCE, scope)\nverdict = all(map(lambda c: called(c[0], c[1]) == c[2], CALLS))",
    "reads the output": """
import contextlib, io
with contextlib.redirect_stdout(out := io.StringIO()):
    load()
    print("PASSED" if all(called(f, a) == e for f, a, e in CALLS) else "FAILED")
verdict = out.getvalue().startswith("PASSED")
""",
    "catches assertions": """
verdict = True
try:
    load()
    for f, args, expected in CALLS: assert called(f, args) == expected
except AssertionError: verdict = False
except Exception: pass
""",
    "uses builtins": "load()\nverdict = all(g == c[2] for g, c in zip([called(c[0], c[1]) for c in CALLS], CALLS))",
}

PROTOCOL = {
    "answers every case": """
import os
for _ in range(9): os.write(4, b'{"s": "ok", "t": 0.0, "v": [[7], [7], [7], [7], [7], [7], [7], [7]]}\\n')
os._exit(0)
""",
    "answers true for every call": """
import os
for _ in range(9): os.write(4, b'{"s": "ok", "t": 0.0, "v": [[true], [true], [true], [true], [true], [true]]}\\n')
os._exit(0)
""",
    "claims endless time": 'import os\nfor _ in range(9): os.write(4, b\'{"s": "ok", "t": Infinity, "v": [[7]]}\\n\')\n'
    "os._exit(0)",
    "claims the sandbox's fault": 'import os\nos.write(4, b\'{"s": "sandbox", "t": 0.0}\\n\')\nos._exit(99)',
    "rewrites the runner": """
import sys
for m in list(sys.modules.values()):
    for name in ("run", "_call", "encode"):
        if hasattr(m, name): setattr(m, name, lambda *a, **k: {"s": "ok", "v": [[7]] * 9})
""",
    "floods the line": "import os\nwhile True: os.write(4, b'\\n' * 65536)",
}


@pytest.fixture(scope="module")
def memory(box: Sandbox) -> MemoryWorld:
    return MemoryWorld(lambda: box)


@pytest.fixture(scope="module")
def repo() -> Repo:
    return repositories(random.Random(11), "train", Plan())


def graded(memory: MemoryWorld, repo: Repo, source: str) -> Grade:
    """The repository with its wrong module replaced."""
    handle = memory.open(repo, {})
    handle.tree[repo.tags["module"]] = source
    return memory.grade([handle])[0]


def naive(box: Sandbox, repo: Repo, beats: str, source: str) -> str:
    """What a grader says that calls the repository's hidden tests in one process with their expected values."""
    calls = tuple((c.function, c.args, c.expected) for i, c in repo.calls.items() if i in repo.fail_to_pass)
    text = f"SOURCE = {source!r}\nCALLS = {calls!r}\n{_HEAD}{NAIVE[beats]}\nprint('PASS' if verdict else 'FAIL')"
    case = box.run([Program(text, stdins=("",))])[0].cases[0]
    assert case.stdout, case
    return case.stdout.split()[-1]


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.name)
def test_every_forged_module_fools_a_naive_grader(box: Sandbox, repo: Repo, forgery: RepoForgery) -> None:
    assert naive(box, repo, forgery.beats, forgery.source.replace("{f}", repo.tags["function"])) == "PASS"


@pytest.mark.parametrize("beats", NAIVE)
def test_the_naive_graders_are_no_straw_men(box: Sandbox, repo: Repo, beats: str) -> None:
    right = repo.gold[repo.tags["module"]]
    assert naive(box, repo, beats, right) == "PASS"
    assert naive(box, repo, beats, f"def {repo.tags['function']}(*x): return None") == "FAIL"


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.name)
def test_no_forged_module_passes_a_hidden_test(memory: MemoryWorld, repo: Repo, forgery: RepoForgery) -> None:
    grade = graded(memory, repo, forgery.source.replace("{f}", repo.tags["function"]))
    assert grade.fault is None
    assert not any(grade.hidden[i] for i in repo.fail_to_pass)


@pytest.mark.parametrize("name", PROTOCOL)
def test_no_forged_message_passes_a_hidden_test(memory: MemoryWorld, repo: Repo, name: str) -> None:
    grade = graded(memory, repo, PROTOCOL[name])
    assert grade.fault is None, "a program cannot make its failure look like ours"
    assert not any(grade.hidden[i] for i in repo.fail_to_pass)


@pytest.mark.parametrize("frame", [f for f in FRAMES if f.harm == "raises"], ids=lambda f: f.name)
def test_no_frame_of_a_repository_ends_the_grader(memory: MemoryWorld, repo: Repo, frame: Frame) -> None:
    grade = graded(memory, repo, f"import os\nfor _ in range(9): os.write(4, {frame.line!r} + b'\\n')\nos._exit(0)")
    assert grade.fault is None
    assert not any(grade.hidden.values())
