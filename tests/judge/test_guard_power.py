"""What a run tells of a guard before it spends anything is what the judge does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.judge.guards import passed

from evotrainer.judge.guard_power import margin_needed, outlook, passes, seeds_needed, tasks_needed
from evotrainer.judge.simulate import Population

RUNS = 120


@pytest.mark.parametrize(
    ("tasks", "attempts", "seeds", "margin", "lost"),
    [
        (50, 4, 1, 0.10, 0.0),
        (50, 1, 3, 0.10, 0.0),
        (200, 4, 3, 0.05, 0.0),
        (200, 4, 5, 0.05, 0.025),
        (100, 4, 5, 0.10, 0.0),
        (200, 1, 1, 0.10, 0.0),
        (200, 4, 3, 0.05, 0.10),
    ],
)
def test_the_chance_that_is_told_is_the_judges_own(
    tasks: int, attempts: int, seeds: int, margin: float, lost: float
) -> None:
    """Within four standard errors of the simulation and the approximation's own five points."""
    population = replace(Population(), tasks=tasks, attempts=attempts)
    got = sum(passed(population, seeds, margin, lost, i) for i in range(RUNS)) / RUNS
    told = passes(tasks, attempts, seeds, margin, lost)
    assert abs(got - told) <= 0.05 + 4 * (told * (1 - told) / RUNS) ** 0.5, (got, told)


def test_a_loss_of_twice_the_margin_seldom_passes() -> None:
    population = replace(Population(), tasks=200)
    for seeds in (1, 3, 5):
        assert sum(passed(population, seeds, 0.05, 0.10, i) for i in range(RUNS)) <= 0.02 * RUNS


def test_what_would_do_does() -> None:
    needed = tasks_needed(4, 5, 0.05)
    assert needed is not None and passes(needed, 4, 5, 0.05) >= 0.8 > passes(needed // 2, 4, 5, 0.05)
    assert tasks_needed(4, 3, 0.02) is None, "trainings that differ by 2 points hide it, whatever the number of tasks"
    seeds = seeds_needed(200, 4, 0.05)
    assert seeds is not None and passes(200, 4, seeds, 0.05) >= 0.8 > passes(200, 4, seeds - 1, 0.05)
    margin = margin_needed(50, 4, 3)
    assert passes(50, 4, 3, margin) >= 0.8 > passes(50, 4, 3, margin - 0.01)


def test_more_tasks_attempts_and_trainings_help_and_a_loss_hurts() -> None:
    usual = passes(200, 4, 3, 0.05)
    assert passes(50, 4, 3, 0.05) < usual < passes(800, 4, 3, 0.05)
    assert passes(200, 1, 3, 0.05) < usual < passes(200, 4, 5, 0.05)
    assert passes(200, 4, 3, 0.05, 0.025) < usual


def test_a_guard_that_blocks_nearly_always_is_told_with_what_would_do() -> None:
    (told,) = outlook([("maths", 200, 4, 0.02)], 3)
    assert told.startswith("guard maths of 200 tasks, 4 attempts each, can hardly ever clear a margin of 2 points")
    assert "tasks would" not in told and "a margin of 7 points would" in told
    (told,) = outlook([("maths", 100, 4, 0.05)], 5)
    assert "often fails to clear" in told and "200 tasks would, or a margin of 7 points would" in told
    assert "trainings a side would" in outlook([("maths", 200, 4, 0.05)], 3)[0]
    assert outlook([("maths", 1000, 4, 0.10)], 3) == []
    each = [(f"g{i}", 60, 4, 0.10) for i in range(4)]
    assert "all 4 guards together" in outlook(each, 3)[-1]
    assert outlook([("one", 1, 1, 0.5)], 1), "a guard of one task"
