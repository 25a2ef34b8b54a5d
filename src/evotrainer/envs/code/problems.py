"""Rows of LiveCodeBench, TACO and APPS, or a user's stdin/stdout rows, as problems with tests."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evotrainer.envs.data.rows import Row, field, listed
from evotrainer.errors import TaskSetError
from evotrainer.records.text import cause, counted

PRIVATE_BYTES = 1 << 30
"""Largest size, unpacked, of one row's private tests."""


@dataclass(frozen=True, slots=True)
class TestRow:
    """The tests of a row: `form` stdin, or call (of `entry_point`)."""

    form: str
    question: str
    visible: Sequence[Sequence[Any]]
    hidden: Sequence[Sequence[Any]]
    golds: Sequence[str] = ()
    entry_point: str = "solve"
    starter: str = ""
    either: bool = False
    """An expected list of one value also stands for that value."""


def _pairs(value: Any, where: str) -> list[list[str]]:
    """Pairs of texts (stdin, stdout); TaskSetError otherwise."""
    ok = (
        isinstance(value, list)
        and value
        and all(isinstance(p, list) and len(p) == 2 and all(isinstance(x, str) for x in p) for p in value)
    )
    if not ok:
        raise TaskSetError(f'{where}: field \'tests\' must be a list of pairs of texts: [["stdin", "stdout"], ...]')
    return [list(p) for p in value]


def _stdin(row: Row, where: str) -> TestRow:
    gold = row.get("solution")
    tests = _pairs(listed(row, "tests", where), where)
    return TestRow("stdin", field(row, "prompt", str, where), [], tests, [gold] if isinstance(gold, str) else [])


def _taco(row: Row, where: str) -> TestRow:
    """TACO's and APPS' columns: `input_output` holds inputs, outputs and, for a function, fn_name, as JSON text."""
    found = _json(row, "input_output", where)
    if not isinstance(found, dict) or not all(isinstance(found.get(k), list) for k in ("inputs", "outputs")):
        raise TaskSetError(
            f"{where}: field 'input_output' must hold the lists inputs and outputs; remove or correct the row"
        )
    inputs, outputs = found["inputs"], found["outputs"]
    if not inputs or len(inputs) != len(outputs):
        raise TaskSetError(
            f"{where}: field 'input_output' has {counted(len(inputs), 'input')} and "
            f"{counted(len(outputs), 'output')}; as many of both, "
            "and at least one, expected"
        )
    question, starter = field(row, "question", str, where), str(row.get("starter_code") or "")
    golds = _golds(row, where)
    entry = found.get("fn_name")
    if entry is None:
        return TestRow(
            "stdin", question, [], [[_joined(x), _joined(y)] for x, y in zip(inputs, outputs, strict=True)], golds
        )
    if not isinstance(entry, str) or not entry.isidentifier():
        raise TaskSetError(f"{where}: fn_name of field 'input_output' is {entry!r}, a function's name expected")
    if bad := next((i for i, x in enumerate(inputs, 1) if not isinstance(x, list)), None):
        raise TaskSetError(f"{where}: input {bad} of function {entry} is no list of its arguments; correct the row")
    tests = [[x, y] for x, y in zip(inputs, outputs, strict=True)]
    return TestRow("call", question, [], tests, golds, entry, starter, either=True)


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


def _livecodebench(row: Row, where: str) -> TestRow:
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
        return TestRow("stdin", question, visible, hidden, golds)
    entry = _entry(row, starter, where)
    visible, hidden = ([_call(c, where) for c in cases] for cases in (public, private))
    return TestRow("call", question, visible, hidden, golds, entry, starter)


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
        raise TaskSetError(f"{where}: field {name!r} is not JSON ({cause(e)}); remove or correct the row") from None


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
            f"{where}: field 'private_test_cases' cannot be read ({type(e).__name__}: {cause(e)}); "
            "it must be JSON, or JSON text pickled, packed by zlib, in base64: nothing else is unpickled"
        ) from None
    except (AttributeError, IndexError, KeyError, OverflowError, MemoryError, RecursionError) as e:
        raise TaskSetError(
            f"{where}: field 'private_test_cases' is a damaged pickle ({type(e).__name__}); remove the row"
        ) from None


READERS: dict[str, Callable[[Row, str], TestRow]] = {"stdin": _stdin, "taco": _taco, "livecodebench": _livecodebench}
