"""Answers of programs so plain that they can be worked out here: whole numbers, straight lines, no loops.

Nearly every content that a policy tests in a generated repository is of this kind, and a program in the sandbox costs
some 6 CPU-milliseconds, most of them for the process. Nothing of the policy's is executed: its texts are parsed, and of
the few kinds of nodes below their meaning is computed, by Python's own operators on whole numbers, within bounds on
size, depth and number of calls. Whatever else occurs (`PlainError`) is the sandbox's, and so is everything beside it.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evotrainer.envs.swe.tools import test_names
from evotrainer.envs.swe.world import Files, HiddenCall

if TYPE_CHECKING:
    from evotrainer.sandbox import CaseResult

MAX_DEPTH = 16
"""Calls within calls; deeper is recursion."""
MAX_CALLS = 1024
"""Calls in all: functions that call functions twice grow as powers of two."""
_FILE = re.compile(r"([a-z][a-z0-9_]*)\.py")
_TAKEN = ("solution", "evotrainer")
"""Modules that are in the sandbox already."""
MAX_TEXT = 4096
"""Characters of a file."""
MAX_NUMBER = 1 << 256
"""Absolute value: products of products would otherwise grow without end."""
KEEP = 512
"""Texts whose meaning is kept: attempts of a group share most of their files."""
KINDS = (type(None), bool, int)
"""Types of all values."""
GO_ON = object()
"""What a statement gives that does not return."""

_CHARACTERS = frozenset(map(chr, range(32, 127))) | {"\n"}
_CALLABLE: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class PlainError(Exception):
    """Something that only the sandbox may say the meaning of."""


Names = dict[str, Any]
"""Values of a function's own names."""


Expression = Callable[[Names, "_Module"], Any]
Statement = Callable[[Names, "_Module"], Any]
"""Gives GO_ON, or what the function returns."""


@dataclass(frozen=True, slots=True)
class PlainFunction:
    """A function of whole numbers."""

    parameters: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class PlainFile:
    """What a file's text means, wherever it stands: its imports and functions in order, or why it is no Python."""

    bindings: tuple[tuple[str, str | PlainFunction], ...] = ()
    """Name -> a function, or the module that it is imported from."""
    error: type[SyntaxError] | None = None


@lru_cache(KEEP)
def meaning(text: str) -> PlainFile:
    """PlainError where it holds more than functions of whole numbers."""
    if len(text) > MAX_TEXT or not set(text) <= _CHARACTERS:
        raise PlainError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the policy's style
            parsed = ast.parse(text)
    except SyntaxError as e:
        return PlainFile(error=type(e))
    except (MemoryError, RecursionError, ValueError):
        raise PlainError from None
    bindings: list[tuple[str, str | PlainFunction]] = []
    for node in parsed.body:
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                if any(a.asname or a.name == "*" or a.name.startswith("_") for a in names):
                    raise PlainError
                bindings += [(a.name, module) for a in names]
            case ast.FunctionDef():
                bindings.append((node.name, _Reader(node).function()))
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise PlainError
    return PlainFile(tuple(bindings))


