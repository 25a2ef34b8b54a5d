"""Reward components written as code: one pure function of a rollout's public evidence.

A component is named `<name>@<first 12 hex digits of its source's SHA-256>`: what a recipe pays, a rollout stores and a
backtest replays under one name is one source. This module holds what needs no sandbox: names, what the source itself
says against it, and the evidence that a function is handed.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from evotrainer.records.rollout import Turn, turn_text
from evotrainer.records.text import cause, clean_text, quoted, shown
from evotrainer.records.untrusted_values import CallResults, number

ENTRY = "reward"
"""Name of the function that a source defines."""
LABELS = (
    "unparsable",
    "forbidden_import",
    "signature",
    "reads_protected",
    "probe_failed",
    "nondeterministic",
    "too_slow",
    "constant",
    "backtest_contradicted",
)
"""What ends a component before a training, in the order in which it is looked for: what costs least first."""
MODULES = frozenset({
    "ast", "bisect", "collections", "collections.abc", "difflib", "fractions", "functools", "heapq", "itertools",
    "json", "keyword", "math", "operator", "re", "statistics", "string", "textwrap", "tokenize", "unicodedata"
})  # fmt: skip
"""Modules of the standard library that give the same answer everywhere and reach nothing."""
CLOSED = frozenset({
    "open", "exec", "eval", "compile", "input", "print", "globals", "locals", "vars", "getattr", "setattr", "delattr",
    "breakpoint", "exit", "quit", "id", "hash", "memoryview", "__import__", "__builtins__"
})  # fmt: skip
"""Built-in names that reach beyond the argument, or tell of the process: `hash` of a text is another in each."""
LEADING_OUT = frozenset({
    "format", "format_map", "obj",
    *(n for t in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType,
                  types.TracebackType, types.CodeType) for n in dir(t) if "_" in n.strip("_"))
})  # fmt: skip
"""Attributes that lead from a value to what runs it, or read others whose names are data; what begins with `_`
does as well. What the process then holds is in `sandbox/inside/pure.py`."""
PROTECTED = frozenset({
    "outcome", "outcomes", "advantage", "advantages", "hidden", "hidden_frac", "heldout", "heldout_frac", "gate",
    "cert", "sealed", "gold"
})  # fmt: skip
"""Names of what no evidence holds: a source that asks for them wants what is not for sale."""
MAX_SOURCE = 20_000
"""Characters."""
MAX_TEXT = 20_000
"""Characters of one turn that a function is handed."""
MAX_TESTS = 64
PUBLIC_TESTS = ("visible", "perturbed")
"""Kinds of tests, in a rollout's detail, whose inputs and expected outputs the prompt holds or that have none."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
DIGITS = 12


Scorer = Callable[[str, Sequence[dict[str, Any]]], CallResults]
"""(source, evidence of rollouts) -> what its function answers, numbers from 0 to 1 or None.
SandboxError: the machine's fault."""


def content_name(name: str, source: str) -> str:
    """`<name>@<hash of the source>`."""
    return f"{name}@{hashlib.sha256(source.encode('utf-8', 'replace')).hexdigest()[:DIGITS]}"


def settled_name(what: str, key: str, source: str) -> str:
    """The name of a source with its hash, where `key` may leave it out; ValueError where it names another."""
    name, _, digits = key.partition("@")
    if not NAME.fullmatch(name):
        raise ValueError(f"{what} {quoted(key)}: a name is up to 48 of a-z, A-Z, 0-9, _, a letter first")
    full = content_name(name, source)
    if digits and key != full:
        raise ValueError(f"{what} {key}: its source has the hash {full.partition('@')[2]}; correct it")
    return full


