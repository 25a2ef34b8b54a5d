"""What benchmarks, tests, scripts and examples import of ours is there: much of it runs in no test, and neither mypy
nor ruff tells that a name has moved."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.import_graph import modules
from tests.test_docs import ROOT, resolves

FILES = [p for top in ("bench", "tests", "scripts", "examples") for p in sorted((ROOT / top).rglob("*.py"))]
OURS = "evotrainer.", "bench."
BENCH = [p for p in FILES if p.is_relative_to(ROOT / "bench") and p.name != "__init__.py"]


@pytest.mark.parametrize("path", BENCH, ids=lambda p: str(p.relative_to(ROOT / "bench")))
def test_a_module_of_a_benchmark_can_be_imported(path: Path) -> None:
    if path.name != "__main__.py" or '__name__ == "__main__"' in path.read_text(encoding="utf-8"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def test_what_is_imported_of_ours_is_there() -> None:
    """Deferred imports as well, and what is said of an imported module: `api.start`."""
    code = "import evotrainer.no\nfrom evotrainer import api, judge as j, none\napi.start, api.never, j.judge"
    assert {x for x in said(code) if not there(x)} == {f"evotrainer.{x}" for x in ("no", "none", "api.never")}
    wrong = {(str(p), x) for p in FILES for x in said(p.read_text(encoding="utf-8")) if not there(x)}
    assert not wrong, sorted(wrong)


def there(dotted: str) -> bool:
    if dotted.startswith("evotrainer."):
        return resolves(dotted)
    at = ROOT.joinpath(*dotted.split("."))
    above, _, name = dotted.rpartition(".")
    return at.is_dir() or at.with_suffix(".py").is_file() or hasattr(importlib.import_module(above), name)


def said(code: str) -> Iterator[str]:
    """Dotted names of ours that a source imports, or takes of a module that it imports."""
    nodes = list(ast.walk(ast.parse(code)))
    ours = [n for n in nodes if isinstance(n, ast.ImportFrom) and f"{n.module}.".startswith(OURS)]
    alias = {a.asname or a.name: f"{n.module}.{a.name}" for n in ours for a in n.names}
    yield from (f"{n.module}.{a.name}" for n in ours for a in n.names)
    yield from (a.name for n in nodes if isinstance(n, ast.Import) for a in n.names if a.name.startswith(OURS))
    own = {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known = {k: name for k, name in alias.items() if k not in own and name.removeprefix("evotrainer.") in modules()}
    for n in nodes:
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in known and n.attr[0] != "_":
            yield f"{known[n.value.id]}.{n.attr}"
