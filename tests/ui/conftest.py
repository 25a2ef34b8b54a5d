"""A folder of runs, served once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui_server import serving
from tests.views.conftest import browser, hostile_body, hostile_rollout  # noqa: F401
from tests.whole_run import build_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that stands in its first round, a damaged one, one of a newer version, and no run."""
    folder = tmp_path_factory.mktemp("runs")
    build_run(folder / "done")
    build_run(folder / "early", until="b2/judged")
    shutil.copytree(folder / "early", folder / "damaged")
    ledger = (folder / "damaged" / "ledger.db").read_bytes()
    (folder / "damaged" / "ledger.db").write_bytes(ledger[:4096] + b"\xff" * (len(ledger) - 4096))
    (folder / "no run").mkdir()
    return folder


@pytest.fixture(scope="session")
def page(runs: Path) -> Iterator[str]:
    with serving(runs) as address:
        yield address
