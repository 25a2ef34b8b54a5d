"""Checks of the task file and the places that it names: slips of the hand, budgets, settings without effect."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evotrainer.config.task import default_workers
from evotrainer.errors import ConfigError, IntegrityError, StoreError
from evotrainer.executors import gpus_of, local_workers
from evotrainer.factors.lint import lint
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import counted
from evotrainer.run.checks.base import BeforeRun, Found

MOST: Mapping[int, str] = {
    1_000: "recipe.updates_per_step recipe.resample run.branches run.workers policy.warm_start.shape.layers",
    10_000: (
        "recipe.group_size recipe.max_turns evaluation.search_attempts evaluation.protocol.max_turns "
        "evaluation.gate_attempts evaluation.cert_attempts run.rounds run.probes"
    ),
    65_536: "policy.warm_start.shape.width",
    100_000: "recipe.prompts_per_step policy.warm_start.batch",
    1_000_000: "recipe.steps recipe.max_tokens evaluation.protocol.max_tokens policy.warm_start.shape.mlp",
    10_000_000: "policy.warm_start.steps policy.warm_start.drill_steps policy.warm_start.shape.context",
    100_000_000: "policy.warm_start.demonstrations policy.warm_start.drills",
}
"""Size -> settings that are a slip of the hand beyond it: nobody could train, hold or pay it."""
MOST_LR = 10.0
ROLLOUTS = 1_000_000_000
"""Most rollouts of one training."""
FEW_STEPS = 50
"""Steps in which the rate of a warm start rises (`trainers.schedule.WARM_UP`)."""
LEAST_RATE = 1e-5
"""Of the small policies that ship, which learn at 2e-4 and more; AdamW moves no weight by more than the rate a step."""


# -- places ------------------------------------------------------------------------------------------------------------


def folder(at: BeforeRun) -> None:
    """A new run can begin in its folder, and overwrites no other task file."""
    from evotrainer.run.open_run import with_absolute_base, with_pinned_data

    if at.folder is None:
        return
    if why := unwritable(at.folder):
        raise StoreError(f"cannot make run folder {at.folder}: {why}; choose another --out")
    if (at.folder / "ledger.db").exists():
        raise ConfigError(
            f"{at.folder} holds a run already; `evotrainer resume {at.folder}` goes on with it, or choose another --out"
        )
    refuse_results(at.folder)
    file = at.folder / "task.toml"  # of a run that was killed before its ledger: the same text
    if file.exists() and read_bytes(file) != with_absolute_base(with_pinned_data(at.task)).to_toml().encode():
        raise ConfigError(f"{file} is there already and a run would overwrite it; choose another --out")


def refuse_results(folder: Path) -> None:
    """IntegrityError where a folder without a recorded event holds results: a new run would overwrite them."""
    found = [
        d
        for d in ("trials", *SealedSplits.STORES)
        if any(p != folder / SealedSplits.DRAW for p in (folder / d).glob("*"))
    ]
    if found:
        raise IntegrityError(
            f"{folder}: the ledger holds no event, but {', '.join(found)}/ hold results: "
            "the ledger was lost or emptied; restore ledger.db from a copy, or start a new run in another folder"
        )


def places(at: BeforeRun) -> Found:
    """A folder or file that `[run]` names can be written."""
    for option in ("cache", "looks", "keys"):
        value = getattr(at.task.run, option)
        if value not in ("", "off") and (why := unwritable(Path(value).expanduser(), folder=option != "looks")):
            yield ConfigError(f"run.{option}={value} cannot be written: {why}; name another place, or off")


def cache(at: BeforeRun) -> Found:
    """A note where trainings cannot be cached; a run says so itself when it opens the cache."""
    from evotrainer.executors.cache import cache_folder, unusable_notice

    place = cache_folder(at.task.run.cache) if at.dry else None
    if place is not None and (why := unwritable(place)):
        yield unusable_notice(place, why)


def unwritable(place: Path, folder: bool = True) -> str:
    """Why a folder (or a file) cannot be written at a path that need not exist yet; empty where it can.

    Leaves nothing behind.
    """
    try:
        if place.is_file():
            if folder:
                return "it is a file"
            return "" if os.access(place, os.W_OK) else "it may not be written"
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryDirectory(dir=place, prefix=".evotrainer-"):
            return ""
    except OSError as e:
        return e.strerror or str(e)


# -- values ------------------------------------------------------------------------------------------------------------


def human(at: BeforeRun) -> Found:
    """A note where a run asks a person and no terminal is there to answer in."""
    if at.task.run.autonomy != "full" and at.human is False and not at.task.run.evaluate_only:
        run = at.folder or "RUN"
        yield f"run.autonomy={at.task.run.autonomy}: at a gate the run waits for `evotrainer answer {run}`"


def sizes(at: BeforeRun) -> None:
    """No size is one that nobody can mean."""
    for name, most in ((n, most) for most, names in MOST.items() for n in names.split()):
        value: Any = at.task
        for part in name.split("."):
            value = getattr(value, part)
        if value is not None and value > most:
            raise ConfigError(f"{name}={value} is more than {most:,}, which no run would come to the end of; lower it")
    run = at.task.run
    if wrong := [s for s in (*run.seeds, *run.certify_seeds) if not 0 <= s < 2**31]:
        what = "below 0" if wrong[0] < 0 else "2^31 or more"
        raise ConfigError(f"run.seeds, run.certify_seeds: {wrong[0]} is {what}, which no random generator takes")
    for r in at.task.recipe.chain:
        if (lr := max(r.lr, *(p.lr or 0.0 for p in r.phases), 0.0)) > MOST_LR:
            raise ConfigError(f"recipe.lr={lr:g} is more than {MOST_LR:g}, which no policy survives; lower it")
        n = r.steps * r.prompts_per_step * r.group_size
        if n > ROLLOUTS:
            raise ConfigError(
                f"recipe.steps={r.steps} x prompts_per_step={r.prompts_per_step} x group_size={r.group_size} are "
                f"{n:,} rollouts in one training, more than {ROLLOUTS:,}; lower one of them"
            )


def recipe_warnings(at: BeforeRun) -> Found:
    """Notes on combinations of the starting recipe that are known to be harmful, or idle."""
    return (f"recipe.{x.factor}: {x.message}" for x in lint(at.task.recipe))


def shares(at: BeforeRun) -> Found:
    """A note where fractions do not add up to 1, as each is then another than was written; whole numbers are ratios."""
    given = at.task.environment.get("splits")
    splits = given if isinstance(given, Mapping) else {}
    values = list(splits.values())
    numbers = all(isinstance(v, int | float) and math.isfinite(v) and v >= 0 for v in values)
    if not numbers or not sum(values) or all(v == round(v) for v in values) or abs(sum(values) - 1) < 0.005:
        return  # what is no share is refused where the splits are drawn
    taken = ", ".join(f"{name} {value / sum(values):.0%}" for name, value in splits.items())
    yield f"environment.splits add up to {sum(values):g}, not to 1: of all tasks are {taken}"


def idle_settings(at: BeforeRun) -> Iterator[str]:
    """Notes on settings that have less effect than they promise."""
    task, small = at.task, at.task.policy.base.startswith(("warm-start", "builtin:"))
    warm = task.policy.warm_start
    if task.policy.base == "warm-start" and warm.steps < FEW_STEPS:
        yield (
            f"policy.warm_start.steps={warm.steps}: its rate still rises for the first {FEW_STEPS} steps, so the base "
            "policy learns next to nothing from its demonstrations, and RL needs attempts that are right; give it "
            "hundreds"
        )
    if small and not task.run.evaluate_only and (slow := min(r.lr for r in at.chain)) < LEAST_RATE:
        yield (
            f"recipe.lr={slow:g}: policy.base={task.policy.base} is a small policy, which hardly moves at a rate that "
            "suits models of billions of weights: no change of the recipe would show; give it about 3e-4"
        )
    if task.executor.name == "local" and task.run.workers > (cores := default_workers()):
        yield (
            f"run.workers={task.run.workers}, and this process may use {counted(cores, 'core')}: trials take turns and "
            "each takes longer; run.workers=0 runs one per core"
        )


def prices(at: BeforeRun) -> Found:
    """With budget.usd, what trials take has a price; notes on old prices, and where budget.gpu_s limits nothing."""
    task, price = at.task, at.task.budget.price
    gpus = gpus_of(task)
    if task.budget.gpu_s is not None and not gpus:
        yield f"budget.gpu_s={task.budget.gpu_s:g} limits nothing: trials hold no GPU here"
    if price is not None and (old := price.stale()):
        yield old
    if task.budget.usd is None or price is None:
        return
    if gpus and price.gpu_hour is None:
        raise ConfigError(
            f"budget.usd={task.budget.usd:g}: each trial holds {gpus:g} GPU, and budget.price has no gpu_hour; give "
            "what an hour of one costs (0 where it costs you nothing)"
        )
    if not gpus and price.cpu_hour is None:
        raise ConfigError(
            f"budget.usd={task.budget.usd:g}: trials hold no GPU here, and budget.price has no cpu_hour, so that "
            "nothing would ever be spent; give what an hour of CPU time costs"
        )


def budget(at: BeforeRun) -> Found:
    """The budget holds the trainings that anything is judged by; a note where it may not.

    Of every training budget.trial_cpu_s are set aside before the cost of one is known.
    """
    run, limits = at.task.run, at.task.budget
    if run.evaluate_only:
        return
    n, each = len(run.seeds), limits.trial_cpu_s
    need = n * each + each / 4  # the base policy's evaluation is reserved at a quarter, and settled at what it took
    first = f"the starting recipe is trained on {counted(n, 'seed')} first" + ", the noise floor" * (
        not run.search_only
    )
    if limits.cpu_s is not None and limits.cpu_s <= n * each:
        raise ConfigError(
            f"budget.cpu_s={limits.cpu_s:g} does not hold {counted(n, 'training')} at budget.trial_cpu_s={each:g} "
            f"beside the base policy's evaluation, and {first}: nothing could be judged; raise it to {need:g} or more, "
            "or lower budget.trial_cpu_s to what a training takes"
        )
    if limits.cpu_s is not None and limits.cpu_s < need:
        yield (
            f"budget.cpu_s={limits.cpu_s:g}: {first}, which set {n * each:g} aside; {limits.cpu_s - n * each:g} are "
            f"left for the base policy's evaluation; {need:g} suffice for sure"
        )
    side = min(n, local_workers(at.task))
    if limits.wall_s is not None and limits.wall_s * side < n * each:
        yield (
            f"budget.wall_s={limits.wall_s:g}: {first}, which at budget.trial_cpu_s={each:g} may take "
            f"{n * each / side:g} s; --estimate measures what a training takes"
        )
