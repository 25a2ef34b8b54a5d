"""Checks before a run begins, and opening a run folder for its steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.config.bases import resolve_base
from evotrainer.config.payable import check_paid
from evotrainer.config.preflight import check_recipe, weights_sha256
from evotrainer.config.task import TaskFile
from evotrainer.envs.user_files import WATCH, call
from evotrainer.errors import ConfigError
from evotrainer.factors.lint import lint
from evotrainer.records.hub import looks_like_id
from evotrainer.rules.recipes import evaluated
from evotrainer.run import task_sets
from evotrainer.run.agent import agent_of, reader_of
from evotrainer.run.context import Ask, RunContext, no_human
from evotrainer.run.observer import Observer, SilentObserver
from evotrainer.run.oddities import check_places
from evotrainer.run.problems import Problems, told_if_slow
from evotrainer.run.sense import check_sense, check_sizes

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.envs.base import Environment
    from evotrainer.executors import Executor, MakeExecutor
    from evotrainer.records.ledger import Ledger
    from evotrainer.records.recipe import Recipe


@WATCH.limited()
def check_task(task: TaskFile, *, new: bool = False, further: Callable[[], None] = lambda: None) -> list[str]:
    """What must hold before anything is spent: base policy, trainer, agent and the changes it is given, environment;
    of a new run also what its recipes pay, its skills and `further`.

    Returns notes for the reader. Raises the first problem, with the messages of the others; a missing library last, as
    what does not need it is checked all the same.
    """
    from evotrainer.agents.fixed import FixedAgent
    from evotrainer.executors import preflight_executor
    from evotrainer.trainers import check_installed, check_recipes

    problems, trainer = Problems(), task.trainer
    problems.of(check_installed, trainer.name)
    if new:
        problems.of(check_sizes, task)
        problems.of(check_places, task)
    problems.of(check_recipes, trainer.name, trainer.options, [task.recipe], task.run.sampler_dtype)
    problems.of(check_policy, task)
    agent = problems.of(agent_of, task)
    problems.of(reader_of, task)
    if agent is not None:
        problems.of(check_searcher, task, agent)
    children = (problems.of(agent.recipes, task.recipe) if isinstance(agent, FixedAgent) else None) or []
    problems.of(check_recipes, trainer.name, trainer.options, children, task.run.sampler_dtype)
    problems.of(preflight_executor, task, children)
    fetched = problems.lacks and looks_like_id(task.policy.base) and not Path(task.policy.base).expanduser().exists()
    if not fetched:  # nobody waits for a model that cannot be trained here
        with told_if_slow(f"looking for the base policy {task.policy.base}"):
            problems.of(check_base, task)
    notes = problems.of(check_environment, task, children, new=new, policy=not fetched, lacks=problems.lacks) or []
    if new:
        problems.of(check_library, task)
        problems.of(further)
        notes = [*(f"recipe.{x.factor}: {x.message}" for x in lint(task.recipe)), *notes]
    problems.tell(notes)
    return notes


def check_base(task: TaskFile) -> None:
    """The base policy is there."""
    if (base := resolve_base(task.policy.base)) is not None:
        weights_sha256(base)


def check_policy(task: TaskFile) -> None:
    """ConfigError where the trainer cannot train what policy.base names, as far as the name tells."""
    from evotrainer.records.hub import parse_pinned

    base = task.policy.base
    if task.trainer.name != "embedded" or base == "warm-start" or base.startswith("builtin:"):
        return
    folder = Path(base).expanduser()
    if not looks_like_id(base) and not parse_pinned(base) and not (folder / "config.json").is_file():
        raise ConfigError(
            f"policy.base {base!r}: no config.json there; give a folder that `evotrainer base` wrote or a trial's "
            "policy/, or warm-start"
        )
    if looks_like_id(base) and not folder.exists():
        raise ConfigError(
            f'policy.base {base!r} is no folder here; if it is a Hugging Face id, set trainer.name = "trl": '
            "the embedded "
            "trainer trains policies of `evotrainer base` only"
        )


def check_searcher(task: TaskFile, agent: Agent) -> None:
    """ConfigError where a run is to search only and its agent cannot."""
    from evotrainer.agents.base import Searcher

    if task.run.search_only and not isinstance(agent, Searcher):
        raise ConfigError(
            f"run.search_only makes search trainings, and agent {agent.name} knows none; take run.agent=statistical"
        )
    if (most := getattr(agent, "most_changes", 0)) > task.run.changes:
        raise ConfigError(
            f"agent {agent.name} changes up to {most} factors in a training, and run.changes={task.run.changes}; set "
            f"run.changes={most} (and run.search_only=true: `evotrainer compare` proves what it finds)"
        )


def check_library(task: TaskFile) -> None:
    """The skills a new run is given can be read and hold; a resumed run has its own copy."""
    if task.run.skills:
        from evotrainer.run.skills import collect

        collect(task.run.skills)


def check_environment(
    task: TaskFile, children: Sequence[Recipe] = (), *, new: bool = False, policy: bool = True, lacks: bool = False
) -> list[str]:
    """The environment opens, has the splits, components and knobs the task file speaks of; else ConfigError and kin.

    `children`: recipes of branches that are known already. `new`: what they pay is checked as well; a run that began
    goes on as it began. `policy`: is the base policy looked at? `lacks`: are libraries missing, to try a trial with?
    Returns notes for the reader.
    """
    from evotrainer.envs import OPTION, open_environment
    from evotrainer.trainers import check_trial

    rest = {k: v for k, v in task.environment.items() if k != OPTION}  # which is checked beside what recipes name
    with told_if_slow("opening the environment and reading its rows"):
        environment = open_environment(rest, accept_tier_e=task.sandbox.accept_tier_e)
    try:
        described = call(f"describe() of environment {environment.name}", environment.describe)
        if hasattr(environment, "environment_factory") and task.trainer.name != "trl":
            raise ConfigError(f'environment {environment.name} is played by TRL\'s own loop; set trainer.name = "trl"')
        check_names(task, environment, (task.recipe, *children), new)
        judged = () if task.run.search_only else ("gate", "cert")
        missing = [s for s in ("train", "search", *judged) if not described["splits"].get(s)]
        if missing and not task.run.evaluate_only:
            raise ConfigError(
                f"environment {environment.name} has no tasks in split {', '.join(missing)}, "
                "which training and judging need; give them some (see environment.splits), "
                "or set run.evaluate_only=true"
            )
        if not set(described["splits"]) - {"train"}:
            raise ConfigError(f"environment {environment.name} has no split to evaluate on (search, gate or cert)")
        problems, notes, trainer = Problems(), list[str](), task.trainer
        if new:
            with told_if_slow("trying the environment's rewards, and measuring prompts as the policy reads them"):
                notes += problems.of(check_sense, task, environment, (task.recipe, *children), policy) or []
            notes += problems.of(task_sets.forewarn, task, environment) or []
        if policy and not lacks:
            recipes, base = [r for x in (task.recipe, evaluated(task), *children) for r in x.chain], task.policy.base
            with told_if_slow(f"loading the libraries of the {trainer.name} trainer, and checking {base} with them"):
                notes += (
                    problems.of(check_trial, trainer.name, trainer.options, resolve_base(base), recipes, environment)
                    or []
                )
        problems.tell(notes)
        return notes
    finally:
        environment.close()


def check_names(task: TaskFile, environment: Environment, recipes: Sequence[Recipe], new: bool) -> None:
    """What environment.payable and recipes name is there, all that is not told together; of a new run, what recipes pay
    may be paid."""
    from evotrainer.envs import check_needed, check_payable, pay_terms, payable_components
    from evotrainer.trainers.curriculum import check_tag

    problems = Problems()
    payable = problems.of(payable_components, task.environment)
    problems.of(check_payable, environment, payable or ())
    for recipe in recipes:
        problems.of(check_recipe, recipe, environment.name, environment.components, environment.knobs)
        for tagged in (r for r in recipe.chain if r.curriculum.tag):
            if (tasks := problems.of(environment.tasks, "train")) is not None:
                problems.of(check_tag, tasks, tagged.curriculum)
    if task.evaluation.protocol.knobs is not None:
        problems.of(check_recipe, evaluated(task), environment.name, environment.components, environment.knobs)
    problems.tell(())
    if not new:
        return
    check_needed(environment, task.environment)
    told = {"name": environment.name, "components": environment.components, **pay_terms(environment, task.environment)}
    for recipe in recipes:
        check_paid(recipe, told)


def check_train_tag(task: TaskFile, recipe: Recipe) -> None:
    """ConfigError where a curriculum goes by a tag that does not tell the training tasks apart, though search tasks it
    may."""
    from evotrainer.envs import open_environment
    from evotrainer.trainers.curriculum import check_tag

    with contextlib.closing(open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)) as opened:
        check_tag(opened.tasks("train"), recipe.curriculum)


def with_absolute_base(task: TaskFile) -> TaskFile:
    """The base policy's path made absolute, a Hugging Face id pinned to its commit: a resume finds the same weights."""
    from evotrainer.records.hub import pinned

    base = resolve_base(task.policy.base)
    if base is None or task.policy.base.startswith("builtin:"):
        return task
    name = pinned(task.policy.base, base) or str(base)
    return task.model_copy(update={"policy": task.policy.model_copy(update={"base": name})})


