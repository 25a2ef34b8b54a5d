"""`studies.backtest` on a real run: its champion, its verdicts, its branches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from evotrainer import api
from evotrainer.cli.backtest import backtest as backtest_command
from evotrainer.errors import ConfigError
from evotrainer.harness import Batch, HarnessContext, measure
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.projections.state import RunState
from evotrainer.records.events import HarnessEvolved, Invalidated
from evotrainer.records.ledger import Ledger
from evotrainer.records.store import load
from evotrainer.studies.backtest import backtest_detector, detector_of, replay_gate, subjects, versions
from evotrainer.studies.backtest.detectors import LazyMetrics
from evotrainer.studies.backtest.versions import _training, truth_of
from tests.leaky_task import TASK as TASK
from tests.small_records import finished as finished_body


def test_a_change_is_replayed_on_the_champion_as_the_loop_does(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    done = next((e.body for e in finished.events() if e.kind == "backtested" and e.body.round == 1), None)
    assert done is not None
    (s,) = subjects([finished.folder], branch="b0")
    before = takewhile(lambda e: e.body != done, finished.events())
    then = [e.body.trial for e in before if e.kind == "finished" and e.body.branch == "b0"]  # seeds were added later
    assert s.batch.n >= RolloutReader(finished.folder).batch(*then).n > 0
    again = backtest(done.intervention, s.recipe, RolloutReader(finished.folder).batch(*then), s.context)
    assert again == done.backtest, "the command and the loop say the same, every number"
    backtest_command([str(finished.folder), "group_filter=zero_variance"], as_json=True)
    (said,) = json.loads(capsys.readouterr().out)
    assert said["backtest"]["factor"] == "group_filter" and said["subject"].endswith("search")


def test_gate_and_cert_are_out_of_reach(finished: api.Run) -> None:
    with pytest.raises(ConfigError, match="belong to the judge"):
        subjects([finished.folder], split="gate")
    with pytest.raises(ConfigError, match=r"no trained branch 'b9'; there are: b0"):
        subjects([finished.folder], branch="b9")


def test_the_rule_in_force_flips_no_verdict_and_another_may(finished: api.Run) -> None:
    now = replay_gate(finished.folder, [f"alpha={finished.task.judge.alpha}"])
    assert {f.branch for f in now.flips} == {v.branch for v in finished.verdicts}
    assert not now.flipped
    bare = replay_gate(finished.folder, ["rule=score-only"])
    for f in bare.flips:
        assert f.now == "promote" if (f.mean or 0) > 0 else f.now != "promote"
    with pytest.raises(ConfigError, match="the judge has no setting luck"):
        replay_gate(finished.folder, ["luck=1"])


def test_a_detector_is_held_against_the_ledgers_truth_step_by_step(finished: api.Run, tmp_path: Path) -> None:
    trained = list(finished.state.branches)
    done = backtest_detector(detector_of("dead_groups", ["warn=0.0"]), [finished.folder], cache=tmp_path)
    assert [c.version for c in done.test.cases] == trained
    assert done.test.whole.bad == 0 and done.test.whole.recall is None
    marked = backtest_detector(
        detector_of("dead_groups", ["warn=0.0"]), [finished.folder], bad=["b1"], seen=["b0"], cache=tmp_path
    )
    case = next(c for c in marked.test.cases if c.version == "b1")
    assert case.bad and case.damage is not None and case.damage <= finished.task.recipe.steps
    assert marked.test.seen.n == 1 and marked.test.unseen.n == len(trained) - 1
    if case.fired and case.step is not None:
        assert case.lead == case.damage - case.step


def test_a_training_is_read_up_to_where_the_detector_fires(finished: api.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, list[tuple[int, int]]] = {}
    told: list[str] = []

    def noting(stores: Sequence[Path]) -> Iterator[tuple[int, int, Batch]]:
        mine = read.setdefault(stores[0].name.partition("-")[0], [])
        for first, last, batch in _training(stores):
            mine.append((first, last))
            yield first, last, batch

    monkeypatch.setattr(versions, "_training", noting)
    done = backtest_detector(
        detector_of("dead_groups", []), [finished.folder], bad=["b1"], progress=lambda what, i, of: told.append(what)
    )
    steps = finished.task.recipe.steps
    for c in done.test.cases:
        parts = read.get(c.version, [])
        assert bool(parts) == c.fired, "what is silent at the end is not asked when it began"
        assert [a for a, _ in parts] == [1, *(b + 1 for _, b in parts)][: len(parts)], "oldest first, no gap"
        assert not c.fired or (parts[-1][1] == c.step if c.step is not None else parts[-1][1] == steps)
    assert any(c.fired for c in done.test.cases)
    assert {w.rpartition("/")[2].split()[-1] for w in told} == set(finished.state.branches), "each branch is told of"


def test_metrics_on_demand_are_those_of_a_whole_reading(finished: api.Run) -> None:
    rollouts = load([finished.folder / "rollouts" / "b0-s1"], split="search")
    batch, context = Batch.of(rollouts), HarnessContext(recipe=finished.task.recipe)
    lazy, whole = LazyMetrics(batch, context), measure(batch, context)
    for name in ("accuracy", "reward_std", *[n for n in whole if n.startswith("rewards/")][:2]):
        assert lazy[name] == whole[name]
    assert lazy.get("no such metric") is None and set(lazy) == set(whole)


def test_the_truth_of_branches_follows_the_ledger(finished: api.Run) -> None:
    events, tree = finished.events(), finished.state
    assert {truth_of(tree, b) for b in tree.branches} == {False}

    def after_the_fall_of(branch: str) -> RunState:
        fall = Invalidated(branch=branch, descendants=(), reason="audit: history", champion="base", capability="key")
        return RunState.of([*events, replace(events[-1], kind="invalidated", body=fall)])

    assert truth_of(after_the_fall_of("b1"), "b1") is True
    assert truth_of(after_the_fall_of("b0"), "b1") is None, "an heir of a bad branch is no proof against itself"


def test_what_a_harness_had_seen_when_it_took_a_detector_up_comes_from_the_ledger(tmp_path: Path) -> None:
    from evotrainer.records.detectors import Admission, DetectorSpec
    from evotrainer.studies.backtest.versions import branches_read

    spec = DetectorSpec(name="mined_1", form="pattern", pattern="x")
    admission = Admission(detector=spec, admitted=True, reason="r", bad=("b2-s1 search",), clean=("b1-s2 search",))
    trials = ("b0-s1", "b1-s2", "b2-s1", "b3-s1")
    adopted = HarnessEvolved(
        version="h1", hash="h", harness={}, trigger="score_move", reason="r", added=(spec,), admissions=(admission,)
    )
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        for t in trials:
            ledger.append("finished", f"{t}/finished", finished_body(t))
        ledger.append("harness", "harness/b2/gap", adopted)
        ledger.append("finished", "b5-s1/finished", finished_body("b5-s1"))
        events = ledger.events()
    assert branches_read(events, "mined_1") == {"b0", "b3"}, "held out for its admission, or trained later: not seen"
    assert branches_read(events, "answer_leak") == set()


def test_the_forecast_page_ranks_what_was_trained(finished: api.Run) -> None:
    from bench.backtest.forecast import page, read, within

    runs = read([finished.folder])
    judged = {v.branch for v in finished.verdicts}
    assert {r.branch for r in runs.rows} == judged
    text = page(runs, [finished.folder])
    assert all(f"/{b} |" in text for b in judged) and "Target under 1/500 of a trial: " in text
    run = np.array(["a"] * 5)
    assert within(np.arange(5.0), np.arange(5.0) ** 3, run) == pytest.approx(1.0)
    assert np.isnan(within(np.zeros(5), np.arange(5.0), run))
