"""Runs that share a cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executors.cache.drawn import Place


@pytest.fixture
def place(tmp_path: Path, task_file: Path) -> Place:
    """An empty cache."""
    return Place(tmp_path, task_file)