def with_pinned_data(task: TaskFile) -> TaskFile:
    """A Hugging Face data set's revision as a commit, so that every trial and every resume reads the same rows."""
    from evotrainer.envs.data.hub import pin

    environment = pin(task.environment)
    return task if environment == task.environment else task.model_copy(update={"environment": environment})


@contextlib.contextmanager
def open_context(
    folder: Path,
    task: TaskFile,
    ledger: Ledger,
    *,
    agent: Agent | None = None,
    view: Observer | None = None,
    ask: Ask | None = None,
    executor: MakeExecutor | None = None,
    task_hash: str | None = None,
) -> Iterator[RunContext]:
    """A run folder for its steps, nothing of it walked yet; the executor is closed at the end."""
    from evotrainer.executors import make_executor
    from evotrainer.executors.cache import with_cache

    def own(folder: Path, task: TaskFile) -> Executor:
        return with_cache(make_executor(folder, task), folder, task, (view or SilentObserver()).note)

    if agent:
        check_searcher(task, agent)
    ctx = RunContext(
        folder=folder,
        task=task,
        task_hash=task_hash or task.hash,
        ledger=ledger,
        executor=(executor or own)(folder, task),
        agent=agent or agent_of(task),
        observer=view or SilentObserver(),
        ask=ask or no_human,
        reader=reader_of(task),
    )
    with contextlib.closing(ctx.executor):
        try:
            task_sets.take_keys(ctx)
            yield ctx
        finally:
            ctx.release()
