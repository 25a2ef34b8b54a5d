"""What a verdict is given: run, `verify` and `why` put it together by this one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evotrainer.config.task import TaskFile
from evotrainer.judge import InterimAnalysis, JudgeConfig, JudgeInput, answers, judge, with_shortcut_closed
from evotrainer.projections.branches import Branch
from evotrainer.projections.state import RunState
from evotrainer.records.events import Judged, TrialFinished
from evotrainer.rules import guards
from evotrainer.rules.equal_compute import control_of
from evotrainer.rules.error_budget import alpha, counted, share
from evotrainer.rules.evaluations import evaluations_under
from evotrainer.rules.recipes import env_knobs
from evotrainer.rules.scaffolds import scaffold_control


def judge_input(
    task: TaskFile, state: RunState, branch: str, control: str, evaluations: Sequence[TrialFinished] = ()
) -> JudgeInput:
    """What a verdict on a branch rests on in this state;
    `evaluations` stand in for the scores of the trials they repeat."""
    b, c = state.branches[branch], state.branches[control]
    audits, shortcuts = state.audits_of(branch), state.shortcuts
    closed = [*shortcuts.closed_names(env_knobs(task, state)), *(a.capability for a in audits)]

    def side(x: Branch) -> list[TrialFinished]:
        own = [t for t in evaluations if t.branch == x.branch]
        return (
            [*with_shortcut_closed(x.complete, own), *(t for t in x.finished if t.status != "complete")]
            if own
            else x.finished
        )

    return JudgeInput(
        branch=branch,
        control=control,
        branch_trials=side(b),
        control_trials=side(c),
        noise=state.noise,
        config=judge_config(task, state),
        findings=b.own_findings,
        control_findings=c.own_findings,
        audits=answers(b.findings, shortcuts.capabilities, audits, closed),  # what was audited is closed in its scores
        shortcuts=audits,
        proxy=state.proxy,
        scaffold=scaffold_control(task, state, b, c, evaluation_knobs(task, state, branch)),
        guards=guards.readings(task, state, b, c),
        ahead=state.champion if state.champion and state.champion not in (control, b.parent) else "",
    )


def give_verdict(task: TaskFile, state: RunState, n: int, name: str, analysis: InterimAnalysis) -> Judged:
    """The judge's answer on a branch in round `n`, both sides with gate scores under the same environment knobs: what
    was audited is closed."""
    control, knobs = control_of(state, name), evaluation_knobs(task, state, name)
    sides = [state.branches[x] for x in (name, control)]
    used = [] if knobs is None else [t for x in sides for t in evaluations_under(state, x.complete, knobs)]
    return Judged(
        round=n,
        verdict=judge(judge_input(task, state, name, control, used), analysis),
        evaluations=tuple(t.trial for t in used),
        trials=tuple(t.trial for x in sides for t in sorted(x.finished, key=lambda t: t.seed)),
    )


def evaluation_knobs(task: TaskFile, state: RunState, branch: str) -> dict[str, Any] | None:
    """Environment knobs under which both sides of a verdict must have scores: the run's, and what was audited closed.
    None where an audit confirmed a shortcut: the branch is invalid whatever its scores are."""
    audits = state.audits_of(branch)
    if any(a.confirmed for a in audits):
        return None
    return env_knobs(task, state) | {a.knob: a.closed for a in audits}


def judge_config(task: TaskFile, state: RunState) -> JudgeConfig:
    """The judge's settings in a task file, and the run's share of the error budget of its gate tasks."""
    settings = task.judge.model_dump(include=set(JudgeConfig.model_fields))
    budget = {"alpha": alpha(task, state), "share": share(state), "counted": counted(state)}
    return JudgeConfig(**settings | budget)
