"""Programming problems from a data set: MBPP, HumanEval, LiveCodeBench, TACO and APPS, or a user's stdin/stdout rows."""

from __future__ import annotations

import ast
import base64
import binascii
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from evotrainer.envs.base import Task
from evotrainer.envs.data.datasets import (
    CHECK_CPU_S,
    KINDS,
    ListSource,
    check_task,
    examples,
    pairs,
)
from evotrainer.envs.data.rows import Row, field, listed, split_of
from evotrainer.envs.data.tables import DataOptions, Format, Item, load_table, without_duplicates
from evotrainer.errors import TaskSetError
from evotrainer.records.text import shown

STDIN_CPU_S = 4.0
"""CPU-seconds per test of a program that reads stdin, or of a call."""
PRIVATE_BYTES = 1 << 30
"""Largest size, unpacked, of one row's private tests."""
PREAMBLE = (
    "import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys\n"
    "from bisect import *\nfrom collections import *\nfrom functools import *\nfrom heapq import *\n"
    "from itertools import *\nfrom math import ceil, comb, floor, gcd, inf, sqrt\nfrom typing import *\n"
)
"""Stands before an answer to starter code, which speaks of `List` and the like without importing them."""
_ID = ("id", "task_id", "question_id", "problem_id", "name")
_TAGS = {
    "difficulty": ("difficulty",),
    "platform": ("platform",),
    "of": ("source",),
    "date": ("contest_date", "date"),
}
_COMPLETION = {n: (n,) for n in ("task_id", "prompt", "entry_point", "canonical_solution", "test")}
FORMATS = (
    Format(
        "mbpp",
        {"text": ("text", "prompt"), "code": ("code",), "test_list": ("test_list",)},
        {"task_id": _ID, "test_setup_code": ("test_setup_code",), "test_imports": ("test_imports",)},
    ),
    Format("mbpp", _COMPLETION, told_by=lambda r: str(r["task_id"]).lower().startswith("mbpp")),
    Format("humaneval", _COMPLETION),
    Format(
        "livecodebench",
        {"question": ("question_content",), "public_test_cases": ("public_test_cases",)},
        {
            "private_test_cases": ("private_test_cases",),
            "starter_code": ("starter_code",),
            "metadata": ("metadata",),
            "title": ("question_title",),
            "solution": ("solution", "reference_solution"),
            "id": ("question_id",),
            **_TAGS,
        },
    ),
    Format(
        "taco",
        {"question": ("question", "problem", "prompt"), "input_output": ("input_output",)},
        {
            "solutions": ("solutions", "solution"),
            "starter_code": ("starter_code",),
            "id": ("id", "problem_id"),
            **_TAGS,
        },
    ),
    Format(
        "stdin",
        {"prompt": ("prompt", "question"), "tests": ("tests",)},
        {"id": ("id",), "solution": ("solution",), **_TAGS},
    ),
)


class CodeDataConfig(DataOptions):
    """`[environment]` of a task file with name = "code" and a source."""

    name: Literal["code"] = "code"
    visible: int = Field(0, ge=0)
    """Tests that are graded as visible: the first ones (livecodebench: its public tests, where this is 0)."""
    show: bool | None = None
    """The visible tests stand in the prompt; default: for mbpp and humaneval (as asserts)."""
    tests: int | None = Field(None, ge=1)
    """At most so many hidden tests per task, the first ones; default: all."""
    ask: str | None = None
    """Stands between the question and starter code; default: asks for a Python program, or a function (not for stdin rows,
    mbpp and humaneval, which speak for themselves)."""
    cpu_s: float | None = Field(None, gt=0)
    """CPU-seconds per test (mbpp, humaneval: for all); default: 4 (5)."""
    memory_mb: int = Field(512, ge=64)
    output_kb: int = Field(1024, ge=16)
    """What a program may use and print per test; a test that expects more is left out."""
    admit: bool = True
    """Run each task's own solution, where the data set has one, and leave out tasks that it does not solve."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a row of tests says: `form` stdin, or call (of `entry_point`)."""

    form: str
    question: str
    visible: Sequence[Sequence[Any]]
    hidden: Sequence[Sequence[Any]]
    golds: Sequence[str] = ()
    entry_point: str = "solve"
    starter: str = ""
    either: bool = False
    """An expected list of one value also stands for that value."""


