"""Trainings that go on from another training, by real trials: from the cache or from the base policy on, killed or not,
in one batch or in several, they are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evotrainer.executors.cache import with_cache
from evotrainer.executors.cache.continued import in_order
from evotrainer.executors.cache.keys import Keys
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.executors.start_checkpoint import saved
from evotrainer.records.events import TrialFinished
from evotrainer.records.reading import load
from evotrainer.trainers.continued import STARTED
from tests.executors.cache.drawn import Place
from tests.executors.conftest import Make

pytestmark = pytest.mark.xdist_group("chains")  # trainings made once


class Real:
    """Runs that share a cache, their trials trained."""

    def __init__(self, folder: Path, task_file: Path, make: Make) -> None:
        self.place = Place(folder, task_file)
        self.first = make(steps=3).recipe
        self.second = self.first.with_factor("continuation", {"start": "champion", "steps": 2, "phases": []})
        self.other = self.second.with_factor("lr", self.first.lr / 2)
        self.make = make
        self.ran: list[str] = []

    def spec(self, run: str, branch: str, recipe: Any, seed: int = 1, **more: Any) -> TrialSpec:
        plan = (EvalPlan(split="search", attempts=1, tasks=4),)
        told: dict[str, Any] = {"evals": plan, "trial": f"{branch}-s{seed}", "checkpoint_every": 1}
        told |= {"health_every": 2, "run": run, "branch": branch, "seed": seed, "recipe": recipe, "protocol": recipe}
        return self.make(**(told | more))

    def go(self, run: str, *specs: TrialSpec, cached: bool = True, restarts: int = 2) -> list[TrialFinished]:
        """Results of trials, in their order; `ran` says which were computed, in the order in which they began."""
        at = self.place.run_dir(run)
        inner = Noted(LocalExecutor(at, 1, restarts), self.ran)
        executor = with_cache(inner, at, self.place.task, self.place.tell) if cached else inner  # type: ignore[arg-type]
        found = {r.trial: r for r in executor.run(specs)}
        return [found[s.trial] for s in specs]


class Noted:
    def __init__(self, executor: LocalExecutor, ran: list[str]) -> None:
        self.executor, self.ran = executor, ran

    def run(self, specs: Sequence[TrialSpec], on_progress: Any = lambda _: None) -> Iterator[TrialFinished]:
        self.ran += [s.trial for s in specs]
        return self.executor.run(specs, on_progress)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, task_file: Path, make_spec: Make) -> Real:
    return Real(tmp_path_factory.mktemp("chains"), task_file, make_spec)


@pytest.fixture(scope="module")
def whole(real: Real) -> TrialFinished:
    """The chain of `second` in one go, without a cache."""
    (t,) = real.go("whole", real.spec("whole", "b1", real.second), cached=False)
    return t


def learnt(t: TrialFinished) -> list[dict[str, float]]:
    """The curve without seconds."""
    return [{k: v for k, v in row.items() if not k.startswith("cpu_")} for row in t.curve]


def rollouts(real: Real, run: str, trial: str) -> list[Any]:
    stored = load([real.place.run_dir(run) / "rollouts" / trial])
    return sorted((r.split, r.step, r.task, r.k, r.completion, r.reward, r.advantage) for r in stored)


def test_a_chain_counts_everything_from_the_base_policy_on(real: Real, whole: TrialFinished) -> None:
    assert whole.status == "complete" and whole.steps == 5 and whole.cached is None and whole.start_sha256
    assert [s.step for s in whole.scores] == [5]
    assert [row["step"] for row in whole.curve] == [1, 2, 3, 4, 5]
    assert whole.training_s is not None and whole.training_s == whole.curve[-1]["cpu_s"] > whole.curve[2]["cpu_s"]
    assert [h.subject for h in whole.health] == ["b1/1@2 train", "b1/1@4 train", "b1/1@5 train", "b1/1@5 search"]


def test_a_known_training_is_gone_on_from_and_ends_in_the_same_bits(real: Real, whole: TrialFinished) -> None:
    (first,) = real.go("r1", real.spec("r1", "b0", real.first))
    real.ran.clear()
    (taken,) = real.go("r2", real.spec("r2", "b7", real.second))
    assert real.ran == ["b7-s1"] and not real.place.notes
    assert any("takes what it needs" in line for line in real.place.opened), "a run says that it may not train"
    assert (taken.policy_sha256, taken.start_sha256) == (whole.policy_sha256, first.policy_sha256)
    assert learnt(taken) == learnt(whole) and taken.scores == whole.scores
    assert rollouts(real, "r2", "b7-s1") == rollouts(real, "whole", "b1-s1")
    assert taken.cached and [p.split()[0] for p in taken.cached.parts] == ["start"]
    assert taken.training_s == taken.curve[-1]["cpu_s"] > (first.training_s or 0), "its cost counts from the base on"
    assert taken.cached.cpu_s == pytest.approx(first.training_s, abs=0.01)
    log = (real.place.run_dir("r2") / "rollouts" / "b7-s1").glob("part-*.parquet")
    assert len(list(log)) == 2, "the first part's rollouts were not sampled again"
    # the whole training is known now
    real.ran.clear()
    (again,) = real.go("r3", real.spec("r3", "b2", real.second))
    assert not real.ran and (again.policy_sha256, again.start_sha256) == (whole.policy_sha256, first.policy_sha256)
    assert again.cached and again.cached.cpu_s >= (taken.training_s or 0) - 0.01


@pytest.mark.slow
def test_what_was_trained_on_the_way_is_known_as_the_training_that_it_is(real: Real) -> None:
    (chained,) = real.go("r4", real.spec("r4", "b1", real.second, seed=2))
    assert chained.cached is None
    (alone,) = real.go("alone", real.spec("alone", "b0", real.first, seed=2), cached=False)
    (taken,) = real.go("r5", real.spec("r5", "b0", real.first, seed=2))
    assert taken.cached and [p.split()[0] for p in taken.cached.parts] == ["training"], "evaluated, not trained"
    assert taken.policy_sha256 == alone.policy_sha256 == chained.start_sha256
    assert rollouts(real, "r5", "b0-s2") == rollouts(real, "alone", "b0-s2") and learnt(taken) == learnt(alone)


@pytest.mark.slow
def test_of_one_batch_those_wait_that_train_what_another_one_trains_or_go_on_from_it(real: Real) -> None:
    real.ran.clear()
    asked = [("b1", real.second), ("b2", real.other), ("b0", real.first)]
    done = real.go("r6", *(real.spec("r6", b, recipe, seed=3) for b, recipe in asked))
    assert sorted(real.ran) == ["b0-s3-rest", "b1-s3", "b2-s3"], "of b0 the evaluation alone"
    assert [t.cached is not None for t in done] == [False, True, True]
    assert done[0].start_sha256 == done[1].start_sha256 == done[2].policy_sha256


def test_two_names_of_one_training_are_trained_once(real: Real) -> None:
    """A deployment temperature is no part of a training: of a branch that sets one and its control one waits."""
    colder = real.first.model_copy(update={"deploy_temperature": 0.5})
    k = Keys(real.place.run_dir("r7"), real.place.task, {"hash": "1"}, "c")
    specs = [real.spec("r7", b, recipe, seed) for b, recipe in (("b1", colder), ("b0", real.first)) for seed in (3, 4)]
    now, later = in_order(specs, {s.trial: k.making(s) for s in specs}, k)
    assert [s.trial for s in now] == ["b1-s3", "b1-s4"] and [s.trial for s in later] == ["b0-s3", "b0-s4"]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["trial:step:2", "start:trained", "trial:step:4"])
def test_a_killed_chain_ends_in_the_same_bits(
    point: str, real: Real, whole: TrialFinished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = tmp_path / "points"
    kill.write_text(point + "\n")
    monkeypatch.setenv("EVOTRAINER_KILL_AT", f"once:{kill}")
    run = f"killed-{point.replace(':', '-')}"
    (t,) = real.go(run, real.spec(run, "b1", real.second), cached=False)
    assert not kill.read_text() and t.resumed == 1
    assert t.policy_sha256 == whole.policy_sha256 and learnt(t) == learnt(whole)
    assert rollouts(real, run, "b1-s1") == rollouts(real, "whole", "b1-s1")


@pytest.mark.slow
def test_a_chain_that_was_killed_goes_on_from_what_the_cache_gave_it(
    real: Real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.go("r1", real.spec("r1", "b0", real.first))
    (alone,) = real.go("other", real.spec("other", "b1", real.other), cached=False)
    kill = tmp_path / "points"
    kill.write_text("trial:step:4\n")
    monkeypatch.setenv("EVOTRAINER_KILL_AT", f"once:{kill}")
    (t,) = real.go("taken", real.spec("taken", "b1", real.other))
    assert not kill.read_text() and t.resumed == 1 and t.cached
    assert t.policy_sha256 == alone.policy_sha256 and learnt(t) == learnt(alone)
    assert rollouts(real, "taken", "b1-s1") == rollouts(real, "other", "b1-s1")
    assert saved(real.place.run_dir("taken") / "trials" / "b1-s1") == t.cached.cpu_s, "it counts for the trial's limit"


@pytest.mark.slow
def test_a_damaged_training_is_told_and_trained_again(real: Real, whole: TrialFinished) -> None:
    for entry in real.place.entries():
        entry.unlink()
    real.go("r8", real.spec("r8", "b0", real.first, evals=()))
    (entry,) = real.place.entries()
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(bytes(data))
    (t,) = real.go("r9", real.spec("r9", "b1", real.second))
    assert t.policy_sha256 == whole.policy_sha256 and t.cached is None
    assert any("is deleted" in n or "trained again" in n for n in real.place.notes)
    assert not (real.place.run_dir("r9") / STARTED).exists()
