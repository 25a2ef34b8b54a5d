"""What the house counts so that it only falls. `python -m scripts.ratchets` lowers the ceilings in
tests/ratchets.toml to today's counts and never raises one; tests/test_ratchets.py compares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "evotrainer"
CEILINGS = ROOT / "tests" / "ratchets.toml"

BRANCHES = ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case, ast.comprehension
MANY_BRANCHES = 15
"""A function counts from this many branches, conditions and clauses of comprehensions on, with nested functions."""

CONCEPTS = {
    "backtest": r"backtest",
    "bundle": r"bundle",
    "equal compute": r"equal_compute|max_cost",
    "own code": r"\bhooks?\b|written",
    "sealed splits": r"encrypt|decrypt|sealed",
    "seat": r"\bseat\b|_seat\b|\bSeat",
    "skills": r"skill",
}
"""Name of a concept -> how a line of code names it: how many files of src do is how far the concept is spread."""


def counts() -> dict[str, int]:
    """Name of a ratchet -> what it counts today."""
    texts = [p.read_text(encoding="utf-8") for p in sorted(SRC.rglob("*.py"))]
    trees = [ast.parse(text) for text in texts]
    nodes = [n for tree in trees for n in ast.walk(tree)]
    tests = [p for kind in ("py", "toml") for p in (ROOT / "tests").rglob(f"*.{kind}")]
    out = {
        "lines_of_src": sum(text.count("\n") for text in texts),
        "lines_of_tests": sum(p.read_text(encoding="utf-8").count("\n") for p in tests),
        "regexes": sum(_compiles(n) for n in nodes),
        "numeric_constants": sum(_numeric(n) for tree in trees for n in tree.body),
        "functions_with_15_branches": sum(
            _branches(n) >= MANY_BRANCHES for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        "any": sum(isinstance(n, ast.Name) and n.id == "Any" for n in nodes),
    }
    for concept, pattern in CONCEPTS.items():
        names = re.compile(pattern, re.IGNORECASE)
        out[f"files_naming_{concept.replace(' ', '_')}"] = sum(bool(names.search(text)) for text in texts)
    return out


def ceilings() -> dict[str, int]:
    """Name of a ratchet -> the most that it may count."""
    return {k: int(v) for k, v in tomllib.loads(CEILINGS.read_text(encoding="utf-8")).items()}


def _compiles(node: ast.AST) -> bool:
    """Whether a regex is written here: compiled, or given to a function of `re` as a text."""
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).startswith("re."):
        return False
    literal = bool(node.args) and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
    return ast.unparse(node.func) == "re.compile" or (literal and ast.unparse(node.func) != "re.escape")


def _numeric(node: ast.AST) -> bool:
    """Whether a statement of a module names a number: `LEAST = 3`."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def _branches(function: ast.AST) -> int:
    return sum(_weight(n) for n in ast.walk(function))


def _weight(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, BRANCHES))


def _lines() -> Iterator[str]:
    head = CEILINGS.read_text(encoding="utf-8") if CEILINGS.exists() else ""
    yield from (line for line in head.splitlines() if line.startswith("#"))
    old = ceilings() if CEILINGS.exists() else {}
    for name, count in counts().items():
        yield f"{name} = {min(count, old.get(name, count))}"


def main() -> None:
    CEILINGS.write_text("\n".join(_lines()) + "\n", encoding="utf-8")
    over = {k: (n, ceilings()[k]) for k, n in counts().items() if n > ceilings()[k]}
    sys.exit("\n".join(f"{k}: {n}, over its ceiling of {most}" for k, (n, most) in over.items()) or 0)


if __name__ == "__main__":
    main()
