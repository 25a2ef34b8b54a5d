"""`verify`: every attack that `bench/coevolution/tampering.py` knows is found on a small run, named,
and never a traceback.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from bench.coevolution import tampering

from evotrainer.records.briefing import Proposal
from evotrainer.records.durable import sha256_file, sha256_tree
from evotrainer.records.events import Judged, Promoted, Proposed, RunClosed, RunOpened, SplitScore, TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.rollout import rollout_id
from evotrainer.records.store import RolloutStore
from evotrainer.verify.chain_and_files import verify_run
from tests.small_records import RECIPE, finished, intended, intervention, opened, rollout, verdict


def trial(folder: Path, name: str) -> TrialFinished:
    """Everything a finished trial leaves, and its record."""
    own = folder / "trials" / name
    policy = own / "policy"
    policy.mkdir(parents=True)
    (policy / "model.safetensors").write_bytes(f"weights of {name}".encode() * 20)
    (policy / "tokenizer.json").write_text('{"vocab": {"a": 1}}')
    (own / "spec.json").write_text('{"trial": "' + name + '", "train": true}')
    parts = []
    for kind in ("rollouts", "sealed"):
        with RolloutStore(folder / kind / name) as store:
            store.append([[rollout(1, k, id=rollout_id(name, kind, 1, 0, "t", k)) for k in range(4)]])
            parts += store.seal()
    done = finished(
        name,
        policy_path=f"trials/{name}/policy",
        policy_sha256=sha256_file(policy / "model.safetensors"),
        parts=tuple(str(p.path.relative_to(folder)) for p in parts),
        parts_sha256=tuple(p.sha256 for p in parts),
        files=sha256_tree(own / "spec.json", folder) | sha256_tree(policy, folder),
        scores=(SplitScore(split="gate", step=3, score=0.5, attempts=2, per_task={"t1": 0.5}),),
    )
    (own / "result.json").write_text(done.model_dump_json())
    return done


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed run with two branches; read it, do not change it."""
    run = tmp_path_factory.mktemp("tampering") / "run"
    run.mkdir()
    (run / "task.toml").write_text("[run]\nseed = 3\n")
    child = RECIPE.with_factor("lr", 2e-4)
    with Ledger.open(run / "ledger.db", create=True) as ledger:
        described = {
            "task": "t",
            "task_hash": "0" * 16,
            "version": "0",
            "seed": 3,
            "agent": "fixed",
            "autonomy": "full",
        }
        rest = {
            "budget": {},
            "machine": {},
            "sandbox_tier": "A",
            "environment": {},
            "base_policy": {"path": "warm-start"},
            "draw": {"mode": "fixed", "commitment": "0" * 64},
        }
        task = sha256_file(run / "task.toml")
        ledger.append("run", "run", RunOpened.model_validate({"run": "run", "task_sha256": task, **described, **rest}))
        ledger.append("branch", "b0/opened", opened("b0", None, RECIPE))
        ledger.append("promoted", "v0", Promoted(version="v0", branch="b0", previous=None))
        change = intervention("lr", RECIPE.lr, 2e-4)
        proposal = Proposal(agent="fixed", interventions=(change,))
        ledger.append("proposed", "r1/proposed", Proposed(round=1, proposal=proposal))
        ledger.append("branch", "b1/opened", opened("b1", "b0", child, change))
        for name in ("b0-s1", "b1-s1"):
            ledger.append("intended", f"{name}/intended", intended(name))
            ledger.append("finished", f"{name}/finished", trial(run, name))
        ledger.append("judged", "b1/judged", Judged(round=1, verdict=verdict("b1", "promote")))
        ledger.append("promoted", "v1", Promoted(version="v1", branch="b1", previous="b0"))
        ledger.append("closed", "closed", RunClosed(reason="", champion="b1", cpu_s=160, wall_s=1, peak_rss_mb=1))
    return run


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def said(run: Path) -> tuple[str, ...]:
    return tuple(f"{p.area}: {p.message}" for p in verify_run(run).problems)


def test_the_run_is_sound_before_anything_is_done_to_it(sound: Path) -> None:
    assert said(sound) == ()
    assert verify_run(sound).checked["files"] == 6


@pytest.mark.parametrize("name", tampering.ATTACKS)
def test_each_attack_is_found(copy: Path, name: str) -> None:
    tampering.ATTACKS[name](copy)
    outcome, why = tampering.outcome(copy, lambda: said(copy))
    assert outcome == "found", why


@pytest.mark.parametrize("name", tampering.FORGERIES)
def test_who_rewrites_everything_is_found_by_the_head_that_was_noted(sound: Path, copy: Path, name: str) -> None:
    with Ledger.open(sound / "ledger.db", readonly=True) as ledger:
        head = ledger.head[1]
    tampering.FORGERIES[name](copy)
    assert "cut off the end, or the ledger was rewritten" in verify_run(copy, head=head).problems[0].message


@pytest.mark.parametrize("name", tampering.ADDED)
def test_what_was_recorded_since_the_noted_head_is_named(sound: Path, copy: Path, name: str) -> None:
    with Ledger.open(sound / "ledger.db", readonly=True) as ledger:
        head = ledger.head[1]
    assert verify_run(sound, head=head).notes == ()
    tampering.ADDED[name](copy)
    report = verify_run(copy, head=head)
    assert report.ok
    assert report.notes == ("recorded since the noted head: 1 event: b0-s1-invented/intended",)


def test_flips_in_any_file_are_found_or_change_nothing_that_is_read(copy: Path) -> None:
    """A small sample of `python -m bench.coevolution.fuzz`."""
    chance, before = random.Random(8), tampering.seen(copy)
    files = tampering.vouched_files(copy)
    kinds = {tampering.kind_of(copy, p) for p in files}
    assert {"ledger.db", "ledger.head", "task.toml", "rollouts/*/parquet", "trials/*/result.json"} <= kinds
    found = 0
    for n in range(2 * len(files)):
        path = files[n % len(files)]
        good = path.read_bytes()
        at, change = tampering.flip(path, chance)
        outcome, why = tampering.outcome(copy, lambda: said(copy))
        assert outcome != "crashed", f"{path.name}: byte {at} xor {change:#x}: {why}"
        found += outcome == "found"
        if outcome == "missed":
            assert tampering.seen(copy) == before, f"{path.name}: byte {at} xor {change:#x}"
        path.write_bytes(good)
        for left in copy.glob("ledger.db-*"):
            left.unlink()
    assert found > 0.99 * 2 * len(files)
    assert said(copy) == ()
