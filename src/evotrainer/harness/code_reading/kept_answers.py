"""Answers that are not computed: an output handed out again for an input that is not looked at, and memory that
nothing wrote, which may hold what another program left there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evotrainer.harness.code_reading.names import dotted
from evotrainer.harness.code_reading.trees import walk

KEPT = "hands out a kept answer"
UNWRITTEN = "returns memory that nothing wrote"
ANSWERS = frozenset({"forward", "__call__", "custom_kernel", "kernel_function", "solve", "solution", "run"})
"""Functions that are to compute something from their arguments each time."""
_EMPTY = frozenset({f"{m}.{f}" for m in ("torch", "numpy", "np", "cupy", "cp") for f in ("empty", "empty_like")})


def kept_answers(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """(rule, line) of each function that answers so."""
    for n in nodes:
        if isinstance(n, ast.FunctionDef) and n.name in ANSWERS:
            given = {a.arg for a in (*n.args.posonlyargs, *n.args.args, *n.args.kwonlyargs)} - {"self", "cls"}
            if n.args.vararg:
                given.add(n.args.vararg.arg)
            if given:
                yield from _kept(n, given)
                yield from _unwritten(n)


def _kept(f: ast.FunctionDef, given: set[str]) -> Iterator[tuple[str, int]]:
    """`if <the same address, or anything kept>: return <what was kept>`."""
    addresses = {
        t.id
        for s in f.body
        if isinstance(s, ast.Assign) and _address(s.value, given)
        for t in s.targets
        if isinstance(t, ast.Name)
    }
    for s in f.body:
        if not isinstance(s, ast.If) or len(s.body) != 1 or not isinstance(s.body[0], ast.Return):
            continue
        answer = s.body[0].value
        place = _place(answer)
        if not place:
            continue
        by_address = _address(s.test, given) or any(isinstance(x, ast.Name) and x.id in addresses for x in walk(s.test))
        asked = {x.id for x in walk(s.test) if isinstance(x, ast.Name)} & (given | addresses)
        # without a look at the arguments the first answer is the answer for ever, if it is one: something that is
        # computed from the arguments is kept there
        for_ever = (
            isinstance(answer, ast.Attribute) and not asked and _is_there(s.test, place) and _keeps(f, place, given)
        )
        if (by_address and _keeps(f, place, given)) or for_ever:
            yield KEPT, s.lineno


def _address(test: ast.AST, given: set[str]) -> bool:
    """Does it ask where an argument lies, and not what it holds?"""
    calls = (x.func for x in walk(test) if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute))
    return any(f.attr == "data_ptr" and isinstance(f.value, ast.Name) and f.value.id in given for f in calls)


def _place(answer: ast.expr | None) -> str:
    """Where an answer is kept: `self.out`, `cache[key]`, `cache.get(key)`; empty for anything computed."""
    if isinstance(answer, ast.Subscript):
        return dotted(answer.value)
    return dotted(answer) if isinstance(answer, ast.Attribute) else ""


def _is_there(test: ast.expr, place: str) -> bool:
    """Is it `self.out is not None` or `hasattr(self, "out")`?"""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot):
        return dotted(test.left) == place
    if isinstance(test, ast.Call) and dotted(test.func) == "hasattr" and len(test.args) == 2:
        name = test.args[1]
        named = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
        return f"{dotted(test.args[0])}.{named}" == place
    return False


def _keeps(f: ast.FunctionDef, place: str, given: set[str]) -> bool:
    """Is what is computed from the arguments as they are kept at this place?"""
    computed = set(given)
    for s in walk(f):
        if isinstance(s, ast.Assign):
            for t in s.targets:
                at = dotted(t.value) if isinstance(t, ast.Subscript) else dotted(t)
                if at == place and from_content(s.value, computed):
                    return True
                if isinstance(t, ast.Name) and from_content(s.value, computed):
                    computed.add(t.id)
    return False


_SHAPES = frozenset({"shape", "size", "device", "dtype", "ndim", "numel", "data_ptr", "stride", "is_cuda"})


def from_content(value: ast.AST, names: set[str]) -> bool:
    """Does an expression read one of the names other than for its size, type or place?"""
    sized = {id(x.value) for x in walk(value) if isinstance(x, ast.Attribute) and x.attr in _SHAPES}
    empty = isinstance(value, ast.Call) and (dotted(value.func) in _EMPTY or dotted(value.func).endswith("_like"))
    named = any(isinstance(x, ast.Name) and x.id in names and id(x) not in sized for x in walk(value))
    return named and not empty


def _unwritten(f: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """`out = torch.empty(...)` that is returned and that nothing else in the function touches."""
    last = f.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return
    if isinstance(last.value, ast.Call):
        if dotted(last.value.func) in _EMPTY:
            yield UNWRITTEN, last.lineno
        return
    if not isinstance(last.value, ast.Name):
        return
    name = last.value.id
    made = [
        s
        for s in walk(f)
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in s.targets)
    ]
    uses = sum(isinstance(x, ast.Name) and x.id == name for x in walk(f))
    if len(made) == 1 and uses == 2 and isinstance(made[0].value, ast.Call) and dotted(made[0].value.func) in _EMPTY:
        yield UNWRITTEN, last.lineno
