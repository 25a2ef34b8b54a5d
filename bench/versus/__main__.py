"""`evotrainer versus` judged: `python -m bench.versus [RUNS]` (default 2,000 simulated comparisons a row).

False words and power by trainings a side. Trainings are simulated from variance components (`judge.simulate`) and go
through the very `versus` of the command.
"""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from evotrainer.judge.simulate import Population, Rate
from evotrainer.judge.versus import Comparison, LogSide, versus

USUAL = Population()
"""300 tasks, 4 attempts, 2 points between seeds."""
SIDES = ((1, 1), (3, 1), (3, 3), (5, 5))
EFFECTS = (0.02, 0.05, 0.10)
MARGIN = 0.02

NULLS: Sequence[tuple[str, Population, bool]] = (
    ("2 points between seeds", USUAL, False),
    ("2 points between seeds, single tasks move", USUAL, True),
    ("0.5 points between seeds", replace(USUAL, seed_sd=0.005), True),
    ("6 points between seeds", replace(USUAL, seed_sd=0.06), True),
    ("60 tasks", replace(USUAL, tasks=60), True),
    ("10 tasks", replace(USUAL, tasks=10), True),
    ("6 tasks, 1 attempt a task", replace(USUAL, tasks=6, attempts=1), True),
    ("5 tasks: below the least, no word", replace(USUAL, tasks=5), True),
    ("1 attempt a task", replace(USUAL, attempts=1), True),
)


def compared(
    population: Population, sides: tuple[int, int], i: int, *, effect: float = 0.0, moving: bool = False
) -> Comparison:
    """One comparison of A, whose recipe is better by `effect`, with B. With one training a side the word is about these
    two policies: they are then simulated without what trainings differ by."""
    rng = np.random.default_rng([0, i])
    p_T = population.difficulties(rng)
    moved = population.spread(rng) if moving or effect else None
    sd = 0.0 if sides == (1, 1) else None
    a = population.trials("A", p_T, range(1, sides[0] + 1), rng, effect=effect, spread_T=moved, seed_sd=sd)
    b = population.trials("B", p_T, range(1, sides[1] + 1), rng, seed_sd=sd)
    return versus(LogSide("A", a), LogSide("B", b), margin=MARGIN)


def told(hits: int, runs: int) -> str:
    low, high = Rate(hits, runs).interval
    return f"{hits / runs:.1%} ({low:.1%} to {high:.1%})"


def null_rows(runs: int) -> list[str]:
    out = []
    for name, population, moving in NULLS:
        cells = []
        for sides in SIDES:
            words = Counter(compared(population, sides, i, moving=moving).word for i in range(runs))
            cells.append(told(words["better"], runs))
        out.append(f"| {name} | {' | '.join(cells)} |")
    return out


def margin_row(runs: int) -> str:
    cells = []
    for sides in SIDES:
        words = Counter(compared(USUAL, sides, i, effect=-MARGIN).word for i in range(runs))
        cells.append(told(words["better"] + words["no worse"], runs))
    return f"| A is worse by {100 * MARGIN:g} points, the margin | {' | '.join(cells)} |"


def power_rows(runs: int) -> list[str]:
    out = []
    for effect in EFFECTS:
        cells = [
            f"{sum(compared(USUAL, sides, i, effect=effect).word == 'better' for i in range(runs)) / runs:.0%}"
            for sides in SIDES
        ]
        out.append(f"| +{100 * effect:g} points | {' | '.join(cells)} |")
    return out


def least_rows(runs: int) -> list[str]:
    """The least difference as told (median), and how often a difference of that size was found."""
    medians, found = [], []
    for sides in SIDES:
        least = float(np.median([compared(USUAL, sides, i, moving=True).least or 0.0 for i in range(runs)]))
        medians.append(f"{100 * least:.1f}")
        hits = sum(compared(USUAL, sides, i, effect=least).word == "better" for i in range(runs))
        found.append(f"{hits / runs:.0%}")
    return [f"| told, points (median) | {' | '.join(medians)} |", f"| found | {' | '.join(found)} |"]


def naive_row(runs: int) -> str:
    """One training a side, were the word read as one on the recipes."""
    hits = 0
    for i in range(runs):
        rng = np.random.default_rng([1, i])
        p_T = USUAL.difficulties(rng)
        a, b = (USUAL.trials(name, p_T, (1,), rng) for name in "AB")
        hits += versus(LogSide("A", a), LogSide("B", b)).word == "better"
    return told(hits, runs)


def main(runs: int) -> None:
    start = time.process_time()
    heads = [f"{a} against {b}" for a, b in SIDES]
    head = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    rows = [*head, *null_rows(runs), margin_row(runs)]
    few = max(1, runs // 4)
    naive, powers, least = naive_row(runs), power_rows(few), least_rows(few)
    text = "\n".join(
        [
            "# `evotrainer versus` judged",
            "",
            f"`python -m bench.versus {runs}` on {platform.machine()}, Python {platform.python_version()}, "
            f"{date.today()}: {time.process_time() - start:.0f} CPU-s.",
            "",
            f"Simulated trainings: {USUAL.tasks} tasks of Beta({USUAL.alpha}, {USUAL.beta}) difficulty, "
            f"{USUAL.attempts} attempts, {100 * USUAL.seed_sd:.0f} points between seeds where a row says nothing else, "
            "alpha 0.025 (the default), trainings of A against trainings of B. With 1 against 1 the word is about two "
            "policies: no spread between seeds is simulated.",
            "",
            "## False words",
            "",
            f"Share of {runs} comparisons that say `better` where neither side is (exact 95% interval); last row: that "
            "say `no worse` or `better` where A is worse by just the margin. Below 6 tasks the command says no word.",
            "",
            *rows,
            "",
            f"Were the word of 1 against 1 read as one on the recipes, which it does not claim, `better` would be "
            f"false in {naive}: trainings of one recipe differ.",
            "",
            "## Power",
            "",
            "Share of comparisons that say `better`.",
            "",
            *head,
            *powers,
            "",
            "## The least difference",
            "",
            "What the command tells as found with a probability of 80%, and how often such a difference is found.",
            "",
            *head,
            *least,
            "",
        ]
    )
    Path(__file__).with_name("results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
