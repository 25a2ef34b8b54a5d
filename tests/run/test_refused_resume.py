"""A resume that is refused changes no byte of the run folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.errors import EvoTrainerError, StoreError
from tests import letters_on_paper
from tests.letters_on_paper import QUICK
from tests.paper import Paper

pytestmark = pytest.mark.xdist_group("refused")  # one run, made once


def _empty(ledger: Path) -> None:
    ledger.write_bytes(b"")


def _empty_and_unsealed(ledger: Path) -> None:
    ledger.write_bytes(b"")
    ledger.with_name("ledger.db.sha256").unlink()


def _empty_and_alone(ledger: Path) -> None:
    _empty_and_unsealed(ledger)
    ledger.with_name("ledger.head").unlink()


def _cut(ledger: Path) -> None:
    os.truncate(ledger, ledger.stat().st_size // 2)


def _random(ledger: Path) -> None:
    ledger.write_bytes(bytes(range(7, 256)) * 200)


def _slack(ledger: Path) -> None:
    ledger.write_bytes(ledger.read_bytes() + bytes(4096))


def _no_task_file(ledger: Path) -> None:
    ledger.with_name("task.toml").unlink()


def _no_head(ledger: Path) -> None:
    ledger.with_name("ledger.head").unlink()


DAMAGES = (_empty, _empty_and_unsealed, _empty_and_alone, _cut, _random, _slack, _no_task_file, _no_head)


def hashes(folder: Path) -> dict[str, str]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def whole(task_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    paper = Paper(letters_on_paper.finish, letters_on_paper.rollouts)
    return paper.start(task_file, tmp_path_factory.mktemp("refused") / "run", QUICK).folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of one run, to be damaged."""
    return shutil.copytree(whole, tmp_path / "run")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_refused_resume_changes_nothing(damage: Callable[[Path], None], run: Path) -> None:
    (run / "trials" / "base").mkdir(parents=True, exist_ok=True)
    damage(run / "ledger.db")
    before = hashes(run)
    with pytest.raises(EvoTrainerError) as refused:
        api.resume(run, ["run.rounds=9"])
    assert "\n" not in str(refused.value)
    assert hashes(run) == before


def test_a_lost_task_file_is_told_once_with_its_remedy(run: Path) -> None:
    (run / "task.toml").unlink()
    again = [p.message for p in api.Run(run).verify().problems if "cannot be computed again" in p.message]
    assert len(again) == 1 and "has lost task.toml" in again[0] and "further events cannot" in again[0]
    with pytest.raises(StoreError, match=r"has lost task.toml, .* restore it from a copy of the run"):
        _ = api.Run(run).task
