"""The judge judged: `python -m bench.judge [RUNS]` (default 500 simulated runs a row).

False promotions over whole A/A runs, beside the rules that people use instead, and power by effect and by when the
branch comes. Trials are simulated from variance components and go through the very `judge` of a run.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from bench.judge.bootstrap import hierarchical_bootstrap
from evotrainer.judge import JudgeConfig
from evotrainer.judge.simulate import Population, Rate, false_promotions, mean_score, power, run_looks
from evotrainer.judge.stats import effect, scores_of
from evotrainer.records.events import TrialFinished

LOOKS = 8
RULE = JudgeConfig(worthwhile=0.05, max_seeds=12)
"""As the task file's defaults have it."""
USUAL = Population()
"""300 tasks, 4 attempts, 2 points between seeds."""

NOISY = Population(seed_sd=0.06)
"""The same, 6 points between seeds."""

Trials = Sequence[TrialFinished]


def better_once(branch: Trials, control: Trials) -> bool:
    """Keep what scores better with one seed."""
    return branch[0].scores[0].score > control[0].scores[0].score


def better_mean(branch: Trials, control: Trials) -> bool:
    """Keep what scores better on the mean of three seeds."""
    return mean_score(branch) > mean_score(control)


def tasks_only(branch: Trials, control: Trials) -> bool:
    """Paired t test over tasks, each task's mean over seeds, 5% one-sided: seeds are forgotten."""
    b, c = scores_of(branch, "gate"), scores_of(control, "gate")
    d_T = np.array([sum(x[t] for x in b.values()) - sum(x[t] for x in c.values()) for t in b[1]]) / len(b)
    return float(d_T.mean()) > 1.645 * float(d_T.std(ddof=1)) / len(d_T) ** 0.5


def bootstrap(branch: Trials, control: Trials) -> bool:
    """Hierarchical bootstrap over 3 seeds and tasks, lower 5% percentile above 0."""
    low, _ = hierarchical_bootstrap(scores_of(branch, "gate"), scores_of(control, "gate"), confidence=0.9, draws=200)
    return low > 0


def unspent(branch: Trials, control: Trials) -> bool:
    """Our interval, but every look at the full 5%."""
    return effect(scores_of(branch, "gate"), scores_of(control, "gate"), confidence=0.9).low > 0


RULES: tuple[Callable[[Trials, Trials], bool], ...] = (better_once, better_mean, tasks_only, bootstrap, unspent)


def rule_rate(rule: Callable[[Trials, Trials], bool], runs: int) -> Rate:
    """Share of A/A runs in which the rule promotes at least one of the branches."""
    hits = 0
    for i in range(runs):
        rng = np.random.default_rng([0, i])
        p_T = USUAL.difficulties(rng)
        control = USUAL.trials("b0", p_T, (1, 2, 3), rng)
        hits += any(rule(USUAL.trials(f"b{j}", p_T, (1, 2, 3), rng), control) for j in range(1, LOOKS + 1))
    return Rate(hits, runs)


def row(name: str, rate: Rate) -> str:
    low, high = rate.interval
    return f"| {name} | {rate.value:.1%} | {low:.1%} to {high:.1%} | {rate.runs} |"


