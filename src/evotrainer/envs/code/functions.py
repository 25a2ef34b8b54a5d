"""MBPP and HumanEval: functions that are checked by the data set's own test code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evotrainer.envs.base import Task
from evotrainer.envs.code.answers import assemble_header
from evotrainer.envs.data.rows import Row, field
from evotrainer.errors import TaskSetError

CHECK_CPU_S = 5.0
"""CPU-seconds for a candidate over all calls of its tests, imports included."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """A checked function: prompt, the header a body completes (or ""), gold, test code and what may be shown of it."""

    id: str
    prompt: str
    header: str
    entry_point: str
    gold: str
    test: str
    asserts: tuple[str, ...]


def _entry_start(header: str, entry_point: str) -> int:
    found = re.search(rf"^(?:async )?def {re.escape(entry_point)}\b", header, re.MULTILINE)
    return found.start() if found else -1


def preamble_of(header: str, entry_point: str) -> str:
    """What of a header the tests and a rewritten function may need: all before the entry point, or its imports."""
    start = _entry_start(header, entry_point)
    if start >= 0:
        return header[:start]
    return "".join(f"{line}\n" for line in header.split("\n") if re.match(r"(?:import|from) ", line))


def _asserts(test: str, entry_point: str) -> tuple[str, ...]:
    """The asserts of a `check(candidate)` that consists of nothing else, on the entry point's own name."""
    tree = ast.parse(test)
    check = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
    if check is None or not all(isinstance(n, ast.Assert) for n in check.body):
        return ()
    return tuple(re.sub(r"\bcandidate\b", entry_point, ast.unparse(n)) for n in check.body)


def _completion_problem(row: Row, where: str) -> _Problem:
    """HumanEval's columns: the prompt is a header with docstring, the solution its body."""
    task_id, prompt, entry, gold, test = (
        field(row, c, str, where) for c in ("task_id", "prompt", "entry_point", "canonical_solution", "test")
    )
    try:
        asserts = _asserts(test, entry)
    except SyntaxError as e:
        raise TaskSetError(f"{where}: field 'test' is not Python ({e.msg}); correct the row") from None
    test = preamble_of(prompt, entry) + _lost_import(test) + test
    return _Problem(task_id, prompt, prompt, entry, gold, test, asserts)


def _lost_import(test: str) -> str:
    """MBPP keeps `import math` in a column `test_imports`, which files in HumanEval's columns have dropped."""
    return "import math\n" if re.search(r"\bmath\.", test) and "import math" not in test else ""


def _mbpp_problem(row: Row, where: str) -> _Problem:
    """MBPP's own columns (a sentence, a whole solution, a list of asserts), or HumanEval's."""
    if "test_list" not in row:
        return _completion_problem(row, where)
    sentence = field(row, "text" if "text" in row else "prompt", str, where)
    gold = field(row, "code", str, where)
    tests = field(row, "test_list", list, where)
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    if not tests or not all(isinstance(t, str) for t in tests):
        raise TaskSetError(f"{where}: field 'test_list' must be a list of asserts; correct the row")
    try:
        entry = _called(gold, tests)
    except SyntaxError as e:
        raise TaskSetError(f"{where}: 'code' or 'test_list' is not Python ({e.msg}); correct the row") from None
    if entry is None:
        raise TaskSetError(f"{where}: the tests call no function that 'code' defines; correct the row")
    test = f"{setup}\ndef check(candidate):\n" + "".join(f"    {t.strip()}\n" for t in tests)
    return _Problem(str(row.get("task_id", where)), f"{sentence.strip()}\n", "", entry, gold, test, tuple(tests))


def _defined(source: str) -> set[str]:
    return {n.name for n in ast.parse(source).body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _called(gold: str, tests: Sequence[str]) -> str | None:
    """First function of the solution that the tests call."""
    defined = _defined(gold)
    for n in ast.walk(ast.parse("\n".join(tests))):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in defined:
            return n.func.id
    return None


def _helpers(p: _Problem) -> list[str]:
    """Further functions of the solution that the test code calls."""
    try:
        defined = _defined(assemble_header(p.header, p.gold)) - {p.entry_point}
        tree = ast.parse(p.test)
    except SyntaxError:
        return []
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return sorted((defined & used) - own)


def check_task(p: _Problem, name: str, split: str, visible: int) -> Task:
    """The task; the first `visible` asserts stand above the prompt."""
    shown = p.asserts[:visible]
    prompt = "".join(f"# {a}\n" for a in shown) + p.prompt
    body = "".join(f"    {a}\n" for a in shown)
    shown_test = f"{preamble_of(p.header, p.entry_point)}\n{_lost_import(body)}def check(candidate):\n{body}"
    return Task(
        id=p.id,
        split=split,
        prompt=prompt,
        data={
            "form": "check",
            "spec": p.prompt,
            "entry_point": p.entry_point,
            "names": _helpers(p),
            "header": p.header,
            "preamble": preamble_of(p.header, p.entry_point),
            "gold": p.gold,
            "visible": [[shown_test, None]] if shown else [],
            "hidden": [[p.test, None]],
            "perturb": False,
        },
        tags={"set": name},
    )


KINDS: dict[str, Callable[[Row, str], _Problem]] = {"mbpp": _mbpp_problem, "humaneval": _completion_problem}