def settled(rewards: Mapping[str, Any], written: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """(rewards, written) with the hash in every name of a source, also where its author left it out.

    ValueError with cause and remedy: a name that is none, another source's hash, a weight that is not positive.
    """
    weights, sources = dict(rewards), {}
    for key, source in written.items():
        full = settled_name("written component", key, source)
        name, _, digits = key.partition("@")
        if not digits and name in weights:
            weights[full] = weights.pop(name)
        weight = weights.get(full, 0.0)
        if isinstance(weight, int | float) and weight < 0:
            raise ValueError(
                f"written component {full} has weight {shown(weight, 40)}; pay what is wanted, with a positive "
                "weight: where a function fails it pays nothing, which would be a gain under a penalty"
            )
        sources[full] = source
    return weights, sources


BEYOND = "which may reach beyond the rollout"
NAMEDTUPLE = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Public names with an underscore: a namedtuple's, whose fields might bear any other."""
SELF_MATCHED = frozenset({"bool", "bytes", "dict", "float", "int", "list", "str", "tuple"})
INSTEAD = {
    "format": "write an f-string, or call it on a text that stands there and reads no attribute",
    "__match_args__": "write a pattern without positions, as in `case A() as a`",
}
"""Attribute that is read by a name in data -> what does the same without."""

REWARD: Mapping[str, tuple[str, ...]] = {ENTRY: ("rollout",)}
"""Functions that a source may define, with their arguments."""


def static_fault(
    source: str,
    protected: Collection[str] = (),
    entries: Mapping[str, tuple[str, ...]] = REWARD,
    shown: Collection[str] = (),
) -> tuple[str, str] | None:
    """(label, why) of what a source itself says against it, None where nothing does; runs nothing.

    `protected`: further names that no evidence holds, such as the environment's outcome components. `entries`:
    functions of which it defines one at least. `shown`: names of `PROTECTED` that these are shown.
    """
    if len(source) > MAX_SOURCE:
        return "unparsable", f"the source has {len(source)} characters; at most {MAX_SOURCE}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        return "unparsable", f"it is no Python: {type(e).__name__}: {cause(e)}"
    nodes = list(ast.walk(tree))
    return _imports(nodes) or _form(tree, entries) or _protected(nodes, {*(PROTECTED - {*shown}), *protected})


def defined(source: str) -> frozenset[str]:
    """Names of the functions that a source defines; empty where it cannot be parsed."""
    try:
        return frozenset(n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _imports(nodes: Sequence[ast.AST]) -> tuple[str, str] | None:
    scalars = SELF_MATCHED - {name for n in nodes for name in _bound(n)}
    for n in nodes:
        if isinstance(n, ast.Import | ast.ImportFrom):
            names = [a.name for a in n.names] if isinstance(n, ast.Import) else ["." * n.level + (n.module or "")]
            if bad := next((m for m in names if m not in MODULES), None):
                return "forbidden_import", f"line {n.lineno} imports {bad}; allowed: {', '.join(sorted(MODULES))}"
        for name in _named(n, scalars):
            if (name.startswith("_") and name not in NAMEDTUPLE) or name in LEADING_OUT:
                remedy = f"; {better}" if (better := INSTEAD.get(name)) else ""
                return "forbidden_import", f"line {getattr(n, 'lineno', 0)} uses {name}, {BEYOND}{remedy}"
        if isinstance(n, ast.Name) and n.id in CLOSED:
            return "forbidden_import", f"line {n.lineno} uses {n.id}, {BEYOND}"
    return None


def _bound(n: ast.AST) -> Sequence[str]:
    """Names that a node gives a meaning of its own."""
    if isinstance(n, ast.Name):
        return () if isinstance(n.ctx, ast.Load) else (n.id,)
    if isinstance(n, ast.Import | ast.ImportFrom):
        return [a.asname or a.name for a in n.names]
    own = getattr(n, "arg", None) if isinstance(n, ast.arg) else getattr(n, "name", None)  # also of patterns, handlers
    return (own,) if isinstance(own, str) else ()


def _named(n: ast.AST, scalars: Collection[str]) -> Sequence[str]:
    """Attributes that a node reads, whatever its syntax; `scalars`: classes whose one positional pattern is the value
    itself."""
    if isinstance(n, ast.Attribute):
        template = n.value.value if isinstance(n.value, ast.Constant) and n.attr == "format" else None
        plain = isinstance(template, str) and not re.search(r"\{[^{}:!]*\.", template)
        return () if plain else (n.attr,)
    if isinstance(n, ast.MatchClass):
        itself = isinstance(n.cls, ast.Name) and n.cls.id in scalars
        return [*n.kwd_attrs, *["__match_args__"] * (len(n.patterns) > itself)]
    return [a.name for a in n.names] if isinstance(n, ast.ImportFrom) else ()


def _form(tree: ast.Module, entries: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """The functions that it is to define, of these arguments; beside them imports, constants and helpers."""
    for n in tree.body:
        is_text = isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
        if not is_text and not isinstance(
            n, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.Assign | ast.AnnAssign
        ):
            what = type(n).__name__
            return "signature", f"line {n.lineno}: a module holds imports, constants and functions, not {what}"
    own = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in entries]
    if not own or len({n.name for n in own}) < len(own):
        one = " or ".join(f"def {k}({', '.join(v)}):" for k, v in entries.items())
        return "signature", f"it defines {len(own)} functions named {' or '.join(entries)}; write one `{one}`"
    for n in own:
        a, wanted = n.args, entries[n.name]
        plain = len(a.posonlyargs) + len(a.args) == len(wanted) and not (a.vararg or a.kwarg or a.kwonlyargs)
        if not plain or a.defaults or n.decorator_list:
            named = "one argument, the" if len(wanted) == 1 else f"{len(wanted)} arguments,"
            return "signature", f"{n.name} takes {named} {', '.join(wanted)}, without default or decorator"
    if any(isinstance(n, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom) for n in ast.walk(tree)):
        return "signature", f"{own[0].name} is a pure function: no global, nonlocal or yield"
    if kept := next(
        (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)), None
    ):
        return "signature", f"line {kept.lineno} sets {kept.attr}: {own[0].name} is a pure function and leaves nothing"
    return None


def _protected(nodes: Iterable[ast.AST], names: Collection[str]) -> tuple[str, str] | None:
    for n in nodes:
        asked = n.value if isinstance(n, ast.Constant) else n.attr if isinstance(n, ast.Attribute) else None
        if isinstance(asked, str) and asked in names:
            line = getattr(n, "lineno", 0)
            return "reads_protected", f"line {line} asks for {asked!r}, which training may not see and no rollout shows"
    return None


def about(source: str, entries: Collection[str] = (ENTRY,)) -> str:
    """What a component measures: the first line of its function's docstring; empty where it has none."""
    try:
        found = next((n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name in entries), None)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return clean_text((ast.get_docstring(found) or "").split("\n")[0][:200]) if found else ""


def source_lines(source: str, before: str = "") -> list[str]:
    """A source as lines; where there was another before it, the unified difference."""
    if not before:
        return source.rstrip("\n").split("\n")
    return list(difflib.unified_diff(before.splitlines(), source.splitlines(), "before", "now", lineterm="", n=3))


def changed_sources(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str]]:
    """Component that is new -> its source, or what differs from the earlier one of the same name."""
    before = {k.partition("@")[0]: s for k, s in old.items()}
    return {k: source_lines(s, before.get(k.partition("@")[0], "")) for k, s in new.items() if k not in old}


