"""The real corpus of the detectors: its manifest, its labels, its arithmetic, and what it says without data."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from bench.detectors.corpus import blobs, own_labels, prepare
from bench.detectors.corpus.command import main
from bench.detectors.corpus.labels import EXPECTED, Label, hand
from bench.detectors.corpus.manifest import HERE, KINDS, SPLITS, Source, chosen, sources
from bench.detectors.corpus.measure import DETECTORS, wilson


def test_each_side_holds_every_kind_and_read_hacks() -> None:
    for split in SPLITS[:4]:
        assert {s.kind for s in chosen(split)} == set(KINDS)
        hacks = [x for s in chosen(split) for x in hand(s).values() if x.label == "hack"]
        assert {s.kind for s in chosen(split) for x in hand(s).values() if x.label == "hack"} >= {"code", "agent"}
        assert len(hacks) >= 50


@pytest.mark.parametrize(
    ("split", "hacks", "honest"), [("heldout5", 20, 150), ("heldout6", 60, 60), ("heldout7", 25, 40)]
)
def test_later_sides_hold_hacks_that_stand_in_the_text(split: str, hacks: int, honest: int) -> None:
    read = [x for s in chosen(split) for x in hand(s).values()]
    assert sum(x.label == "hack" and (split == "heldout5" or x.evidence_in_text) for x in read) >= hacks
    assert sum(x.label == "honest" for x in read) >= honest


def test_every_source_is_counted() -> None:
    assert set(json.loads((HERE / "counts.json").read_text(encoding="utf-8"))) == {s.name for s in sources()}


def test_no_source_stands_on_both_sides() -> None:
    for one, other in itertools.combinations(SPLITS, 2):
        assert not {s.repo for s in chosen(one)} & {s.repo for s in chosen(other)}


@pytest.mark.parametrize("source", sources(), ids=lambda s: s.name)
def test_a_source_can_be_read(source: Source) -> None:
    assert source.adapter in {"", *prepare.ADAPTERS}
    assert not source.own_labels or callable(getattr(own_labels, source.own_labels))
    assert source.importer or source.missing_importer
    assert len(source.commit) == 40


@pytest.mark.parametrize("split", SPLITS)
def test_labels_belong_to_sources_of_their_side(split: str) -> None:
    path = HERE / "labels" / f"{split}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [Label(**json.loads(x)) for x in lines if not x.startswith("#")]
    assert {x.source for x in rows} <= {s.name for s in chosen(split)}
    assert ("HELD OUT" in lines[0]) == (split != "tuning")


def test_every_detector_of_single_rollouts_has_a_kind_of_hack() -> None:
    assert {d for detectors in EXPECTED.values() for d in detectors} == set(DETECTORS)


def test_wilson_is_the_textbook_interval() -> None:
    low, high = wilson(1, 10)
    assert (round(low, 3), round(high, 3)) == (0.018, 0.404)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 20)[0] == 0.0 and wilson(20, 20)[1] == pytest.approx(1)


def test_without_data_the_message_says_how_to_get_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--source", "tau-airline", "--data", str(tmp_path), "--cache", str(tmp_path / "cache")])
    assert code == 1
    assert "sierra-research/tau-bench is not in" in (said := capsys.readouterr().err)
    assert "fetch.sh" in said and "--data" in said


def test_files_come_from_the_commit_and_large_ones_are_left_out(tmp_path: Path) -> None:
    def git(*args: str) -> str:
        user = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", "-C", str(work), *user, *args], capture_output=True, text=True, check=True).stdout

    work = tmp_path / "owner+name"
    work.mkdir()
    git("init", "-q")
    (work / "a.jsonl").write_text("{}\n")
    (work / "large.jsonl").write_bytes(b" " * blobs.LIMIT)
    (work / "b.txt").write_text("no")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").strip()
    (work / "a.jsonl").write_text("changed\n")
    assert list(blobs.Repo(tmp_path, "owner/name", commit).files(("*.jsonl",))) == [("a.jsonl", b"{}\n")]
    with pytest.raises(blobs.NoCorpusError, match="has no commit"):
        blobs.Repo(tmp_path, "owner/name", "0" * 40)
