"""Programs that end the process, or the tests, before these decide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from evotrainer.harness.code_reading.rule import Bypass, ParsedProgram, walk

EARLY = "exit before any answer"
HARD = "exit past the interpreter"
HARD_IF = "exit past the interpreter on a condition"
SKIPS = "skips or ends the tests"
EXIT = frozenset({"exit", "quit", "sys.exit", "builtins.exit", "builtins.quit"})
HARD_EXIT = frozenset({"os._exit", "os.abort"})
_ENDING = frozenset({"KeyboardInterrupt", "GeneratorExit", "BaseException"})
"""Raised by what ends a run of tests: `except Exception` lets them through."""
_SAYS = frozenset({"print", "write", "writelines", "flush", "send", "dump", "run", "main", "wait", "quit", "destroy"})
_WRITES = frozenset({"print", "write"})
_BUILTINS = frozenset(
    {"int", "float", "str", "list", "map", "input", "open", "len", "range", "sorted", "set", "dict", "tuple", "min"}
    | {"max", "sum", "iter", "next", "zip", "enumerate", "abs", "any", "all", "getattr", "type", "eval", "exec"}
)
_SKIPPING = re.compile(
    r"(?:^|\.)(?:SkipTest|Skipped|skipTest|importorskip)$|^_?pytest\.(?:\w+\.)?(?:skip|exit|xfail)$"
    r"|^unittest\.(?:\w+\.)?skip\w*$"
)
_MAGIC = re.compile(r"__(?!exit|init|call|enter|main|post_init|new|del|a)\w+__")
_ASKED = ("skip", "pytest", "unittest")
_NOTHING, _CONSTANT, _COMPUTED = 0, 1, 2


def early_exits(t: ParsedProgram) -> Iterator[Bypass]:
    """Of the module before anything that was computed is said, or though all its functions are empty; of functions
    before they say or return anything."""
    zero = frozenset(k for k, v in t.known.items() if isinstance(v, ast.Constant) and v.value in (None, 0))
    hollow = bool(t.functions) and all(map(empty, t.functions))
    line, output = _exit_of(t.body, t, zero, module=True, hollow=hollow)
    if line:
        yield Bypass(EARLY, line, output == _NOTHING or hollow)
    named = {getattr(n, "id", "") or getattr(n, "attr", "") for n in t.of(ast.Name, ast.Attribute)}
    called = {name.rpartition(".")[2] for name, _ in t.calls}
    others = [f for f in t.functions if not empty(f)]
    for f in t.functions:
        line, output = _exit_of(f.body, t, zero, module=False, hollow=False)
        # a function that is handed on and never called by its name handles something
        if not line or output == _COMPUTED or (f.name in named and f.name not in called):
            continue
        given = {p.arg for p in (*f.args.posonlyargs, *f.args.args)} - {"self", "cls"}
        asked = bool(given) or line < max(getattr(s, "lineno", 0) for s in f.body)
        # one that takes nothing and does nothing else is there to end the program, where others do the work
        if asked or len(others) == 1:
            yield Bypass(EARLY, line, output == _NOTHING)


def empty(f: ast.FunctionDef) -> bool:
    """Does a function do nothing, or return a constant? `...` stands for what is left out."""
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        or (isinstance(s, ast.Return) and (s.value is None or isinstance(s.value, ast.Constant)))
        for s in f.body
    )


def _always(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run whatever the input is, in order."""
    for n in body:
        always = isinstance(n, ast.If | ast.While) and _true(n.test)
        once = isinstance(n, ast.For) and isinstance(n.iter, ast.List | ast.Tuple) and bool(n.iter.elts)
        if isinstance(n, ast.Try | ast.With | ast.ClassDef) or always or once:
            yield from _always(n.body)  # type: ignore[attr-defined]
        yield n


def _true(test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return isinstance(test.operand, ast.Constant) and not test.operand.value
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        return all(
            isinstance(s, ast.Constant) and ast.dump(s) == ast.dump(test.left) for s in (test.left, *test.comparators)
        )
    return isinstance(test, ast.Constant) and bool(test.value)


def _exit_of(
    body: list[ast.stmt], t: ParsedProgram, zero: frozenset[str], module: bool, hollow: bool
) -> tuple[int, int]:
    """(line of an exit that these statements always reach, 0 without one; what they say before)."""
    output = _NOTHING
    for n in _always(body):
        if _exits(n, t, zero):
            return n.lineno, output
        if isinstance(n, ast.Return | ast.Raise):
            return 0, output
        output = max(output, _may_output(n, module))
        if output == _COMPUTED and not hollow:
            return 0, output
    return 0, output


def _exits(n: ast.stmt, t: ParsedProgram, zero: frozenset[str]) -> bool:
    """Does a statement end the process as if all were well?"""
    if isinstance(n, ast.Raise) and n.exc is not None:
        name = _raised(t, n)
        return name in _ENDING or (name == "SystemExit" and _success(getattr(n.exc, "args", []), zero))
    values: list[ast.expr | None] = [n.value] if isinstance(n, ast.Expr | ast.Assign) else []
    if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef):
        values = [*n.args.defaults, *n.args.kw_defaults]  # computed where the function is defined
    return any(isinstance(v, ast.Call) and t.name(v.func) in EXIT and _success(v.args, zero) for v in values)


