"""`verify.chain_and_files` over a whole run folder: silent when all is true, and naming each thing that is not."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from evotrainer.errors import StoreError
from evotrainer.records.briefing import Proposal
from evotrainer.records.events import Judged, Promoted, Proposed, TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.store import RolloutStore
from evotrainer.verify.chain_and_files import VerifyReport, verify_run
from tests.small_records import RECIPE, finished, group, intended, intervention, opened, verdict

WEIGHTS = b"weights of b1-s1"


def trial(folder: Path, name: str, first_task: int) -> TrialFinished:
    """Write what a finished trial leaves, and return its record."""
    policy = folder / "trials" / name / "policy"
    policy.mkdir(parents=True)
    (policy / "model.safetensors").write_bytes(WEIGHTS)
    parts = []
    for n, kind in enumerate(("rollouts", "sealed")):
        with RolloutStore(folder / kind / name) as store:
            store.append([group(first_task + n)])
            parts += store.seal()
    return finished(
        name,
        policy_path=f"trials/{name}/policy",
        policy_sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        parts=tuple(str(p.path.relative_to(folder)) for p in parts),
        parts_sha256=tuple(p.sha256 for p in parts),
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two branches, two finished trials and one that is still running."""
    folder = tmp_path / "run"
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        ledger.append("branch", "b0/opened", opened("b0", None, RECIPE))
        ledger.append("promoted", "v0", Promoted(version="v0", branch="b0", previous=None))
        child = RECIPE.with_factor("lr", 2e-4)
        change = intervention("lr", RECIPE.lr, 2e-4)
        said = Proposal(agent="fixed", interventions=(change,))
        ledger.append("proposed", "r1/proposed", Proposed(round=1, proposal=said))
        ledger.append("branch", "b1/opened", opened("b1", "b0", child, change))
        for name, first_task in (("b0-s1", 0), ("b1-s1", 10)):
            ledger.append("intended", f"{name}/intended", intended(name))
            ledger.append("finished", f"{name}/finished", trial(folder, name, first_task))
        ledger.append("intended", "b1-s2/intended", intended("b1-s2"))
        ledger.append("judged", "b1/judged", Judged(round=1, verdict=verdict("b1", "promote")))
        ledger.append("promoted", "v1", Promoted(version="v1", branch="b1", previous="b0"))
    with RolloutStore(folder / "rollouts" / "b1-s2") as store:
        store.append([group(20), group(21)])
    return folder


def said(report: VerifyReport) -> str:
    assert not report.ok
    return "\n".join(f"{p.area}: {p.message}" for p in report.problems)


def test_an_intact_run_verifies_and_says_what_was_checked(run: Path) -> None:
    report = verify_run(run)
    assert report.problems == ()
    assert report.ok
    assert report.checked == {"events": 11, "branches": 2, "trials": 2, "policies": 2, "parts": 4, "rollouts": 24}
    with Ledger.open(run / "ledger.db", readonly=True) as ledger:
        assert report.head == ledger.head[1]


def test_a_run_can_be_verified_while_it_writes(run: Path) -> None:
    with Ledger.open(run / "ledger.db"), RolloutStore(run / "rollouts" / "b1-s2") as store:
        store.append([group(22)])
        assert verify_run(run).ok


