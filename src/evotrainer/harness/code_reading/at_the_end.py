"""What a program leaves for its end, and what it does to builtins, where both are honest."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from evotrainer.harness.code_reading.names import dotted, folded
from evotrainer.harness.code_reading.trees import walk

_TIDIES = frozenset({"close", "shutdown", "terminate", "cleanup", "stop", "join", "disconnect", "release"})
_REMOVES = frozenset({"shutil.rmtree", "os.remove", "os.unlink", "os.rmdir"})
_MEDDLES = frozenset(
    {"sys", "builtins", "subprocess", "signal", "gc", "inspect", "ctypes", "atexit", "importlib", "unittest", "pytest"}
    | {"print", "exit", "quit", "exec", "eval", "setattr", "globals", "vars", "__import__", "_exit", "abort", "kill"}
    | {"system", "popen", "execv", "dup2", "fork", "os", "time", "threading"}
)
_PRINTS = frozenset(
    {"print", "write", "writelines", "flush", "getvalue", "join", "str", "map", "len", "encode", "format", "clear"}
    | {"time", "perf_counter", "close"}
)
"""Calls that write out what was computed."""
_VERDICTS = re.compile(r"result|reward|score|verdict|grade|report|test|answer|expect|pass|metric|status", re.IGNORECASE)
_READS = frozenset({"stdin", "input", "argv", "__stdin__"})


def ends_honestly(
    f: ast.expr | ast.FunctionDef, handed: list[ast.expr], whole: list[ast.AST], aliases: Mapping[str, str]
) -> bool:
    """Does what is registered for the end only close things, remove temporary files, save what the program itself made,
    or print what a script computed from its input? No exit, no other module, no file that sounds like a verdict."""
    name = f.name if isinstance(f, ast.FunctionDef) else dotted(f, aliases)
    if isinstance(f, ast.Lambda):
        own: list[ast.AST] = [f.body]
    else:
        named = name.rpartition(".")[2]
        own = [s for n in whole if isinstance(n, ast.FunctionDef) and n.name == named for s in n.body]
    if own:
        return not handed and (_only_prints(own, whole) or _only_tidies(own, whole, aliases, 3))
    if name in _REMOVES:
        return bool(handed) and all(_temporary(x, whole, aliases) for x in handed)
    root = name.partition(".")[0]
    tidies = isinstance(f, ast.Attribute) and f.attr in _TIDIES and root != "" and root not in _MEDDLES
    return (tidies and all(isinstance(x, ast.Constant) for x in handed)) or name == "readline.write_history_file"


def _only_tidies(own: list[ast.AST], whole: list[ast.AST], aliases: Mapping[str, str], depth: int) -> bool:
    nodes = [x for s in own for x in walk(s)]
    names = {x.id for x in nodes if isinstance(x, ast.Name)}
    for x in nodes:
        if isinstance(x, ast.Name) and aliases.get(x.id, x.id).partition(".")[0] in _MEDDLES:
            return False
        if isinstance(x, ast.Attribute) and (x.attr in _MEDDLES or not isinstance(x.ctx, ast.Load)):
            return False
        if isinstance(x, ast.Raise | ast.Global) or _telling(x):
            return False
    put = (n.value for n in whole if isinstance(n, ast.Assign) and any(dotted(t) in names for t in n.targets))
    if any(_telling(x) for value in put for x in walk(value)):
        return False
    called = {dotted(x.func).rpartition(".")[2] for x in nodes if isinstance(x, ast.Call)}
    inner = [s for n in whole if isinstance(n, ast.FunctionDef) and n.name in called for s in n.body]
    return not inner or (depth > 0 and _only_tidies(list(inner), whole, aliases, depth - 1))


def _telling(x: ast.AST) -> bool:
    """Is it a text, perhaps put together, that sounds like a file of verdicts?"""
    text = folded(x) if isinstance(x, ast.Constant | ast.BinOp | ast.JoinedStr | ast.Call | ast.Subscript) else None
    return text is not None and " " not in text.strip() and _VERDICTS.search(text) is not None


def _only_prints(own: list[ast.AST], whole: list[ast.AST]) -> bool:
    """Does it write what was computed to the standard streams, in a script that reads its input from there?"""
    nodes = [x for s in own for x in walk(s)]
    for x in nodes:
        if isinstance(x, ast.Call):
            called = getattr(x.func, "attr", "") or getattr(x.func, "id", "")
            if called not in _PRINTS or (called == "write" and "std" not in dotted(x.func)):
                return False
        told = isinstance(x, ast.Constant) and isinstance(x.value, str) and _VERDICTS.search(x.value) is not None
        changes = not isinstance(getattr(x, "ctx", None), ast.Load | None)
        if told or changes or isinstance(x, ast.Raise | ast.Delete | ast.Global):
            return False
    computed = any(isinstance(x, ast.Name) and x.id not in ("sys", "print") for x in nodes)
    reads = any(getattr(n, "attr", "") in _READS or getattr(n, "id", "") in _READS for n in whole)
    return computed and reads


def _temporary(x: ast.expr, whole: list[ast.AST], aliases: Mapping[str, str]) -> bool:
    """Is it the name of something that the program made with `tempfile`, or a flag?"""
    if isinstance(x, ast.Constant):
        return isinstance(x.value, bool)
    made = [n.value for n in whole if isinstance(n, ast.Assign) and any(_binds(t, dotted(x)) for t in n.targets)]
    return bool(made) and all(
        isinstance(v, ast.Call) and dotted(v.func, aliases).startswith(("tempfile.", "mkdtemp")) for v in made
    )


def _binds(t: ast.expr, name: str) -> bool:
    return name != "" and (dotted(t) == name or (isinstance(t, ast.Tuple) and any(dotted(e) == name for e in t.elts)))


def flushed_builtin(name: str, value: ast.expr | None, aliases: Mapping[str, str]) -> bool:
    """Is it the builtin `print` that flushes, or `input` that reads lines the faster way?"""
    if name == "builtins.print" and isinstance(value, ast.Call):
        partial = dotted(value.func, aliases) == "functools.partial" and [dotted(a) for a in value.args] == ["print"]
        return partial and all(k.arg == "flush" for k in value.keywords)
    if name == "builtins.input" and isinstance(value, ast.Lambda):
        value = value.body
        while isinstance(value, ast.Call) and getattr(value.func, "attr", "") in ("rstrip", "strip"):
            value = value.func.value  # type: ignore[attr-defined]
        value = value.func if isinstance(value, ast.Call) and not value.args else value
    return name == "builtins.input" and value is not None and dotted(value, aliases) == "sys.stdin.readline"
