"""Guards judged: `python -m bench.judge.guards [RUNS]` (default 300 simulated promotions a cell).

How often a guard blocks a policy that loses nothing or half of the margin, and lets one pass that loses twice the
margin. Trials are simulated from variance components and go through the judge's own `guards.gate`; beside it stands
what a run tells before it spends anything (`guard_power`).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np

from evotrainer.judge import JudgeConfig
from evotrainer.judge.guard_power import margin_needed, passes, tasks_needed
from evotrainer.judge.guards import SPLIT, gate
from evotrainer.judge.inputs import GuardReading
from evotrainer.judge.simulate import Population, Rate
from evotrainer.records.events import TrialFinished

SEEDS = (1, 3, 5)
TASKS = (50, 200, 1000)
ATTEMPTS = (1, 4)
MARGINS = (0.02, 0.05)
LOSSES = (0.0, 0.5, 2.0)
"""In margins."""


def on_guard(trials: Sequence[TrialFinished]) -> list[TrialFinished]:
    return [
        t.model_copy(update={"scores": tuple(s.model_copy(update={"split": SPLIT}) for s in t.scores)}) for t in trials
    ]


@cache
def lowest(population: Population, seeds: int, loss: float, i: int) -> float:
    """Lowest bound of one promotion that waits for a guard; it passes where that is no larger loss than the margin.

    With one training a side it is about these policies: none differ."""
    rng = np.random.default_rng([2, i])
    p_T = population.difficulties(rng)
    sd = 0.0 if seeds == 1 else None
    base = population.trials("base", p_T, (1,), rng, seed_sd=0.0)
    control = population.trials("b0", p_T, range(1, seeds + 1), rng, seed_sd=sd)
    moved = population.spread(rng)
    branch = population.trials("b1", p_T, range(1, seeds + 1), rng, effect=-loss, spread_T=moved, seed_sd=sd)
    read = GuardReading("g", 0.02, on_guard(base), on_guard(control), on_guard(branch))
    found = gate(read, JudgeConfig())
    low = min(found.numbers["low_to_base"], found.numbers["low_to_control"])
    assert found.passed is (low >= -read.margin)
    return low


def passed(population: Population, seeds: int, margin: float, loss: float, i: int) -> bool:
    return lowest(population, seeds, round(loss, 6), i) >= -margin


def shares(population: Population, margin: float, runs: int) -> list[list[Rate]]:
    """By loss and seeds: how often it passed."""
    return [
        [Rate(sum(passed(population, s, margin, f * margin, i) for i in range(runs)), runs) for s in SEEDS]
        for f in LOSSES
    ]


def rows(runs: int) -> list[str]:
    out = []
    for margin in MARGINS:
        for tasks in TASKS:
            for attempts in ATTEMPTS:
                population = replace(Population(), tasks=tasks, attempts=attempts)
                free, half, twice = shares(population, margin, runs)
                told = [passes(tasks, attempts, s, margin) for s in SEEDS]
                cells = [
                    f"{1 - a.value:.0%} ({1 - t:.0%}) / {1 - b.value:.0%} / {c.value:.1%}"
                    for a, b, c, t in zip(free, half, twice, told, strict=True)
                ]
                out.append(f"| {100 * margin:g} | {tasks:,} | {attempts} | {' | '.join(cells)} |")
                print(out[-1], flush=True)
    return out


def two(runs: int) -> list[str]:
    """Two guards of one kind: both must let it pass."""
    out = []
    for tasks, margin in ((200, 0.05), (1000, 0.05)):
        population = replace(Population(), tasks=tasks)
        cells = []
        for s in SEEDS:
            free, lost = (
                Rate(
                    sum(
                        passed(population, s, margin, 0.0, i) and passed(population, s, margin, loss, runs + i)
                        for i in range(runs)
                    ),
                    runs,
                )
                for loss in (0.0, 2 * margin)
            )
            cells.append(f"{1 - free.value:.0%} ({1 - passes(tasks, 4, s, margin) ** 2:.0%}) / {lost.value:.1%}")
        out.append(f"| {100 * margin:g} | {tasks:,} | 4 | {' | '.join(cells)} |")
    return out


def edge(runs: int) -> list[str]:
    """A loss of just the margin, and trainings that differ by other than is assumed."""
    out = []
    for name, sd, loss in (
        ("loses just the margin", 0.02, 1.0),
        ("loses twice the margin, trainings differ by 6 points", 0.06, 2.0),
        ("loses nothing, trainings differ by 0.5 points", 0.005, 0.0),
        ("loses nothing, trainings differ by 6 points", 0.06, 0.0),
    ):
        population = replace(Population(), seed_sd=sd)
        got = [Rate(sum(passed(population, s, 0.05, loss * 0.05, i) for i in range(runs)), runs) for s in SEEDS]
        out.append(f"| {name} | {' | '.join(f'{r.value:.1%}' for r in got)} |")
    return out


def needed() -> list[str]:
    out = []
    for margin in (0.01, 0.02, 0.03, 0.05, 0.10):
        cells = [f"{n:,}" if (n := tasks_needed(4, s, margin)) else "none" for s in SEEDS]
        out.append(f"| {100 * margin:g} points | {' | '.join(cells)} |")
    out += [
        f"| margin that 50, 200, 800 tasks clear | "
        f"{' | '.join(', '.join(f'{100 * margin_needed(t, 4, s):.0f}' for t in (50, 200, 800)) for s in SEEDS)} |"
    ]
    return out


def main(runs: int) -> None:
    start = time.process_time()
    head = ["| margin, points | tasks | attempts | 1 training a side | 3 | 5 |", "|---|---|---|---|---|---|"]
    short = ["| | 1 training a side | 3 | 5 |", "|---|---|---|---|"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    single, pairs, edges = rows(runs), two(runs), edge(runs)
    text = "\n".join(
        [
            "# Guards judged",
            "",
            f"`python -m bench.judge.guards {runs}` on {platform.machine()}, {os.cpu_count()} cores, Python "
            f"{platform.python_version()}, {date.today()}, commit {commit}: {time.process_time() - start:.0f} CPU-s.",
            "",
            f"{runs} simulated promotions a cell, each through the judge's own gate of a guard: tasks of Beta(0.6, "
            "0.6) difficulty, a branch that moves single tasks by 5 points (zero on average), trainings of one recipe "
            "2 points apart; one base policy, as many trainings of the control as of the branch. With 1 training a "
            "side the claim is about these two policies: none are apart. Standard error of a share: at most "
            f"{50 / runs**0.5:.1f} points.",
            "",
            "## One guard",
            "",
            "Blocked though nothing is lost (in brackets: as the run tells before it spends) / blocked though half of "
            "the margin is lost, which it allows / let through though twice the margin is lost.",
            "",
            *head,
            *single,
            "",
            "## Two guards at once",
            "",
            "Blocked though nothing is lost on either (as told) / let through though twice the margin is lost on one.",
            "",
            *head,
            *pairs,
            "",
            "## Let through, 300 tasks, 4 attempts, margin 5 points",
            "",
            *short,
            *edges,
            "",
            "## Tasks, 4 attempts each, with which four of five policies that lose nothing pass",
            "",
            "`none`: trainings that differ by 2 points hide such a loss, whatever the number of tasks. Last row: "
            "points.",
            "",
            *short,
            *needed(),
            "",
        ]
    )
    Path(__file__).with_name("guards.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
