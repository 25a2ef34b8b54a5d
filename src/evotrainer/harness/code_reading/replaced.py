"""Functions of modules that a program replaces although graders go by them: clocks, comparisons, test runners."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping

from evotrainer.harness.code_reading.names import dotted

RUNNERS = (
    "pytest.", "_pytest.", "unittest.", "doctest.", "nose.", "pluggy.", "numpy.testing.", "torch.testing.",
    "pandas.testing.", "hypothesis.",
)  # fmt: skip
_SETTING = re.compile(
    r".*\.(?:maxDiff|longMessage|_diffThreshold|_MAX_LENGTH|sortTestMethodsUsing|testMethodPrefix)"
    r"|unittest\.(?:case\.)?TestCase\.assert(?:ItemsEqual|CountEqual|Equals|(?:Raises|Not)?Regexp?(?:Matches)?)"
)
"""What test runners let themselves be told, and methods that another version calls otherwise."""
LITERALS = ("unittest", "nose", "pluggy", "hypothesis", "filecmp", "difflib", "setitimer", "import_module", "timeit")
"""Modules and functions replaced here of which no other list of literals holds a part."""
TIMER = "patched timer"
COMPARISON = "patched comparison"
_TIMERS = re.compile(
    r"time\.(?:time|perf_counter|monotonic|process_time|thread_time)(?:_ns)?|timeit\.(?:default_timer|timeit|Timer)"
    r"|torch\.cuda\.(?:synchronize|Event(?:\.\w+)?|Stream(?:\.synchronize))|triton\.testing\.\w+|signal\.(?:alarm|setitimer)"
    r"|torch\.utils\.benchmark\.[\w.]+|cupy\.cuda\.Event\.\w+"
)
_COMPARISONS = re.compile(
    r"(?:torch|numpy)\.(?:allclose|isclose|equal|array_equal|array_equiv|eq|all)|torch\.Tensor\.(?:allclose|equal|eq|__eq__)"
    r"|math\.isclose|operator\.(?:eq|ne)|filecmp\.cmp|difflib\.\w+(?:\.ratio)?|sys\.exit|os\._exit|importlib\.import_module"
)
_READERS = re.compile(r"(?:json|pickle)\.(?:loads?|dumps?)|subprocess\.(?:run|Popen|check_output)")
"""Also replaced by faster ones of the same kind: only what answers by itself tells."""


def replaced(name: str, value: ast.expr | None, modules: Collection[str], aliases: Mapping[str, str]) -> str:
    """Rule that setting `name` (in full) to `value` breaks, empty for none; `modules`: what the program imports, at
    the top."""
    if "." not in name or name.partition(".")[0] not in modules:
        return ""
    # `import unittest` makes no alias
    known = value is not None and (_root(value) in aliases or _root(value) in modules)
    own = dotted(value, aliases) if value is not None and known else ""
    if own.partition(".")[0] == name.partition(".")[0] and own.rpartition(".")[2] == name.rpartition(".")[2]:
        return ""  # the same function, from where the library keeps it
    if name.startswith(RUNNERS):
        if _SETTING.fullmatch(name) and (".assert" not in name or own.rpartition(".")[2].startswith("assert")):
            return ""
        return "patched test runner"
    if _TIMERS.fullmatch(name):
        return TIMER
    if _COMPARISONS.fullmatch(name) or (_READERS.fullmatch(name) and isinstance(value, ast.Lambda)):
        return COMPARISON
    return ""


def _root(x: ast.AST) -> str:
    while isinstance(x, ast.Attribute):
        x = x.value
    return x.id if isinstance(x, ast.Name) else ""
