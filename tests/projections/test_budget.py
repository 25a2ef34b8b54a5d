"""`projections.budget`: reserved before, settled after, the same when rebuilt from the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import BudgetError, ConfigError
from evotrainer.projections.budget import Budget
from evotrainer.records.chain import Event
from evotrainer.records.events import RunClosed
from evotrainer.records.frozen import Frozen
from tests.small_records import finished, intended

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(at_s: float, body: Frozen) -> Event:
    return Event(1, "e", "", (START + timedelta(seconds=at_s)).isoformat(timespec="milliseconds"), body, "")


def test_a_reservation_that_does_not_fit_says_what_is_asked_left_and_needed() -> None:
    budget = Budget({"cpu_s": 300, "trials": 5})
    budget.reserve("b1-s1", cpu_s=100, trials=1)
    budget.settle("b1-s1", cpu_s=120, trials=1)
    budget.reserve("b1-s2", cpu_s=100, trials=1)
    assert budget.left() == {"cpu_s": 80, "trials": 3}
    with pytest.raises(BudgetError) as refused:
        budget.reserve("b1-s3", cpu_s=100, trials=1)
    assert str(refused.value) == (
        "100 CPU-seconds asked, 80 left of budget.cpu_s=300 (120 spent, 100 reserved); raise it to 320 or more"
    )
    assert refused.value.exit_code != 0
    assert budget.reserved == {"cpu_s": 100, "trials": 1}, "a refused reservation reserves nothing"
    budget.settle("b1-s2", cpu_s=0, trials=1)
    budget.reserve("b1-s3", cpu_s=180, trials=1)
    assert budget.left()["cpu_s"] == 0


def test_reserving_again_replaces_and_a_refusal_keeps_the_first() -> None:
    budget = Budget({"cpu_s": 100})
    budget.reserve("a", cpu_s=60)
    budget.reserve("a", cpu_s=90)
    with pytest.raises(BudgetError):
        budget.reserve("a", cpu_s=101)
    assert budget.reserved == {"cpu_s": 90}


def test_what_is_not_limited_is_counted_and_never_refused() -> None:
    budget = Budget({})
    budget.charge(agent_tokens=5e6, dollars=1.25)
    budget.reserve("a", cpu_s=1e12)
    assert budget.left() == {}
    assert budget.spent["dollars"] == 1.25


def test_an_overrun_leaves_nothing_rather_than_less() -> None:
    budget = Budget({"cpu_s": 100})
    budget.charge(cpu_s=150)
    assert budget.left() == {"cpu_s": 0}
    with pytest.raises(BudgetError):
        budget.check(cpu_s=1)
    budget.check(cpu_s=0)


@pytest.mark.parametrize("limits", [{"tokens": 1.0}, {"cpu_s": -1.0}, {"cpu_s": float("nan")}])
def test_unknown_kinds_and_negative_amounts_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(limits))):
        Budget(limits)


def test_the_ledger_tells_what_is_spent_reserved_and_how_long_the_clock_ran() -> None:
    story = [
        event(0, intended("b0-s1", 100)),
        event(0, intended("b0-s2", 100)),
        event(30, finished("b0-s1", 70, wall_s=30)),
        event(40, finished("b0-s2", 90, wall_s=40)),
        event(1000, intended("b1-s1", 80)),  # the machine was off in between
        event(1020, finished("b1-s1", 75, wall_s=15)),
        event(1020, intended("b1-s2", 80)),
        event(1020, intended("b1-s3", 20, train=False)),
    ]
    budget = Budget.from_events(story, {"cpu_s": 1000, "trials": 10, "wall_s": 600})
    assert budget.spent["cpu_s"] == 70 + 90 + 75
    assert budget.spent["trials"] == 3
    assert budget.spent["wall_s"] == pytest.approx(40 + 15)
    assert budget.reserved == {"cpu_s": 100, "trials": 1}, "an unfinished trial holds its reservation after a kill"
    assert budget.left() == {"cpu_s": 665, "trials": 6, "wall_s": pytest.approx(545)}
    closing = event(1100, RunClosed(reason="", champion="", cpu_s=0, wall_s=90, peak_rss_mb=0))
    assert Budget.from_events([*story, closing], {}).spent["wall_s"] == 90


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 200)), max_size=30))
def test_reservations_never_pass_the_limit_whatever_trials_really_cost(trials: list[tuple[float, float]]) -> None:
    budget = Budget({"cpu_s": 500})
    for n, (reserve, cost) in enumerate(trials):
        try:
            budget.reserve(str(n), cpu_s=reserve)
        except BudgetError:
            assert budget.left()["cpu_s"] < reserve
            continue
        assert reserve < 1e-6 or budget.spent["cpu_s"] + budget.reserved["cpu_s"] <= 500 * (1 + 1e-6)
        if n % 2:
            budget.settle(str(n), cpu_s=cost)


def test_a_session_whose_clock_was_set_back_counts_on_top() -> None:
    """Its stamps lie within those of the session before, which it did not share a clock with."""
    story = [
        event(1000, intended("b0-s1", 100)),
        event(1040, finished("b0-s1", 70, wall_s=40)),
        event(1010, intended("b0-s2", 100)),
        event(1035, finished("b0-s2", 70, wall_s=25)),
    ]
    assert Budget.from_events(story, {}).spent["wall_s"] == pytest.approx(40 + 25)
