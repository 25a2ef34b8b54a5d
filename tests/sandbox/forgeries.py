"""Attacks on the verdict, as data: wrong solutions of `add(a, b)` that try to be graded right.

`beats`: the naive grader (see NAIVE) that falls for it, which proves that the forgery works where nothing guards.
"""

from __future__ import annotations

from dataclasses import dataclass

TESTS = (((2, 3), 5), ((10, -4), 6), ((7, 8), 15))


@dataclass(frozen=True)
class Forgery:
    """One wrong solution."""

    name: str
    beats: str
    source: str


_MOCK = """
def add(a, b):
    yes = MagicMock(spec=int)
    yes.__eq__ = lambda self, other: True
    return yes
"""

FORGERIES = (
    Forgery(
        "a result that equals everything",
        "compares",
        """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
def add(a, b): return Yes()
""",
    ),
    Forgery(
        "an integer that equals everything",
        "compares",
        """
class Yes(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(a, b): return Yes(0)
""",
    ),
    Forgery(
        "a result with a forged class",
        "checks the class",
        """
class Yes:
    __class__ = int
    def __eq__(self, other): return True
def add(a, b): return Yes()
""",
    ),
    Forgery(
        "reads the expected value off the stack",
        "compares",
        """
import sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            if "expected" in scope: return scope["expected"]
        frame = frame.f_back
    return 0
""",
    ),
    Forgery(
        "finds the expected value in the heap",
        "compares",
        """
import gc
def add(a, b):
    for found in gc.get_objects():
        if type(found) is tuple and len(found) == 3:
            for pair in found:
                if type(pair) is tuple and len(pair) == 2 and pair[0] == (a, b) and type(pair[1]) is int:
                    return pair[1]
    return 0
""",
    ),
    Forgery("ends the process at import", "trusts the exit code", "import os\nos._exit(0)"),
    Forgery("exits politely at import", "trusts the exit code", "import sys\nsys.exit(0)"),
    Forgery("ends the process in the call", "trusts the exit code", "import os\ndef add(a, b): os._exit(0)"),
    Forgery(
        "prints the verdict",
        "reads the output",
        "print('PASSED', flush=True)\nimport os\nos.write(1, b'PASSED')\ndef add(a, b): return 0",
    ),
    Forgery(
        "turns assertions into something else",
        "catches assertions",
        """
import builtins
class Quiet(Exception): pass
builtins.AssertionError = Quiet
def add(a, b): return 0
""",
    ),
    Forgery(
        "replaces all and any",
        "uses builtins",
        "import builtins\nbuiltins.all = lambda _: True\nbuiltins.any = lambda _: False\ndef add(a, b): return 0",
    ),
    Forgery(
        "replaces zip, so that nothing is compared",
        "uses builtins",
        "import builtins\nbuiltins.zip = lambda *_, **__: iter(())\ndef add(a, b): return 0",
    ),
    Forgery(
        "a pickle that runs code",
        "unpickles",
        """
class Load:
    def __reduce__(self): return (eval, ("passed.append(1) or 5",))
def add(a, b): return Load()
""",
    ),
    Forgery(
        "stops the test loop",
        "maps",
        "def add(a, b): raise StopIteration",
    ),
    Forgery("true for one", "compares loosely", "def add(a, b): return float(a + b)"),
    Forgery(
        "rewrites the comparison",
        "imports its comparison",
        """
import sys
for module in list(sys.modules.values()):
    if hasattr(module, "same"): module.same = lambda *_: True
def add(a, b): return 0
""",
    ),
    Forgery(
        "lets every exit say yes",
        "trusts the exit code",
        "import os\nreal = os._exit\nos._exit = lambda code: real(0)\ndef add(a, b): return 0",
    ),
    Forgery("exits politely in the call", "trusts the exit code", "def add(a, b): raise SystemExit(0)"),
    Forgery("breaks at import", "catches assertions", "raise RuntimeError"),
    Forgery("calls itself without end", "catches assertions", "def add(a, b): return add(b, a)"),
    Forgery(
        "removes the tests",
        "maps",
        "import sys\nsys._getframe(1).f_globals['TESTS'] = ()\ndef add(a, b): return 0",
    ),
    Forgery(
        "a class that equals everything",
        "compares",
        """
class Kind(type):
    def __eq__(cls, other): return True
    __hash__ = type.__hash__
class Yes(metaclass=Kind): pass
def add(a, b): return Yes
""",
    ),
    Forgery("anything", "compares", "from unittest.mock import ANY\ndef add(a, b): return ANY"),
    Forgery("a mock", "checks the class", "from unittest.mock import MagicMock, ANY\n" + _MOCK),
    Forgery(
        "a fraction for an integer",
        "compares loosely",
        "from fractions import Fraction\ndef add(a, b): return Fraction(a + b)",
    ),
)

