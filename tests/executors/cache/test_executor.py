"""What a trial out of the cache is: the trial that would have run, said to be from the cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evotrainer.errors import IntegrityError
from evotrainer.executors.cache.rollouts import by_split
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.records.events import TrialFinished, TrialIntended
from evotrainer.records.keys import remainder
from evotrainer.records.ledger import Ledger
from evotrainer.records.reading import load
from evotrainer.records.weights import weights_sha256
from evotrainer.verify import Record
from evotrainer.verify.chain_and_files import CHECKS, verify_run
from tests.executors.cache.drawn import Place

GATE = EvalPlan(split="gate", attempts=4)
SEARCH = EvalPlan(split="search", attempts=4)
CERT = EvalPlan(split="cert", attempts=4)


def rollouts(folder: Path, trial: str) -> list[object]:
    return [
        r for kind in ("rollouts", "sealed") for r in load([folder / kind / trial]) if (folder / kind / trial).is_dir()
    ]


def body(t: TrialFinished) -> dict[str, object]:
    """A result without its cost, the cut of its rollouts into parts, and where it came from."""
    return t.model_dump(exclude={"cpu_s", "wall_s", "parts", "parts_sha256", "cached"})


def recorded(place: Place, run: str, spec: TrialSpec, result: TrialFinished) -> list[str]:
    """Record a trial as the loop does; what `verify` finds."""
    intended = TrialIntended(trial=spec.trial, branch="base", seed=spec.seed, purpose="base", reserve_cpu_s=1.0)
    with Ledger.open(place.run_dir(run) / "ledger.db") as ledger:
        ledger.append("intended", f"{spec.trial}/intended", intended)
        ledger.append("finished", f"{spec.trial}/finished", result.model_copy(update={"branch": "base"}))
        event = ledger.events()[-1]
        found = list(CHECKS["finished"](Record(place.run_dir(run), ledger.events()), event))
    return [p.message for p in found if "does not say what the ledger says" not in p.message]  # the branch is ours


def test_a_known_training_is_laid_down_as_if_it_had_run(place: Place) -> None:
    first, ran = place.go("r1", place.spec("r1"))
    assert ran == ["b0-s1"] and first[0].cached is None
    spec = place.spec("r2", "b7-s1", purpose="confirm", harness={}, cpu_limit_s=500.0)
    (taken,), ran = place.go("r2", spec)
    (alone,) = place.alone("r2", spec)
    assert not ran and body(taken) == body(alone)
    assert rollouts(place.run_dir("r2"), "b7-s1") == rollouts(place.folder / "alone" / "r2", "b7-s1")
    here, there = (p / "trials" / "b7-s1" for p in (place.run_dir("r2"), place.folder / "alone" / "r2"))
    assert (here / "spec.json").read_text() == (there / "spec.json").read_text()
    assert taken.cached and [p.split()[0] for p in taken.cached.parts] == [
        "training",
        "evaluation/search",
        "evaluation/gate",
    ]
    assert taken.cached.cpu_s == pytest.approx(10.0) and taken.cpu_s < 5.0, "the original's cost, and what was spent"
    assert recorded(place, "r2", spec, taken) == []
    assert TrialFinished.model_validate_json((here / "result.json").read_text()) == taken


def test_a_run_that_is_damaged_does_no_harm_to_the_cache(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    place.go("r2", place.spec("r2"))
    for run in ("r1", "r2"):
        for p in place.run_dir(run).rglob("*"):
            if p.is_file() and p.name != "ledger.db":
                p.write_bytes(b"damaged")
    (taken,), ran = place.go("r3", place.spec("r3"))
    assert not ran and recorded(place, "r3", place.spec("r3"), taken) == []


def test_a_known_training_under_another_evaluation_is_evaluated_and_not_trained(place: Place) -> None:
    place.go("r1", place.spec("r1", evals=(SEARCH,)))
    spec = place.spec("r2", "b3-s1", evals=(SEARCH, GATE, CERT))
    (taken,), ran = place.go("r2", spec)
    (alone,) = place.alone("r2", spec)
    assert ran == [remainder("b3-s1")] and body(taken) == body(alone)
    assert rollouts(place.run_dir("r2"), "b3-s1") == rollouts(place.folder / "alone" / "r2", "b3-s1")
    assert recorded(place, "r2", spec, taken) == []
    assert not list(place.run_dir("r2").glob("*/*-rest")), "what computed the rest is gone"
    assert taken.cached and [p.split()[0] for p in taken.cached.parts] == ["training", "evaluation/search"]
    assert taken.cpu_s > 10.0, "the evaluation was paid for"
    (again,), ran = place.go("r3", place.spec("r3", evals=(CERT,)))
    assert not ran and again.cached, "cert was kept from the rest"


def test_what_must_differ_is_computed(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    recipe = place.task.recipe
    (place.folder / "other").mkdir()
    shutil.copy(place.base / "config.json", place.folder / "other")
    (place.folder / "other" / "model.safetensors").write_text("other weights")
    for n, changes in enumerate(
        (
            {"seed": 2},
            {"recipe": recipe.with_factor("lr", recipe.lr / 3)},
            {"sampler_dtype": "bf16"},
            {"accept_tier_e": True},
            {"policy_dir": str(place.folder / "other")},
            {"environment": {**place.task.environment, "more": 1}},
            {"trainer_options": {"chat": "x"}},
        )
    ):
        _, ran = place.go(f"x{n}", place.spec(f"x{n}", **changes))
        assert ran == ["b0-s1"], changes
    warm = recipe.model_copy(update={"temperature": 0.5})
    for n, changes in enumerate(({"protocol": warm}, {"env_knobs": {"a": 1}})):
        (t,), ran = place.go(f"y{n}", place.spec(f"y{n}", **changes))
        assert ran == [remainder("b0-s1")] and t.cached and len(t.cached.parts) == 1, changes


def test_an_evaluation_and_a_warm_start_are_kept_too(place: Place) -> None:
    base = {"train": False, "policy_dir": "", "warm_start": place.task.policy.warm_start, "purpose": "base", "seed": 0}
    first, _ = place.go("r1", place.spec("r1", "base", **base))
    spec = place.spec("r2", "base", **base, recipe=place.task.recipe.with_factor("lr", 1e-5))
    (taken,), ran = place.go("r2", spec)
    assert not ran and taken.cached and taken.cached.parts[0].startswith("warm start")
    assert taken.policy_sha256 == first[0].policy_sha256 == weights_sha256(place.run_dir("r2") / "trials/base/policy")
    more = {
        "train": False,
        "purpose": "certify",
        "evals": (CERT,),
        "policy_step": 2,
        "policy_dir": "trials/base/policy",
    }
    place.go("r1", place.spec("r1", "b0-s1-cert", **more, seed=1, branch="b0"))
    cert = place.spec("r2", "b5-s1-cert", **more, seed=1, branch="b5")
    (taken,), ran = place.go("r2", cert)
    assert not ran and taken.policy_path == "trials/base/policy" and not taken.steps
    place.alone("r2", spec, cert)
    assert rollouts(place.run_dir("r2"), "b5-s1-cert") == rollouts(place.folder / "alone" / "r2", "b5-s1-cert")


def test_a_repetition_of_an_evaluation_is_never_taken_from_the_cache(place: Place) -> None:
    again = {"train": False, "purpose": "audit", "evals": (SEARCH,)}
    for run in ("r1", "r2"):
        _, ran = place.go(run, place.spec(run, "b0-s1-recheck", seed=1, **again))
        assert ran == ["b0-s1-recheck"]
    assert not place.entries()
    for run, computed in (("r3", 1), ("r4", 0)):  # an audit under a closed shortcut is an evaluation like any other
        _, ran = place.go(run, place.spec(run, "b0-s1-audit", seed=1, env_knobs={"git": "off"}, **again))
        assert len(ran) == computed


def test_a_failure_and_what_a_fault_took_part_in_are_not_kept(place: Place) -> None:
    (t,), _ = place.go("r1", place.spec("r1"), failing=["b0-s1"])
    assert t.status == "failed" and not place.entries()
    place.go("r2", place.spec("r2"), lost=["b0-s1"])
    (t,), ran = place.go("r3", place.spec("r3"))
    assert ran == [remainder("b0-s1")], "search lost an attempt; training and gate did not"
    assert t.cached and [p.split()[0] for p in t.cached.parts] == ["training", "evaluation/gate"]


def test_a_rest_that_fails_is_computed_as_a_whole(place: Place) -> None:
    place.go("r1", place.spec("r1", evals=(SEARCH,)))
    (t,), ran = place.go("r2", place.spec("r2"), failing=[remainder("b0-s1")])
    assert ran == [remainder("b0-s1"), "b0-s1"] and t.status == "complete" and t.cached is None
    assert not list(place.run_dir("r2").glob("*/*-rest"))


def test_what_a_trial_was_begun_with_is_not_known_later(place: Place) -> None:
    """It is continued, and not kept: the files it was begun with may have changed since."""
    spec = place.spec("r1")
    folder = place.run_dir("r1") / "trials" / "b0-s1"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(spec.model_dump_json())
    place.go("r1", spec)
    assert not place.entries()
    place.go("r2", place.spec("r2"))
    (folder.parent / "b0-s1" / "result.json").unlink()
    _, ran = place.go("r1", spec)
    assert ran == ["b0-s1"], "also where the cache knows it by now"


def test_rollouts_that_were_changed_are_not_kept(place: Place) -> None:
    (t,), _ = place.go("r1", place.spec("r1"))
    part = place.run_dir("r1") / t.parts[0]
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match="is not what its trial stored"):
        by_split(place.run_dir("r1"), t.parts, t.parts_sha256)


def test_a_training_that_was_dearer_than_the_limit_is_computed(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    _, ran = place.go("r2", place.spec("r2", cpu_limit_s=5.0))
    assert ran == ["b0-s1"]


def test_an_open_run_with_a_rest_in_progress_verifies(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    run = place.run_dir("r2")
    with Ledger.open(run / "ledger.db") as ledger:
        intended = TrialIntended(trial="base", branch="base", seed=0, purpose="base", reserve_cpu_s=1.0)
        ledger.append("intended", "base/intended", intended)
    shutil.copytree(place.run_dir("r1") / "rollouts" / "b0-s1", run / "rollouts" / remainder("base"))
    (run / "trials" / remainder("base")).mkdir(parents=True)
    assert not [p for p in verify_run(run).problems if "no trial of this name" in p.message]
    (run / "trials" / remainder("b9-s1")).mkdir()
    assert [p for p in verify_run(run).problems if "no trial of this name" in p.message]


def test_the_specification_in_the_run_is_the_runs_own(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    place.go("r2", place.spec("r2", "b4-s1"))
    told = json.loads((place.run_dir("r2") / "trials" / "b4-s1" / "spec.json").read_text())
    assert (told["run"], told["branch"], told["trial"]) == ("r2", "b4", "b4-s1")
