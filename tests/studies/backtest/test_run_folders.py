"""`studies.backtest` on a real run: its champion, its verdicts, its branches."""

from __future__ import annotations

import json
from itertools import takewhile

import numpy as np
import pytest

from evotrainer import api
from evotrainer.cli.backtest import backtest as backtest_command
from evotrainer.errors import ConfigError
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.studies.backtest import subjects
from tests.leaky_task import TASK as TASK


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
