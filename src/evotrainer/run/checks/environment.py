"""Checks of the opened environment: names that recipes use, splits, draws, prompts in two splits, sizes of splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evotrainer.config.policy import WarmStart
from evotrainer.envs.base import DRAWN, SPLITS, Environment, EnvironmentOfTrainers, EnvironmentWithDraws, Task
from evotrainer.envs.return_checks import check_tasks, demonstrations_of
from evotrainer.envs.user_files import call
from evotrainer.errors import ConfigError, TaskSetError
from evotrainer.factors.change_rules import check_names, refuse_start
from evotrainer.judge.alpha_spending import share
from evotrainer.judge.planned_seeds import detectable
from evotrainer.records.text import counted, quoted
from evotrainer.rules.recipes import evaluated
from evotrainer.run import task_sets
from evotrainer.run.checks.base import BeforeRun, Found, attempt
from evotrainer.run.task_sets import mode_of

SHOWN = 20_000
"""Demonstrations that are held against the tasks that judge, at most."""
TRIED = "1234567890123456789"
"""A seed as runs draw from: a whole number as text."""


def opens(at: BeforeRun) -> None:
    """The environment opens and describes itself, and its trainer can play it."""
    from evotrainer.envs import OPTION, open_environment

    rest = {k: v for k, v in at.task.environment.items() if k != OPTION}  # which is checked beside what recipes name
    at.opened = open_environment(rest, accept_tier_e=at.task.sandbox.accept_tier_e)
    call(f"describe() of environment {at.opened.name}", at.opened.describe)
    if isinstance(at.opened, EnvironmentOfTrainers):
        at.opened.check_plays(at.task.trainer.name)


def names(at: BeforeRun) -> Found:
    """What environment.payable and recipes name is there."""
    from evotrainer.envs import check_payable, payable_components
    from evotrainer.trainers.curriculum import check_tag

    def payable() -> None:
        check_payable(at.environment, payable_components(at.task.environment))

    yield from attempt(payable)
    protocol = [evaluated(at.task)] if at.task.evaluation.protocol.knobs is not None else []
    offers = at.environment.name, at.environment.components, at.environment.knobs
    for recipe in (*at.recipes, *protocol):
        yield from attempt(check_names, recipe, *offers)
    for tagged in (r for r in at.chain if r.curriculum.tag):
        yield from attempt(lambda r: check_tag(at.environment.tasks("train"), r.curriculum), tagged)


def pays(at: BeforeRun) -> None:
    """What recipes pay may be paid, and what they learn from may be learnt from."""
    from evotrainer.envs import check_needed, pay_terms

    env, config = at.environment, at.task.environment
    check_needed(env, config)
    described = {"name": env.name, "components": env.components, "knobs": env.knobs, **pay_terms(env, config)}
    for recipe in at.recipes:
        refuse_start(recipe, described)


def splits(at: BeforeRun) -> None:
    """There are tasks to train on, to search and to judge on."""
    name, there = at.environment.name, at.splits
    judged = () if at.task.run.search_only else ("gate", "cert")
    missing = [s for s in ("train", "search", *judged) if not there.get(s)]
    if missing and not at.task.run.evaluate_only:
        raise ConfigError(
            f"environment {name} has no tasks in split {', '.join(missing)}, which training and judging need; give "
            "them some (see environment.splits), or set run.evaluate_only=true"
        )
    if not set(there) - {"train"}:
        raise ConfigError(f"environment {name} has no split to evaluate on (search, gate or cert)")


def counts(at: BeforeRun) -> Found:
    """No more tasks are asked for than a split has; notes on splits too small for what is measured on them."""
    there = at.splits
    for split in ("search", "gate", "cert"):
        asked, has = getattr(at.task.evaluation, f"{split}_tasks"), there.get(split) or 0
        if asked is not None and has and asked > has:
            raise ConfigError(
                f"evaluation.{split}_tasks={asked}, but environment {at.environment.name} has {has} {split} tasks; "
                "lower it, or leave it out for all of them"
            )
    trains = not at.task.run.evaluate_only
    if trains and (n := there.get("train")) and (most := max(r.prompts_per_step for r in at.chain)) > n:
        yield (
            f"recipe.prompts_per_step={most}, and environment {at.environment.name} has {counted(n, 'train task')}: "
            "each step draws tasks more than once"
        )
    for split in ("search", "gate", "cert"):
        if there.get(split) == 1:
            yield f"split {split} has one task: what is measured on it is worth next to nothing; give it more"
    yield from _too_few(at, there)


def _too_few(at: BeforeRun, there: Mapping[str, int]) -> Iterator[str]:
    """Notes on splits whose sampling noise alone hides the gain that the run should not miss."""
    task, judge, gain = at.task, at.task.judge, at.task.judge.worthwhile
    if task.run.search_only or task.run.evaluate_only:
        return
    for split, seeds, level in (
        ("gate", max(judge.max_seeds, len(task.run.seeds)), judge.alpha * share(1)),
        ("cert", len(task.run.certify_seeds), 0.025),  # a two-sided interval at 95%
    ):
        n = getattr(task.evaluation, f"{split}_tasks") or there.get(split) or 0
        attempts = getattr(task.evaluation, f"{split}_attempts")
        if n > 1 and seeds > 1 and (least := detectable(n, attempts, seeds, level, seed_sd=0.0)) > gain:
            yield (
                f"split {split} judges on {n} tasks, {counted(attempts, 'attempt')} each: with {seeds} trainings a "
                f"side it finds gains below some {100 * least:.0f} points less than four times in five, and "
                f"judge.worthwhile is {100 * gain:g}; take more tasks, or set judge.worthwhile to the gain that you "
                "look for"
            )


def turns(at: BeforeRun) -> Found:
    """A note where several turns are asked of an environment whose attempts have one."""
    if (most := max(r.max_turns for r in at.chain)) > 1 and getattr(at.environment, "one_turn", False):
        yield (
            f"recipe.max_turns={most} has no effect: an attempt of environment {at.environment.name} ends with its "
            "first answer"
        )


def judged_before(at: BeforeRun) -> Found:
    """Notes on gate tasks that other runs were judged on."""
    yield from task_sets.reuse_warnings(at.task, at.environment)


def draws(at: BeforeRun) -> None:
    """A seed draws as many gate and cert tasks as are evaluated, the same again. They are the environment's then."""
    env = at.environment
    if not at.own or mode_of(at.task, env) == "fixed" or not isinstance(env, EnvironmentWithDraws):
        return
    drawn = []
    for _ in range(2):  # every trial of a run draws for itself
        env.redraw(TRIED)
        drawn.append({split: [(t.id, t.prompt) for t in env.tasks(split)] for split in DRAWN})
    if drawn[0] != drawn[1]:
        raise TaskSetError(
            f"draw of environment {env.name} gives other tasks when it is called again with the same seed; "
            "take every random number from random.Random(seed)"
        )
    for split, tasks in drawn[0].items():
        asked = getattr(at.task.evaluation, f"{split}_tasks")
        if len(tasks) < (asked or 1):
            raise TaskSetError(
                f"draw of environment {env.name} gives {len(tasks)} {split} tasks, and "
                + (f"evaluation.{split}_tasks={asked} are asked for" if asked else "there must be some")
            )


