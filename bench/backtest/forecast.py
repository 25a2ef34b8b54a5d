"""Do backtests foretell what training shows? `python -m bench.backtest.forecast RUN... [--out FILE]`.

Every branch that was trained is backtested again on what was stored of its parent before, and the forecast is held
against the branch's effect on gate. Writes forecast.md beside it. Runs with `run.agent=random` and `run.veto=false` say
most: there nobody chose by backtests, and what they contradict was trained as well.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from evotrainer import api
from evotrainer.harness import Batch, HarnessContext
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.records.events import TrialFinished
from evotrainer.records.interventions import Backtest
from evotrainer.records.reading import load

RESULTS = Path(__file__).parent / "forecast.md"
DRAWS = 20_000
SEED = 0
TARGET = 1 / 500


@dataclass(frozen=True, slots=True)
class Row:
    """A trained branch: what was forecast, and what came."""

    run: str
    branch: str
    factor: str
    backtest: Backtest
    recorded: str
    """Verdict of the backtest at the time; empty where none was recorded."""
    effect: float
    """Mean gate score minus its control's over common seeds, score units."""
    noise: float
    """Variance of that effect by chance alone, from the run's noise measurement."""
    kind: str
    """The judge's verdict."""
    valid: bool
    cpu_s: float
    """Of the backtest, rollouts in memory."""
    load_s: float
    trial_cpu_s: float
    """Of all trials of the branch."""
    trials: int


@dataclass(frozen=True, slots=True)
class Runs:
    rows: list[Row]
    vetoed: int
    """Interventions that were refused and never trained."""
    skipped: list[str]


def read(folders: Sequence[Path]) -> Runs:
    """Every trained branch of the runs."""
    rows: list[Row] = []
    skipped: list[str] = []
    vetoed = 0
    for folder in folders:
        run = api.open_run(folder)
        events = run.events()
        vetoed += sum(e.kind == "backtested" and e.body.vetoed for e in events)
        batches: dict[str, tuple[Batch, float]] = {}
        for name, b in run.state.branches.items():
            if b.parent is None or b.intervention is None:
                continue
            row = _row(run, events, name, batches)
            if row is None:
                skipped.append(f"{folder.name}/{name}")
            else:
                rows.append(row)
    return Runs(rows, vetoed, skipped)


def _row(run: api.Run, events: Sequence[Any], name: str, batches: dict[str, tuple[Batch, float]]) -> Row | None:
    tree = run.state
    b = tree.branches[name]
    assert b.parent is not None and b.intervention is not None
    control = tree.branches[b.parent]
    own, other = gate_scores(b.complete), gate_scores(control.complete)
    seeds = sorted(own.keys() & other.keys())
    if not seeds or b.verdict is None:
        return None
    if b.parent not in batches:
        began = time.process_time()
        stored = load([run.folder / "rollouts" / t.trial for t in control.complete], split="search")
        batches[b.parent] = (Batch.of(stored), time.process_time() - began)
    batch, load_s = batches[b.parent]
    context = HarnessContext(recipe=control.recipe, proxy=tree.proxy, max_tokens=run.task.recipe.max_tokens)
    began = time.process_time()
    said = backtest(b.intervention, control.recipe, batch, context)
    cpu = time.process_time() - began
    recorded = next(
        (e.body.backtest.verdict for e in events
         if e.kind == "backtested" and e.body.round == b.round and e.body.intervention == b.intervention),
        "",
    )  # fmt: skip
    noise = next((e.body for e in reversed(events) if e.kind == "noise"), None)
    costs = [t.cpu_s for t in b.complete]
    return Row(
        run.folder.name, name, b.intervention.factor, said, recorded,
        float(np.mean([own[s] - other[s] for s in seeds])),
        2 * noise.seed_sd**2 / len(seeds) if noise else float("nan"),
        b.verdict.kind, b.invalid is None and b.verdict.kind != "invalid", cpu, load_s, float(sum(costs)), len(costs),
    )  # fmt: skip


def gate_scores(trials: Sequence[TrialFinished]) -> dict[int, float]:
    """Seed -> mean gate score at the end of training."""
    return {t.seed: float(s.score) for t in trials for s in t.scores if s.split == "gate" and s.score is not None}


# -- statistics --------------------------------------------------------------------------------------------------------


def within(x: np.ndarray, y: np.ndarray, run: np.ndarray) -> float:
    """Spearman's rank correlation within runs, runs weighted by their number of branches; NaN where nothing varies."""
    total = weight = 0.0
    for r in np.unique(run):
        a, b = rankdata(x[run == r]), rankdata(y[run == r])
        if len(a) >= 3 and a.std() > 0 and b.std() > 0:
            total += len(a) * float(np.corrcoef(a, b)[0, 1])
            weight += len(a)
    return total / weight if weight else float("nan")


