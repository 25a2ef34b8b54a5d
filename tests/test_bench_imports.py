"""Every benchmark can be imported: none of them runs in the tests, so nothing else tells that a name has moved."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(p.relative_to(ROOT).with_suffix("").parts)
    for p in (ROOT / "bench").rglob("*.py")
    if p.name not in ("__init__.py", "__main__.py")
)
MAINS = sorted(p for p in (ROOT / "bench").rglob("__main__.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.parametrize("path", MAINS, ids=lambda p: p.parent.name)
def test_a_command_of_a_benchmark_can_be_loaded(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    assert importlib.util.find_spec(name) is not None
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8"):
        importlib.import_module(name)