def code_source(o: CodeDataConfig) -> ListSource:
    """The data set as a task source; TaskSetError with file, row and column where something is missing or malformed."""
    table = load_table(o, FORMATS, "code")
    form = table.format.name
    checked = form in KINDS
    left_out: dict[str, int] = {}
    tasks = table.each(
        lambda item: _checked(form, item, o) if checked else _tested(form, item, o, left_out), o.malformed
    )
    tasks, dropped = without_duplicates(
        "code", tasks, o.duplicates, of=lambda t: t, ask=lambda t: str(t.data["header"] or t.data["spec"])
    )
    if not tasks:
        raise TaskSetError(f"{o.source}: no task is left: {left_out}; raise output_kb, or give other rows")
    cpu_s = o.cpu_s or (CHECK_CPU_S if checked else STDIN_CPU_S)
    shown = any(t.data["visible"] for t in tasks) and (checked or bool(o.show))
    source = ListSource("code", tasks, cpu_s=cpu_s, shown=shown, memory_mb=o.memory_mb, output_kb=o.output_kb)
    source.about = table.told(duplicates_left_out=dropped, left_out=left_out)
    return source


def _checked(form: str, item: Item, o: CodeDataConfig) -> Task:
    row = dict(item.row)
    for name in ("test_list", "test_imports"):  # lists as JSON text, in CSV
        if isinstance(row.get(name), str):
            row[name] = listed(row, name, item.where)
    problem = KINDS[form](row, item.where)
    return check_task(problem, form, split_of(problem.id, item.shares), o.visible)


def _tested(form: str, item: Item, o: CodeDataConfig, left_out: dict[str, int]) -> Task | None:
    """None, counted in `left_out`, for a row whose tests are all too large to be run."""
    row, where = item.row, item.where
    p = READERS[form](row, where)
    if not p.question.strip():
        raise TaskSetError(f"{where}: the question is empty; remove or correct the row")
    visible, hidden = list(p.visible), list(p.hidden)
    if o.visible and not visible:
        visible, hidden = hidden[: o.visible], hidden[o.visible :]
    if not hidden:
        raise TaskSetError(
            f"{where}: {len(visible)} visible tests leave no hidden one; lower environment.visible, or remove the row"
        )
    small = [t for t in hidden if len(str(t[1])) <= o.output_kb * 1000]
    for what, n in (("tests beyond output_kb", len(hidden) - len(small)), ("rows of such tests alone", int(not small))):
        if n:
            left_out[what] = left_out.get(what, 0) + n
    hidden = small[: o.tests]
    if not hidden:
        return None
    starter = p.starter.strip("\n").rstrip()
    ask = o.ask if o.ask is not None else "" if form == "stdin" else ASKS[p.form].format(entry_point=p.entry_point)
    prompt = "\n\n".join(x for x in (p.question.strip(), ask.strip(), starter) if x) + "\n"
    tags = {"set": form, "part": item.part} | {t: str(row[t]) for t in _TAGS if row.get(t) not in (None, "")}
    named = row.get("id")
    return Task(
        id=f"{form}-{item.part}-{item.number}" + (f"-{named}" if isinstance(named, (str, int)) else ""),
        split=split_of(p.question, item.shares),
        prompt=examples(prompt, visible) if o.show and visible and p.form == "stdin" else prompt,
        data={
            "form": p.form,
            "spec": prompt,
            "entry_point": p.entry_point,
            "header": "",
            "preamble": PREAMBLE if p.form == "call" else "",
            "gold": p.golds[0] if p.golds else "",
            "golds": list(p.golds[:MAX_GOLDS]),
            "visible": visible,
            "hidden": hidden,
            "either": p.either,
            "perturb": False,
        },
        tags=tags,
    )


ASKS = {
    "stdin": "Write a Python program that reads standard input and prints the answer.",
    "call": "Write it in Python as `{entry_point}`.",
}
MAX_GOLDS = 5
"""Solutions of a row that admission tries."""


def _stdin(row: Row, where: str) -> Problem:
    gold = row.get("solution")
    tests = pairs(listed(row, "tests", where), where)
    return Problem("stdin", field(row, "prompt", str, where), [], tests, [gold] if isinstance(gold, str) else [])


