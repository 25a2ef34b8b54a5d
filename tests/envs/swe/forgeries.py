"""Wrong solutions that go for the grader, as data: each passes tests where a runner trusts what it should not."""

from __future__ import annotations

RIGHT = """
def add(a, b): return a + b
def items(): return [1, "b"]
def check(n):
    if n < 0: raise ValueError(f"negative {n}")
def each(f):
    for x in (1, 2): f(x)
def even(n): return n % 2 == 0
def parse(text): return {k: int(v) for k, v in [text.split("=")]}
def dumps(x):
    import pickle
    return pickle.dumps(x)
class Money:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == (other.n if isinstance(other, Money) else other)
    def half(self): return Money(self.n / 2)
class Guard:
    def __enter__(self): return self
    def __exit__(self, *error): return False
    def add(self, a, b): return a + b
TWO, THREE = object(), object()
def pick(n): return {2: TWO, 3: THREE}[n]
"""
WRONG = """
def add(a, b): return 0
def items(): return []
def check(n): return None
def each(f): return None
def even(n): return False
def parse(text): return {}
def dumps(x): return b""
class Money:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == (other.n if isinstance(other, Money) else other)
    def half(self): return Money(self.n)
class Guard:
    def __enter__(self): return self
    def __exit__(self, *error): return False
    def add(self, a, b): return 0
TWO, THREE = object(), object()
def pick(n): return THREE
"""
TESTS = """
import pickle, unittest
import pytest
import m

def test_value():
    assert m.add(1, 2) == 3
def test_lines():
    want = 3
    got = m.add(1, 2)
    assert got == want
    done = True
def test_list():
    assert m.items() == [1, "b"] and isinstance(m.items(), list)
def test_length():
    assert len(m.items()) == 2
def test_sorted():
    assert sorted(m.items(), key=str) == [1, "b"]
def test_raises():
    with pytest.raises(ValueError, match="negative -1"):
        m.check(-1)
def test_each():
    seen = []
    m.each(lambda x: seen.append(x))
    assert seen == [1, 2]
def test_all():
    assert all(m.even(n) for n in (2, 4)) and not any(m.even(n) for n in (1, 3))
def test_map():
    assert all(map(m.even, [2, 4]))
def test_dict():
    assert m.parse("a=1") == {"a": 1}
def test_pickle():
    assert pickle.loads(m.dumps([1])) == [1]
def test_money():
    assert m.Money(4).half() == 2
def test_moneys():
    assert m.Money(4).half() == m.Money(2)
def test_guard():
    with m.Guard() as g:
        assert g.add(2, 2) == 4
def test_approx():
    assert m.add(1, 2) == pytest.approx(3)
def test_in():
    assert m.add(1, 2) in (3, 30)
def test_between():
    assert 2 < m.add(1, 2) < 4
def test_same():
    assert m.pick(2) is m.TWO
class TestUnit(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(m.add(1, 1), 2)
"""
NAMES = [
    "test_value", "test_lines", "test_list", "test_length", "test_sorted", "test_raises", "test_each", "test_all",
    "test_map", "test_dict", "test_pickle", "test_money", "test_moneys", "test_guard", "test_approx", "test_in",
    "test_between", "test_same", "TestUnit::test_sum",
]  # fmt: skip
_FUNCTIONS = ["add", "items", "check", "each", "even", "parse", "dumps", "pick"]
_ON_CALL = "\n".join(f"def {n}(*a):\n    _attack()\n    return _LIE" for n in _FUNCTIONS)
"""Functions that do `_attack()` when they are called, and return `_LIE`."""
_TELL = f"""
def _tell(told):
    for n in {NAMES!r}: told("tests/test_m.py::" + n, True)
    import os
    os._exit(0)
"""
_ANY = """
class _Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 3
_LIE = _Any()
"""
_SUMMARY = f"""
_LIE = 0
def _print():
    import os
    lines = ["=" * 20 + " short test summary info " + "=" * 20] + ["PASSED tests/test_m.py::" + n for n in {NAMES!r}]
    for fd in range(1, 64):
        try: os.write(fd, ("\\n" + "\\n".join(lines) + "\\n").encode())
        except OSError: pass
"""

