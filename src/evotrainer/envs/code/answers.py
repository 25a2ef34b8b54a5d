"""A policy's answer: extracting the program, assembling what runs, comparing outputs."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from evotrainer.envs.base import Task
from evotrainer.envs.code.rewards import parse_program
from evotrainer.records.text import shown
from evotrainer.sandbox import same

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def extract_program(completion: str) -> str:
    """The program in a completion: its last fenced block where there is one, else all of it."""
    blocks = _FENCE.findall(completion) if "```" in completion else []
    return (blocks[-1] if blocks else completion).strip("\n")


def assemble(task: Task, program: str) -> str:
    """What runs: for a function to be completed (HumanEval, MBPP), the prompt's header stands before the body."""
    if task.data["form"] == "call":
        return adapted(program, str(task.data["entry_point"]), str(task.data["preamble"]))
    header = str(task.data.get("header") or "")
    if not header:
        return program
    entry = re.escape(str(task.data["entry_point"]))
    if re.search(rf"^(?:async )?def {entry}\b", program, re.MULTILINE) and parse_program(program) is not None:
        return f"{task.data['preamble']}\n{program}"
    return assemble_header(header, program)


def assemble_header(header: str, body: str) -> str:
    """Header and body; where their indentations disagree, the header's docstring takes the body's."""
    whole = header + body
    first = next((line for line in body.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    indent = first[: len(first) - len(first.lstrip())]
    if not indent or parse_program(whole) is not None:
        return whole
    start = header.rfind("\ndef ") + 1
    signature, newline, doc = header[start:].partition("\n")
    moved = "\n".join(indent + line.lstrip() if line.strip() else line for line in doc.split("\n"))
    return f"{header[:start]}{signature}{newline}{moved}{body}"


def same_output(got: Any, expected: Any, form: str, either: bool = False) -> bool:
    """Printed text equal line by line, trailing blanks and blank end lines aside; values equal with exact types.

    Values of a call are compared as JSON values (`same_value`, `either` as there).
    """
    if form == "call":
        return same_value(got, expected, either)
    if form == "stdin":
        return isinstance(got, str) and _lines(got) == _lines(str(expected))
    return same(got, expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


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
    """A returned key in JSON's spelling."""
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
    if isinstance(expected, bool | str | None):
        return type(got) is type(expected) and got == expected
    return type(got) in (int, float) and got == expected