def is_value(value: object) -> bool:
    """Is it what a component may answer: None, or a number in [0, 1]?"""
    x = float(value) if isinstance(value, bool) else number(value)
    return value is None or (x is not None and 0 <= x <= 1)


def evidence(
    turns: Iterable[Turn], components: Mapping[str, float | None], detail: Any, protected: Collection[str]
) -> dict[str, Any]:
    """A rollout's public evidence, JSON: what was said and done, the components that may be paid, the tests that the
    prompt shows and those without an expected output. Neither task, split, seed and step, nor outcome and pay.

    `protected`: components that may not be paid. The same from an episode in training and from a stored rollout.
    """
    tests = detail.get("tests") if isinstance(detail, Mapping) else None
    kept = [t for t in tests or () if isinstance(t, Mapping) and t.get("kind") in PUBLIC_TESTS]
    return {
        "turns": [
            {
                "role": t.role,
                "text": turn_text(t)[:MAX_TEXT],
                "calls": [{"name": c.name, "arguments": c.arguments[:MAX_TEXT], "ok": c.ok} for c in t.tool_calls],
            }
            for t in turns
        ],
        "components": {
            k: None if v is None else float(v)
            for k, v in sorted(components.items())
            if k not in protected and "@" not in k
        },
        "tests": [_test(t) for t in kept[:MAX_TESTS]],
    }


def _test(t: Mapping[str, Any]) -> dict[str, Any]:
    """A test as it ran. Without an expected output there is nothing to pass: how it ended is all that is told."""
    left_out = ("passed", "expected") if t.get("kind") == "perturbed" else ()
    return {str(k): _short(v) for k, v in t.items() if k not in left_out}


def _short(value: object) -> object:
    """Numbers as they are, all else as text of at most 400 characters."""
    if isinstance(value, bool | int | float | type(None)):
        return value
    return (value if isinstance(value, str) else shown(value, 400))[:400]