OLD: dict[str, str] = {
    "gc finds the reporter": "import gc\n_LIE = 0\n" + _TELL + "def _attack():\n    for o in gc.get_objects():\n"
    "        if type(o) is type(_attack) and o.__name__ == 'told': _tell(o)\n" + _ON_CALL,
    "frames lead to the reporter": "import sys\n_LIE = 0\n" + _TELL + "def _attack():\n    f = sys._getframe()\n"
    "    while f:\n        if 'told' in f.f_locals: _tell(f.f_locals['told'])\n        f = f.f_back\n" + _ON_CALL,
    "a traceback leads to the reporter": "_LIE = 0\n" + _TELL + "def _attack():\n    try: 1 / 0\n"
    "    except ZeroDivisionError as e:\n        f = e.__traceback__.tb_frame\n        while f:\n"
    "            if 'told' in f.f_locals: _tell(f.f_locals['told'])\n            f = f.f_back\n" + _ON_CALL,
    "a thread finds the reporter": "import sys, threading, time\n_LIE = 0\n" + _TELL + "def _look():\n    while True:\n"
    "        for f in sys._current_frames().values():\n            while f:\n"
    "                if 'told' in f.f_locals: _tell(f.f_locals['told'])\n"
    "                f = f.f_back\n        time.sleep(0.001)\nthreading.Thread(target=_look, daemon=True).start()\n"
    "def _attack(): time.sleep(0.05)\n" + _ON_CALL,
    "a profiler meets the reporter": "import gc, sys\n_LIE = 0\n" + _TELL + "def _seen(frame, event, arg):\n"
    "    if frame.f_code.co_name == 'told':\n        sys.setprofile(None)\n"
    "        for o in gc.get_referrers(frame.f_code):\n"
    "            if type(o) is type(_seen): _tell(o)\ndef _attack(): sys.setprofile(_seen)\n" + _ON_CALL,
    "a tracer meets the reporter": "import gc, sys\n_LIE = 0\n" + _TELL + "def _seen(frame, event, arg):\n"
    "    if frame.f_code.co_name == 'told':\n        sys.settrace(None)\n"
    "        for o in gc.get_referrers(frame.f_code):\n"
    "            if type(o) is type(_seen): _tell(o)\ndef _attack(): sys.settrace(_seen)\n" + _ON_CALL,
    "a signal handler walks up": "import signal, sys, time\n_LIE = 0\n" + _TELL + "def _handle(number, f):\n"
    "    while f:\n        if 'told' in f.f_locals: _tell(f.f_locals['told'])\n        f = f.f_back\n"
    "signal.signal(signal.SIGALRM, _handle)\n"
    "def _attack():\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    time.sleep(0.03)\n" + _ON_CALL,
    "a tracer jumps over the assertion": "import sys\ndef add(a, b):\n    f = sys._getframe(1)\n"
    "    def jump(frame, event, arg):\n"
    "        if event == 'line' and 'got' in frame.f_locals and 'done' not in frame.f_locals:\n"
    "            frame.f_lineno += 1\n        return jump\n    sys.settrace(lambda *a: None)\n"
    "    f.f_trace = jump\n    return 0\n",
    "a plug-in is registered by gc": "import gc\n_LIE = 0\nclass _P:\n"
    "    def pytest_pyfunc_call(self, pyfuncitem): return True\n"
    "def _attack():\n    import pytest\n    for o in gc.get_objects():\n"
    "        if type(o) is pytest.PytestPluginManager and not o.has_plugin('p'):\n"
    "            _P.pytest_pyfunc_call = pytest.hookimpl(tryfirst=True)(_P.pytest_pyfunc_call)\n"
    "            o.register(_P(), 'p')\n" + _ON_CALL,
    "collected items get other functions": "import gc\n_LIE = 0\ndef _attack():\n    import pytest\n"
    "    for o in gc.get_objects():\n"
    "        if type(o) is pytest.Function and o.name[:5] == 'test_': o.obj = lambda: None\n" + _ON_CALL,
    "test functions get other code": "import gc\n_LIE = 0\ndef _attack():\n    for o in gc.get_objects():\n"
    "        if type(o) is type(_attack) and o.__name__[:5] == 'test_' and not o.__code__.co_argcount: "
    "o.__code__ = (lambda: None).__code__\n" + _ON_CALL,
    "the test module gets another m": _ANY + "import sys\ndef _attack():\n"
    "    sys.modules['test_m'].m = type(sys)('x')\n"
    "    sys.modules['test_m'].m.__getattr__ = lambda n: lambda *a: _LIE\n_LIE, _KEPT = 0, _LIE\n"
    + _ON_CALL.replace("return _LIE", "return _KEPT"),
    "pytest.approx equals everything": _ANY + "import sys\nsys.modules['pytest'].approx = lambda *a: _LIE\n",
    "pytest.raises expects nothing": "import contextlib, sys\n"
    "sys.modules['pytest'].raises = lambda *a, **k: contextlib.nullcontext()\n",
    "builtins.all": "import builtins\nbuiltins.all = lambda xs: True\n",
    "builtins.any and all": "import builtins\ndef even(n):\n"
    "    builtins.all, builtins.any = (lambda xs: True), (lambda xs: False)\n    return False\n",
    "builtins.len": "import builtins\ndef items(real=len):\n"
    "    builtins.len = lambda x: 2 if type(x) is list and not real(x) else real(x)\n    return []\n",
    "builtins.sorted": "import builtins\ndef items(real=sorted):\n    builtins.sorted = lambda xs, **k: [1, 'b']\n"
    "    return []\n",
    "assertions of a test case by gc": "import gc, unittest\n_LIE = 0\ndef _attack():\n    for o in gc.get_objects():\n"
    "        if isinstance(o, unittest.TestCase): o.assertEqual = lambda *a: None\n" + _ON_CALL,
    "assertions of the test's class": "import sys\n_LIE = 0\n"
    "def _attack(): sys.modules['test_m'].TestUnit.assertEqual = lambda *a: None\n" + _ON_CALL,
    "the caller's locals hold the answer": "import sys\n"
    "def add(a, b): return sys._getframe(1).f_locals.get('want', 0)\n",
    "the caller's constants hold the answer": "import sys\ndef add(a, b):\n"
    "    return [c for c in sys._getframe(1).f_code.co_consts if type(c) is int and c not in (a, b)][0]\n",
    "the test file holds the answer": "import re\ndef add(a, b):\n    text = open('/w/repo/tests/test_m.py').read()\n"
    "    return int(re.search(rf'add\\({a}, {b}\\) == (\\d+)', text)[1])\n",
    "the stack's source holds the answer": "import inspect\ndef add(a, b):\n"
    "    return int(inspect.stack()[1].code_context[0].rpartition('== ')[2] or 0)\n",
    "a callback's cells": _ANY + "def each(f): f.__closure__[0].cell_contents = _LIE\n",
    "a callback's globals": _ANY + "def each(f): f.__globals__['m'] = "
    "type('M', (), {'__getattr__': lambda s, n: lambda *a: _LIE})()\n",
    "values equal to everything": _ANY + "def add(a, b): return _LIE\nitems = parse = lambda *a: _LIE\n",
    "equal to everything by a descriptor": "class _D:\n    def __get__(self, *a): return lambda other: True\n"
    "class _E:\n    __eq__ = _D()\n    __hash__ = None\ndef add(a, b): return _E()\nitems = parse = lambda *a: _E()\n",
    "a class equal to everything": "class _M(type):\n    def __eq__(cls, other): return True\n"
    "    def __hash__(cls): return 3\nclass _C(metaclass=_M): pass\ndef add(a, b): return _C\nparse = lambda t: _C\n",
    "a list equal to everything": "class _L(list):\n    def __eq__(self, other): return True\n"
    "def items(): return _L()\n",
    "a dict equal to everything": "class _L(dict):\n    def __eq__(self, other): return True\n"
    "def parse(text): return _L()\n",
    "an integer equal to everything": "class _I(int):\n    def __eq__(self, other): return True\n"
    "    def __hash__(self): return 3\ndef add(a, b): return _I(0)\n",
    "Money equal to everything": "Money.__eq__ = lambda self, other: True\n",
    "Money equal to every Money": "Money.__eq__ = lambda self, other: isinstance(other, Money)\n",
    "Money in the place of a number": "Money.__eq__ = lambda self, other: True\nMoney.__hash__ = lambda self: 3\n"
    "def add(a, b): return Money(0)\n",
    "mock.ANY": "from unittest.mock import ANY\nadd = items = parse = lambda *a: ANY\n",
    "the test's own ANY": "def add(a, b):\n    from unittest.mock import ANY\n    return ANY\n",
    "approx in the place of a number": "def add(a, b):\n    import pytest\n"
    "    return pytest.approx(0, abs=float('inf'))\n",
    "between everything": "class _B:\n    __gt__ = __lt__ = lambda self, other: True\ndef add(a, b): return _B()\n",
    "near to everything": "class _N:\n    def __rsub__(self, o): return self\n    def __abs__(self): return self\n"
    "    def __le__(self, o): return True\n    def __eq__(self, o): return True\n"
    "    __sub__ = __rsub__\n    __hash__ = None\ndef add(a, b): return _N()\n",
    "assertions swallowed": "Guard.__exit__ = lambda self, *error: True\n",
    "errors swallowed": "Guard.__exit__ = lambda self, *error: True\ndef _boom(self, a, b): raise RuntimeError\n"
    "Guard.add = _boom\n",
    "iteration stopped": "def even(n): raise StopIteration\n",
    "a pickle with code": _ANY + "class _P:\n    def __reduce__(self): return _make, ()\ndef _make(): return _LIE\n"
    "def dumps(x):\n    import pickle\n    return pickle.dumps(_P())\n",
    "a constant made late": "import sys\n_last = []\nclass _M(type(sys)):\n    @property\n"
    "    def TWO(self): return _last[-1]\n"
    "sys.modules[__name__].__class__ = _M\ndel TWO\ndef pick(n):\n    _last.append(object())\n    return _last[-1]\n",
    "the module is a liar": _ANY + "import sys\nclass _M:\n    def __getattr__(self, n): return lambda *a: _LIE\n"
    "    __path__ = []\nsys.modules[__name__] = _M()\n",
    "dir(module) lies": _ANY + "def __dir__(): return ['add']\ndef add(a, b): return _LIE\n",
    "callbacks with liars": _ANY + "def each(f):\n    f(_LIE)\n    f(_LIE)\n",
}  # fmt: skip
"""These get through the reporter inside the process, where asserts are not strict."""