def _taco(row: Row, where: str) -> Problem:
    """TACO's and APPS' columns: `input_output` holds inputs, outputs and, for a function, fn_name, as JSON text."""
    found = _json(row, "input_output", where)
    if not isinstance(found, dict) or not all(isinstance(found.get(k), list) for k in ("inputs", "outputs")):
        raise TaskSetError(
            f"{where}: field 'input_output' must hold the lists inputs and outputs; remove or correct the row"
        )
    inputs, outputs = found["inputs"], found["outputs"]
    if not inputs or len(inputs) != len(outputs):
        raise TaskSetError(
            f"{where}: field 'input_output' has {len(inputs)} inputs and {len(outputs)} outputs; as many of both, and at least "
            "one, expected"
        )
    question, starter = field(row, "question", str, where), str(row.get("starter_code") or "")
    golds = _golds(row, where)
    entry = found.get("fn_name")
    if entry is None:
        return Problem(
            "stdin", question, [], [[_joined(x), _joined(y)] for x, y in zip(inputs, outputs, strict=True)], golds
        )
    if not isinstance(entry, str) or not entry.isidentifier():
        raise TaskSetError(f"{where}: fn_name of field 'input_output' is {entry!r}, a function's name expected")
    if bad := next((i for i, x in enumerate(inputs, 1) if not isinstance(x, list)), None):
        raise TaskSetError(f"{where}: input {bad} of function {entry} is no list of its arguments; correct the row")
    tests = [[x, y] for x, y in zip(inputs, outputs, strict=True)]
    return Problem("call", question, [], tests, golds, entry, starter, either=True)


def _joined(value: Any) -> str:
    """TACO keeps some texts as lists of lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _golds(row: Row, where: str) -> list[str]:
    """Solutions: a text, a list, or a list as JSON text; none where the column is empty or absent."""
    value = row.get("solutions")
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    if value in (None, "", []):
        return []
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise TaskSetError(f"{where}: field 'solutions' must be a list of programs; correct the row")
    return value


def _livecodebench(row: Row, where: str) -> Problem:
    public = _cases(_json(row, "public_test_cases", where), "public_test_cases", where)
    private = _cases(private_tests(row, where), "private_test_cases", where)
    kinds = {c["testtype"] for c in (*public, *private)}
    if not private:
        raise TaskSetError(f"{where}: it has no private tests, nothing would be hidden; remove the row")
    if len(kinds) != 1 or (kind := kinds.pop()) not in ("stdin", "functional"):
        raise TaskSetError(
            f"{where}: testtype must be stdin or functional, the same for all tests of a row; correct the row"
        )
    title = str(row.get("title") or "").strip()
    question = (f"{title}\n\n" if title else "") + field(row, "question", str, where)
    gold = row.get("solution")
    golds = [gold] if isinstance(gold, str) and gold.strip() else []
    starter = str(row.get("starter_code") or "")
    if kind == "stdin":
        visible, hidden = ([[c["input"], c["output"]] for c in cases] for cases in (public, private))
        return Problem("stdin", question, visible, hidden, golds)
    entry = _entry(row, starter, where)
    visible, hidden = ([_call(c, where) for c in cases] for cases in (public, private))
    return Problem("call", question, visible, hidden, golds, entry, starter)


def _entry(row: Row, starter: str, where: str) -> str:
    """The function asked for: metadata's func_name, or the last one that the starter code defines."""
    metadata = _json(row, "metadata", where) if row.get("metadata") else {}
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    name = name or next(iter(re.findall(r"def\s+(\w+)\s*\(", starter)[::-1]), "")
    if not isinstance(name, str) or not name.isidentifier():
        raise TaskSetError(f"{where}: neither metadata (func_name) nor starter_code names the function that is called")
    return name


def _call(case: Mapping[str, str], where: str) -> list[Any]:
    """Arguments, one JSON text a line, and the value expected."""
    try:
        arguments = [json.loads(line) for line in case["input"].split("\n") if line.strip()]
        return [arguments, json.loads(case["output"])]
    except ValueError as e:
        raise TaskSetError(
            f"{where}: a functional test is not JSON, one argument a line ({e}); correct the row"
        ) from None


