"""`calibrate`: the error and the power of a run's own gate, from its own trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.commands.common import console
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.judge.calibrate import Calibration, Option
    from evotrainer.judge.simulate import Share


def calibrate(
    folder: Path,
    overrides: Sequence[str],
    others: Sequence[Path],
    *,
    trials: int,
    runs: int,
    seed: int,
    as_json: bool,
    plain: bool,
) -> None:
    """Train more where asked for, then measure and print."""
    from evotrainer.studies.calibration import calibrate_run, more_trials
    from evotrainer.views.terminal import LiveView

    if trials:
        with LiveView(folder / "calibration", console(stderr=True), plain=plain or as_json) as view:
            more_trials(folder, trials, view)
    found = calibrate_run(folder, others, runs=runs, seed=seed, overrides=overrides)
    print(
        found.model_dump_json(indent=1, exclude={"measured": {"difficulties"}}) if as_json else "\n".join(lines(found))
    )


def lines(c: Calibration) -> Iterator[str]:
    """A calibration as text."""
    m, s = c.measured, c.shape
    yield (
        f"measured: trainings of one recipe differ by {100 * m.trial_sd:.2f} points on gate ({100 * m.seed_sd:.2f} beyond "
        f"sampling, at most {100 * m.seed_sd_high:.2f}; {m.df:.0f} degrees of freedom); {m.tasks} tasks, {m.attempts} attempts"
    )
    told = "" if m.task_branch_measured else " (assumed: the verdicts show none beyond the attempts' noise)"
    yield f"  a change acts on tasks with a standard deviation of {100 * m.task_branch_sd:.1f} points{told}"
    if c.seed_correlation is not None:
        yield f"  branch and control of the same seed number correlate by {c.seed_correlation:+.2f}"
    yield (
        f"a run: {s.rounds} rounds of {s.branches} branches, {s.seeds} seeds, up to {max(s.seeds, s.config.max_seeds)} on demand, "
        f"alpha {s.config.alpha:g}"
    )
    yield "false promotions"
    yield f"  simulated whole runs of useless branches     {share(c.false_promotions)}"
    yield f"  the same, noise at its upper bound           {share(c.false_promotions_high)}"
    yield f"  the same, single tasks moved all the same    {share(c.false_promotions_moving)}"
    r = c.real
    if r.comparisons:
        yield f"  real A/A comparisons, first look's level     {share(r.promoted)}; called harmful {r.harmful}"
        yield f"  the same at 5% each, nothing spent           {share(r.promoted_plain)}"
        named = ", ".join(f"{k} {n}" for k, n in r.groups.items())
        yield (
            f"    splits of {named} trainings, both directions; they share trainings: {r.independent} are disjoint, so the "
            "interval is too narrow"
        )
    else:
        yield "  real A/A comparisons                         none: no recipe has 4 trainings; --trials N runs more"
    yield "power: chance to promote the one branch with a true effect"
    yield f"  {'effect':>8}  {'in the first round':<28}{'as the last branch'}"
    for row in c.power:
        mark = "  <- judge.worthwhile" if abs(row.effect - c.worthwhile) < 1e-9 else ""
        yield f"  {100 * row.effect:+7.1f}   {share(row.first):<28}{share(row.last)}{mark}"
    at = "beyond the largest above" if c.effect_at_power is None else f"{100 * c.effect_at_power:+.1f} points"
    yield f"  power 0.8 in the first round: {at}"
    yield f"ways to judge, at {100 * c.worthwhile:+.1f} points"
    yield f"  {'seeds':>7}{'attempts':>10}{'first':>8}{'last':>8}{'trainings':>11}{'CPU-s':>9}"
    for i, o in enumerate(c.options):
        yield option(o) + ("  <- cheapest that reaches 0.8" if i == c.recommended else "")
    if c.recommended is None:
        yield "  none reaches 0.8: more gate tasks, a larger judge.worthwhile, or a training that varies less"
    problems = c.problems
    yield "targets: " + ("all met" if not problems else "; ".join(problems))


def option(o: Option) -> str:
    cpu = "?" if o.cpu_s is None else f"{o.cpu_s:.0f}"
    seeds = f"{o.seeds}-{o.max_seeds}"
    return (
        f"  {seeds:>7}{o.attempts:>10}{o.power_first.value:>8.0%}{o.power_last.value:>8.0%}{o.trainings:>11.1f}{cpu:>9}"
    )


def share(s: Share) -> str:
    return f"{s.value:.1%} [{s.low:.1%}, {s.high:.1%}] of {s.runs}"
