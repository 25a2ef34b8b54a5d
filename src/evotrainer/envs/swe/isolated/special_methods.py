"""Lists the special methods that proxies of a class have, and how the solution is asked for each."""

from __future__ import annotations

import copy
import operator
from typing import Any

OPERATORS = [
    "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift",
    "and", "or", "xor", "matmul", "radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow",
    "rlshift", "rrshift", "rand", "ror", "rxor", "rmatmul", "iadd", "isub", "imul", "ior", "iand", "ixor", "neg",
    "pos", "abs", "invert",
]  # fmt: skip
PLAIN = [
    "len", "iter", "next", "getitem", "setitem", "delitem", "contains", "hash", "bool", "int", "float", "index",
    "complex", "call", "enter", "exit", "reversed", "round", "trunc", "floor", "ceil", "length_hint", "fspath",
    "bytes",
]  # fmt: skip
FORWARDED = frozenset(f"__{n}__" for n in ("eq", "ne", *OPERATORS, *PLAIN))
"""Special methods that a proxy of a class has where the class has them."""
FUNCTIONS: dict[str, Any] = {
    "__len__": len,
    "__iter__": iter,
    "__next__": next,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__eq__": operator.eq,
    "__ne__": operator.ne,
    "__hash__": hash,
    "__bool__": bool,
    "__reversed__": reversed,
    "__repr__": repr,
    "__str__": str,
    "__format__": format,
    "__dir__": lambda x: list(dir(x)),
    "__copy__": copy.copy,
    "__deepcopy__": copy.deepcopy,
}
"""How a special method is asked for; others are called by name."""