def prompts(at: BeforeRun) -> None:
    """No prompt stands in two splits, nor in a demonstration and a split that judges: what is judged was not trained
    on. Empty prompts, which `reset` fills, are left out."""
    env = at.environment
    if not at.own or getattr(env, "environment_factory", None) is not None:
        return
    where: dict[str, Task] = {}
    for split in (s for s in SPLITS if at.splits.get(s)):
        tasks = env.tasks(split)
        check_tasks(env.name, split, tasks)
        for t in tasks:
            key = " ".join(t.prompt.split())
            if key and (other := where.setdefault(key, t)).split != split:
                raise TaskSetError(
                    f"environment {env.name}: tasks {other.id} of {other.split} and {t.id} of {split} have the "
                    f"same prompt, {quoted(key)}; a prompt may stand in one split only: leave one of them out"
                )
    _check_demonstrations(env, at.task.policy.warm_start, where)


def _check_demonstrations(environment: Environment, warm: WarmStart, where: Mapping[str, Task]) -> None:
    """TaskSetError where a demonstration shows the prompt of a task that judges, by chance or not. Looked at: those
    that a warm start asks for. `where`: prompt -> its task."""
    demos = demonstrations_of(environment, min(warm.demonstrations, SHOWN), warm.seed)
    shown = {" ".join(text.split()) for demo in demos for text in demo[::2]}
    if not (met := [t for key, t in where.items() if t.split != "train" and key in shown]):
        return
    raise TaskSetError(
        f"environment {environment.name}: its demonstrations show {counted(len(met), 'task')} that judge, as "
        f"{met[0].id} of {met[0].split}, {quoted(met[0].prompt)}; what is learnt from must not be what is judged: take "
        "demonstrations from train tasks, or leave such prompts out"
    )


def first_trial(at: BeforeRun) -> Found:
    """The first trial would refuse no file and no configuration; its trainer's notes."""
    from evotrainer.trainers import TRAINERS, check_trial
    from evotrainer.trainers.base import Identity, TrainRequest

    if at.lacks:
        return
    task = at.task
    recipes = [r for x in (task.recipe, evaluated(task), *at.children) for r in x.chain]
    yield from check_trial(task.trainer.name, task.trainer.options, at.base, recipes, at.environment)
    if (dry_run := TRAINERS[task.trainer.name].dry_run) and at.base is not None and at.new:
        who = Identity("check", "b0", task.run.seeds[0])
        tier_e = task.sandbox.accept_tier_e
        first = TrainRequest(who, recipes[0], at.base, at.base, environment=task.environment, accept_tier_e=tier_e)
        dry_run(task.trainer.options, first, at.environment)
