"""A user's own Python files, imported by path."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import TaskSetError

if TYPE_CHECKING:
    from types import ModuleType


def load_module(path: Path) -> ModuleType:
    """Import a user's own Python file; TaskSetError with the cause where that fails."""
    if not path.is_file():
        raise TaskSetError(f"no file {path}; give the path of a Python file, relative ones start with ./")
    spec = importlib.util.spec_from_file_location(f"evotrainer_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise TaskSetError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise TaskSetError(f"{path} fails on import: {type(e).__name__}: {e}") from e
    return module
