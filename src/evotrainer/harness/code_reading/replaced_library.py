"""Functions of numerical libraries that a program replaces by its own: a grader that computes its reference with them
is answered by the program.

A function that stands back at the end, that is put where nothing was (a name that newer versions lack), or that hands
its arguments on to the one it replaces, changes no reference; nor do settings, loaders and initialisers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from evotrainer.harness.code_reading.kept_answers import ANSWERS
from evotrainer.harness.code_reading.names import dotted, folded
from evotrainer.harness.code_reading.trees import walk

REPLACED = "library function replaced"
_LIBRARIES = (
    "numpy", "scipy", "torch", "sympy", "networkx", "sklearn", "pandas", "cupy", "jax", "math", "cmath", "statistics",
    "mpmath", "cvxpy", "ot", "faiss", "ortools", "hashlib", "zlib", "gzip", "lzma", "bz2", "heapq", "bisect",
    "itertools", "operator", "random", "fractions", "decimal", "cryptography", "skimage", "cv2", "tensorflow", "pysat",
    "statsmodels", "hmac", "base64", "binascii",
)  # fmt: skip
GATE = (
    r"(?m:^[ \t]*(?!self\b|cls\b)[A-Za-z_]\w*\.(?:\w+\.)*(?!next\b|left\b|right\b|val\b|prev\b|children\b|parent\b)\w+"
    r"[ \t]*=[ \t]*(?:lambda\b|[A-Za-z_][\w.]*(?:\(|[ \t]*(?:#|;|$))))|\bsetattr\(|__dict__|\bvars\("
)
"""Texts without a match replace nothing."""
LITERALS = tuple(
    f"{a} {b}" for a in ("import", "from") for b in _LIBRARIES if b not in ("hashlib", "zlib", "gzip", "base64")
)
"""Texts of which each match of GATE that matters holds one."""
_HARMLESS = re.compile(
    r"torch\.(?:load|save|compile|jit\.\w+|cuda\..*|nn\.init\..*|distributed\..*|backends\..*|utils\..*|_dynamo\..*|hub\..*)"
    r"|numpy\.(?:load|save|savez|loadtxt|genfromtxt|set_printoptions|random\.seed|warnings.*|seterr)"
    r"|pandas\.(?:read_\w+|DataFrame\.to_\w+|set_option)|heapq\.cmp_lt|random\.(?:seed|_inst.*)|.*\.warn\w*"
    # what newer versions lack, put back
    r"|numpy\.(?:asscalar|alltrue|sometrue|product|cumproduct|msort|round_|float_|complex_|unicode_|cast)"
    r"|networkx\.(?:(?:to|from)_numpy_matrix|info|(?:read|write)_gpickle)|scipy\.misc\.\w+"
    r"|scipy\.integrate\.(?:simps|trapz|cumtrapz)|torch\.(?:symeig|qr|lstsq|solve|eig)"
    # what newer versions of Python have, put into older ones
    r"|math\.(?:isqrt|comb|perm|prod|dist|lcm|gcd|cbrt|exp2|nextafter|sumprod|fma)|itertools\.(?:pairwise|batched)"
    r"|(?:.*\.)?_\w*(?<!__)"
)
_DUNDERS = frozenset(
    f"__{x}__"
    for x in (
        "sub", "rsub", "add", "radd", "mul", "rmul", "truediv", "rtruediv", "matmul", "rmatmul", "pow", "neg", "abs",
        "bool", "float", "int", "complex",
        "eq", "ne", "lt", "le", "gt", "ge", "len", "getitem", "call", "array", "array_ufunc",
        "array_function", "torch_function", "contains", "iter", "nonzero", "mod", "floordiv", "isub", "iadd",
    )
)  # fmt: skip
_CLASSES = re.compile(r"_*[A-Z]\w*|spmatrix|sparray|\w+_(?:matrix|array)|ndarray|recarray|matrix|generic|ufunc|dtype")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CASTS = frozenset({"to", "clone", "contiguous", "float", "double", "detach", "cpu", "cuda", "astype", "copy", "half"})
_LOOSENED = re.compile(r"r?tol|atol|rtol|equal_nan|eps")


def replaced_library(
    whole: list[ast.AST], of: Callable[..., list[ast.AST]], aliases: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """(rule, line) of each such replacement."""
    imports = of(ast.Import, ast.ImportFrom)
    roots = {a.name.partition(".")[0] for n in imports for a in getattr(n, "names", ())}
    roots |= {(getattr(n, "module", "") or "").partition(".")[0] for n in imports}
    if roots.isdisjoint({*_LIBRARIES, "sys", "importlib"}):
        return
    names = _modules(of, aliases)
    if not any(n.partition(".")[0] in _LIBRARIES for n in names.values()):
        return
    sets = [s for n in of(ast.Assign, ast.Call, ast.AnnAssign) for s in _sets(n, names)]
    sets = [
        (n, t, v) for n, t, v in sets if t.partition(".")[0] in _LIBRARIES and "." in t and not _HARMLESS.fullmatch(t)
    ]
    if not sets:
        return
    own = _own(whole)
    scope = _scopes(whole)
    spared = _spared(whole)
    read = {dotted(n, names) for n in of(ast.Attribute) if isinstance(getattr(n, "ctx", None), ast.Load)}
    read |= {f"{n.module}.{a.name}" for n in of(ast.ImportFrom) if isinstance(n, ast.ImportFrom) for a in n.names}
    saved = {
        (dotted(t) or ""): dotted(n.value, names)
        for n in of(ast.Assign)
        if isinstance(n, ast.Assign)
        for t in n.targets
    } | dict(names)
    for n, target, value in sets:
        named = spared.get(id(n), frozenset())
        if (
            named is None
            or target.rpartition(".")[2] in named
            or not _counts(target, read)
            or not (mine := _mine(value, own))
        ):
            continue
        back = [m for m, s, v in sets if s == target and m is not n and saved.get(dotted(v)) == target]
        if any(_same_scope(scope, m, n) and m.lineno > n.lineno for m in back):
            continue
        if not all(_hands_on(f, target, saved, names) for f in mine):
            yield REPLACED, n.lineno


def _modules(of: Callable[..., list[ast.AST]], aliases: Mapping[str, str]) -> dict[str, str]:
    """Local name -> module or what was imported from it, also under names of the program's own."""
    out = dict(aliases)
    for n in of(ast.Import):
        if isinstance(n, ast.Import):
            out |= {a.name.partition(".")[0]: a.name.partition(".")[0] for a in n.names if not a.asname}
    bound: dict[str, list[ast.expr | None]] = {}
    for n in of(ast.Name, ast.arg):
        if isinstance(n, ast.arg) or (isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)):
            bound.setdefault(n.arg if isinstance(n, ast.arg) else n.id, []).append(None)
    for n in of(ast.Assign):
        if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(t := n.targets[0], ast.Name):
            bound[t.id] = [n.value] if len(bound[t.id]) == 1 else [None]
    # a name that is bound otherwise, too, may be anything
    out = {k: v for k, v in out.items() if k not in bound}
    for name, (value, *_) in bound.items():
        if isinstance(value, ast.Subscript) and dotted(value.value, out) == "sys.modules":
            out[name] = folded(value.slice) or name
        elif value is not None and _imported(value, out) and dotted(value, out).partition(".")[0] in _LIBRARIES:
            out[name] = dotted(value, out)
    return out


