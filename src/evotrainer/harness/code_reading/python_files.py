"""What a Python program does to files: written, added to, changed in place, removed, or through a shell."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Literal

from evotrainer.harness.code_reading.trees import walk

Done = tuple[str, Literal["write", "add", "change", "shell"], str, str | None]
"""(path, way, what goes, what comes); of way `shell` the path is the command, also of what moves, copies, makes
and removes."""
MAX_PROGRAM = 20_000
_TOUCHES = re.compile(
    r"open\(|Path|write|remove|unlink|rmtree|rename|replace|move|copy|system|subprocess|mkdir|makedirs|os\."
)
_IN_SHELL = {
    "remove": "rm", "unlink": "rm", "rmtree": "rm", "rmdir": "rm", "rename": "mv", "renames": "mv", "move": "mv",
    "copy": "cp", "copyfile": "cp", "copy2": "cp", "mkdir": "mkdir", "makedirs": "mkdir",
}  # fmt: skip
_RUNS = frozenset({"system", "run", "call", "check_call", "check_output", "Popen", "popen", "getoutput"})


def python_changes(code: str) -> list[Done]:
    """In order; none of what cannot be parsed. Never raises."""
    code = code[:MAX_PROGRAM]
    if not _TOUCHES.search(code):
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        return list(_Program(tree).done())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class _Program:
    """Names that stand for paths and texts, and what is done to them."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = walk(tree)
        self.names: dict[str, list[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._bind(node.targets[0], [node.value])
            elif isinstance(node, ast.For):
                listed = isinstance(node.iter, ast.List | ast.Tuple)
                # of a call: over the names that a pattern finds
                self._bind(node.target, node.iter.elts[:32] if listed else getattr(node.iter, "args", [])[:1])  # type: ignore[attr-defined]
        self.calls = [(_called(n), n) for n in nodes if isinstance(n, ast.Call)]
        self.read = {p for name, c in self.calls for p in self._reads(name, c)}
        pairs = [map(self.text, c.args[:2]) for name, c in self.calls if name in ("replace", "sub") and len(c.args) > 1]
        self.swaps = [s for old, new in pairs for s in zip(old, new, strict=False)]
        written = [self.text(c.args[0]) for name, c in self.calls if name == "write" and c.args]
        self.said = written[0][0] if len(written) == 1 and written[0] else None
        """What is written, where the program writes one text only"""

    def _bind(self, target: ast.expr, values: Sequence[ast.expr]) -> None:
        if isinstance(target, ast.Name):
            known = self.names.setdefault(target.id, [])
            known += [t for v in values for t in self.text(v) if t not in known][: 32 - len(known)]

    def text(self, node: ast.AST, depth: int = 0) -> list[str]:
        """Texts that an expression may stand for; unknown parts of it as `*`, none where it is unknown."""
        if depth > 6:
            return []
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.Name):
            return self.names.get(node.id, [])
        if isinstance(node, ast.JoinedStr):
            return ["".join(v.value if isinstance(v, ast.Constant) else "*" for v in node.values)]  # type: ignore[misc]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            left, right = (self.text(x, depth + 1) or ["*"] for x in (node.left, node.right))
            mark = "/" if isinstance(node.op, ast.Div) else ""
            return [f"{a}{mark}{b}" for a in left[:4] for b in right[:4]] if (left, right) != (["*"], ["*"]) else []
        if isinstance(node, ast.Call) and node.args:
            if _called(node) in ("Path", "PurePath", "abspath", "expanduser", "str", "glob", "iglob"):
                return self.text(node.args[0], depth + 1)
            if _called(node) == "join":
                return ["/".join((self.text(a, depth + 1) or ["*"])[0] for a in node.args)]
        return []

    def _reads(self, name: str, call: ast.Call) -> list[str]:
        if name == "open" and call.args and _mode(call) == "r":
            return self.text(call.args[0])
        if name in ("read_text", "readlines", "FileInput", "input") and isinstance(call.func, ast.Attribute):
            return self.text(call.func.value) or [t for a in call.args[:1] for t in self.text(a)]
        return []

    def done(self) -> Iterator[Done]:
        """What the program does, call by call."""
        for name, call in self.calls:
            own = self.text(call.func.value) if isinstance(call.func, ast.Attribute) else []
            first, second = [*map(self.text, call.args[:2]), list[str](), list[str]()][:2]
            if name == "open" and first and _mode(call) != "r":
                yield from self._written(first, _mode(call), self.said)
            elif name in ("write_text", "write_bytes") and own:
                yield from self._written(own, "w", first[0] if first else None)
            elif name in _IN_SHELL:
                one = 1 if _IN_SHELL[name] in ("mv", "cp") else None
                paths = [p for some in (own, first, second) for p in some[:one]]
                yield " ".join([_IN_SHELL[name], *(f"'{p}'" for p in paths if "'" not in p)]), "shell", "", None
            elif name in _RUNS and call.args:
                words = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else []
                listed = " ".join("'" + (self.text(x) or ["*"])[0].replace("'", "") + "'" for x in words)
                yield from ((t, "shell", "", None) for t in ([listed] if listed else first[:1]))

    def _written(self, paths: list[str], mode: str, text: str | None) -> Iterator[Done]:
        for p in paths:
            if mode == "a":
                yield p, "add", "", text
            elif p not in self.read:
                yield p, "write", "", text if text is not None else self.said
            else:
                swaps: list[tuple[str, str | None]] = [*self.swaps[:16]]
                yield from ((p, "change", a, b) for a, b in swaps or [("", text)])


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _mode(call: ast.Call) -> str:
    """First letter of an `open`'s mode."""
    given = list(call.args[1:2]) + [k.value for k in call.keywords if k.arg == "mode"]
    mode = str(given[0].value) if given and isinstance(given[0], ast.Constant) else "r"
    return next((m for m in "awx" if m in mode), "r")
