"""`rules.error_budget`: a false promotion stays as rare as alpha says, however many runs share a set of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from evotrainer.judge.inputs import JudgeConfig
from evotrainer.judge.simulate import Population, run_looks
from evotrainer.records.looks import LookRegister, share_of

ALPHA = 0.3
"""High, so that few simulated families tell right from wrong."""
FAMILIES = 60


def false_families(alphas: Sequence[float]) -> float:
    """Share of families of runs, one run per alpha, in which a change without effect was promoted."""
    small, rng, found = Population(tasks=60), np.random.default_rng(5), 0
    for _ in range(FAMILIES):
        runs = (
            run_looks(
                small,
                [0.0] * 4,
                rng,
                config=JudgeConfig(alpha=a, min_effect=0.0, max_seeds=3),
                per_round=2,
                top_up=False,
            )
            for a in alphas
        )
        found += any(v.kind == "promote" for run in runs for v in run)
    return found / FAMILIES


def test_five_runs_on_one_set_promote_nothing_falsely_more_often_than_one_may(tmp_path: Path) -> None:
    register = LookRegister(tmp_path / "looks.db")
    (tmp_path / "task.toml").touch()
    numbers = [register.join("set", f"run {k}", tmp_path) for k in range(5)]
    shared = [ALPHA * share_of(n) for n in numbers]
    assert sum(shared) < ALPHA
    assert false_families(shared) <= ALPHA
    assert false_families([ALPHA] * 5) > ALPHA, "what a new alpha for each run would do"


def test_the_shares_of_ever_more_runs_never_pass_one() -> None:
    assert sum(share_of(k) for k in range(1, 100_000)) == pytest.approx(1, abs=1e-4)
    assert all(share_of(k) > share_of(k + 1) for k in range(1, 50))