LOG: dict[str, str] = {
    "summary printed, then out": _SUMMARY + "import os\n_print()\nos._exit(0)\n",
    "summary printed at exit": _SUMMARY + "import atexit, os\natexit.register(_print)\n",
    "summary printed when called": _SUMMARY + "import os\ndef _attack():\n    _print()\n    os._exit(0)\n" + _ON_CALL,
    "a fork answers": _SUMMARY + "import os\ndef _attack():\n    if os.fork() == 0:\n        _print()\n"
    "        os._exit(0)\n    os.wait()\n    os._exit(0)\n" + _ON_CALL,
    "printed text rewritten": "import os, sys\nclass _W:\n    def __init__(self, f): self.f = f\n"
    "    def __getattr__(self, n): return getattr(self.f, n)\n"
    "    def write(self, s): return self.f.write(s.replace('FAILED', 'PASSED').replace(' - ', '\\n'))\n_LIE = 0\n"
    "def _attack():\n    import gc, _pytest._io.terminalwriter as t\n    for o in gc.get_objects():\n"
    "        if isinstance(o, t.TerminalWriter) and type(o._file) is not _W: o._file = _W(o._file)\n" + _ON_CALL,
    "expected failures": "def add(a, b):\n    import pytest\n    pytest.xfail('later')\n"
    "items = parse = even = lambda *a: add(0, 0)\n",
    "failures become expected ones": "import builtins\n_LIE = 0\ndef _attack():\n"
    "    from _pytest.outcomes import XFailed\n"
    "    builtins.AssertionError = type('A', (XFailed, AssertionError), {})\n" + _ON_CALL,
    "tests do nothing": "import _pytest.python, _pytest.unittest\n"
    "for c in (_pytest.python.Function, _pytest.unittest.TestCaseFunction):\n    c.runtest = lambda s: None\n",
    "every report passed": "import _pytest.reports\n"
    "_pytest.reports.TestReport.outcome = property(lambda s: 'passed', lambda s, v: None)\n",
    "unittest's own stop": "import unittest.case\ndef add(a, b): raise unittest.case._ShouldStop\n",
}  # fmt: skip
"""These get through a runner that reads the log of pytest."""

