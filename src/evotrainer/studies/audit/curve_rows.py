"""The rows of a training log in whatever form a trainer leaves it: tables, JSON, a trainer's state, what it printed."""

from __future__ import annotations

import ast
import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evotrainer.importers.lenient_json import content, parse
from evotrainer.importers.lines import values
from evotrainer.studies.audit.curve_names import STEP

MAX_BYTES = 64 << 20
DICT = re.compile(r"\{\s*+(?=['\"])(?:[^{}]++|\{[^{}]*+\}){1,2000}+\}")
"""A dict, with dicts in it. Possessive: what has no end is given up at once."""
WRAPPERS = ("data", "metrics", "log", "logs", "values")
"""Keys whose object is the row itself."""


def log_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(line or index, row) of a log; a row maps columns to what was written there, anything else is none. Raises
    ValueError for a file that is too large, OSError."""
    suffix = path.suffix.lower()
    text = content(path, MAX_BYTES, "give fewer steps").decode("utf-8-sig", errors="replace")
    head = text.strip().partition("\n")[0].lower()
    delimiter = max(",\t;|", key=head.count)
    # a table of a notebook or an issue, too: "Step | Training Loss | reward"
    if suffix in (".csv", ".tsv") or (head.count(delimiter) > 1 and "step" in head and not {*"{:="} & {*head}):
        # TensorBoard exports "Wall time,Step,Value", and names the value in the file's name alone
        tag = path.stem.rpartition("tag-")[2].replace("_", "/", 1) if "tag-" in path.stem else "Value"
        for n, row in enumerate(csv.DictReader(io.StringIO(text.lstrip()), delimiter=delimiter), 2):
            if {*"".join(map(str, row.values()))} - {*"-: "}:  # no line between head and body
                yield n, {tag if k == "Value" else k.strip(): v for k, v in row.items() if k}
    elif text.lstrip()[:1] in ("{", "[") and (listed := _document(text)):
        yield from enumerate(listed, 1)
    elif suffix in (".json", ".jsonl", ".ndjson", ".gz"):
        yield from ((n, flat(v)) for n, v in values(path, constants=True))
    else:
        yield from enumerate(printed(text), 1)


def _document(text: str) -> list[Any]:
    """The rows of a text that is one JSON value: of its longest list (a trainer's state has them in `log_history`), or
    of its columns; none where it is no single value (JSON lines), or lists nothing."""
    try:
        value = parse(text, constants=True)
    except ValueError:
        return []
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if isinstance(v, list)}
        rows = max((v for v in lists.values() if v and isinstance(v[0], dict)), key=len, default=None)
        if rows is None and len({len(v) for v in lists.values()}) == 1:
            rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        value = rows
    return [flat(v) for v in value or ()] if isinstance(value, list) else []


def flat(row: Any, prefix: str = "") -> Any:
    """An object's values under joined names (`a/b`); what wraps a row adds no name."""
    if not isinstance(row, Mapping):
        return row
    out: dict[str, Any] = {}
    for k, v in row.items():
        inner = prefix if not prefix and k in WRAPPERS else f"{prefix}{k}/"
        out |= flat(v, inner) if isinstance(v, Mapping) else {f"{prefix}{k}": v}
    return out


def printed(text: str) -> list[dict[str, Any]]:
    """Rows in what a trainer printed, in order: dicts as Python prints them (TRL), and where no dict is a row,
    `step:1 - name:0.5 - ...` (verl), `step=1 name=0.5`, `Step 1 | Name: 0.5`; everything else is passed over."""
    # a progress bar ends in a carriage return, and may be on the line of what follows it
    text = text.replace("\r", "\n")
    dicts = [_dict(m.group()) for m in DICT.finditer(text)]
    logged = [r for r in dicts if any("reward" in k or "loss" in k for k in r)]
    return logged or [r for r in map(_pairs, text.splitlines()) if r]


def _dict(text: str) -> dict[str, Any]:
    """The row that a dict is; empty where it is none."""
    try:
        row = _literal(ast.parse(text.replace("\n", " "), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return flat(row) if isinstance(row, dict) else {}


def _literal(node: ast.AST) -> Any:
    """What a literal means; numbers inside a call, too (`tensor(0.5)`, `np.float64(0.5)`), and names (`nan`, `inf`)."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return node.id if as_number(node.id) is not None else None
        case ast.UnaryOp(op=ast.USub()) if (inner := as_number(_literal(node.operand))) is not None:
            return -inner
        case ast.Call(args=[first, *_]):
            return _literal(first)
        case ast.Dict():
            items = zip(node.keys, node.values, strict=True)
            return {str(k.value): _literal(v) for k, v in items if isinstance(k, ast.Constant)}
    return None


def _pairs(line: str) -> dict[str, Any]:
    """`name:value` or `name=value`, between " - ", " | ", commas or blanks; empty for a line that tells no step."""
    if "step" not in line.lower():
        return {}
    out: dict[str, Any] = {}
    for part in line.split(next((s for s in (" - ", " | ", ", ") if line.count(s) > 1), None)):
        sep = next((s for s in (":", "=") if s in part), " ")
        name, _, value = (x.strip() for x in part.strip().rpartition(sep))
        # before the first pair there may be a time, a level, a process
        name = name if out else name.rpartition(" ")[2]
        value = value.rpartition("(")[2].rstrip(")%s,")
        if 0 < len(name.split()) <= 3 and as_number(value) is not None:
            out[name] = value
    return out if len(out) > 1 and any(k.lower() in STEP for k in out) else {}


def as_number(value: Any) -> float | None:
    """A number as it was written, also in text ("NaN", "1/100" of a step among all); None for what is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value.strip().removesuffix("%").split("/")[0] if isinstance(value, str) else value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf
