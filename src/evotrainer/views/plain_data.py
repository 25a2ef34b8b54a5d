"""A run's branches, trials and rollouts as plain data, for `--json`: what the terminal views show, under the names that
events have. Scores of gate and cert are means; those of single tasks stay in the ledger."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from evotrainer.records.events import TrialFinished
from evotrainer.records.verdicts import Effect
from evotrainer.views.fold import load_view
from evotrainer.views.folder import find_rollout
from evotrainer.views.model import BranchView, RunView, TrialView

PER_TASK: dict[str, Any] = {"scores": {"__all__": {"per_task", "proxy_per_task", "greedy_per_task"}}}
"""Left out of results: scores of single tasks."""


def branch_row(b: BranchView, view: RunView) -> dict[str, Any]:
    """A branch in a line of `status --json`: what it changes, its verdict, its effect on gate in score units."""
    return {
        "branch": b.name,
        "parent": b.parent,
        "round": b.round,
        "version": b.version,
        "champion": b.name == view.champion,
        "status": b.status,
        "changes": b.facts.text("changes"),
        "intervention": b.intervention.model_dump(mode="json") if b.intervention else None,
        "effect": _effect(b.effect),
        "on_fresh_seeds": b.on_fresh_seeds,
        "at_selection": _effect(b.at_selection),
        "search": b.mean("search"),
        "invalid": b.invalid,
    }


def shown_json(run_folder: Path | str, what: str) -> dict[str, Any]:
    """What `show` shows: a branch or search training, a trial, or a rollout. ConfigError for an unknown name."""
    view = load_view(run_folder, rollouts=False)
    branch = view.branches.get(view.branch_of(what)) or view.probes.get(what)
    if branch is not None:
        return branch_json(branch, view)
    if trial := next((t for t in view.trials if t.id == what), None):
        return trial_json(trial)
    return asdict(find_rollout(run_folder, what))


def branch_json(b: BranchView, view: RunView) -> dict[str, Any]:
    """A branch with its recipe, verdicts, trials, metrics and findings."""
    return branch_row(b, view) | {
        "recipe": b.recipe.model_dump(mode="json") if b.recipe else None,
        "recipe_hash": b.recipe_hash,
        "recipe_diff": {name: {"old": old, "new": new} for name, (old, new) in b.recipe_diff.items()},
        "verdicts": [v.model_dump(mode="json") for v in b.looks],
        "backtest": b.backtest.model_dump(mode="json") if b.backtest else None,
        "audits": [a.model_dump(mode="json") for a in b.audits],
        "reader": r.model_dump(mode="json") if (r := view.reader.last.get(b.name)) else None,
        "caveats": [c.model_dump(mode="json") for c in view.caveats.get(b.name, ())],
        "trials": [trial_json(t) for t in b.trials],
        "health": [r.report.model_dump(mode="json") for r in b.readings[-1:]],
    }


def trial_json(t: TrialView) -> dict[str, Any]:
    """A trial with its result, if there is one, and its last sign of life otherwise."""
    done: TrialFinished | None = t.finished
    left_out = PER_TASK | {"health": True}
    return {
        "trial": t.id,
        "branch": t.branch,
        "seed": t.seed,
        "purpose": t.purpose,
        "status": t.status,
        "cpu_s": t.cpu_s,
        "result": done.model_dump(mode="json", exclude=left_out) if done else None,
        "heartbeat": dict(t.heartbeat),
    }


def _effect(e: Effect | None) -> dict[str, Any] | None:
    return e.model_dump(mode="json") if e else None
