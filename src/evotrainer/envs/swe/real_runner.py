"""What runs a repository's tests inside an episode shell: one process per test file, one for the hidden calls.

It reads a JSON request on standard input and prints a JSON answer behind a mark that the request names. Test files and
hidden calls may be forged by code that runs beside them, as in any checkout; the values of hidden calls are compared
outside. A process that ends without an answer is an error of its test file.
"""

from __future__ import annotations

import importlib.util
import marshal
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evotrainer.envs.swe.runner import CPU_S, error_name, module_name
from evotrainer.envs.swe.tools import test_names
from evotrainer.envs.swe.world import HiddenCall, TestResult
from evotrainer.errors import SandboxError
from evotrainer.sandbox.answers import loads
from evotrainer.sandbox.shell import EpisodeShell
from evotrainer.sandbox.values import ANSWER_NODES, NodeLimit, decode, encode, same

IDLE_S = 5.0
"""Seconds in which a test file used no processor time at all."""
_ANSWER_BYTES = 1 << 21
"""A part's answer; a longer one is none."""
START_CPU_S = 2.0
"""CPU-seconds for the interpreters, besides the tests' own."""

_SOURCE = """
import _json, _signal, marshal, os, resource, select, sys, time  # json, signal, types cost more than the tests
from _frozen_importlib import ModuleSpec

quoted = _json.encode_basestring_ascii


class Loader:
    def __init__(self, path):
        self.path = path

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        text = ""
        if os.path.isfile(self.path):
            with open(self.path, encoding="utf-8", newline="") as file:
                text = file.read()
        module.__file__ = self.path
        exec(compile(text, self.path, "exec", dont_inherit=True), module.__dict__)


class Finder:
    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        if os.path.isfile(base + ".py"):
            return ModuleSpec(name, Loader(base + ".py"))
        if os.path.isdir(base):
            return ModuleSpec(name, Loader(base + "/__init__.py"), is_package=True)
        return None


def prepare():
    roots = {n.removesuffix(".py") for n in os.listdir(".") if n[:1] != "."}
    for name in [n for n in sys.modules if n.partition(".")[0] in roots]:
        del sys.modules[name]
    sys.path.insert(0, os.getcwd())
    sys.meta_path.insert(0, Finder())


def run_file(module, names):
    found = __import__(module, fromlist=["_"])
    out = []
    for name in names:
        try:
            getattr(found, name)()
            out.append("")
        except (Exception, SystemExit) as e:
            out.append(type(e).__name__)
    return out


def plain(v):
    # JSON of None, bool, int, str and lists of them; None for what takes the whole encoder.
    kind = type(v)
    if v is None or kind is bool:
        return "null" if v is None else "true" if v else "false"
    if kind is int and -10**15 < v < 10**15:
        return repr(v)
    if kind is str:
        return quoted(v)
    if kind is list and len(v) < 100:
        parts = [plain(x) for x in v]
        return None if None in parts else "[" + ",".join(parts) + "]"
    return None


def run_calls(calls, source):
    found = []

    def values():
        if not found:
            import json

            module = type(sys)("_values")
            sys.modules["_values"] = module
            exec(compile(source, "_values", "exec"), module.__dict__)
            found.extend([json, module])
        return found

    if any(encoded for _, _, _, encoded in calls):
        values()
    prepare()
    out = []
    for module, function, args, encoded in calls:
        try:
            if encoded:
                args = values()[1].decode(args)
            value = getattr(__import__(module, fromlist=["_"]), function)(*args)
            text = plain(value)
            if text is None:
                json, encoder = values()
                text = json.dumps(encoder.encode(value))
            out.append("[" + text + "]")
        except (Exception, SystemExit):
            out.append("[]")
    return "[" + ",".join(out) + "]"


def child(work, limits, w):
    _signal.signal(_signal.SIGPROF, _signal.SIG_DFL)
    _signal.setitimer(_signal.ITIMER_PROF, limits[0])
    resource.setrlimit(resource.RLIMIT_CPU, (int(limits[0]) + 1, int(limits[0]) + 2))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    quote, write, leave, key = quoted, os.write, os._exit, limits[2]
    try:
        try:
            answer = '["ok",' + work() + "]"
        except BaseException as e:
            answer = '["error",' + quote(type(e).__name__) + "]"
        data = key + answer.encode()
        while data:
            data = data[write(w, data):]
    finally:
        leave(0)


def clock(pid):
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def part(work, limits):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        child(work, limits, w)
    os.close(w)
    data, seen, since, asleep = bytearray(), 0.0, time.monotonic(), False
    while len(data) < 1 << 22:
        if select.select([r], [], [], 0.1)[0]:
            piece = os.read(r, 65536)
            if not piece:
                break
            data += piece
            continue
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        now = clock(pid)
        if now > seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > limits[1]:
            asleep = True
            break
    os.close(r)
    if asleep or len(data) >= 1 << 22:
        os.kill(pid, _signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    late = code in (-_signal.SIGPROF, -_signal.SIGXCPU) or usage.ru_utime + usage.ru_stime >= limits[0]
    if asleep or (code < 0 and late):
        return b'["error","Timeout"]'
    if code < 0:
        return b'["error","Killed"]'
    return bytes(data[len(limits[2]):]) if data.startswith(limits[2]) else b'["error","ProcessExit"]'


def visible(module, names):
    prepare()
    return "[" + ",".join([quoted(x) for x in run_file(module, names)]) + "]"


def main():
    mark, limits, files, calls, source = marshal.loads(sys.stdin.buffer.read())
    out = [part(lambda m=m, n=n: visible(m, n), limits) for m, n in files]
    if calls:
        out.append(part(lambda: run_calls(calls, source), limits))
    data = b"".join([b"\\n" + mark.encode() + x.replace(b"\\n", b"") for x in out])
    while data:
        data = data[os.write(1, data):]


main()
"""


