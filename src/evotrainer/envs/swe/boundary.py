"""Running a repository's tests across a boundary: tests in one shell, the code under test in another,
values between them.

The tests' process holds nothing of the policy's: its verdict cannot be reached from the code under test, which can only
answer. What those answers may decide is in `isolated/proxies.py`; which tests work like this is seen with the reference
fix.
"""

from __future__ import annotations

import importlib.util
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from evotrainer.envs.swe.test_commands import ENVIRONMENT, OPTIONS, TestCommand, plain_name
from evotrainer.errors import SandboxError
from evotrainer.sandbox.shell import CommandResult, Entry, EpisodeShell

_PACKAGES = (
    "evotrainer",
    "evotrainer.sandbox",
    "evotrainer.envs",
    "evotrainer.envs.swe",
    "evotrainer.envs.swe.isolated",
)
_ISOLATED = "evotrainer.envs.swe.isolated"
_COMMON = ("evotrainer.sandbox.values", *(f"{_ISOLATED}.{m}" for m in ("wire", "special_methods")))
_SOLUTION = (*_COMMON, *(f"{_ISOLATED}.{m}" for m in ("remote_objects", "solution")))
_TESTS = (*_COMMON, *(f"{_ISOLATED}.{m}" for m in ("proxies", "references", "decoys", "session", "tester")))
"""Modules that either side is given as text, each after those it imports."""
_BOOTSTRAP = """
import json, os, sys, types
def load(name, source):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    else:
        module.__path__ = []
    return module
with os.fdopen(0, "rb", closefd=False) as given:
    request = json.loads(given.read())
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
here = [p for p in sys.path if p]  # the library comes before the checkout
at = next((i for i, p in enumerate(here) if p.endswith("-packages")), len(here))
here[at:at] = [*request["path"], "/w/repo", "/w/repo/src"]
sys.path[:] = here
sys.dont_write_bytecode = True
sys.argv[:] = ["pytest"]
for name, source in request.pop("modules"):
    last = load(name, source)
last.main(request)
"""


@dataclass(frozen=True, slots=True)
class BoundaryRun:
    """Results of tests that ran across the boundary."""

    results: Mapping[str, bool]
    """Test id -> passed; empty where the tests' process did not come to its own end."""
    places: frozenset[str]
    """Places where objects of the code under test decided something; only noted where all were allowed."""
    decided: frozenset[str]
    """Tests in which they did."""
    tests: CommandResult
    solution: CommandResult | None


@dataclass(frozen=True, slots=True)
class CheckoutParts:
    """A checkout in two parts. Paths are relative to the checkout."""

    tests: Mapping[str, Entry]
    solution: Mapping[str, Entry]
    files: Sequence[str]
    """Test files to run."""
    only: frozenset[str] | None = None
    """Ids to run, of pytest; None: all in these files."""
    roots: frozenset[str] = field(default=frozenset())
    """Top-level names that the solution serves."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Package -> its folder next to the tests."""


