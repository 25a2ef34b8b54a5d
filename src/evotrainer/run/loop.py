"""A run, and its rounds.

Each decision is one event in the ledger, under a key of its own. A run that was killed is resumed by
walking the same path again: what is recorded is read, what is not is done. So this file has no resume code.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer import __version__
from evotrainer.config.bases import resolve_base
from evotrainer.config.preflight import base_identity, machine, run_fingerprints, weights_sha256
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.factors.change_rules import refuse_start
from evotrainer.projections.base_policy import too_weak
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.environment_files import files_of
from evotrainer.projections.task_sets import describe as task_line
from evotrainer.records import keys
from evotrainer.records.durable import sha256_file
from evotrainer.records.events import (
    Escalated,
    RoundOpened,
    RunClosed,
    RunOpened,
    TrialFinished,
)
from evotrainer.records.findings import HealthReport
from evotrainer.records.text import noise_floor
from evotrainer.rules.approvals import ESCALATE_AFTER
from evotrainer.rules.recipes import starting_recipe
from evotrainer.run import (
    detector_outcomes,
    harness_versions,
    judging,
    learning,
    propose,
    reader,
    readings,
    shortcut_audits,
    skills,
    task_sets,
    trial_specs,
)
from evotrainer.run.approvals import ask_human
from evotrainer.run.branches import open_branch
from evotrainer.run.certify import certify
from evotrainer.run.checks.measured import health_doubts, never_learns, unscored_components
from evotrainer.run.context import RunContext
from evotrainer.run.environment_copies import copy_file, remedies
from evotrainer.run.noise import first_noise, widen_noise
from evotrainer.run.search import search
from evotrainer.run.seat import take_seat


def run(ctx: RunContext) -> RunClosed:
    """Walk the whole run, from the base policy to a certified champion, within the budget;
    returns the closing event."""
    open_run(ctx)
    take_seat(ctx)
    measure_base(ctx)
    if ctx.task.run.evaluate_only:
        return close(ctx, "evaluated the base policy")
    search_only = ctx.task.run.search_only
    if search_only:
        train_start(ctx)
    else:
        measure_start(ctx)
    played = 0
    while True:
        played, reason = play_rounds(ctx, played)
        if not search_only:
            certify(ctx)
        end = close(ctx, reason)
        if not resumed_after_end(ctx):
            return end


def play_rounds(ctx: RunContext, played: int) -> tuple[int, str]:
    """Rounds up to the next end: (rounds played by now, why it ends)."""
    end = ctx.recorded(keys.closed(ctx.state.ends + 1))
    # a recorded end came after the rounds that were asked for then
    last = sum(e.seq < end.seq for e in ctx.ledger.events("round")) if end else ctx.task.run.rounds
    for n in range(played + 1, last + 1):
        if stop := play_round(ctx, n):
            return n, stop
    return (
        last,
        "every round was searched only" if ctx.task.run.search_only else "every round of the task file was played",
    )


def resumed_after_end(ctx: RunContext) -> bool:
    """Was the run taken up again after the end that the walk has come to?"""
    ended = ctx.recorded(keys.closed(ctx.state.ends))
    return ended is not None and any(e.seq > ended.seq for e in ctx.ledger.events("resumed"))


def play_round(ctx: RunContext, n: int) -> str:
    """Read, propose, backtest, train, judge. Returns why the run should stop here, or nothing."""
    open_round(ctx, n)
    escalate(ctx, n)
    ctx.observer.step("reads the champion's rollouts")
    health = readings.read(ctx, keys.diagnosed(n), n, ctx.incumbent)
    ask_human(ctx, n, "diagnosis", lambda: propose.briefing_text(ctx, n, health))
    search(ctx, n, health)
    if ctx.task.run.search_only:
        return ""
    considered = propose.consider(ctx, n, health)
    plan = propose.plan(ctx, n, considered)
    if plan.branches:
        train(ctx, plan.branches)
        judging.decide(ctx, n, plan.branches)
    return plan.stop


# -- before the rounds -------------------------------------------------------------------------------------------------


def open_run(ctx: RunContext) -> None:
    """Probe the sandbox, describe environment and machine, open the starting recipe's branch."""
    ctx.observer.step("opens the run")
    begun = ctx.state.opened is not None
    opened = ctx.record(keys.RUN, RunOpened, lambda: describe(ctx))
    if opened.task_hash != ctx.task_hash:
        raise ConfigError(
            f"{ctx.folder / 'task.toml'} was changed after the run began (hash {opened.task_hash} in the ledger, "
            f"{ctx.task_hash} now); restore it, or start a new run"
        )
    check_unchanged(ctx, opened)
    ctx.observer.note(opened.isolation)
    if (line := task_line(opened)) and (begun or opened.draw.mode == "fresh"):  # else told before it began
        ctx.observer.note(line)
    if opened.environment.get("outcome") == []:
        ctx.observer.note(
            f"{opened.environment.get('name')} does not say which component is the outcome: any may be paid"
        )
    skills.open_library(ctx)
    harness_versions.open_versions(ctx)
    open_branch(ctx, START, None, 0, ctx.task.recipe, None)