def _sets(n: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[ast.stmt | ast.Call, str, ast.expr]]:
    """(where, name in full, value) of what a statement or a call sets."""
    if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None:
        for t in n.targets if isinstance(n, ast.Assign) else [n.target]:
            if isinstance(t, ast.Attribute | ast.Subscript) and _imported(t, names):
                yield n, dotted(t, names), n.value
    elif isinstance(n, ast.Call):
        called = dotted(n.func, names)
        if called == "setattr" and len(n.args) == 3 and _imported(n.args[0], names):
            owner, name = dotted(n.args[0], names), folded(n.args[1])
            if owner and (name or isinstance(n.args[2], ast.Name | ast.Lambda)):
                yield n, f"{owner}.{name or '*'}", n.args[2]
        elif called.endswith(".__dict__.update") or (called == "" and _updates(n)):
            f = n.func.value if isinstance(n.func, ast.Attribute) else n.func
            inner = f.args[0] if isinstance(f, ast.Call) else getattr(f, "value", f)
            if (owner := dotted(inner, names)) and _imported(inner, names):
                yield from ((n, f"{owner}.{k.arg}", k.value) for k in n.keywords if k.arg)
                pairs = n.args[0] if n.args and isinstance(n.args[0], ast.Dict) else ast.Dict([], [])
                for key, v in zip(pairs.keys, pairs.values, strict=True):
                    if key is not None and (name := folded(key)):
                        yield n, f"{owner}.{name}", v