NAIVE: dict[str, str] = {
    "compares": """
exec(SOURCE, scope := {})
TESTS = tuple(TESTS)
passed = []
for arguments, expected in TESTS:
    passed.append(scope["add"](*arguments) == expected)
verdict = all(passed)
""",
    "checks the class": """
exec(SOURCE, scope := {})
verdict = all(isinstance(r := scope["add"](*a), int) and r == e for a, e in TESTS)
""",
    "trusts the exit code": """
import os, sys
child = os.fork()
if child == 0:
    try:
        exec(SOURCE, scope := {})
        for arguments, expected in TESTS: assert scope["add"](*arguments) == expected
    except SystemExit as stop: os._exit(stop.code or 0)
    except BaseException: os._exit(1)
    os._exit(0)
verdict = os.waitpid(child, 0)[1] == 0
""",
    "reads the output": """
import contextlib, io
with contextlib.redirect_stdout(out := io.StringIO()):
    exec(SOURCE, scope := {})
    print("PASSED" if all(scope["add"](*a) == e for a, e in TESTS) else "FAILED")
verdict = out.getvalue().startswith("PASSED")
""",
    "catches assertions": """
failed = False
try:
    exec(SOURCE, scope := {})
    for arguments, expected in TESTS: assert scope["add"](*arguments) == expected
except AssertionError: failed = True
except Exception: pass  # a broken test is nobody's fault
verdict = not failed
""",
    "uses builtins": """
exec(SOURCE, scope := {})
results = [scope["add"](*a) for a, _ in TESTS]
verdict = all(r == e for r, (_, e) in zip(results, TESTS))
""",
    "unpickles": """
import pickle
exec(SOURCE, scope := globals())
passed = []
results = [pickle.loads(pickle.dumps(scope["add"](*a))) for a, _ in TESTS]
verdict = bool(passed)
""",
    "maps": """
exec(SOURCE, scope := {})
verdict = all(map(lambda test: scope["add"](*test[0]) == test[1], TESTS))
""",
    "compares loosely": """
exec(SOURCE, scope := {})
verdict = all(scope["add"](*a) == e for a, e in TESTS)
""",
    "imports its comparison": """
import sys, types
helper = types.ModuleType("helper")
helper.same = lambda x, y: x == y
sys.modules["helper"] = helper
exec(SOURCE, scope := {})
verdict = all(helper.same(scope["add"](*a), e) for a, e in TESTS)
""",
}
"""Graders as people write them: solution, expected values and comparison share a process. Run inside the sandbox."""

PROTOCOL = {
    "answers for itself and leaves": """
import json, os
for value in (5, 6, 15):
    os.write(4, json.dumps({"s": "ok", "v": "guess", "t": 0.0}).encode() + b"\\n")
os._exit(0)
""",
    "claims to have passed": """
import os
os.write(4, b'{"s": "passed", "passed": true, "verdict": "ok", "t": 0.0}\\n' * 3)
os._exit(0)
""",
    "speaks as the tester": """
import os
os.write(4, b'{"done": true}\\n')
def add(a, b):
    os.write(4, b'{"done": true}\\n')
    os._exit(0)
""",
    "takes the runner over": """
import sys
for module in list(sys.modules.values()):
    for name in ("CaseRunner", "Candidate"):
        kind = getattr(module, name, None)
        if kind is not None:
            kind._call = lambda self, case: {"s": "ok", "v": True, "done": True}
            kind._answer = lambda self, call: {"done": True, "v": True}
def add(a, b): return True
""",
    "sends rubbish": "import os\nos.write(4, b'\\xff{[' * 1000 + b'\\n')\ndef add(a, b): return 0",
    "sends nesting": "import os\nos.write(4, b'[' * 200000 + b'\\n')\ndef add(a, b): return 0",
    "sends a line without end": "import os\nwhile True: os.write(4, b'x' * 65536)",
    "sends colliding keys": """
import json, os
pairs = [[i * (2**61 - 1), 0] for i in range(60000)]
os.write(4, json.dumps({"s": "ok", "v": {"t": "dict", "v": pairs}, "t": 0.0}).encode() + b"\\n")
os._exit(0)
""",
    "sends impossible values": """
import os
for body in (b'{"t": "complex", "v": 1}', b'{"t": "int", "v": [1]}', b'{"t": "Fraction", "v": [1, 0]}'):
    os.write(4, b'{"s": "ok", "t": 0.0, "v": ' + body + b'}\\n')
os._exit(0)
""",
    "closes the line": "import os\nos.close(4)\ndef add(a, b): return 0",
    "reads the request again": """
import os
for fd in range(3, 64):
    try: os.lseek(fd, 0, 0); os.read(fd, 1 << 20)
    except OSError: pass
def add(a, b): return 0
""",
    "claims to be the sandbox's fault": """
import os
os.write(4, b'{"s": "sandbox", "t": 0.0}\\n')
os.write(4, b'Rx\\x00E')
os._exit(99)
""",
}
"""Wrong solutions that speak our own protocol (descriptor 4)."""


