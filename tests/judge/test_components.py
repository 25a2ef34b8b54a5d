"""`judge.components`: what trials are measured to consist of."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.errors import ConfigError
from evotrainer.judge.components import measured, seed_correlation
from evotrainer.judge.simulate import Population, trial
from tests.judge.scored_trials import repeats


def test_components_come_back_from_simulated_trials() -> None:
    p = Population(tasks=400, attempts=8, seed_sd=0.05)
    m = measured(repeats(60, p), None, [0.0, 0.0009, 0.0016])
    assert m.seed_sd == pytest.approx(0.05, rel=0.35)
    assert m.seed_sd < m.trial_sd and m.seed_sd < m.seed_sd_high
    assert (m.tasks, m.attempts, m.df) == (400, 8, 59)
    assert m.task_branch_sd == pytest.approx(0.035, abs=0.001) and m.task_branch_measured
    assert all(0 < x < 1 for x in m.difficulties)
    assert not measured(repeats(3), None, []).task_branch_measured
    with pytest.raises(ConfigError, match=r"1 scored trial\(s\) of the starting recipe"):
        measured(repeats(1), None, [])


def test_seeds_that_move_together_correlate() -> None:
    rng = np.random.default_rng(1)
    base = {s: 0.5 + 0.1 * rng.standard_normal() for s in range(8)}
    side = [[trial(n, s, {f"t{i}": p for i in range(4)}, 1) for s, p in base.items()] for n in ("b0", "b1")]
    assert seed_correlation([(side[1], side[0])]) == pytest.approx(1.0)
    assert seed_correlation([(side[1][:3], side[0][:3])]) is None