def false_promotion_rows(runs: int) -> list[str]:
    wild = [0.02, 0.06] * (LOOKS // 2)
    cases: list[tuple[str, Rate]] = [
        ("**the judge**, 3 A/A seeds", false_promotions(USUAL, looks=LOOKS, runs=2 * runs, config=RULE)),
        ("the judge, 5 A/A seeds", false_promotions(USUAL, looks=LOOKS, runs=runs, noise_seeds=5, config=RULE)),
        ("the judge, every second branch with 6 points between seeds",
         false_promotions(USUAL, looks=LOOKS, runs=runs, branch_sds=wild, config=RULE)),
        ("the judge, 0.5 points between seeds",
         false_promotions(Population(seed_sd=0.005), looks=LOOKS, runs=runs, config=RULE)),
        ("the judge, 60 tasks", false_promotions(Population(tasks=60), looks=LOOKS, runs=runs, config=RULE)),
        ("the judge, 24 looks", false_promotions(USUAL, looks=24, runs=runs // 2, config=RULE)),
    ]  # fmt: skip
    cases += [(f"instead: {(r.__doc__ or '').rstrip('.')}", rule_rate(r, min(runs, 300))) for r in RULES]
    return [row(*c) for c in cases]


def power_rows(runs: int) -> list[str]:
    out = []
    for points in (0.0, 0.03, 0.05, 0.10):
        for look in (1, 3, 8):
            three = power(USUAL, points, look=look, runs=runs, top_up=False)
            before = power(USUAL, points, look=look, runs=runs)
            grown = power(USUAL, points, look=look, runs=runs, config=RULE)
            eight = power(USUAL, points, look=look, runs=runs, config=RULE.model_copy(update={"max_seeds": 8}))
            shares = " | ".join(f"{x.value:.0%}" for x in (three, before, eight, grown))
            out.append(f"| {100 * points:+.0f} | {look} | {shares} |")
    return out


def planned_rows(runs: int) -> list[str]:
    """Seeds before the first look, and without: false promotions, power at a worthwhile effect by position."""
    out = []
    for name, population, points in (("2 points", USUAL, 0.05), ("6 points", NOISY, 0.10)):
        rule = RULE.model_copy(update={"worthwhile": points})
        for planned in (False, True):
            wrong = false_promotions(population, looks=LOOKS, runs=2 * runs, config=rule, planned=planned)
            found = [power(population, points, look=k, runs=runs, config=rule, planned=planned) for k in (1, 3, 8)]
            low, high = wrong.interval
            shares = " | ".join(f"{x.value:.0%}" for x in found)
            told = f"{wrong.value:.1%} ({low:.1%} to {high:.1%})"
            out.append(f"| {name}, {100 * points:+.0f} | {'before' if planned else 'on demand'} | {told} | {shares} |")
    return out


def optimism_rows(runs: int) -> list[str]:
    """By how much a promoted branch's effect overstates what was planted: as selected, and on three fresh seeds."""
    out = []
    for points in (0.02, 0.05, 0.10):
        selected, half, fresh = [], [], []
        for i in range(runs):
            rng = np.random.default_rng([7, i])
            p_T = USUAL.difficulties(rng)
            control, other = (USUAL.trials("b0", p_T, (1, 2, 3), rng) for _ in range(2))
            # one draw of how the change acts on tasks, for the selected seeds and the fresh ones
            branch = USUAL.trials("b1", p_T, range(1, 7), rng, effect=points)
            e = effect(scores_of(branch[:3], "gate"), scores_of(control, "gate"), confidence=0.98)
            if e.low > 0:
                selected.append(e.mean - points)
                half.append(mean_score(branch[3:]) - mean_score(control) - points)
                fresh.append(mean_score(branch[3:]) - mean_score(other) - points)
        if selected:
            means = " | ".join(f"{100 * np.mean(x):+.1f}" for x in (selected, half, fresh))
            out.append(f"| {100 * points:+.0f} | {len(selected) / runs:.0%} | {means} |")
    return out


def seeds_used(runs: int) -> str:
    """Mean trainings of useless branches, with further seeds on demand."""
    used = [
        sum({v.branch: int(next(g for g in v.gates if g.gate == "seeds").numbers["branch"]) for v in looks}.values())
        for i in range(runs)
        if (looks := run_looks(USUAL, [0.0] * LOOKS, np.random.default_rng([3, i]), config=RULE))
    ]
    return f"Useless branches train {sum(used) / len(used) / LOOKS:.1f} seeds on average, of 3 to {RULE.max_seeds}."


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main(runs: int) -> None:
    start = time.process_time()
    promotions = false_promotion_rows(runs)
    powers = power_rows(max(1, runs // 2))
    before = planned_rows(max(1, runs // 2))
    cpu = time.process_time() - start
    text = "\n".join(
        [
            "# The judge judged",
            "",
            f"`python -m bench.judge {runs}` on {platform.machine()}, Python {platform.python_version()}, "
            f"{date.today()}, commit {commit()}: {cpu:.0f} CPU-s.",
            "",
            f"Simulated trials: {USUAL.tasks} tasks of Beta({USUAL.alpha}, {USUAL.beta}) difficulty, {USUAL.attempts} "
            f"attempts, {100 * USUAL.seed_sd:.0f} points between seeds beyond the attempts' own sampling, 3 seeds a "
            "branch, up to 12 where a worthwhile effect (5 points) or a verdict asks for them, rounds of 3 branches, "
            "alpha 0.05 over the run, every look spends.",
            "",
            f"## False promotions in a whole run of {LOOKS} useless branches",
            "",
            "| rule | runs with a false promotion | exact 95% interval | runs |",
            "|---|---|---|---|",
            *promotions,
            "",
            "## Power: share of runs that promote the one branch with a true effect",
            "",
            "Position 8: after seven useless branches. Effect 0: a false promotion of that one branch.",
            "",
            "| effect, points | position | 3 seeds | up to 6, observed mean only (before) | "
            "up to 8, worthwhile 5 | **up to 12** |",
            "|---|---|---|---|---|---|",
            *powers,
            "",
            "## Seeds before the first look",
            "",
            "Up to 12 seeds, the effect is the worthwhile one. On demand: only after a verdict that asks for them.",
            "",
            "| between seeds, effect | seeds | runs with a false promotion | power at position 1 | 3 | 8 |",
            "|---|---|---|---|---|---|",
            *before,
            "",
            seeds_used(max(1, runs // 5)),
            "",
            "## How much a promoted effect overstates",
            "",
            "Points above what was planted, mean over promoted branches (one look at 1%, 3 seeds). Fresh: 3 new seeds "
            "of the branch, against the control of the selection (`judge.reestimate = champion`) or against fresh "
            "seeds of it (`promotions`).",
            "",
            "| effect, points | promoted | as selected | branch fresh | both fresh |",
            "|---|---|---|---|---|",
            *optimism_rows(runs),
            "",
        ]
    )
    (Path(__file__).parent / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