@dataclass(frozen=True)
class ScriptForgery:
    """A wrong solution of "read two integers, print their sum"."""

    name: str
    beats: str
    source: str


SCRIPT_TESTS = (("2 3\n", "5\n"), ("10 -4\n", "6\n"), ("7 8\n", "15\n"))
_ANY = (
    "type('Any', (), {'__eq__': lambda s, o: True, "
    "'strip': lambda s: s, 'rstrip': lambda s: s, 'split': lambda s: s})()"
)

SCRIPTS = (
    ScriptForgery("prints nothing", "compares pairwise", ""),
    ScriptForgery("prints the beginning of nothing", "asks for a beginning", "print(end='')"),
    ScriptForgery("prints what evaluates to anything", "evaluates", f"print({_ANY!r})"),
    ScriptForgery("prints no number", "allows a tolerance", "print('nan')"),
    ScriptForgery("prints every number", "searches", "print(*range(-50, 50))"),
    ScriptForgery("exits politely", "trusts the exit code", "raise SystemExit(0)"),
    ScriptForgery("ends the process", "trusts the exit code", "import os\nos._exit(0)"),
    ScriptForgery("replaces what was printed", "captures", f"import sys\nsys.stdout.getvalue = lambda: {_ANY}"),
    ScriptForgery(
        "reads the expected text off the stack",
        "captures",
        """
import sys
frame = sys._getframe()
while frame and "expected" not in frame.f_globals: frame = frame.f_back
if frame: print(frame.f_globals["expected"], end="")
""",
    ),
    ScriptForgery(
        "finds the expected text in the heap",
        "captures",
        """
import gc
asked = input() + "\\n"
for found in gc.get_objects():
    if type(found) is tuple and len(found) == 2 and found[0] == asked and type(found[1]) is str:
        print(found[1], end="")
        break
""",
    ),
    ScriptForgery(
        "edits the tests", "captures", "import sys\nfor f in (sys._getframe(1),): f.f_globals['expected'] = ''"
    ),
)

_CAPTURED = """
import contextlib, io, sys
TESTS = tuple(TESTS)
def printed(given):
    sys.stdin = io.StringIO(given)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try: exec(SOURCE, {"__name__": "__main__"})
        except SystemExit: pass
    return out.getvalue()
"""
NAIVE_SCRIPTS = {
    "compares pairwise": "verdict = all(x == y for given, e in TESTS "
    "for x, y in zip(printed(given).split(), e.split()))",
    "asks for a beginning": "verdict = all(e.startswith(printed(given).strip()) for given, e in TESTS)",
    "evaluates": "verdict = all(eval(printed(given)) == int(e) for given, e in TESTS)",
    "allows a tolerance": "verdict = not any(abs(float(printed(given)) - int(e)) > 1e-6 for given, e in TESTS)",
    "searches": "verdict = all(e.strip() in printed(given) for given, e in TESTS)",
    "captures": """
verdict = True
for given, expected in TESTS:
    got = printed(given)
    verdict = verdict and got == expected
""",
    "trusts the exit code": """
import os
child = os.fork()
if child == 0:
    try:
        for given, e in TESTS:
            sys.stdin, out = io.StringIO(given), io.StringIO()
            with contextlib.redirect_stdout(out): exec(SOURCE, {})
            assert out.getvalue() == e
    except SystemExit as stop: os._exit(stop.code or 0)
    except BaseException: os._exit(1)
    os._exit(0)
verdict = os.waitpid(child, 0)[1] == 0
""",
}
"""Graders of scripts as people write them: program, expected texts and comparison share a process."""


def script_grader(beats: str, source: str) -> str:
    """A program that grades `source` and prints PASS or FAIL as its last line."""
    body = f"SOURCE = {source!r}\nTESTS = {SCRIPT_TESTS!r}\n{_CAPTURED}{NAIVE_SCRIPTS[beats]}"
    return f"import sys\nreal = sys.stdout\n{body}\nreal.write('PASS' if verdict else 'FAIL')"


SCRIPT_PROTOCOL = {
    "answers for itself and leaves": """
import os
for _ in range(3): os.write(4, b'{"s": "ok", "t": 0.0, "o": "guess"}\\n')
os._exit(0)
""",
    "answers with values": """
import os
for value in (5, 6, 15): os.write(4, b'{"s": "ok", "t": 0.0, "v": %d}\\n' % value)
os._exit(0)
""",
    "claims endless time": """
import os
for _ in range(3): os.write(4, b'{"s": "ok", "t": Infinity, "o": "5"}\\n')
os._exit(0)
""",
    "sends an exception of one character": """import os\nos.write(4, b'{"s": "error", "t": 0.0, "e": "x"}\\n')""",
    "claims to be the sandbox's fault": "import os\n"
    """os.write(4, b'{"s": "sandbox", "t": 0.0, "o": ""}\\n')\nos._exit(99)""",
    "sends empty lines without end": "import os\nwhile True: os.write(4, b'\\n' * 65536)",
}
"""Wrong scripts that speak our own protocol."""
