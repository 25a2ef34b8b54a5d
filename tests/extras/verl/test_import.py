"""Rollouts of a verl training: verl's dumps (data/dump, written by verl 0.9.1's own writer) and the evidence of our
reward plug-in.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.extras.verl.record import UIDS
from tests.extras.verl.rendering import machine, task

from evotrainer.cli.import_ import import_
from evotrainer.errors import ConfigError, FaultsError
from evotrainer.extras.verl.render import render
from evotrainer.extras.verl.scoring import Origin, ProcessGrader
from evotrainer.importers import Skipped, read
from evotrainer.importers.formats.verl import IMPORTER
from evotrainer.records.reading import scan
from evotrainer.records.rollout import Rollout
from evotrainer.testing import check_importer

DUMP = Path(__file__).parent / "data" / "dump"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rendered folder with the dumps of one step, the evidence of its rewards, and one rollout lost to a fault."""
    out = tmp_path / "v"
    render(task(), out, machine())
    shutil.copytree(DUMP / "rollouts", out / "rollouts")
    shutil.copytree(DUMP / "validation", out / "validation")
    g = ProcessGrader(out)
    for i, said in enumerate(["0", "1", "2", "2"]):
        g.grade(f"train-{i // 2}", said, [1, 2], "stop", Origin(f"{UIDS[i // 2]}_{i % 2}_0", 1, "train"))
    g.grade("search-0", "0", [1], "stop", Origin(f"{UIDS[2]}_0_0", 0, "search"))
    faults = tmp_path / "faults"
    faults.write_text("9")
    monkeypatch.setenv("SUMS_FAULTS", str(faults))
    with pytest.raises(FaultsError):
        g.grade("train-1", "crash", [1], "stop", Origin(f"{UIDS[1]}_2_0", 1, "train"))
    with next((out / "evidence").glob("train-1-*")).open("a") as f:
        f.write('{"uid": "torn by a crash')
    return out


def rollouts(path: Path) -> list[Rollout]:
    out = [r for _, name, r in read([path]) if name == "verl" and isinstance(r, Rollout)]
    assert not [r for _, _, r in read([path]) if isinstance(r, Skipped)]
    return out


def test_verls_own_dump_alone_has_its_groups(tmp_path: Path) -> None:
    shutil.copy(DUMP / "rollouts" / "attempt-1" / "1.jsonl", tmp_path / "1.jsonl")
    check_importer(IMPORTER, tmp_path / "1.jsonl", count=4)
    out = rollouts(tmp_path)
    assert [r.reward for r in out] == [1, 0, 1, 1] and [r.k for r in out] == [0, 1, 0, 1]
    assert len({r.group for r in out}) == 2 and len({r.task for r in out}) == 2, "not a group for each rollout"
    assert {r.outcome for r in out} == {"unknown"} and out[0].components == {}


def test_evidence_joins_the_dump_and_lost_rollouts_are_faults(folder: Path) -> None:
    out = rollouts(folder)
    train = [r for r in out if r.split == "train"]
    assert [(r.task, r.reward, r.outcome) for r in train] == [
        ("train-0", 1.0, "correct"), ("train-0", 0.0, "incorrect"), ("train-1", 1.0, "correct"),
        ("train-1", 1.0, "correct"), ("train-1", None, "unknown"),
    ]  # fmt: skip
    assert train[0].components == {"right": 1.0, "digits": 1.0} and train[0].tokens == 2
    lost = train[-1]
    assert (lost.error_kind, lost.group, lost.k, lost.completion) == ("container", train[3].group, 2, "crash")
    (seen,) = [r for r in out if r.split == "search"]
    assert (seen.task, seen.reward, seen.step) == ("search-0", 1.0, 0)
    assert len({r.id for r in out}) == 6


def test_ids_hold_whatever_else_is_read_with_them(folder: Path, tmp_path: Path) -> None:
    alone = {r.id for r in rollouts(folder / "rollouts" / "attempt-1" / "1.jsonl")}
    shutil.copytree(folder / "rollouts" / "attempt-1", folder / "rollouts" / "attempt-2")
    assert {r.id for r in rollouts(folder) if r.split == "train"} == alone


def test_the_command_fills_a_store_that_audit_reads(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    store = tmp_path / "store"
    import_([folder], out=store, workers=1)
    import_([folder], out=store, workers=1)
    assert "wrote 6 rollouts" in capsys.readouterr().out
    assert scan([store]).collect().height == 6, "imported twice, counted once"
    empty = tmp_path / "w"
    render(task(), empty, machine())
    with pytest.raises(ConfigError, match="nothing could be imported"):
        import_([empty], out=tmp_path / "none", workers=1)