def describe(ctx: RunContext) -> RunOpened:
    """The first event: environment, machine, sandbox tier, base policy, as they are when the run begins."""
    from evotrainer.envs import open_environment, pay_terms
    from evotrainer.trainers import sampler_dtype

    task = ctx.task
    environment = open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)
    try:
        env: dict[str, Any] = dict(environment.describe())
        env["components"] = dict(environment.components)
        env["knobs"] = {k: ", ".join(map(str, v)) for k, v in environment.knobs.items()}
        env["proxy"] = list(environment.proxy) if environment.proxy else None
        env |= pay_terms(environment, task.environment)
        env["capabilities"] = [c.model_dump(mode="json") for c in environment.capabilities]
        refuse_start(task.recipe, env)
        drawn = task_sets.draw(ctx, environment)
    finally:
        environment.close()
    if task.guard:
        env["guards"] = {g.name: describe_guard(g.environment, task.sandbox.accept_tier_e) for g in task.guard}
    env["files"] = run_fingerprints(task)
    return RunOpened(
        run=ctx.folder.name,
        task=task.task.name,
        task_hash=ctx.task_hash,
        task_sha256=sha256_file(ctx.folder / "task.toml"),
        version=__version__,
        seed=task.run.seed,
        agent=task.run.agent,
        autonomy=task.run.autonomy,
        budget=task.budget.limits(),
        price=task.budget.price.line if task.budget.price else "",
        machine=machine() | {"sampler_dtype": sampler_dtype(task.run.sampler_dtype)},
        sandbox_tier=str(env.get("sandbox_tier") or ""),
        environment=env,
        base_policy=base_identity(task.policy.base, resolve_base(task.policy.base)),
        draw=drawn,
        key_sha256=ctx.sealed.key.sha256 if ctx.sealed.key else "",
    )


def describe_guard(config: Mapping[str, Any], accept_tier_e: bool) -> dict[str, Any]:
    """A guard's environment, as it is when the run begins."""
    from evotrainer.envs import open_environment

    with contextlib.closing(open_environment(config, accept_tier_e=accept_tier_e)) as environment:
        return dict(environment.describe()) | {"components": list(environment.components)}


def check_unchanged(ctx: RunContext, opened: RunOpened) -> None:
    """What a resumed run builds upon must still be what it began with; IntegrityError names what changed."""
    now = run_fingerprints(ctx.task)
    for file, sha in files_of(ctx.ledger.events()).items():
        if now.get(file) != sha:
            raise IntegrityError(f"{file} was changed after the run began; {remedies(ctx.folder, file, sha)}")
        copy_file(ctx.folder, file, sha)
    base = resolve_base(ctx.task.policy.base)
    if base is not None and weights_sha256(base) != opened.base_policy.get("sha256"):
        raise IntegrityError(f"the base policy {base} was changed after the run began; restore it, or start a new run")