@lru_cache(maxsize=1)
def _values_source() -> str:
    spec = importlib.util.find_spec("evotrainer.sandbox.values")
    if spec is None or spec.origin is None:
        raise SandboxError("cannot find the source of evotrainer.sandbox.values; install evotrainer unzipped")
    return Path(spec.origin).read_text("utf-8")


def run_tests(
    shell: EpisodeShell, tests: Mapping[str, Sequence[str]], calls: Sequence[HiddenCall] = (), cpu_s: float = CPU_S
) -> tuple[list[TestResult], list[Any]]:
    """Run test files (path -> names of test functions) and hidden calls in the checkout.

    A process's answer begins with bytes that it is given: what code under test writes into every descriptor is none.

    Returns a result per test function, files in the given order; and per call a list with its value, or an empty one.
    SandboxError where the shell broke.
    """
    mark = f"<{secrets.token_hex(8)}>"
    sent = [_sent(c) for c in calls]
    files = [(module_name(p), list(names)) for p, names in tests.items()]
    request = marshal.dumps(
        (mark, (cpu_s, IDLE_S, secrets.token_bytes(16)), files, sent, _values_source() if calls else ""), 4
    )
    budget = START_CPU_S + (cpu_s + 1.5) * (len(tests) + bool(calls))
    command = [shell.python, "-I", "-S", "-B", "-c", _SOURCE]
    ran = shell.run(command, stdin=request, cpu_s=budget, env={"PYTHONHASHSEED": "0"})
    answers = _answers(ran.text, mark, len(tests) + bool(calls), "Timeout" if ran.timed_out else "Killed")
    results = [
        r for (path, names), answer in zip(tests.items(), answers, strict=False) for r in _results(path, names, answer)
    ]
    return results, _call_values(answers[len(tests)], len(calls)) if calls else []


def _sent(call: HiddenCall) -> tuple[str, str, Any, bool]:
    """Module, function, arguments, and whether these are encoded (types that marshal does not know)."""
    try:
        marshal.dumps(call.args, 4)
    except ValueError:
        return call.module, call.function, encode(list(call.args)), True
    return call.module, call.function, call.args, False


def _answers(text: str, mark: str, expected: int, otherwise: str) -> list[Any]:
    """One answer per process, whatever was printed."""
    parts = text.split(mark)[1:]
    if len(parts) != expected:
        return [["error", otherwise]] * expected
    found: list[Any] = []
    for part in parts:
        try:
            found.append(loads(part, _ANSWER_BYTES))
        except ValueError:
            found.append(["error", "ProcessExit"])
    return found


def _results(path: str, names: Sequence[str], answer: Any) -> list[TestResult]:
    ok = isinstance(answer, list) and len(answer) == 2
    if ok and answer[0] == "ok":
        results = answer[1]
        if isinstance(results, list) and len(results) == len(names) and all(isinstance(x, str) for x in results):
            return [TestResult(path, n, e and error_name(e)) for n, e in zip(names, results, strict=True)]
    error = error_name(answer[1]) if ok and isinstance(answer[1], str) and answer[1] else "Killed"
    return [TestResult(path, n, error) for n in names]


def _call_values(answer: Any, n: int) -> list[Any]:
    """Values of the calls; an empty list for each that raised, or where the answer is rubbish."""
    nothing: list[Any] = [[] for _ in range(n)]
    if not (isinstance(answer, list) and len(answer) == 2 and answer[0] == "ok" and isinstance(answer[1], list)):
        return nothing
    if len(answer[1]) != n:
        return nothing
    out: list[Any] = []
    budget = NodeLimit(ANSWER_NODES)
    for item in answer[1]:
        try:
            out.append([decode(item[0], budget=budget)] if isinstance(item, list) and len(item) == 1 else [])
        except ValueError:
            out.append([])
    return out


def calls_passed(calls: Mapping[str, HiddenCall], values: Sequence[Any]) -> dict[str, bool]:
    """Did each hidden call return exactly what it must?"""
    return {i: len(got) == 1 and same(got[0], c.expected) for (i, c), got in zip(calls.items(), values, strict=True)}


def named_tests(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Test files of a tree, by name, with the functions that their texts define."""
    paths = sorted(p for p in files if p.rpartition("/")[2].startswith("test_") and p.endswith(".py"))
    return {p: test_names(files[p]) for p in paths}