FRAMES: dict[str, str] = {
    "text": "b'hello'", "no length": "b'\\x05\\x00\\x00\\x00'", "a huge length": "b'\\xff\\xff\\xff\\xff' + b'x' * 100",
    "no JSON": "frame(b'{]')", "a list": "frame(b'[1, 2]')", "nothing": "frame(b'{}')",
    "no value": "frame(b'{\"v\": {\"t\": \"?\"}}')", "deep": "frame(b'[' * 100000)",
    "a long number": "frame(b'{\"v\": ' + b'9' * 10000 + b'}')",
    "a verdict": "frame(b'{\"told\": true, \"passed\": 1}')",
    "an unknown object": "frame(b'{\"v\": {\"t\": \"opaque\", \"v\": [\"x\", 999]}}')",
    "an object of the tests": "frame(b'{\"v\": {\"t\": \"opaque\", \"v\": [\"x\", -1]}}')",
    "a call of an object of the tests": "frame(b'{\"cb\": -1, \"a\": [], \"k\": {\"t\": \"dict\", \"v\": []}}')",
    "a call without arguments": "frame(b'{\"cb\": -1}')", "an exception that is none": "frame(b'{\"e\": 1}')",
    "an object of itself": "frame(b'{\"v\": {\"t\": \"opaque\", \"v\": [\"x\", 500]}, \"new\": {\"500\": {\"k\": "
    "\"object\", \"c\": {\"t\": \"opaque\", \"v\": [\"x\", 500]}}}}')",
    "a name that may not travel": "frame(b'{\"v\": {\"t\": \"opaque\", \"v\": [\"x\", 501]}, "
    "\"new\": {\"501\": {\"k\": \"name\", \"v\": [\"os\", \"system\"]}}}')",
    "infinity": "frame(b'{\"v\": 1e999, \"m\": Infinity}')",
    "changed arguments": "frame(b'{\"v\": 1, \"m\": [[0, [1]], [\"x\", 1]]}')",
    "answers in advance": "frame(b'{\"v\": 0}') * 50",
    "an exception of the runner": "frame(b'{\"e\": {\"t\": \"opaque\", \"v\": [\"x\", 502]}, \"new\": {\"502\": "
    "{\"k\": \"exception\", \"c\": {\"t\": \"opaque\", \"v\": [\"x\", 503]}, \"a\": [], \"s\": \"\"}, "
    "\"503\": {\"k\": \"name\", \"v\": [\"builtins\", \"KeyboardInterrupt\"]}}}')",
}  # fmt: skip
"""What a forged frame holds; it is sent in the place of every answer to a call."""
FRAME = """
import os, struct
def frame(data): return struct.pack("<I", len(data)) + data
_LIE = 0
def _attack(): os.write(3, FRAME)
"""


def frames(data: str) -> str:
    """A module whose functions send this frame when they are called."""
    return FRAME.replace("FRAME", data) + _ON_CALL
