"""`evotrainer calibrate`: error rate and power of a run's own gate, from its own trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.records.output import print
from evotrainer.records.text import counted

if TYPE_CHECKING:
    from evotrainer.judge.calibrate import Calibration, JudgeOption
    from evotrainer.judge.simulate import Share


def calibrate(
    folder: RunFolder,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[section.name=value]...", help="Another gate: judge.*, run.seeds, run.rounds, run.branches."
        ),
    ] = None,
    *,
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", help="Further runs whose repeated trainings are compared, repeatable."),
    ] = None,
    runs: Annotated[int, typer.Option(min=20, help="Simulated runs per figure.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    as_json: AsJson = False,
) -> None:
    """How often would a run's gate promote a useless change, and which effects does it detect? Simulated with the run's
    own noise.

    False promotions over whole simulated runs and in real A/A comparisons, power by effect, seeds and attempts that
    reach 80% at judge.worthwhile, and their cost.

    Example: evotrainer calibrate runs/mine run.seeds=[1,2,3] judge.max_seeds=8
    """
    from evotrainer.studies.calibration import calibrate_run

    found = calibrate_run(folder, also or [], runs=runs, seed=seed, overrides=overrides or [])
    if as_json:
        print(found.model_dump_json(indent=1, exclude={"measured": {"difficulties"}}))
    else:
        print("\n".join(_lines(found)))


def _lines(c: Calibration) -> Iterator[str]:
    """A calibration as text."""
    m, s = c.measured, c.shape
    beyond = f"{100 * m.seed_sd:.2f} beyond sampling, at most {100 * m.seed_sd_high:.2f}; {m.df:.0f} degrees of freedom"
    differ = f"trainings of one recipe differ by {100 * m.trial_sd:.2f} points on gate ({beyond})"
    yield f"measured: {differ}; {counted(m.tasks, 'task')}, {counted(m.attempts, 'attempt')}"
    assumed = "" if m.task_branch_measured else " (assumed: the verdicts show none beyond the attempts' noise)"
    yield f"  a change acts on tasks with a standard deviation of {100 * m.task_branch_sd:.1f} points{assumed}"
    if c.seed_correlation is not None:
        yield f"  branch and control of the same seed number correlate by {c.seed_correlation:+.2f}"
    seeds = f"{s.seeds} seeds, up to {max(s.seeds, s.config.max_seeds)} on demand"
    yield f"a run: {counted(s.rounds, 'round')} of {counted(s.branches, 'branch')}, {seeds}, alpha {s.config.alpha:g}"
    yield "false promotions"
    yield f"  simulated whole runs of useless branches     {_share(c.false_promotions)}"
    yield f"  the same, noise at its upper bound           {_share(c.false_promotions_high)}"
    yield f"  the same, single tasks moved all the same    {_share(c.false_promotions_moving)}"
    r = c.real
    if r.comparisons:
        yield f"  real A/A comparisons, level of the first     {_share(r.promoted)}; called harmful {r.harmful}"
        yield f"  the same at 5% each, nothing spent           {_share(r.promoted_plain)}"
        named = ", ".join(f"{k} {n}" for k, n in r.groups.items())
        yield (
            f"    splits of {named} trainings, both directions; they share trainings: {r.independent} are disjoint, so "
            "the interval is too narrow"
        )
    else:
        yield "  real A/A comparisons                         none: no recipe has 4 trainings; --also adds runs"
    yield "power: chance to promote the one branch with a true effect"
    yield f"  {'effect':>8}  {'in the first round':<34}{'as the last branch'}"
    for row in c.power:
        mark = "  <- judge.worthwhile" if abs(row.effect - c.worthwhile) < 1e-9 else ""
        yield f"  {100 * row.effect:+7.1f}   {_share(row.first):<34}{_share(row.last)}{mark}"
    at = "beyond the largest above" if c.effect_at_power is None else f"{100 * c.effect_at_power:+.1f} points"
    yield f"  power 0.8 in the first round: {at}"
    yield f"ways to judge, at {100 * c.worthwhile:+.1f} points"
    yield f"  {'seeds':>7}{'attempts':>10}{'first':>8}{'last':>8}{'trainings':>11}{'CPU-s':>9}"
    for i, o in enumerate(c.options):
        yield _option(o) + ("  <- cheapest that reaches 0.8" if i == c.recommended else "")
    if c.recommended is None:
        yield "  none reaches 0.8: more gate tasks, a larger judge.worthwhile, or a training that varies less"
    problems = c.problems
    yield "targets: " + ("all met" if not problems else "; ".join(problems))


def _option(o: JudgeOption) -> str:
    cpu = "?" if o.cpu_s is None else f"{o.cpu_s:.0f}"
    seeds = f"{o.seeds}-{o.max_seeds}"
    return (
        f"  {seeds:>7}{o.attempts:>10}{o.power_first.value:>8.0%}{o.power_last.value:>8.0%}{o.trainings:>11.1f}{cpu:>9}"
    )


def _share(s: Share) -> str:
    return f"{s.value:.1%} [{s.low:.1%}, {s.high:.1%}] of {s.runs}"