def _success(arguments: list[ast.expr], zero: frozenset[str]) -> bool:
    """Do an exit's arguments say that all is well? `zero`: names that are 0."""
    first = arguments[0] if arguments else ast.Constant(0)
    return (
        getattr(first, "value", 1) in (None, 0) if isinstance(first, ast.Constant) else getattr(first, "id", "") in zero
    )


def _may_output(n: ast.stmt, module: bool) -> int:
    """Might the statement answer, or call what does? Definitions and imports do not."""
    if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return _NOTHING
    output = _NOTHING
    for c in walk(n):
        if isinstance(c, ast.Return | ast.Yield | ast.YieldFrom):
            return _COMPUTED
        if isinstance(c, ast.Call):
            name = c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "")
            if name in _SAYS:
                constant = name in _WRITES and all(isinstance(a, ast.Constant) for a in c.args)
                output = max(output, _CONSTANT if constant else _COMPUTED)
            elif module and isinstance(c.func, ast.Name) and name not in _BUILTINS:
                return _COMPUTED
    return output


def hard_exits(t: ParsedProgram) -> Iterator[Bypass]:
    """What skips the harness's own `finally` and atexit code: the test behind it never reports a failure."""
    asked, last = _conditional(t.nodes), _after_output(t)
    for n in t.of(ast.Call, ast.Attribute):
        name = t.name(n.func) if isinstance(n, ast.Call) else t.name(n)
        named = name in HARD_EXIT or name.rpartition(".")[2] == "_exit" or getattr(n, "attr", "") == "_exit"
        if named and id(n) not in last:
            yield Bypass(HARD_IF if id(n) in asked else HARD, n.lineno, id(n) not in asked, ("_exit", "fork"))  # type: ignore[attr-defined]


def _conditional(nodes: list[ast.AST]) -> set[int]:
    """ids of nodes that run only where something that the program finds out holds."""
    found: set[int] = set()
    for n in nodes:
        names = isinstance(n, ast.If) and any(
            isinstance(x, ast.Name) and x.id not in ("__name__", "__file__") for x in walk(n.test)
        )
        if names or isinstance(n, ast.ExceptHandler):
            found |= {id(x) for s in n.body for x in walk(s)}  # type: ignore[attr-defined]
    return found


def _after_output(t: ParsedProgram) -> set[int]:
    """ids of the nodes of exits that end a block behind what it computed and wrote, in a program that reads stdin:
    nothing is left to be graded then."""
    found: set[int] = set()
    reads = any(getattr(n, "id", getattr(n, "attr", "")) in ("input", "stdin") for n in t.of(ast.Name, ast.Attribute))
    for n in t.nodes if reads else ():
        body = getattr(n, "body", None)
        ends = isinstance(body, list) and len(body) > 1 and isinstance(body[-1], ast.Expr)
        output = max(_may_output(s, False) for s in body[:-1]) if ends else _NOTHING  # type: ignore[index]
        if output == _COMPUTED and "flush" in ast.dump(ast.Module(body, [])):  # type: ignore[arg-type]
            found |= {id(x) for x in walk(body[-1])}  # type: ignore[index]
    return found


def ended_tests(t: ParsedProgram) -> Iterator[Bypass]:
    """An exception that skips or ends the tests: where the program holds none, nobody else's can be meant."""
    for name, c in t.calls:
        if _SKIPPING.search(name):
            yield Bypass(SKIPS, c.lineno, not t.tests, _ASKED)
    handled = {id(x) for h in t.of(ast.ExceptHandler) for x in walk(h)}
    for n in t.of(ast.Raise):
        name = _raised(t, n)
        if _SKIPPING.search(name) and not isinstance(n.exc, ast.Call):  # type: ignore[attr-defined]
            yield Bypass(SKIPS, n.lineno, not t.tests, _ASKED)  # type: ignore[attr-defined]
        elif name in _ENDING and id(n) not in handled:
            yield Bypass(SKIPS, n.lineno, False, _ASKED)  # type: ignore[attr-defined]
    # Python itself calls these while a test compares, prints or counts
    magic = (f for f in t.functions if _MAGIC.fullmatch(f.name))
    for x in (x for f in magic for x in walk(f) if isinstance(x, ast.Call | ast.Raise)):
        if (
            (t.name(x.func) in EXIT | HARD_EXIT)
            if isinstance(x, ast.Call)
            else _raised(t, x) in _ENDING | {"SystemExit"}
        ):
            yield Bypass(SKIPS, x.lineno)


def _raised(t: ParsedProgram, n: ast.AST) -> str:
    exc = getattr(n, "exc", None)
    return t.name(exc.func if isinstance(exc, ast.Call) else exc)