def _updates(n: ast.Call) -> bool:
    f = n.func
    return (
        isinstance(f, ast.Attribute)
        and f.attr == "update"
        and isinstance(f.value, ast.Call)
        and dotted(f.value.func) == "vars"
        and len(f.value.args) == 1
    )


def _imported(x: ast.AST, names: Mapping[str, str]) -> bool:
    """Does a chain of names begin at something imported, or at an import?"""
    while isinstance(x, ast.Attribute | ast.Subscript):
        x = x.value
    if isinstance(x, ast.Call):
        called = dotted(x.func)
        return called in ("__import__", "importlib.import_module") or (
            called in ("vars", "getattr") and bool(x.args) and _imported(x.args[0], names)
        )
    return isinstance(x, ast.Name) and x.id in names


def _own(whole: list[ast.AST]) -> dict[str, list[ast.AST]]:
    """Functions that the program defines, by name."""
    out: dict[str, list[ast.AST]] = {}
    for n in whole:
        if isinstance(n, _FUNCTIONS):
            out.setdefault(n.name, []).append(n)
        elif isinstance(n, ast.ClassDef):
            out.setdefault(n.name, []).extend(f for f in n.body if getattr(f, "name", "") == "__call__")
        elif isinstance(n, ast.Assign) and isinstance(n.value, ast.Lambda):
            for t in n.targets:
                if isinstance(t, ast.Name):
                    out.setdefault(t.id, []).append(n.value)
    for n in whole:
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call):
            inner = [f for x in (*n.value.args, n.value.func) for f in _mine(x, out)]
            for t in n.targets:
                if inner and isinstance(t, ast.Name):
                    out.setdefault(t.id, inner)
    return out


def _mine(value: ast.expr, own: Mapping[str, list[ast.AST]]) -> list[ast.AST]:
    """The program's own functions that a value is made of; none for what comes from elsewhere."""
    if isinstance(value, ast.Lambda):
        return [value]
    if isinstance(value, ast.Name):
        return own.get(value.id, [])
    if isinstance(value, ast.Attribute):
        # a method of an object or a class of the program's own
        known = isinstance(value.value, ast.Name)
        return own.get(value.attr, []) if known else []
    if isinstance(value, ast.Call):
        return [f for x in (*value.args, value.func) for f in _mine(x, own)]
    if isinstance(value, ast.IfExp):
        return _mine(value.body, own) or _mine(value.orelse, own)
    return []


def _counts(target: str, read: set[str]) -> bool:
    """Is something replaced that is there? A module's functions are; of a class what has a name of the language's own,
    or what the program itself used."""
    *owners, last = target.split(".")
    if last.startswith("__"):
        return last in _DUNDERS
    return not any(_CLASSES.fullmatch(o) for o in owners) or target in read


def _scopes(whole: list[ast.AST]) -> dict[int, int]:
    """id of a node -> id of the innermost function around it; of the class, where it is one that puts something there
    for a while."""
    out: dict[int, int] = {}
    for n in whole:  # outer ones first
        if isinstance(n, _FUNCTIONS):
            out |= {id(x): id(n) for s in n.body for x in walk(s)}
    for c in whole:
        methods = {f.name for f in c.body if isinstance(f, _FUNCTIONS)} if isinstance(c, ast.ClassDef) else set()
        # what one method puts there another one takes back; a class that answers may never call it
        if isinstance(c, ast.ClassDef) and methods and not methods & ANSWERS:
            inner = {id(x): id(f) for f in c.body for x in walk(f)}
            out |= {k: id(c) for k, f in inner.items() if out.get(k, f) == f}
    return out


