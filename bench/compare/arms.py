"""The arms of a comparison, and the task file that each repeat of one runs."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bench.compare.agents import register
from evotrainer.agents import make_agent
from evotrainer.config.evaluation import EvaluationProtocol
from evotrainer.config.task import RunConfig, TaskFile
from evotrainer.errors import ConfigError
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.rules.recipes import PROTOCOL, evaluated

REFERENCE = "statistical"
"""The default agent: other arms are compared with it."""
DRAWS = 7000
"""Gate and cert of a repeat are drawn from this number plus the repeat's."""
APART = 10_000
"""Between the seeds of one repeat and those of the next."""
FRESH_SEED = 501
"""Seeds of the proof count from here: no arm trains on them."""
MANY = 12
"""Rounds of a judged arm: its trainings end it before."""
MANY_CHANGES = 100
"""At least `ControlArm.most_changes`."""


@dataclass(frozen=True)
class ArmKind:
    """One row of `ARMS`."""

    agent: str
    """`run.agent`."""
    about: str
    searches: bool = False
    """It spends what one round's search may take and then proposes."""
    control: bool = False
    """It only searches: its choice is promoted by nobody."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of `[run]`."""


NO_HARNESS = {"harness": "minimal", "evolve_harness": False, "veto": False}


ARMS: dict[str, ArmKind] = {
    "statistical": ArmKind("statistical", "the default agent", searches=True),
    "frozen": ArmKind(
        "statistical", "the default agent, its harness does not evolve", True, settings={"evolve_harness": False}
    ),
    "score_only": ArmKind(
        "score_only", "the default agent without a harness: it sees scores only", True, settings=NO_HARNESS
    ),
    "pooled": ArmKind(
        "statistical",
        "the search of the default agent alone: its best by the model of all trainings, unproved",
        control=True,
        settings={"search_only": True, "agent_options": {"worth": 0.0}},
    ),
    "one_factor": ArmKind("one_factor", "one factor at a time, paired seeds, judged"),
    "random": ArmKind("random", "random changes of one factor, paired seeds, judged"),
    "random_recipes": ArmKind("random_recipes", "random recipes, one seed, the best on search", control=True),
    "greedy": ArmKind("greedy", "one change at a time, one seed, any gain on search is kept", control=True),
    "tpe": ArmKind("tpe", "Optuna's TPESampler over the same changes, one seed", control=True),
    "best_of_n": ArmKind("best_of_n", "the starting recipe under N seeds", control=True),
}
"""Name on the command line -> what it is."""