def parted(
    tests: Mapping[str, Entry], code: Mapping[str, Entry], trusted: Iterable[str], is_test: Callable[[str], bool],
    files: Sequence[str],
) -> CheckoutParts:  # fmt: skip
    """Test files, control files and data for the tests' side; everything but tests for the solution's.

    `trusted`: paths of the base and of the reference fix, by which names are served; never by the policy's.
    """
    modules = [p for p in trusted if p.endswith(".py") and not is_test(p) and "-" not in p]
    dotted = {p: _module(p) for p in modules if p.rpartition("/")[2] not in ("setup.py", "conftest.py")}
    roots = frozenset(name.partition(".")[0] for name in dotted.values() if name)
    folders = {}
    for path, _name in dotted.items():
        parts = path.split("/")[:-1]
        start = 1 if parts[:1] == ["src"] else 0
        for n in range(start + 1, len(parts) + 1):
            folders[".".join(parts[start:n])] = "/w/repo/" + "/".join(parts[:n])
    kept = {p: e for p, e in tests.items() if is_test(p) or not p.endswith((".py", ".pyc", ".so", ".pth", ".pyd"))}
    kept |= {p: e for p, e in tests.items() if p.rpartition("/")[2] == "conftest.py"}
    for path in modules:  # packages that hold tests stay packages
        folder = path.removesuffix("__init__.py")
        if folder != path and folder and any(p.startswith(folder) and is_test(p) for p in kept):
            kept[path] = Entry(path, "f", 0o644, b"")
    solution = {p: e for p, e in code.items() if not is_test(p)}
    return CheckoutParts(kept, solution, files, roots=roots, folders=folders)


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def cross(
    tests: EpisodeShell,
    solution: EpisodeShell,
    sides: CheckoutParts,
    command: TestCommand,
    places: frozenset[str] | None,
) -> BoundaryRun:
    """Run `sides.files` in two shells that hold the two parts. `places`: where objects of the code under test may
    decide; None: everywhere, and it is noted.

    `command` must be of kind pytest or unittest. SandboxError where a shell broke.
    """
    words = [command.python or tests.python, *OPTIONS, "-c", _BOOTSTRAP]
    ours, theirs = socket.socketpair()
    ended: list[CommandResult | BaseException] = []

    def serve() -> None:
        try:
            request = _request(_SOLUTION, {"path": list(command.path)})
            ended.append(solution.run(words, request, command.cpu_s, env=ENVIRONMENT, also=[theirs.detach()]))
        except BaseException as error:
            ended.append(error)

    mark = f"<{secrets.token_hex(16)}>"
    request = _request(_TESTS, _job(sides, command, places, mark))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        ran = tests.run(words, request, command.cpu_s, env=ENVIRONMENT, also=[ours.detach()])
    finally:
        _end(solution, thread)
    if ended and isinstance(ended[0], BaseException):
        raise ended[0]
    return _read(ran, mark, ended[0] if ended and isinstance(ended[0], CommandResult) else None)


def _end(solution: EpisodeShell, thread: threading.Thread) -> None:
    """The tests are over: whatever still runs on the other side ends."""
    thread.join(0.5)
    while thread.is_alive():
        if not solution.closed:
            solution.kill()
        thread.join(0.2)


def _job(sides: CheckoutParts, command: TestCommand, places: frozenset[str] | None, mark: str) -> dict[str, object]:
    code = [f"/w/repo/{p}" for p, e in sides.tests.items() if e.kind == "f" and p.endswith(".py")]
    own = {_module(p) for p in sides.tests if p.endswith(".py") and sides.tests[p].data} - {""}
    own |= {name.rpartition(".")[0] for name in own} - set(sides.folders)
    job = {"mark": mark, "kind": command.kind, "path": list(command.path), "files": list(sides.files), "code": code}
    return job | {
        "plugins": list(command.plugins),
        "only": None if sides.only is None else sorted(map(plain_name, sides.only)),
        "places": None if places is None else sorted(places),
        "roots": sorted(sides.roots),
        "own": sorted(own),
        "folders": dict(sides.folders),
    }


def _request(names: Sequence[str], more: Mapping[str, object]) -> bytes:
    modules = [*((name, "") for name in _PACKAGES), *((name, _source(name)) for name in names)]
    return json.dumps({**more, "modules": modules}).encode()


@lru_cache(maxsize=16)
def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SandboxError(f"cannot find the source of {name}; install evotrainer unzipped")
    return Path(spec.origin).read_text("utf-8")


def _read(ran: CommandResult, mark: str, solution: CommandResult | None) -> BoundaryRun:
    """Results, if the tests' process told all of them and came to its own end."""
    lines = [x.removeprefix(mark) for x in ran.text.split("\n") if x.startswith(mark)]
    outcomes = [x for x in lines if x[:1] in ("0", "1")]
    results: dict[str, bool] = {}
    decided: set[str] = set()
    for line in outcomes:
        name = bytes.fromhex(line[2:]).decode("utf-8", "replace")
        results[name] = line[0] == "1" and results.get(name, True)
        if line[1] == "1":
            decided.add(name)
    places = frozenset(bytes.fromhex(x[1:]).decode("utf-8", "replace") for x in lines if x[:1] == "p")
    if ran.exit or ran.timed_out or ran.truncated or lines[-1:] != [f"e{len(outcomes)}"]:
        results = {}
    return BoundaryRun(results, places, frozenset(decided), ran, solution)
