"""Running the tests of real repositories inside a shell, and reading which of them passed.

pytest and unittest run under a reporter of ours (`reporters.py`), whose lines begin with a mark that the code under
test is not told; of other commands the log is read (pytest's `-rA` summary, unittest's `-v` lines), which that code can
forge.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evotrainer.envs.swe.reporters import PYTEST, UNITTEST
from evotrainer.sandbox.shell import CommandResult, EpisodeShell

_SUMMARY = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)
_PYTEST_LINE = re.compile(r"^(PASSED|FAILED|ERROR|XPASS|XFAIL) (\S.*?)(?: - .*)?$", re.MULTILINE)
_UNITTEST_LINE = re.compile(
    r"^(\w+) \(([\w.]+)\)(?:\n.*?)? \.\.\. (ok|FAIL|ERROR|skipped|expected failure)", re.MULTILINE
)
OPTIONS = ("-s", "-B")
"""Of the interpreter, beside a `sys.path` of its own and an environment that holds nothing of the policy's: what
`-I` does, which would let the hash seed go."""
ENVIRONMENT: Mapping[str, str] = {
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


@dataclass(frozen=True, slots=True)
class TestCommand:
    """How tests are run. `kind`: pytest, unittest, or a command line with `{tests}` in it."""

    __test__ = False

    kind: str = "pytest"
    python: str = ""
    """Interpreter inside the shell; empty: the shell's own."""
    path: tuple[str, ...] = ()
    """Further folders on PYTHONPATH, as the shell sees them."""
    cpu_s: float = 300.0
    """CPU-seconds of one run."""
    plugins: tuple[str, ...] = ()
    """Plug-ins of pytest to load, by module; no other one is."""

    def run(self, shell: EpisodeShell, files: Sequence[str]) -> tuple[dict[str, bool], CommandResult]:
        """Test id -> passed, and the run itself. Nothing runs where `files` is empty."""
        if not files:  # pytest would look for tests of its own
            return {}, CommandResult(0, b"", b"", False, 0.0, False)
        mark = f"<{secrets.token_hex(16)}>"
        python = self.python or shell.python
        own = ":".join(self.path)
        env = {**ENVIRONMENT, "EVOTRAINER_PATH": own}
        if self.kind in ("pytest", "unittest"):
            if self.kind == "pytest":
                named = [word for plugin in self.plugins for word in ("-p", plugin)]
                words = [PYTEST, "-q", "-p", "no:cacheprovider", *named, "--continue-on-collection-errors", *files]
            else:
                words = [UNITTEST, *(f.removesuffix(".py").replace("/", ".") for f in files)]
            ran = shell.run([python, *OPTIONS, "-c", *words], stdin=mark, cpu_s=self.cpu_s, env=env)
            return _marked(ran, mark), ran
        env["PYTHONPATH"] = ":".join(("/w/repo", "/w/repo/src", *self.path))
        line = self.kind.replace("{tests}", shlex.join(files)).replace("{python}", python)
        ran = shell.run(["bash", "-c", line], cpu_s=self.cpu_s, env=env, merge=True)
        return parse_log(ran.text), ran


def _marked(ran: CommandResult, mark: str) -> dict[str, bool]:
    """Test id -> did every report of it say that it passed?"""
    found: dict[str, bool] = {}
    for good, name in re.findall(re.escape(mark) + r"([01])([0-9a-f]*)\n", ran.text):
        test = bytes.fromhex(name).decode("utf-8", "replace") if len(name) % 2 == 0 else ""
        found[test] = good == "1" and found.get(test, True)
    return found


def parse_log(text: str) -> dict[str, bool]:
    """Results in a log of `pytest -rA` (its last summary) or `unittest -v`;
    a test that is named twice must pass twice."""
    found: dict[str, bool] = {}
    heads = list(_SUMMARY.finditer(text))
    if heads:
        for m in _PYTEST_LINE.finditer(text, heads[-1].end()):
            found[m[2]] = m[1] in ("PASSED", "XFAIL") and found.get(m[2], True)
        return found
    for m in _UNITTEST_LINE.finditer(text):
        name = m[2] if m[2].endswith(f".{m[1]}") else f"{m[2]}.{m[1]}"
        found[name] = m[3] in ("ok", "expected failure") and found.get(name, True)
    return found


def passed(results: Mapping[str, bool], test: str) -> bool:
    """Did the test of this name pass? Names: pytest's `path::name`, `module.Class.name`, or `name (module.Class)`."""
    if test in results:
        return results[test]
    if (plain := plain_name(test)) != test:
        return results.get(plain, False)
    if "::" in test:
        return results.get(test.replace(".py::", ".").replace("::", ".").replace("/", "."), False)
    return False


def plain_name(test: str) -> str:
    """`name (module.Class)` as `module.Class.name`; other names as they are."""
    m = re.fullmatch(r"(\w+) \(([\w.]+)\)", test)
    if not m:
        return test
    return m[2] if m[2].endswith(f".{m[1]}") else f"{m[2]}.{m[1]}"


def file_of(test: str) -> str:
    """File of a test id, where the id names one; else empty."""
    path, colons, _ = test.partition("::")
    return path if colons else ""