def measure_base(ctx: RunContext) -> None:
    """The base policy on search and gate (and its SFT cold start, where the task asks for one)."""
    ctx.observer.step("measures the base policy")
    splits = ("search", "gate", "cert") if ctx.task.run.evaluate_only else trial_specs.judged(ctx)
    done = ctx.run_trials([trial_specs.base_spec(ctx, *splits)])
    outcome = ", ".join(ctx.state.environment.get("outcome") or ()) or "what is correct"
    for note in (n for base in done for n in unscored_components(base, ctx.task.recipe, outcome)):
        ctx.observer.note(note)
    health = readings.read(ctx, keys.reading(BASE), 0, BASE)
    if ctx.state.opened is not None and not ctx.task.run.evaluate_only:  # before the trainings, which would not learn
        doubt_base(ctx, ctx.state.opened, done, health, outcome)


def doubt_base(
    ctx: RunContext, opened: RunOpened, done: Sequence[TrialFinished], health: HealthReport, outcome: str
) -> None:
    """Notes on why trainings may learn little; ConfigError, once, where nothing at all can be learned from."""
    score = next((s.score for base in done for s in base.scores if s.split == "search"), None)
    found, warm = readings.batch(ctx, BASE), ctx.task.policy.warm_start.steps
    remedy = too_weak(score, opened.base_policy.get("path", ""), warm)
    for note in health_doubts(health, score, outcome, found.text(0) if found.n else "", remedy):
        ctx.observer.note(note)
    if never_learns(health, score) and not ctx.ledger.events("resumed"):
        raise ConfigError(
            f"the base policy never succeeds, and no attempt at a task earns more than the others: nothing can be "
            f"learned from. Pay what differs ([recipe.rewards]), give easier tasks, or begin with another policy.base; "
            f"`evotrainer resume {ctx.folder}` trains all the same"
        )


def train(ctx: RunContext, names: tuple[str, ...], purpose: str = "branch") -> None:
    """Every branch on every seed, side by side."""
    ctx.observer.step(
        f"trains {', '.join(names)}" + (", for the noise floor (A/A trials)" if purpose == "noise" else "")
    )
    ctx.run_trials([trial_specs.training(ctx, ctx.branches[b], s, purpose) for s in ctx.task.run.seeds for b in names])


def train_start(ctx: RunContext) -> None:
    """The starting recipe of a run that only searches: trained under every seed, read on search."""
    train(ctx, (START,), purpose="noise")
    readings.read_branch(ctx, 0, START)
    judging.promote(ctx, START, None)


def measure_start(ctx: RunContext) -> None:
    """A/A trials: the starting recipe under several seeds. Their spread is the noise floor."""
    train(ctx, (START,), purpose="noise")
    noise = first_noise(ctx)
    readings.read_branch(ctx, 0, START)
    learning.review(ctx, 0, [START])
    reader.read_branch(ctx, 0, START, "start")
    judging.promote(ctx, START, None)
    shortcut_audits.of_start(ctx, 0, START)
    detector_outcomes.settle(ctx, 0)
    ctx.observer.note(f"noise floor {noise_floor(noise.noise_floor)} on gate, from the A/A trials alone")


def open_round(ctx: RunContext, n: int) -> None:
    """The champion, the harness and the closed shortcuts that a round begins with."""
    opened = (e.body for e in ctx.ledger.events("branch"))
    known = [b.branch for b in opened if b.round == n and b.parent is None and b.branch != START]
    new = ctx.recorded(keys.round_opened(n)) is None
    if new:
        ctx.refresh()  # what was audited while the run stood still counts as well
    for name in known:
        restart(ctx, n, name)
    while new and ctx.champion == BASE:  # each closes a shortcut more
        restart(ctx, n, keys.branch(len(ctx.branches)))
    closed = dict(ctx.state.confirmed)
    ctx.record(
        keys.round_opened(n),
        RoundOpened,
        lambda: RoundOpened(round=n, champion=ctx.champion, harness=ctx.harness.version, closed=closed),
    )
    ctx.observer.round(n, ctx.champion)


