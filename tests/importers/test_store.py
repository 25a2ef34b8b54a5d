"""Our own stores as a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer.errors import StoreError
from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.formats.store import IMPORTER
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.store import RolloutStore
from evotrainer.testing import check_importer


def some(n: int, run: str = "r") -> list[Rollout]:
    return [Rollout(f"{run}-{i:04d}", f"t{i // 4}", (Turn("assistant", f"x{i}"),), i / n, run=run) for i in range(n)]


def fill(folder: Path, rollouts: list[Rollout], seal: bool = False) -> Path:
    with RolloutStore(folder) as store:
        store.append([rollouts])
        if seal:
            store.seal()
    return folder


def test_parts_and_tail_come_back_as_they_were_stored(tmp_path: Path) -> None:
    rollouts = some(40)
    fill(tmp_path / "s", rollouts[:30], seal=True)
    fill(tmp_path / "s", rollouts[30:])
    assert list(IMPORTER.read(tmp_path / "s")) == rollouts
    check_importer(IMPORTER, tmp_path / "s", count=40)
    check_importer(IMPORTER, tmp_path / "s" / "part-00000.parquet", count=30)


def test_a_run_gives_all_its_rollouts_but_never_the_sealed_ones(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fill(run / "rollouts" / "b0-s1", some(4, "a"))
    fill(run / "rollouts" / "b1-s1", some(4, "b"), seal=True)
    fill(run / "sealed" / "b0-s1", some(4, "secret"))
    (run / "ledger.db").touch()
    assert IMPORTER.recognises(Source(run))
    assert [r.run for r in IMPORTER.read(run) if isinstance(r, Rollout)] == ["a"] * 4 + ["b"] * 4
    with pytest.raises(StoreError, match="sealed"):
        list(IMPORTER.read(run / "sealed" / "b0-s1"))


def test_a_damaged_part_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    rollouts = some(30)
    fill(folder, rollouts[:10], seal=True)
    fill(folder, rollouts[10:20], seal=True)
    fill(folder, rollouts[20:])
    part = folder / "part-00000.parquet"
    part.chmod(0o644)
    part.write_bytes(part.read_bytes()[:-9])
    read = list(IMPORTER.read(folder))
    assert [r.id for r in read if isinstance(r, Rollout)] == [r.id for r in rollouts[10:]]
    (skipped,) = [r for r in read if isinstance(r, Skipped)]
    assert "part-00000" in skipped.where


def test_a_damaged_tail_gives_its_sound_frames(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with RolloutStore(folder) as store:
        for r in some(6):
            store.append([[r]])
    tail = folder / "tail.log"
    data = bytearray(tail.read_bytes())
    data[len(data) // 2] ^= 0xFF
    tail.write_bytes(data)
    read = list(IMPORTER.read(folder))
    assert 3 <= sum(isinstance(r, Rollout) for r in read) < 6
    assert any(isinstance(r, Skipped) and "tail" in r.where for r in read)