def _cases(value: Any, name: str, where: str) -> list[dict[str, str]]:
    keys = ("input", "output", "testtype")
    ok = isinstance(value, list) and all(
        isinstance(c, dict) and all(isinstance(c.get(k), str) for k in keys) for c in value
    )
    if not ok:
        raise TaskSetError(f"{where}: field {name!r} must be a list of tests with the texts input, output and testtype")
    return list(value)


def _json(row: Row, name: str, where: str) -> Any:
    value = row.get(name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as e:
        raise TaskSetError(f"{where}: field {name!r} is not JSON ({str(e)[:80]}); remove or correct the row") from None


class _TextOnly(pickle.Unpickler):
    """Unpickles a text; anything that would look up a name, and with it run code, is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to an object outside")


def private_tests(row: Row, where: str) -> Any:
    """`private_test_cases`: JSON, or that JSON as a pickled text, packed by zlib, in base64.

    A pickle can run code when it is read. This reader looks up no name and returns a text or nothing, so none runs.
    TaskSetError for everything else.
    """
    value = row.get("private_test_cases")
    if value in (None, "", []):
        return []
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _json(row, "private_test_cases", where)
    try:
        unpack = zlib.decompressobj()
        packed = unpack.decompress(base64.b64decode(value, validate=True), PRIVATE_BYTES)
        if unpack.unconsumed_tail or not unpack.eof:
            raise TaskSetError(
                f"{where}: field 'private_test_cases' is cut, or unpacks to more than {PRIVATE_BYTES >> 20} MiB"
            )
        text = _TextOnly(io.BytesIO(packed)).load()
        if not isinstance(text, (str, bytes)):
            raise pickle.UnpicklingError(f"it holds {type(text).__name__}, a text expected")
        return json.loads(text)
    except (binascii.Error, zlib.error, pickle.UnpicklingError, ValueError, EOFError, LookupError, TypeError) as e:
        raise TaskSetError(
            f"{where}: field 'private_test_cases' cannot be read ({type(e).__name__}: {str(e)[:120]}); it must be JSON, or JSON "
            "text pickled, packed by zlib, in base64: nothing else is unpickled"
        ) from None
    except (AttributeError, IndexError, KeyError, OverflowError, MemoryError, RecursionError) as e:
        raise TaskSetError(
            f"{where}: field 'private_test_cases' is a damaged pickle ({type(e).__name__}); remove the row"
        ) from None


READERS: dict[str, Callable[[Row, str], Problem]] = {"stdin": _stdin, "taco": _taco, "livecodebench": _livecodebench}


def adapted(program: str, entry_point: str, preamble: str) -> str:
    """An answer that runs as a call of `entry_point`: imports before it, and its class `Solution` behind that name."""
    whole = preamble + program
    try:
        body = ast.parse(program).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return whole
    if any(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == entry_point for n in body):
        return whole
    if any(isinstance(n, ast.ClassDef) and n.name == "Solution" for n in body):
        return f"{whole}\n\ndef {entry_point}(*arguments):\n    return Solution().{entry_point}(*arguments)\n"
    return whole


def same_value(got: Any, expected: Any, either: bool) -> bool:
    """The value a call returned against the JSON one: tuples count as lists, whole floats as integers, True is not 1.

    `either`: an expected list of one value also stands for that value (TACO and APPS write some so).
    """
    if _same(got, expected):
        return True
    return either and isinstance(expected, list) and len(expected) == 1 and _same(got, expected[0])


_KEY_CHARS = 1000


def _name(key: Any) -> str:
    """A returned key as JSON names it."""
    if isinstance(key, str):
        return key
    return json.dumps(key) if isinstance(key, float) or key is True or key is False else shown(key, _KEY_CHARS)


def _same(got: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        if type(got) not in (list, tuple) or len(got) != len(expected):
            return False
        return all(_same(a, b) for a, b in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        if type(got) is not dict or len(got) != len(expected):
            return False
        named = {_name(k): v for k, v in got.items()}
        return set(named) == set(expected) and all(_same(named[k], v) for k, v in expected.items())
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return type(got) is type(expected) and got == expected
    return type(got) in (int, float) and got == expected