def permutation_p(x: np.ndarray, y: np.ndarray, run: np.ndarray, draws: int = DRAWS) -> float:
    """One-sided p of `within`: forecasts permuted within each run (the observed order counted as one draw)."""
    seen = within(x, y, run)
    if np.isnan(seen):
        return float("nan")
    rng = np.random.default_rng(SEED)
    total, weight = np.zeros(draws), 0
    for r in np.unique(run):
        a, b = (rankdata(v[run == r]) - (np.sum(run == r) + 1) / 2 for v in (x, y))
        if len(a) >= 3 and a.std() > 0 and b.std() > 0:
            drawn = rng.permuted(np.tile(a, (draws, 1)), axis=1)
            total += len(a) * (drawn @ b) / np.sqrt((a @ a) * (b @ b))
            weight += len(a)
    return float((np.sum(total / weight >= seen - 1e-12) + 1) / (draws + 1))


def bootstrap(x: np.ndarray, y: np.ndarray, run: np.ndarray, draws: int = 1000) -> tuple[float, float]:
    """95% percentile interval of `within`, branches resampled within their run."""
    rng = np.random.default_rng(SEED)
    places = [np.flatnonzero(run == r) for r in np.unique(run)]
    values = []
    for _ in range(draws):
        rows = np.concatenate([rng.choice(p, len(p)) for p in places])
        values.append(within(x[rows], y[rows], run[rows]))
    known = [v for v in values if not np.isnan(v)]
    return (float(np.quantile(known, 0.025)), float(np.quantile(known, 0.975))) if known else (float("nan"),) * 2


def reliability(rows: Sequence[Row]) -> float:
    """Share of the effects' variance that is no noise: no forecast can correlate better than its square root."""
    y = np.array([r.effect for r in rows])
    return (
        max(0.0, 1 - float(np.nanmean([r.noise for r in rows])) / float(y.var(ddof=1))) if len(y) > 2 else float("nan")
    )


SINGLE: dict[str, Callable[[dict[str, float]], float | None]] = {
    "fewer dead groups": lambda m: _minus(m, "dead_before", "dead_after"),
    "fewer misranked pairs": lambda m: _minus(m, "misranked_before", "misranked_after"),
    "correlation with correctness": lambda m: _minus(m, "correlation_after", "correlation_before"),
    "keep rate": lambda m: m.get("keep_rate"),
    "less signal lost": lambda m: None if "lost_signal" not in m else -m["lost_signal"],
}


def _minus(m: dict[str, float], a: str, b: str) -> float | None:
    return m[a] - m[b] if a in m and b in m else None


# -- the page ----------------------------------------------------------------------------------------------------------


def rank_line(name: str, rows: Sequence[Row], values: Sequence[float]) -> str:
    if len(rows) < 4:
        return f"| {name} | {len(rows)} | - | - | - |"
    x, y, run = np.array(values, dtype=float), np.array([r.effect for r in rows]), np.array([r.run for r in rows])
    rho, (low, high), p = within(x, y, run), bootstrap(x, y, run), permutation_p(x, y, run)
    if np.isnan(rho):  # fewer than three branches in every run, or nothing varies
        return f"| {name} | {len(rows)} | - | - | - |"
    return f"| {name} | {len(rows)} | {rho:+.2f} | {low:+.2f} to {high:+.2f} | {p:.4f} |"


def cell(rows: Sequence[Row]) -> str:
    """n, mean effect with its standard error, gains, promotions."""
    y = np.array([r.effect for r in rows])
    if not len(y):
        return "0 | - | - | - | -"
    se = f"{100 * y.std(ddof=1) / np.sqrt(len(y)):.1f}" if len(y) > 1 else "-"
    return (
        f"{len(y)} | {100 * y.mean():+.1f} | {se} | {(y > 0).mean():.0%} | "
        f"{np.mean([r.kind == 'promote' for r in rows]):.0%}"
    )


