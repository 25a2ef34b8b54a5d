"""Calibrating the gate of a run: what its trials tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.config.load import apply_overrides, resolve
from evotrainer.errors import ConfigError
from evotrainer.judge.calibrate import Calibration, Costs, GateShape, calibrate
from evotrainer.judge.components import measured, seed_correlation
from evotrainer.judge.real_comparisons import real_comparisons
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.rules.error_budget import share
from evotrainer.rules.judge_input import judge_config

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.config.task import TaskFile

GATE = ("judge.", "run.seeds", "run.rounds", "run.branches")
"""Settings that overrides may change: how a run judges, not what was measured."""


def calibrate_run(
    folder: Path,
    others: Sequence[Path] = (),
    *,
    runs: int = 200,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Calibration:
    """Calibration of a run's gate from what lies in its folder.

    `others`: further runs whose repeated trainings are compared as well. `overrides`: another gate on the same noise,
    e.g. `run.seeds=[1,2,3] judge.max_seeds=8`. ConfigError where the run measured no noise, or for any other override.
    """
    from evotrainer import api

    run = api.open_run(folder)
    events = run.events()
    noise = [e.body for e in events if e.kind == "noise"]
    if not noise:
        raise ConfigError(
            f"{folder}: its noise is not measured yet: that takes the starting recipe on every seed; let the run go on"
        )
    if wrong := [o for o in overrides if not o.startswith(GATE)]:
        why = "does not change the gate" if "=" in wrong[0] else "is no override, and branches share one gate"
        raise ConfigError(f"{wrong[0]} {why}; give judge.NAME=VALUE, or one of {', '.join(GATE[1:])}")
    task = resolve(apply_overrides(run.task.model_dump(mode="json"), overrides), source=str(folder))
    own = groups_of(run)
    groups = dict(own)
    for other in others:
        groups |= {f"{other.name}/{k}": v for k, v in groups_of(api.open_run(other)).items()}
    verdicts = [v for v in run.verdicts if v.effect and v.look]
    shape = shape_of(task, run.state)
    v_task = [g.numbers["v_task"] for v in verdicts for g in v.gates if g.gate == "effect"]
    return calibrate(
        measured(own[START], noise[-1], v_task),
        shape,
        real_comparisons(groups, shape.config, seed=seed),
        runs=runs,
        seed=seed,
        costs=costs_of(events),
        correlation=seed_correlation(pairs_of(run.state)),
    )


def shape_of(task: TaskFile, state: RunState) -> GateShape:
    """The gate of a task file, as the simulation needs it; runs that share their gate tasks share its alpha."""
    config = judge_config(task, RunState())  # simulated trials cost nothing
    return GateShape(
        rounds=max(1, task.run.rounds),
        branches=task.run.branches,
        seeds=len(task.run.seeds),
        config=config.model_copy(update={"alpha": task.judge.alpha * share(state)}),
    )


def groups_of(run: Run) -> dict[str, list[TrialFinished]]:
    """Branch -> its complete trainings, those for certification too: one recipe, other seeds, one set of knobs each."""
    out: dict[str, list[TrialFinished]] = {START: []}
    for name, b in run.state.branches.items():
        done = [t.finished for t in b.trials if t.finished and t.trial == keys.training(name, t.seed)]
        whole = [t for t in done if t.status == "complete"]
        # a shortcut closed in mid-run makes later evaluations another measurement
        out[name] = [t for t in whole if t.env_knobs == whole[0].env_knobs]
    return out


def pairs_of(tree: RunState) -> list[tuple[list[TrialFinished], list[TrialFinished]]]:
    """(branch, control) trainings of every branch that has a control."""
    known = tree.branches
    return [(b.finished, known[b.parent].finished) for b in known.values() if b.parent and b.parent in known]


def costs_of(events: Sequence[Any]) -> Costs:
    """CPU-seconds of a training, and of a gate evaluation at the task file's attempts."""
    purpose = {e.body.trial: e.body for e in events if e.kind == "intended"}
    done = [e.body for e in events if e.kind == "finished" and e.body.status == "complete"]
    trained = [t for t in done if t.trial in purpose and purpose[t.trial].train and t.branch != BASE]
    # what a trial that only evaluates costs per attempt, its start included
    rates = []
    for t in done:
        attempts = sum(s.attempts * len(s.per_task) for s in t.scores)
        if t.trial in purpose and not purpose[t.trial].train and t.branch != BASE and attempts:
            rates.append(t.computed_cpu_s / attempts)
    gate = [s.attempts * len(s.per_task) for t in trained for s in t.scores if s.split == "gate"]
    return Costs(
        training=sum(t.computed_cpu_s for t in trained) / len(trained) if trained else None,
        gate_evaluation=sum(rates) / len(rates) * max(gate) if rates and gate else None,
    )
