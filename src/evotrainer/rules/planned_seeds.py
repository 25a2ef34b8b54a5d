"""The seeds that a branch of a run has before its first look (`judge.planned_seeds`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

from evotrainer.config.task import TaskFile
from evotrainer.judge import JudgeInput, checks, planned_seeds
from evotrainer.judge.alpha_spending import next_looks
from evotrainer.projections.branches import Branch
from evotrainer.projections.state import RunState
from evotrainer.records.briefing import PromotionThreshold
from evotrainer.rules.equal_compute import control_of
from evotrainer.rules.error_budget import alpha
from evotrainer.rules.judge_input import judge_input


def threshold(task: TaskFile, state: RunState, seeds: int) -> PromotionThreshold | None:
    """Observed gain that the judge would promote with so many seeds on both sides, and its expected standard error.
    None before noise was measured."""
    first, look = len(task.run.seeds), next_looks(state.verdicts, alpha(task, state), task.run.branches)[0]
    return planned_seeds.threshold(state.noise, state.verdicts, look.alpha, first, seeds, task.judge.min_effect)


def seeds_for(task: TaskFile, state: RunState, gain: float | None) -> int:
    """Seeds a side that prove what is hoped of a branch: what its proposer expects, and at least what is worth
    finding."""
    judge = task.judge
    look = next_looks(state.verdicts, alpha(task, state), task.run.branches)[0]
    hoped = max(gain or 0.0, judge.worthwhile, judge.min_effect)
    first, most = len(task.run.seeds), judge.max_seeds
    return planned_seeds.seeds_for(hoped, state.noise, state.verdicts, look.alpha, first, most)


def valid_so_far(given: JudgeInput) -> bool:
    """Does nothing that is known by now question the branch's validity?"""
    findings, control = (
        [*found, *checks.findings_of(trials)]
        for found, trials in ((given.findings, given.branch_trials), (given.control_findings, given.control_trials))
    )
    return bool(checks.validity(given.branch, findings, control, given.audits, given.shortcuts).passed)


def unused_seeds(task: TaskFile, b: Branch, n: int, pending: Sequence[int] = ()) -> tuple[int, ...]:
    """The next `n` small seeds that the branch has not trained and that certification does not keep for itself."""
    used = {*task.run.seeds, *task.run.certify_seeds, *(t.seed for t in b.finished), *pending}
    return tuple(islice((s for s in count(1) if s not in used), max(0, n)))


def expected(state: RunState, branch: str) -> float | None:
    """Gain that a branch's proposer expects of it."""
    change = state.branches[branch].intervention
    return change.forecast.mean if change and change.forecast else None


def wanted(task: TaskFile, state: RunState, branch: str) -> int:
    """Seeds a side that a branch is to have before its first look; 0: those of `run.seeds` will do.

    None are added to a branch that does not score `judge.min_effect` more than its control on search, since the seeds
    that would show how little it is worth are better spent on another, or whose validity is in question.
    """
    b = state.branches[branch]
    if b.intervention is None or b.looks or not b.complete:
        return 0
    control = control_of(state, branch)
    if not valid_so_far(judge_input(task, state, branch, control)):
        return 0
    own, others = (state.branches[x].record().scores for x in (branch, control))
    if not own or not others or sum(own) / len(own) - sum(others) / len(others) < task.judge.min_effect:
        return 0
    n = seeds_for(task, state, expected(state, branch))
    return n if n > len(b.complete) else 0
