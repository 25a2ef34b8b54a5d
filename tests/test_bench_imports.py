"""What benchmarks, tests, scripts and examples import of ours is there: much of it runs in no test, and neither mypy
nor ruff tells that a name has moved."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_docs import ROOT, names_given, statements

FILES = [p for top in ("bench", "tests", "scripts", "examples") for p in sorted((ROOT / top).rglob("*.py"))]
BENCH = [p for p in FILES if p.is_relative_to(ROOT / "bench") and p.name != "__init__.py"]


@pytest.mark.parametrize("path", BENCH, ids=lambda p: str(p.relative_to(ROOT / "bench")))
def test_a_module_of_a_benchmark_can_be_imported(path: Path) -> None:
    if path.name != "__main__.py" or '__name__ == "__main__"' in path.read_text(encoding="utf-8"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def test_what_is_imported_of_ours_is_there() -> None:
    code = "from evotrainer import api, judge as j, no\nfrom .y import z\napi.start, api.none, j.nothing"
    said = {f"evotrainer.{x}" for x in ("no", "api.none", "judge.nothing")}
    assert gone(ROOT / "bench" / "x.py", code) == {*said, "bench.y.z"}
    wrong = {str(p.relative_to(ROOT)): gone(p, p.read_text(encoding="utf-8")) for p in FILES}
    assert not {p: names for p, names in wrong.items() if names}


def gone(path: Path, code: str) -> set[str]:
    """What a file imports of ours, deferred imports as well, or says of an imported module (`api.start`), in vain."""
    nodes = list(ast.walk(ast.parse(code)))
    here = path.relative_to(ROOT).parts
    imported: list[tuple[str, str]] = []
    for n in nodes:
        if isinstance(n, ast.Import):
            imported += [(a.name, a.asname or "") for a in n.names]
        elif isinstance(n, ast.ImportFrom):
            above = here[: -n.level] if n.level else ()
            base = ".".join((*above, *filter(None, [n.module])))
            imported += [(f"{base}.{a.name}", a.asname or a.name) for a in n.names if a.name != "*"]
    others = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    others |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    modules = {alias: name for name, alias in imported if alias not in others and module(name)}
    parts = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    said = [f"{modules[n.value.id]}.{n.attr}" for n in parts if isinstance(n.value, ast.Name) and n.value.id in modules]
    return {name for name in (*(name for name, _ in imported), *said) if not there(name)}


def there(dotted: str) -> bool:
    """Whether there is such a module, or a name in one; what is none of ours is there."""
    above, _, name = dotted.rpartition(".")
    if dotted.split(".")[0] not in ("evotrainer", "bench", "tests", "scripts") or module(dotted):
        return True
    return (found := module(above)) is not None and (name.startswith("__") or name in names_of(found))


@cache
def module(dotted: str) -> Path | None:
    at = (ROOT / "src" if dotted.startswith("evotrainer") else ROOT).joinpath(*dotted.split("."))
    return next((p for p in (at.with_suffix(".py"), at / "__init__.py", at) if p.exists()), None)


@cache
def names_of(path: Path) -> set[str]:
    """What a module gives; of one that makes names, or takes all of another, every word that it says."""
    if path.is_dir():
        return set()
    text = path.read_text(encoding="utf-8")
    if "__getattr__" in text or "import *" in text or "globals()" in text:
        return set(re.findall(r"\w+", text))
    every = list(statements(ast.parse(text)))
    names = {a.asname or a.name for n in every if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    names |= {n.id for s in every for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names.union(*(names_given(n) for n in every))
