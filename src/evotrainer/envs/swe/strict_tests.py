"""Test texts whose equality asserts cannot be satisfied by an object that claims to equal everything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Set

_HELPER = '''
def _strict_equality_(known):
    import secrets, warnings

    mro, own = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # a metaclass can give others
    flags, token = type.__dict__["__flags__"].__get__, secrets.token_hex(8)
    plain = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None))
    sets = (set, frozenset, type({}.keys()), type({}.items()))
    trusted, made, kept, anything = {object, bytearray, memoryview, range, *plain}, {}, [], "anything"

    def library():
        """Classes of the library whose equality is by value, read when first needed."""
        import collections, decimal, fractions
        from unittest.mock import _Call

        trusted.update((collections.OrderedDict, collections.Counter, decimal.Decimal, fractions.Fraction, _Call))

    def owner(x):
        return next(c for c in mro(type(x)) if "__eq__" in own(c))

    def numpy(x, c):
        """A class of numpy, written in C: no Python code makes one."""
        return not flags(c) & 512 and c.__module__ == "numpy" and not getattr(getattr(x, "dtype", None), "hasobject", 0)

    def fine(x):
        """Is its equality a plain value's, the library's, or that of a class of the repository?"""
        c = owner(x)
        if c in trusted or c.__name__ in known or numpy(x, c):
            return True
        library()
        return c in trusted

    def probed(x, y):
        """Does x, which equals y, differ from something else?"""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return not any(same(x, other) for other in [object(), *others(y)])

    def others(y):
        kind = type(y)
        if kind in (int, float, complex, bool):
            return [y + 1e15 + int(token[:6], 16)]
        if kind in (str, bytes):
            return [y + (token if kind is str else token.encode())]
        if kind in (list, tuple):
            return [y + kind([token])]
        if kind is dict:
            return [{**y, token: token}]
        return [y | {token}] if kind in (set, frozenset) else [token]

    def leaves(xs):
        for x in xs:
            if type(x) in (tuple, frozenset):
                yield from leaves(x)
            else:
                yield x

    def kinds(xs):
        return {type(x) for x in leaves(xs) if not fine(x)}

    def elements(x):
        """The elements of a sequence or of a dict, by its builtin class, or None."""
        for c in (list, tuple):
            if c in mro(type(x)):
                return list(c.__iter__(x))
        return dict(dict.items(x)) if dict in mro(type(x)) else None

    def clean(x):
        """Nothing in it has an equality that is not fine."""
        xs = elements(x)
        if xs is None:
            return id(x) in made or fine(x)
        return all(map(clean, xs.values() if type(xs) is dict else xs))

    def honest(a, b, seen):
        if id(a) in made or id(b) in made:
            other = b if id(a) in made else a
            return anything in (made.get(id(a)), made.get(id(b))) or clean(other)
        if type(a) in plain and type(b) in plain and type(a) not in (list, tuple, dict, set, frozenset):
            return True
        if (id(a), id(b)) in seen:
            return True
        seen[id(a), id(b)] = a, b
        x, y = elements(a), elements(b)
        if type(x) is type(y) is list and len(x) == len(y):
            if not all(honest(v, w, seen) for v, w in zip(x, y)):
                return False
        elif type(x) is type(y) is dict and len(x) == len(y):
            if kinds(x) != kinds(y) or not all(k not in y or honest(v, y[k], seen) for k, v in x.items()):
                return False
        elif type(a) in sets and type(b) in sets:
            return kinds(a) == kinds(b)
        if type(a) in plain and type(b) in plain:
            return True
        if type(a) is type(b):
            if owner(a) is object:
                return True
            mine, yours = getattr(a, "__dict__", None), getattr(b, "__dict__", None)
            if type(mine) is type(yours) is dict:
                for k in mine:
                    if k in yours and mine[k] is not yours[k] and same(mine[k], yours[k]):
                        if not honest(mine[k], yours[k], seen):
                            return False
            return probed(a, b) and probed(b, a)
        if (type(x) is not type(y) or len(x or ()) != len(y or ())) and not (clean(a) and clean(b)):
            return False
        return all(type(v) in plain or (fine(v) and probed(v, w)) for v, w in ((a, b), (b, a)))

    def same(a, b):
        try:
            return bool(a == b)
        except Exception:  # an array has no truth, others refuse what they do not know
            return False

    def believed(a, b):
        assert honest(a, b, {}), f"{type(a).__name__} and {type(b).__name__} are equal by an equality of no known class"
        return True

    def equal(a, b):
        found = a == b
        return believed(a, b) if found else found

    def within(a, b):
        found = a in b
        if found and type(b) in (list, tuple, set, frozenset, dict):
            return any(believed(a, x) for x in b if x is a or same(x, a))
        return found

    def of_test(x):
        """What the test itself makes to be equal to several values: approx(...), or its own ANY."""
        if type(x).__name__ == "_ANY" and type(x).__module__ == "unittest.mock":
            x = type(x)()  # an object of its own, which the code under test has not
            kept.append(x)
            made[id(x)] = anything
        else:
            kept.append(x)
            made[id(x)] = None
        return x

    return equal, within, of_test


_equal_, _within_, _of_test_ = _strict_equality_(frozenset({known}))
'''
_EQUAL = frozenset({"Equal", "Equals", "ListEqual", "TupleEqual", "DictEqual", "SetEqual", "MultiLineEqual"})


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _checked(node: ast.expr) -> ast.expr:
    """The condition of an assert with its own equality, or those that `and`, `or`, `not` join, replaced."""
    if isinstance(node, ast.BoolOp):
        node.values = [_checked(v) for v in node.values]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.operand = _checked(node.operand)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.In)):
        name = "_equal_" if isinstance(node.ops[0], ast.Eq) else "_within_"
        return ast.copy_location(_call(name, node.left, node.comparators[0]), node)
    return node


class _Asserts(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        node.test = _checked(node.test)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return _call("_of_test_", node) if node.id == "ANY" and isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return _call("_of_test_", node) if node.attr == "ANY" and isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        f = node.func
        if (isinstance(f, ast.Attribute) and f.attr == "approx") or (isinstance(f, ast.Name) and f.id == "approx"):
            return _call("_of_test_", node)
        if isinstance(f, ast.Attribute) and f.attr.removeprefix("assert") in _EQUAL and len(node.args) >= 2:
            f.attr = "assertTrue"
            node.args = [_call("_equal_", *node.args[:2]), *node.args[2:]]
        elif isinstance(f, ast.Attribute) and f.attr == "assertIn" and len(node.args) >= 2:
            f.attr = "assertTrue"
            node.args = [_call("_within_", *node.args[:2]), *node.args[2:]]
        return node


def strict(text: str, known: Set[str] = frozenset()) -> str:
    """The same tests, where `==` and `in` of an assert also ask whether the equality may be believed.

    It may between plain types, between plain values and the library's classes of values, between objects of one class,
    of classes named in `known`, and with what the test makes by `approx` or `ANY`; and only of an object that does not
    equal other values as well. A text that does not parse is returned as it is.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    _Asserts().visit(tree)
    at = 0
    while at < len(tree.body) and _first(tree.body[at]):
        at += 1
    tree.body[at:at] = ast.parse(_HELPER.replace("{known}", repr(sorted(known)))).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def with_equality(texts: Iterable[str]) -> frozenset[str]:
    """Names of the classes that bring an `__eq__` of their own in these texts."""
    found: set[str] = set()
    for text in texts:
        if "__eq__" not in text:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            found |= set(re.findall(r"^\s*class (\w+)", text, re.MULTILINE))
            continue
        found |= {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and any(map(_equality, n.body))}
    return frozenset(found)


def _equality(node: ast.stmt) -> bool:
    """Does a statement of a class body define `__eq__`?"""
    return any(
        (isinstance(n, (ast.FunctionDef, ast.Name)) and getattr(n, "name", getattr(n, "id", "")) == "__eq__")
        for n in ast.walk(node)
    )


def _first(node: ast.stmt) -> bool:
    """Must it stay at the top: docstring or `from __future__`?"""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
