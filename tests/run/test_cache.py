"""Two real runs of one task that share a cache: the second trains nothing, decides the same, and verifies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.cache import describe
from evotrainer.cli.status import status_json
from evotrainer.projections.budget import Budget
from evotrainer.records.reading import load
from evotrainer.run.observer import SilentObserver
from evotrainer.views.fold import load_view
from evotrainer.views.summary import cost_lines
from tests.small_run import TINY

pytestmark = pytest.mark.xdist_group("cache")  # two runs, made once


class Notes(SilentObserver):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def pair(task_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[api.Run, api.Run]:
    folder = tmp_path_factory.mktemp("shared")
    overrides = [*TINY, f"run.cache={folder / 'cache'}", "budget.cpu_s=600", "budget.trial_cpu_s=60"]
    overrides += ["evaluation.draw=5", "run.looks=off"]  # the same gate and cert twice, and the same alpha
    overrides.append("judge.max_cost=9")  # trainings of half a second: whether one is dearer is chance
    return tuple(api.start(task_file, folder / at / "small", overrides) for at in ("one", "two"))  # type: ignore[misc]


def decided(run: api.Run) -> dict[str, Any]:
    """All that a run decided, without costs and where results came from."""
    out = {}
    for e in run.events():
        body = e.body.model_dump(mode="json")
        (body.get("draw") or {}).pop("commitment", None)  # the salt is each run's own
        body.pop("salt", None)
        for name in (
            "cpu_s",
            "wall_s",
            "cached",
            "parts",
            "parts_sha256",
            "peak_rss_mb",
            "reserve_cpu_s",
            "task_sha256",
            "task_hash",
            "key_sha256",
            "key",
            "next_key_sha256",
        ):
            body.pop(name, None)
        if e.kind == "finished":  # a specification names the run's own key
            body["files"] = {path: sha for path, sha in body["files"].items() if not path.endswith("/spec.json")}
        # ratios of measured seconds are each run's own
        for gate in body["verdict"]["gates"] if e.kind == "judged" else ():
            if gate["gate"] == "compute":
                gate["numbers"], gate["message"] = {}, ""
        for entry in body.get("curve", ()):
            for name in [k for k in entry if k.startswith("cpu_")]:
                del entry[name]
        if e.kind == "skill":  # it quotes the run's chain, whose hashes and times are each run's own
            body = {k: v for k, v in body["trial"].items() if k not in ("run", "proof")}
        for row in body["rows"] if e.kind == "certified" else ():
            if row["gained"]:
                row["gained"]["trials"].sort()  # in the order in which they ended
        out[e.id] = body
    return out


def test_the_second_run_computes_nothing_and_decides_the_same(pair: tuple[api.Run, api.Run]) -> None:
    first, second = pair
    finished = {e.body.trial: e.body for e in second.events() if e.kind == "finished"}
    assert all(t.cached for t in finished.values())
    one, two = decided(first), decided(second)
    assert one.keys() == two.keys()
    for key in one:
        assert _rounded(one[key]) == _rounded(two[key]), key


def _rounded(body: Any) -> Any:
    """Without what depends on costs: an agent's words name them."""
    text = json.dumps(body, sort_keys=True)
    return text if "cost" not in text and "budget" not in text else sorted(body)


def test_rollouts_and_policies_are_those_of_a_run_that_computed(pair: tuple[api.Run, api.Run]) -> None:
    first, second = pair
    for trial in (e.body for e in second.events() if e.kind == "finished"):
        for kind in ("rollouts", "sealed"):
            stores = [r.folder / kind / trial.trial for r in pair]
            assert [s.is_dir() for s in stores] in ([True, True], [False, False])
            if stores[0].is_dir():
                assert load([stores[0]]) == load([stores[1]]), trial.trial
    assert (first.folder / "trials/b0-s1/policy/model.safetensors").read_bytes() == (
        second.folder / "trials/b0-s1/policy/model.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_a_run_that_draws_its_own_gate_takes_the_trainings_and_evaluates_anew(
    pair: tuple[api.Run, api.Run], tmp_path: Path
) -> None:
    first, _ = pair
    again = api.start(first.folder / "task.toml", tmp_path / "own" / "small", ["evaluation.draw=fresh"])
    taken = {e.body.trial: e.body.cached.parts for e in again.events() if e.kind == "finished" and e.body.cached}
    assert [p.split()[0] for p in taken["b0-s1"]] == ["training", "evaluation/search"]
    assert not any(p.startswith(("evaluation/gate", "evaluation/cert")) for parts in taken.values() for p in parts)
    assert again.verify().problems == ()


def test_both_verify(pair: tuple[api.Run, api.Run]) -> None:
    for run in pair:
        run.report()
        assert run.verify().problems == ()


def test_the_budget_counts_what_was_spent_and_readers_see_both(pair: tuple[api.Run, api.Run]) -> None:
    first, second = pair
    spent = [Budget.from_events(r.events(), {}).spent for r in pair]
    cached = [e.body for e in second.events() if e.kind == "finished"]
    # what taking them cost, not what computing them had: how little that is depends on what else the machine does
    assert spent[1]["cpu_s"] == pytest.approx(sum(t.cpu_s for t in cached)) and all(t.cached for t in cached)
    assert spent[1]["trials"] == spent[0]["trials"]
    computed = sum(e.body.computed_cpu_s for e in first.events() if e.kind == "finished")
    assert sum(t.cached.cpu_s for t in cached) == pytest.approx(computed, rel=0.05)
    rows = {name: amount for name, amount, _, _ in cost_lines(load_view(second.folder))}
    trained = int(spent[0]["trials"])
    assert rows["Trainings"] == f"{trained}, {trained} from the cache" and "saved by the cache" in rows["CPU time"]
    assert set(status_json(second)["cached"]) == {t.trial for t in cached}
    assert f"{trained} from the cache" in (second.report()).read_text(encoding="utf-8")
    place = second.task.run.cache
    assert "entries" in describe(Path(place)) and place in describe(Path(place))


def test_a_run_with_another_gate_trains_nothing_again(
    pair: tuple[api.Run, api.Run], task_file: Path, tmp_path: Path
) -> None:
    """What differs is evaluated: real trials, real remainders."""
    cache = pair[0].task.run.cache
    run = api.start(
        task_file, tmp_path / "other", [*TINY, f"run.cache={cache}", "evaluation.gate_attempts=3", "run.rounds=0"]
    )
    trained = [e.body for e in run.events() if e.kind == "finished" and e.body.steps]
    assert trained and all(t.cached and t.cached.parts[0].startswith("training") for t in trained)
    assert {s.attempts for t in trained for s in t.scores if s.split == "gate"} == {3}
    assert not list(run.folder.glob("*/*-rest")) and run.verify().problems == ()