class _Reader:
    """Turns one function definition into what computes it."""

    def __init__(self, node: ast.FunctionDef) -> None:
        a = node.args
        fancy = (a.posonlyargs, a.vararg, a.kwonlyargs, a.kw_defaults, a.kwarg, a.defaults)
        if any(fancy) or node.decorator_list or node.returns or any(x.annotation for x in a.args):
            raise PlainError
        self.node = node
        self.parameters = tuple(x.arg for x in a.args)
        self.own = {*self.parameters, *_stored(node.body)}
        names = [node.name, *self.own]
        # the interpreter gives names with underscores in front a meaning of their own; one twice is no Python
        if len(set(self.parameters)) < len(self.parameters) or any(n.startswith("_") for n in names):
            raise PlainError

    def function(self) -> PlainFunction:
        return PlainFunction(self.parameters, self.block(self.node.body))

    def block(self, nodes: Sequence[ast.stmt]) -> tuple[Statement, ...]:
        return tuple(s for n in nodes if (s := self.statement(n)) is not None)

    def statement(self, node: ast.stmt) -> Statement | None:
        """None: it does nothing."""
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return None
            case ast.Expr(value=value):
                return _drop(self.expression(value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return _store(name, self.expression(value))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if type(op) in _BINARY:
                return _store(name, _binary(_BINARY[type(op)], _read(name), self.expression(value)))
            case ast.Return(value=None):
                return lambda own, home: None
            case ast.Return(value=ast.expr() as value):
                return self.expression(value)
            case ast.If(test=test, body=body, orelse=orelse):
                return _branch(self.expression(test), self.block(body), self.block(orelse))
            case ast.Assert(test=test, msg=None):
                return _check(self.expression(test))
        raise PlainError

    def expression(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=None | bool() | int() as value) if -MAX_NUMBER < (value or 0) < MAX_NUMBER:
                return lambda own, home: value
            case ast.Name(id=name) if name in self.own:
                return _read(name)
            case ast.Name(id=name):
                return _foreign(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _binary(_BINARY[type(op)], self.expression(left), self.expression(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.expression(operand)
                return lambda own, home: -inner(own, home)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _binary(_COMPARE[type(op)], self.expression(left), self.expression(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name not in self.own:
                return _call(name, tuple(self.expression(a) for a in arguments))
        raise PlainError


def _stored(nodes: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that the kinds of statements below set."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=body, orelse=orelse):
                yield from _stored(body)
                yield from _stored(orelse)


def _read(name: str) -> Expression:
    def read(own: Names, home: _Module) -> Any:
        try:
            return own[name]
        except KeyError:
            raise UnboundLocalError from None

    return read


def _foreign(name: str) -> Expression:
    """A name that the function does not have: of a function or a builtin, which are no numbers, or of nothing."""

    def read(own: Names, home: _Module) -> Any:
        raise _unknown(name, home)

    return read


def _unknown(name: str, home: _Module) -> Exception:
    return PlainError() if name in home.functions or name.startswith("_") or hasattr(builtins, name) else NameError()


def _binary(apply: Callable[[Any, Any], Any], left: Expression, right: Expression) -> Expression:
    def compute(own: Names, home: _Module) -> Any:
        value = apply(left(own, home), right(own, home))
        if not -MAX_NUMBER < value < MAX_NUMBER:
            raise PlainError
        return value

    return compute


def _call(name: str, arguments: tuple[Expression, ...]) -> Expression:
    def compute(own: Names, home: _Module) -> Any:
        if name in home.functions:
            return home.call(name, [a(own, home) for a in arguments])
        if name not in _CALLABLE:
            raise _unknown(name, home)
        return _CALLABLE[name](*[a(own, home) for a in arguments])

    return compute


def _store(name: str, value: Expression) -> Statement:
    def run(own: Names, home: _Module) -> Any:
        own[name] = value(own, home)
        return GO_ON

    return run


def _drop(value: Expression) -> Statement:
    def run(own: Names, home: _Module) -> Any:
        value(own, home)
        return GO_ON

    return run


def _branch(test: Expression, body: tuple[Statement, ...], orelse: tuple[Statement, ...]) -> Statement:
    def run(own: Names, home: _Module) -> Any:
        for statement in body if test(own, home) else orelse:
            if (value := statement(own, home)) is not GO_ON:
                return value
        return GO_ON

    return run


def _check(test: Expression) -> Statement:
    def run(own: Names, home: _Module) -> Any:
        if not test(own, home):
            raise AssertionError
        return GO_ON

    return run


def answers(files: Files, tests: Sequence[str], calls: Sequence[HiddenCall]) -> tuple[CaseResult, ...] | None:
    """What the sandbox answers to `runner.program(files, tests, calls)`; None where only it can tell."""
    from evotrainer.sandbox import CaseResult

    try:
        world = _World({_module(path): text for path, text in files.items()})
        jobs = [[(_module(t), name, ()) for name in test_names(files[t])] for t in tests]
        jobs.append([(c.module, c.function, c.args) for c in calls])
        return tuple(CaseResult("ok", value=[world.answer(*job) for job in case]) for case in jobs)
    except (PlainError, RecursionError):  # the second one of ours: a formula nested hundreds deep
        return None


def _module(path: str) -> str:
    """Name of the module; PlainError for a file that is none, or that stands in front of a library's."""
    found = _FILE.fullmatch(path)
    if found is None or found[1] in sys.stdlib_module_names or found[1] in _TAKEN:
        raise PlainError
    return found[1]


@dataclass(slots=True)
class _Module:
    """A file's text among the files of one tree."""

    world: _World
    functions: dict[str, tuple[PlainFunction, _Module]] = field(default_factory=dict)
    """Name -> the function, and the module whose names it reads."""
    imported: bool = False

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """A function that the module has."""
        function, home = self.functions[name]
        if len(arguments) != len(function.parameters):
            raise TypeError
        with self.world:
            own = dict(zip(function.parameters, arguments, strict=True))
            for statement in function.body:
                if (value := statement(own, home)) is not GO_ON:
                    return value
        return None


class _World:
    """The files of one tree, imported when first asked for; counts calls and how deep they are."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.modules: dict[str, _Module] = {}
        self.calls = self.depth = 0

    def __enter__(self) -> None:
        self.calls += 1
        self.depth += 1
        if self.calls > MAX_CALLS or self.depth > MAX_DEPTH:
            raise PlainError

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def answer(self, module: str, function: str, arguments: Sequence[Any]) -> Any:
        """`[value]`, or the name of the exception's class."""
        if any(type(a) not in KINDS for a in arguments) or function.startswith("_"):
            raise PlainError
        try:
            home = self.module(module)
            return [home.call(function, arguments)] if function in home.functions else "AttributeError"
        except (ArithmeticError, AssertionError, NameError, SyntaxError, TypeError) as e:
            return type(e).__name__

    def module(self, name: str) -> _Module:
        """The module of that name; raises what its import raises."""
        if name not in self.texts:
            raise PlainError
        if name in self.modules:
            # one that is not whole yet: modules that import each other
            if not self.modules[name].imported:
                raise PlainError
            return self.modules[name]
        text = meaning(self.texts[name])
        if text.error is not None:
            raise text.error
        self.modules[name] = made = _Module(self)
        for bound, what in text.bindings:
            if isinstance(what, PlainFunction):
                made.functions[bound] = what, made
                continue
            try:
                other = self.module(what)
            except SyntaxError:
                del self.modules[name]  # as Python does: the next import tries again
                raise
            if bound not in other.functions:
                raise PlainError
            made.functions[bound] = other.functions[bound]
        made.imported = True
        return made