def restart(ctx: RunContext, n: int, name: str) -> None:
    """No valid version is left: the starting recipe again, with what was exploited closed in training, too."""
    open_branch(ctx, name, None, n, starting_recipe(ctx.task, ctx.state), None)
    train(ctx, (name,), purpose="noise")
    widen_noise(ctx, [name])
    readings.read_branch(ctx, n, name)
    learning.review(ctx, n, [name])
    reader.read_branch(ctx, n, name, "start")
    judging.promote(ctx, name, None)
    shortcut_audits.of_start(ctx, n, name)


# -- escalation -------------------------------------------------------------------------------------------------------


def escalate(ctx: RunContext, n: int) -> None:
    """After failures in a row: check the evaluation itself, tell the agent to turn to another family of changes
    ."""
    failures = ctx.state.failures
    if failures < ESCALATE_AFTER:
        return
    actions = ["the agent is told to turn to another family (reward, signal, data, algorithm) and to subtract first"]
    if failures > ESCALATE_AFTER:
        actions.insert(0, reevaluate_champion(ctx, n))
    actions += skills.escalation(ctx)
    ctx.record(keys.escalated(n), Escalated, lambda: Escalated(round=n, failures=failures, actions=tuple(actions)))
    for a in actions:
        ctx.observer.note(f"escalation: {a}")


def reevaluate_champion(ctx: RunContext, n: int) -> str:
    """Evaluate the champion's first trial on search once more, once: the evaluation must say the same."""
    b = ctx.branches[ctx.incumbent]
    t = b.complete[0]
    if before := [m for m in range(1, n) if keys.recheck(t.trial, m) in ctx.state.trials]:
        return f"evaluation of {t.trial} was repeated in round {before[0]} already"
    spec = trial_specs.evaluation(
        ctx, keys.recheck(t.trial, n), b, t.seed, t.policy_path, trial_specs.plans(ctx, "search"), "audit"
    )
    (again,) = ctx.run_trials([spec])
    was = next(s.score for s in t.scores if s.split == "search")
    now = next((s.score for s in again.scores if s.split == "search"), None)
    if was is None or now is None:
        return f"evaluation of {t.trial} could not be repeated: {again.error or 'no attempt was graded'}"
    same = abs(was - now) < 1e-9
    return f"evaluation of {t.trial} repeated: {was:.4f} then, {now:.4f} now ({'same' if same else 'DIFFERENT'})"


# -- the end -----------------------------------------------------------------------------------------------------------


def close(ctx: RunContext, reason: str) -> RunClosed:
    """The last event: why the run ended, its champion, what it cost."""
    finished = [e.body for e in ctx.ledger.events("finished")]

    def closed() -> RunClosed:
        drawn = task_sets.revealed(ctx)
        key, following = ctx.sealed.reveal(ctx.state.ends + 1)
        return RunClosed(
            reason=reason,
            champion=ctx.champion if ctx.branches[START].finished else BASE,
            cpu_s=round(sum(t.cpu_s for t in finished), 1),
            wall_s=round(max(time.monotonic() - ctx.started - ctx.waited, ctx.budget().spent["wall_s"]), 1),
            peak_rss_mb=max((t.peak_rss_mb for t in finished), default=0.0),
            seed=drawn.seed if drawn else "",
            salt=drawn.salt if drawn else "",
            key=key,
            next_key_sha256=following,
        )

    return ctx.record(keys.closed(ctx.state.ends + 1), RunClosed, closed)