def _same_scope(scope: Mapping[int, int], a: ast.AST, b: ast.AST) -> bool:
    return scope.get(id(a)) == scope.get(id(b))


def _spared(whole: list[ast.AST]) -> dict[int, frozenset[str] | None]:
    """id -> names that may be set there: what is asked for and missing; None for any, by a question for a version, and
    where a test puts something that the program does not run itself."""
    out: dict[int, frozenset[str] | None] = {}
    used = {n.id for n in whole if isinstance(n, ast.Name)}

    def put(body: list[ast.stmt], names: frozenset[str] | None) -> None:
        out.update({id(x): names for s in body for x in walk(s)})

    for n in whole:
        if isinstance(n, _FUNCTIONS) and n.name.startswith("test") and n.name not in used:
            put(n.body, None)
        elif isinstance(n, ast.If):
            nodes = walk(n.test)
            asks = [x for x in nodes if isinstance(x, ast.Call) and dotted(x.func) == "hasattr" and len(x.args) == 2]
            said = [folded(x.args[1]) for x in asks]
            names = None if None in said else frozenset(x for x in said if x)
            version = any("version" in (getattr(x, "attr", "") or getattr(x, "id", "")) for x in nodes)
            missing = any(isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.Not) for x in nodes)
            if (asks and missing) or version:
                put(n.body, None if version else names)
            if (asks and not missing) or version:
                put(n.orelse, None if version else names)
        elif isinstance(n, ast.Try):
            tried = [x for s in n.body for x in walk(s)]
            names = frozenset(getattr(x, "attr", "") or getattr(x, "name", "") or "" for x in tried)
            for h in n.handlers:
                kinds = {dotted(x) for x in walk(h.type)} if h.type is not None else set()
                if kinds & {"AttributeError", "ImportError", "ModuleNotFoundError"}:
                    put(h.body, names)
    return out


def _hands_on(f: ast.AST, target: str, saved: Mapping[str, str], names: Mapping[str, str]) -> bool:
    """Does every answer of a function come from the one it replaces, given the same arguments?"""
    if isinstance(f, ast.Lambda):
        answers: list[ast.expr | None] = [f.body]
        args = f.args
    elif isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef):
        answers = [r.value for r in walk(f) if isinstance(r, ast.Return)]
        args = f.args
    else:
        return False
    given = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    given |= {a.arg for a in (args.vararg, args.kwarg) if a is not None}
    results = {t.id: n.value for n in walk(f) if isinstance(n, ast.Assign) for t in n.targets
               if isinstance(t, ast.Name)}  # fmt: skip
    for x in answers:
        made = _cast(results.get(x.id, x) if isinstance(x, ast.Name) else x)
        if not isinstance(made, ast.Call) or target not in (saved.get(dotted(made.func)), dotted(made.func, names)):
            return False
        if not all(_plain(a.value if isinstance(a, ast.Starred) else a, given - results.keys()) for a in made.args):
            return False
        if any(k.arg is not None and _LOOSENED.fullmatch(k.arg) for k in made.keywords):
            return False
    return bool(answers)


def _plain(x: ast.expr, given: set[str]) -> bool:
    """Is it an argument as it was given, perhaps as a list?"""
    if isinstance(x, ast.IfExp):
        # `sorted(x) if isinstance(x, set) else x`
        body = x.body
        if isinstance(body, ast.Call) and dotted(body.func) == "sorted" and "set" in {dotted(n) for n in walk(x.test)}:
            body = body.args[0]
        return _plain(body, given) and _plain(x.orelse, given)
    if isinstance(x, ast.Call) and dotted(x.func) in ("list", "tuple") and len(x.args) == 1:
        x = x.args[0]
    made = _cast(x)
    return isinstance(made, ast.Name) and made.id in given


def _cast(x: ast.expr | None) -> ast.expr | None:
    """What an expression changes the type or the place of: `x` of `x.to(torch.int32)`."""
    while isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr in _CASTS:
        x = x.func.value
    return x
