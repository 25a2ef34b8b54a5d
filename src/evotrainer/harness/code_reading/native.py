"""Libraries in C that a program calls with ctypes, or compiles for itself."""

from __future__ import annotations

import ast
import re

from evotrainer.harness.code_reading.names import dotted, folded
from evotrainer.harness.code_reading.trees import walk

_REACHES = frozenset(
    {"py_object", "PyDLL", "memmove", "memset", "from_address", "string_at", "wstring_at", "in_dll", "_SimpleCData"}
    | {"process_vm_readv", "process_vm_writev", "ptrace", "mprotect", "syscall", "dlsym", "getppid", "id", "*"}
    | {"__getattr__", "__getitem__", "_FuncPtr", "attrgetter", "methodcaller"}
)
"""With ctypes: what reaches objects of the interpreter, or other processes."""
_OF_LIBC = frozenset(
    {"exit", "_exit", "abort", "kill", "raise", "system", "popen", "fork", "execv", "execve", "open", "fopen", "read"}
    | {"write", "unlink", "rename", "setenv", "putenv", "dup2", "signal", "alarm", "longjmp", "quick_exit"}
    | {"memcpy", "memmove", "memset", "strcpy", "bcopy", "clock_settime", "settimeofday"}
)
_OWN_BYTES = re.compile(
    r"_?Py(?:Bytes|ByteArray|Buffer|MemoryView|GILState)_\w+|PyObject_(?:Get|Check)Buffer|Py_(?:Inc|Dec)Ref"
)
"""Functions of the interpreter that make and fill texts of bytes."""
_LOADS = re.compile(r"(?:CDLL|PyDLL|WinDLL|OleDLL|LoadLibrary|dlopen)$")
_COMPILERS = frozenset({"gcc", "g++", "cc", "c++", "clang", "clang++", "nvcc", "rustc"})
_FOUL = re.compile(
    r"\b(?:getppid|ptrace|r?aise|kill|_?exit|_Exit|abort|fork|exec[vl]\w*|system|popen|unlink|remove|rename|f?open\w*"
    r"|process_vm\w*|mprotect|dlsym|dlopen|syscall|longjmp|signal|setenv|socket)\s*\(|/proc|Python\.h|constructor|\bPy\w*_"
    r"|\bPyObject|asm\b|#\s*include\s*[\"<](?!std(?:io|lib|int|def|bool)|math|string|vector|algorithm|cmath|cstd"
    r"|immintrin|omp|cuda|float|limits|numeric|queue|map|unordered_map|array|complex|tgmath)"
)
"""What code that computes has no need of."""


def compiles(n: ast.Call, whole: list[ast.AST]) -> bool:
    """Does it start a compiler, by name, on code that the program holds and that only computes?"""
    command = n.args[0] if n.args else None
    texts = [x.value for x in whole if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    code = [x for x in texts if "{" in x and ";" in x and "(" in x]
    if not isinstance(command, ast.List) or not command.elts or folded(command.elts[0]) not in _COMPILERS:
        return False
    return bool(code) and not any(_FOUL.search(x) for x in code) and not any(k.arg == "shell" for k in n.keywords)


def calls_libraries(whole: list[ast.AST]) -> bool:
    """Does a program with ctypes touch nothing of the interpreter or of its process: no addresses of objects, no memory
    of others, of the C library only what computes?"""
    loaded = _loaded(whole)
    numbers = {dotted(t) for n in whole if isinstance(n, ast.Assign) and _number(n.value) for t in n.targets} - {""}
    for n in whole:
        if isinstance(n, ast.ImportFrom) and (n.module or "").partition(".")[0] == "ctypes":
            used = {a.name for a in n.names}
        elif isinstance(n, ast.Attribute):
            root = n.value.id if isinstance(n.value, ast.Name) else getattr(n.value, "attr", "")
            plain = root not in loaded and root in ("os", "sys", "f", "file", "stdin", "stdout", "buffer", "fh")
            used = {n.attr} if not (n.attr in _OF_LIBC and plain) else set()
        elif isinstance(n, ast.Call) and dotted(n.func).rpartition(".")[2] == "cast" and n.args:
            # what lies beside something is another's
            used = {"*"} if _number(n.args[0]) or dotted(n.args[0]) in numbers else set()
        elif isinstance(n, ast.Call) and dotted(n.func) in ("id", "getattr", "map"):
            name = folded(n.args[1]) if dotted(n.func) == "getattr" and len(n.args) > 1 else None
            used = {"id"} if dotted(n.func) == "id" or (n.args and dotted(n.args[0]) == "id") else {name or ""}
            if dotted(n.func) == "getattr" and name is None:
                return False  # anything
        elif isinstance(n, ast.Subscript):
            used = {folded(n.slice) or ""}
        else:
            continue
        if used & (_REACHES - {"py_object"}) or used & _OF_LIBC:
            return False
    return _bytes_alone(whole)


def _number(x: ast.expr) -> bool:
    """Is it an address that was computed or read, and not one that ctypes gave?"""
    return any(
        isinstance(n, ast.BinOp) or (isinstance(n, ast.Call) and dotted(n.func) in ("int", "hash")) for n in walk(x)
    )


def _loaded(whole: list[ast.AST]) -> set[str]:
    """Names under which a program keeps libraries that it loaded."""
    out: set[str] = set()
    for n in whole:
        if isinstance(n, ast.Assign) and any(
            isinstance(c, ast.Call) and _LOADS.search(dotted(c.func)) for c in walk(n.value)
        ):
            out |= {dotted(t).rpartition(".")[2] for t in n.targets}
    return out


def _bytes_alone(whole: list[ast.AST]) -> bool:
    """Of the interpreter's own functions, are only those used that make bytes?"""
    named = {n.attr for n in whole if isinstance(n, ast.Attribute)} | {n.id for n in whole if isinstance(n, ast.Name)}
    if not named & {"pythonapi", "py_object"}:
        return True
    if "Thread" in named and not named & {"main_thread", "enumerate", "_active"} and "ident" in named:
        named -= {"PyThreadState_SetAsyncExc"}  # a thread of one's own is stopped
        if not any(re.match(r"_?Py[A-Z_]\w*_", x) for x in named):
            return True
    used = {x for x in named if re.match(r"_?Py[A-Z_]\w*_", x)}
    return bool(used) and all(_OWN_BYTES.fullmatch(x) for x in used)