def check_arms(names: Sequence[str], task: TaskFile, trainings: int) -> None:
    """ConfigError for an unknown or repeated arm, one whose extra is missing, or too few trainings for one."""
    register()
    for name in names:
        if name not in ARMS:
            near = difflib.get_close_matches(name, list(ARMS), n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"one of: {', '.join(ARMS)}"
            raise ConfigError(f"unknown arm {name!r}; {hint}")
        if names.count(name) > 1:
            raise ConfigError(f"arm {name} is given twice; name each once, and ask for more --repeats")
        make_agent(ARMS[name].agent)
        if trainings < (need := least(name, task)):
            raise ConfigError(
                f"--trainings {trainings} is too few for arm {name}, which needs {need} ({why(name, task)}); "
                f"give --trainings {need} or leave the arm out"
            )


def least(arm: str, task: TaskFile) -> int:
    """Trainings below which an arm can do nothing."""
    run, kind = task.run, ARMS[arm]
    if kind.control:
        return len(run.seeds) + 1
    return 3 * len(run.seeds) + 1 if kind.searches else 2 * len(run.seeds)


def why(arm: str, task: TaskFile) -> str:
    """What `least` is made of."""
    run, kind = task.run, ARMS[arm]
    parts = [f"{len(run.seeds)} of the starting recipe"]
    if kind.control or kind.searches:
        parts.append("a search training")
    if not kind.control:
        parts.append(f"{len(run.seeds)} of a branch")
    if kind.searches:
        parts.append(f"{len(run.seeds)} of its control at equal compute")
    return ", ".join(parts)


def arm_task(task: TaskFile, arm: str, trainings: int, repeat: int, paper: bool = False) -> TaskFile:
    """The task file of one repeat of an arm: its agent, its seeds, at most `trainings` before certification."""
    kind, run = ARMS[arm], task.run
    own: dict[str, Any] = {
        "agent": kind.agent,
        "agent_options": run.agent_options if kind.agent == run.agent else {},
        "rounds": 1 if kind.control else MANY,
        "probes": trainings - len(run.seeds) if kind.control else run.probes or trainings if kind.searches else 0,
        "changes": MANY_CHANGES if kind.control and kind.agent != REFERENCE else run.changes,
        **kind.settings,
    }
    if arm == "score_only":  # as the statistical agent has it
        own["agent_options"] = {"min_effect": task.judge.min_effect}
    # A control arm's search ends by run.probes. A judged one is held to the same by its budget, which counts the
    # trainings of its certificate as well.
    trials = None if kind.control else trainings + len(run.certify_seeds)
    return _with(task, own, repeat, trials, paper)


def proof_task(task: TaskFile, recipe: Any, fresh: int, repeat: int) -> TaskFile:
    """A recipe on fresh seeds, evaluated as the task's own starting recipe is and audited as any; no rounds."""
    seeds = tuple(range(FRESH_SEED, FRESH_SEED + fresh))
    own = {"agent": REFERENCE, "agent_options": {}, "rounds": 0, "probes": 0, "seeds": seeds, "skills": ()}
    if set(seeds) & set(task.run.certify_seeds):
        own["certify_seeds"] = (FRESH_SEED - 1,)
    made = _with(task, own, repeat, None, False)
    # a run evaluates as its starting recipe samples; here that is what was chosen, and one that trains colder would be
    # read colder than by the search that reported it, and than the start that it is held against
    frozen = {f: getattr(evaluated(task), f) for f in PROTOCOL}
    # but what it closes stays closed: the arm's run may have confirmed a shortcut, and gone on without it
    _, shortcuts = opened(json.dumps(task.environment), task.sandbox.accept_tier_e)
    shut = {c.knob: recipe.knobs.get(c.knob) for c in shortcuts.closable if shortcuts.is_closed(c, recipe.knobs)}
    frozen["knobs"] = {**frozen["knobs"], **{k: v for k, v in shut.items() if v is not None}}
    if any(getattr(recipe, f) != v for f, v in frozen.items()):
        evaluation = made.evaluation.model_copy(update={"protocol": EvaluationProtocol.model_validate(frozen)})
        made = made.model_copy(update={"evaluation": evaluation})
    return made.model_copy(update={"recipe": recipe})


def _with(task: TaskFile, own: Mapping[str, Any], repeat: int, trials: int | None, paper: bool) -> TaskFile:
    """The task with these settings of `[run]`, the seeds of a repeat, and no other limit than its trainings."""
    run = task.run.model_dump() | dict(own)
    shift = APART * (repeat - 1)
    for name in ("seeds", "certify_seeds"):
        run[name] = tuple(s + shift for s in run[name])
    run |= {"search_seed": run["search_seed"] + shift, "seed": run["seed"] + repeat - 1, "autonomy": "full"}
    # every arm of a repeat meets the same tasks on gate and cert, another repeat others; a comparison looks at them as
    # often as it has arms, so they are no set whose error budget a later run could share
    run |= {"looks": "off"} | ({"workers": 1, "cache": "off"} if paper else {})
    evaluation = task.evaluation
    if paper:
        evaluation = evaluation.model_copy(update={"draw": "fixed"})
    elif evaluation.draw != "fixed" and opened(json.dumps(task.environment), task.sandbox.accept_tier_e)[0]:
        evaluation = evaluation.model_copy(update={"draw": DRAWS + repeat})
    budget = task.budget.model_copy(update={"cpu_s": None, "wall_s": None, "trials": trials})
    made = {"run": RunConfig.model_validate(run), "budget": budget, "evaluation": evaluation}
    return task.model_copy(update=made)


@lru_cache
def opened(environment: str, accept_tier_e: bool) -> tuple[bool, Shortcuts]:
    """Of the environment of this table (JSON): can it draw gate and cert from a number, and what can be closed?"""
    from evotrainer.envs import open_environment
    from evotrainer.envs.base import can_redraw

    with contextlib.closing(open_environment(json.loads(environment), accept_tier_e=accept_tier_e)) as found:
        described = {k: ", ".join(map(str, v)) for k, v in found.knobs.items()}
        return can_redraw(found), Shortcuts(tuple(found.capabilities), described)
