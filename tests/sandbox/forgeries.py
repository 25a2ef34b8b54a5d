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