def terciles(rows: Sequence[Row]) -> list[list[Row]]:
    """Lowest, middle and highest third of the forecasts, thirds of each run."""
    out: list[list[Row]] = [[], [], []]
    for run in dict.fromkeys(r.run for r in rows):
        own = sorted((r for r in rows if r.run == run), key=lambda r: r.backtest.forecast or 0.0)
        for i, r in enumerate(own):
            out[min(2, 3 * i // len(own))].append(r)
    return out


def page(runs: Runs, folders: Sequence[Path]) -> str:
    valid = [r for r in runs.rows if r.valid]
    told = [r for r in valid if r.backtest.forecast is not None]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    lines = [
        "# Do backtests foretell what training shows?", "",
        f"`python -m bench.backtest.forecast {' '.join(f.name for f in folders)}`, {date.today()}, "
        f"commit {commit.strip()}; {platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}. Written by the script.", "",
        f"{len(runs.rows)} trained branches of {len({r.run for r in runs.rows})} runs "
        f"({sum(not r.valid for r in runs.rows)} invalid ones left out below: a gain by a shortcut is none); "
        f"{len(told)} with a forecast; {runs.vetoed} interventions vetoed and never trained; {len(runs.skipped)} "
        f"branches without scores or verdict{': ' + ', '.join(runs.skipped) if runs.skipped else ''}.", "",
        "Effect: mean gate score minus the parent's over common seeds. Ranks are compared within runs; p: one-sided, "
        f"forecasts permuted within runs ({DRAWS:,} draws); interval: bootstrap over branches, 95%.", "",
        "## Ranking", "", "| predictor | branches | rank correlation | 95% | p |", "|---|---|---|---|---|",
        rank_line("**forecast**, where there is one", told, [r.backtest.forecast or 0.0 for r in told]),
        rank_line("forecast, 0 where the replay says nothing", valid, [r.backtest.forecast or 0.0 for r in valid]),
        rank_line("verdict (contradicts -1, silent 0, supports 1)", valid,
                  [VERDICTS[r.backtest.verdict] for r in valid]),
    ]  # fmt: skip
    for name, number in SINGLE.items():
        some = [(r, v) for r in valid if (v := number(r.backtest.numbers)) is not None]
        lines.append(rank_line(f"{name} alone", [r for r, _ in some], [v for _, v in some]))
    rel = reliability(valid)
    lines += [
        "",
        f"Of the effects' variance {rel:.0%} is more than repeated trainings vary (A/A noise): no forecast can reach "
        f"a correlation above {rel**0.5:.2f}.",
        "", "## Calibration", "",
        "| backtest | branches | mean effect, points | its standard error | gained | promoted |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {v} | {cell([r for r in valid if r.backtest.verdict == v])} |" for v in VERDICTS]
    for name, rows in zip(("lowest", "middle", "highest"), terciles(told), strict=True):
        lines.append(f"| {name} third of the forecasts | {cell(rows)} |")
    lines += cost_lines(runs.rows)
    changed = [f"{r.run}/{r.branch}" for r in runs.rows if r.recorded and r.recorded != r.backtest.verdict]
    if changed:
        lines += ["",
                  f"{len(changed)} verdicts differ from those recorded at the time (another version, "
                  f"or another batch): {', '.join(changed[:20])}."]  # fmt: skip
    lines += ["", "## Branches", "", "| branch | factor | backtest | forecast | effect, points | verdict |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for r in sorted(runs.rows, key=lambda r: (r.run, -(r.backtest.forecast or 0.0))):
        f = "-" if r.backtest.forecast is None else f"{r.backtest.forecast:+.3f}"
        lines.append(
            f"| {r.run}/{r.branch} | {r.factor} | {r.backtest.verdict} | {f} | {100 * r.effect:+.1f} | {r.kind} |"
        )
    return "\n".join(lines) + "\n"


VERDICTS = {"contradicts": -1.0, "silent": 0.0, "supports": 1.0}


def cost_lines(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    cpu = float(np.mean([r.cpu_s for r in rows]))
    loaded = {(r.run, r.load_s): r.load_s for r in rows}
    shared = sum(loaded.values()) / len(rows)
    trial = sum(r.trial_cpu_s for r in rows) / max(1, sum(r.trials for r in rows))
    branch = float(np.mean([r.trial_cpu_s for r in rows]))
    replay, whole = ("met" if c <= TARGET * trial else "missed" for c in (cpu, cpu + shared))
    return [
        "", "## Cost", "", "| | CPU-s | of one trial | of a branch's trials |", "|---|---|---|---|",
        f"| backtest of one intervention | {cpu:.4f} | 1/{trial / cpu:,.0f} | 1/{branch / cpu:,.0f} |",
        f"| with its part of reading the parent's rollouts | {cpu + shared:.4f} | 1/{trial / (cpu + shared):,.0f} | "
        f"1/{branch / (cpu + shared):,.0f} |",
        f"| one trial | {trial:.1f} | 1 | |",
        "",
        f"Target under 1/{1 / TARGET:.0f} of a trial: {replay} by the replay, {whole} with reading the parent's "
        "rollouts, which the loop has read for its diagnosis already.",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    text = page(read(args.runs), args.runs)
    args.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
