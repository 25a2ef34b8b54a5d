"""`bench.coevolution.forecasts`: scores against numbers worked out by other means, and from a real run's ledger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench.coevolution.forecasts import ForecastedBranch, crps, forecasts, score, score_one

from evotrainer.agents.forecasting import FOUND, promotion_chances, proof_of
from evotrainer.records.briefing import PromotionThreshold
from tests.agents.briefings import briefing
from tests.letters_on_paper import Go


def row(**fields: Any) -> ForecastedBranch:
    values = {
        "run": "r", "agent": "statistical", "branch": "b1", "round": 1, "mean": 0.02, "sd": 0.02, "promote": 0.3,
        "kind": "reject", "observed": 0.02, "se": 0.0,
    }  # fmt: skip
    return ForecastedBranch(**(values | fields))


def test_crps_equals_its_integral() -> None:
    from scipy.special import ndtr

    for mean, sd, x in ((0.0, 1.0, 0.3), (0.02, 0.03, -0.1)):
        grid = np.linspace(mean - 12 * sd, mean + 12 * sd, 200_001)
        loss = (ndtr((grid - mean) / sd) - (grid >= x)) ** 2
        assert crps(mean, sd, x) == pytest.approx(float(np.trapezoid(loss, grid)), rel=1e-3)


def test_an_honest_forecaster_is_calibrated_and_a_sure_one_is_not() -> None:
    rng = np.random.default_rng(0)
    true, seen = rng.normal(0.01, 0.02, 400), rng.normal(0.0, 0.01, 400)
    p = rng.uniform(0, 1, 400)
    kinds = ["promote" if rng.random() < x else "reject" for x in p]
    honest = [
        row(mean=0.01, sd=0.02, se=0.01, observed=float(t + e), promote=float(q), kind=k)
        for t, e, q, k in zip(true, seen, p, kinds, strict=True)
    ]
    s = score_one("a", honest)
    for level in ("0.5", "0.8", "0.95"):
        assert s.coverage[level] == pytest.approx(float(level), abs=0.06)
    assert s.skill is not None and s.skill > 0.2
    sure = score_one("b", [r.model_copy(update={"sd": 0.001, "mean": 0.05, "promote": 1.0}) for r in honest])
    assert (sure.coverage["0.95"] or 0) < 0.5 and (sure.crps or 0) > (s.crps or 0)
    assert sure.skill is not None and sure.skill < 0 and sure.bias == pytest.approx(0.05 - float(np.mean(true + seen)))


def test_brier_and_climatology_are_those_worked_out_by_hand() -> None:
    s = score_one("a", [row(promote=0.8, kind="promote"), row(promote=0.4), row(promote=0.1), row(promote=0.1)])
    assert s.brier == pytest.approx((0.04 + 0.16 + 0.01 + 0.01) / 4)
    assert s.brier_climatology == pytest.approx(0.25 * 0.75)


def test_nothing_measured_is_said_so() -> None:
    s = score_one("a", [row(kind="failed", observed=None, se=None, promote=None)])
    assert s.gains == s.chances == 0 and s.brier is s.crps is s.skill is None and s.coverage["0.5"] is None
    assert score([]) == []


def test_promotion_chances_follow_bar_and_rivals() -> None:
    bar = PromotionThreshold(gain=0.03 * FOUND, se=0.01)
    (alone,) = promotion_chances([(0.03, 0.01)], [bar], 1)
    assert alone == pytest.approx(0.5, abs=0.03)
    twins = promotion_chances([(0.03, 0.01), (0.03, 0.01)], [bar, bar], 2)
    assert twins[0] == pytest.approx(3 / 8, abs=0.03), "above the bar and above the other: P(max is this one, > median)"
    assert promotion_chances([(0.03, 0.01)], [None], 1) == [None]


def test_what_is_asked_is_asked_with_the_seeds_that_a_branch_will_have() -> None:
    three, four, five = (PromotionThreshold(gain=g, se=se) for g, se in ((0.13, 0.02), (0.05, 0.015), (0.03, 0.01)))
    b = briefing(promotion_threshold=three, planned=(three, four, five))
    assert [proof_of(b, gain) for gain in (0.2, 0.1, 0.05, 0.01)] == [three, four, five, five]
    paid = b.model_copy(update={"provable": four})
    assert proof_of(paid, 0.2) is three and proof_of(paid, 0.01) is four, "not with more than is paid for"
    assert proof_of(briefing(promotion_threshold=three), 0.1) is three and proof_of(briefing(), 0.1) is None


def test_a_run_with_the_statistical_agent_is_scored(go: Go) -> None:
    run = go("run", "run.branches=2")
    rows = forecasts(run.events())
    assert {r.branch for r in rows} == {b for b, x in run.state.branches.items() if x.intervention and x.verdict}
    assert all(r.promote is not None and 0 <= r.promote <= 1 and r.sd > 0 for r in rows)
    (scores,) = score([*rows, *rows])
    assert scores.agent == "statistical" and scores.branches == 2 * len(rows)