def test_what_a_running_run_names_while_it_is_verified_is_no_damage(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of the ledger and that of the folders a run goes on."""
    with Ledger.open(run / "ledger.db") as ledger:
        (run / "trials" / "b1-s9").mkdir(parents=True)
        named = partial(ledger.append, "intended", "b1-s9/intended", intended("b1-s9"))
        monkeypatch.setattr("evotrainer.verify.chain_and_files.time.sleep", lambda s: named())
        assert verify_run(run).ok
        (run / "trials" / "b7-s1").mkdir(parents=True)
        monkeypatch.setattr("evotrainer.verify.chain_and_files.time.sleep", lambda s: None)
        (problem,) = verify_run(run).problems
        assert problem.area == "rollouts" and "trials/b7-s1" in problem.message, "nobody names it"


def test_a_moved_run_still_verifies(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "elsewhere" / "copy")
    assert verify_run(tmp_path / "elsewhere" / "copy").ok


def _change(path: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        data = bytearray((run / path).read_bytes())
        data[len(data) // 2] ^= 4
        (run / path).write_bytes(data)

    return damage


def _remove(path: str) -> Callable[[Path], None]:
    return lambda run: (run / path).unlink()


def _replace_part(run: Path) -> None:
    """Swap a part for another one that is sound in itself, checksum file and all."""
    here, there = run / "rollouts" / "b0-s1", run / "other"
    with RolloutStore(there) as store:
        store.append([group(77)])
        store.seal()
    for name in ("part-00000.parquet", "part-00000.parquet.sha256"):
        (there / name).replace(here / name)
    shutil.rmtree(there)


def _rewrite_ledger(run: Path) -> None:
    db = sqlite3.connect(run / "ledger.db")
    db.executescript("DROP TRIGGER event_no_update; UPDATE event SET body=replace(body,'80.0','8.0') WHERE seq=6")
    db.close()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_change("trials/b1-s1/policy/model.safetensors"), "policy: trial b1-s1: .*does not match the SHA-256"),
        (_remove("trials/b1-s1/policy/model.safetensors"), "policy: trial b1-s1: policy .* is missing"),
        (_change("sealed/b0-s1/part-00000.parquet"), "rollouts: .*sealed/b0-s1/part-00000.*match its checksum"),
        (_remove("rollouts/b0-s1/part-00000.parquet"), "rollouts: trial b0-s1: part .* is missing"),
        (_replace_part, "rollouts: trial b0-s1: part .* has another checksum than the ledger"),
        (_change("rollouts/b1-s2/tail.log"), "rollouts: .*b1-s2/tail.log"),
        (_rewrite_ledger, "ledger: event 6 .*does not match its hash"),
    ],
)
def test_each_kind_of_damage_is_named(run: Path, damage: Callable[[Path], None], complaint: str) -> None:
    damage(run)

    assert re.search(complaint, said(verify_run(run)))


def test_rollouts_of_one_trial_copied_into_another_are_found(run: Path) -> None:
    shutil.copytree(run / "rollouts" / "b0-s1", run / "rollouts" / "b0-s9")
    assert "stored twice" in said(verify_run(run))


def test_false_claims_in_the_ledger_are_found_from_the_recipes_themselves(run: Path) -> None:
    two = RECIPE.with_factor("lr", 3e-4).with_factor("kl_beta", 0.1)
    lie = opened("b3", "b0", two, intervention("lr", RECIPE.lr, 3e-4)).model_copy(update={"recipe_hash": "0" * 16})
    with Ledger.open(run / "ledger.db") as ledger:
        ledger.append("branch", "b3/opened", lie)
        ledger.append("finished", "again", finished("b1-s1", cpu_s=1.0))
        ledger.append("intended", "b3-s1/intended", intended("b3-s1"))
        ledger.append("finished", "b3-s1/finished", finished("b3-s1", policy_path="../../etc", parts=("/etc/passwd",)))
    text = said(verify_run(run))
    assert "branch b3 declares lr: 0.0001 -> 0.0003" in text
    assert f"recipe hash {'0' * 16} recorded, {two.hash} computed" in text
    assert "trial b1-s1 is finished, and paid for, twice" in text
    assert "policy path ../../etc leads out of the run folder" in text
    assert "part /etc/passwd leads out of the run folder" in text


def test_a_folder_without_a_ledger_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no ledger at"):
        verify_run(tmp_path)


def test_files_a_trial_named_are_known_under_a_relative_path(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evotrainer.verify.files import added

    monkeypatch.chdir(run.parent)
    folder = Path(run.name)
    name = "trials/b1-s1/policy/model.safetensors"
    t = finished("b1-s1", files={name: "0" * 64})
    assert list(added(folder, t, (folder / "trials/b1-s1/policy").resolve())) == []
    (run / "trials/b1-s1/policy/extra.json").write_text("{}")
    (told,) = added(folder, t, (folder / "trials/b1-s1/policy").resolve())
    assert "trials/b1-s1/policy/extra.json is not in the ledger" in told
