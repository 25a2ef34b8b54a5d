"""A change of the recipe, replayed: `rewards.robust=1 rewards.visible=0`, `group_filter=snr_top_p`,
or an intervention file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.harness.whatif.replay import ReplayInput, compose, lost
from evotrainer.records.interventions import Backtest, Intervention, Prediction
from evotrainer.records.one_factor import single_factor
from evotrainer.records.recipe import COMPOSITES, Recipe, diff, format_diff, parse_recipe, reward_moves
from evotrainer.records.regular_file import read_text
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.studies.backtest.sources import Subject

PREDICTED = ("accuracy", "score", "pass_rate", "pass@2", "pass@4", "pass@8")
"""Metrics that a prediction may name beside those of the harness."""
FAMILIES = ("rewards", "transition")
"""Metrics that read a family of figures, `rewards/<component>/mean`."""
NAMED = 12
"""Lost tasks that are named."""
SAMPLING = frozenset({"group_filter", "curriculum"})


@dataclass(frozen=True, slots=True)
class LostTask:
    """A task that would no longer be trained on."""

    task: str
    rollouts: int
    pass_rate: float | None


@dataclass(frozen=True, slots=True)
class ReplayedChange:
    """A backtest of one subject."""

    subject: Subject
    intervention: Intervention
    backtest: Backtest
    note: str = ""
    lost: tuple[LostTask, ...] = ()
    """Tasks of which nothing is left, hardest first; at most NAMED."""


def as_intervention(
    recipe: Recipe, settings: Sequence[str] = (), file: Path | None = None, predict: str | None = None
) -> tuple[Intervention, str]:
    """(the change as an intervention on `recipe`, a note or nothing); ConfigError with cause and remedy.

    `settings`: `factor=value` or `factor.field=value`, all of one factor. `file`: TOML or JSON with `factor` and `new`,
    and what else an intervention holds. `predict`: `METRIC up|down SIZE`.
    """
    if bool(settings) == bool(file):
        raise ConfigError("give a change (e.g. rewards.robust=1) or --intervention FILE, and not both")
    prediction = _prediction(predict) if predict else Prediction(metric="accuracy", direction="up", size=0.01)
    if file is not None:
        values = _read(file)
        factor, new = values["factor"], values["new"]
        if "prediction" in values and predict is None:
            prediction = Prediction.model_validate(values["prediction"])
        hypothesis = str(values.get("hypothesis", "given in a file"))
    else:
        factor, new = _set(recipe, settings)
        hypothesis = "given on the command line"
    note = ""
    if factor == "rewards" and isinstance(new, dict) and (n := reward_moves(recipe.rewards, new)) > 1:
        note = f"{n} moves in the reward composition: the loop asks for one at a time"
    return (
        Intervention(
            factor=factor,
            old=recipe.value(factor),
            new=new,
            hypothesis=hypothesis,
            prediction=prediction,
            success_criterion="",
            rollback="",
        ),
        note,
    )


def _prediction(text: str) -> Prediction:
    m = re.fullmatch(r"\s*(\S+)\s+(up|down)\s+([0-9.eE+-]+)\s*", text)
    try:
        if m:
            size = float(m[3])
            _known_metric(m[1])
            return Prediction.model_validate({"metric": m[1], "direction": m[2], "size": size})
    except ValueError:
        pass
    raise ConfigError(f"--predict {text!r}: write METRIC up|down SIZE, e.g. 'frac_reward_zero_std down 0.2'")


def _known_metric(name: str) -> None:
    """ConfigError with the nearest names where the harness has no such metric."""
    from difflib import get_close_matches

    from evotrainer.harness.metrics import METRICS

    # a registered metric may read a family of figures, one for each reward component: `rewards/<component>/mean`
    if name in PREDICTED or name in METRICS or name.partition("/")[0] in FAMILIES:
        return
    near = get_close_matches(name, [*PREDICTED, *METRICS], 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(METRICS))}"
    raise ConfigError(f"--predict: no metric is called {name!r}; {hint}")


def _read(file: Path) -> dict[str, Any]:
    try:
        text = read_text(file)
        values = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None
    except ValueError as e:
        raise ConfigError(f"{file} is neither valid TOML nor JSON: {e}") from None
    if not isinstance(values, dict) or not {"factor", "new"} <= values.keys() or not isinstance(values["factor"], str):
        raise ConfigError(f"{file}: an intervention has `factor` (a recipe factor) and `new` (its value)")
    return values


def _set(recipe: Recipe, settings: Sequence[str]) -> tuple[str, Any]:
    """The one factor that settings change, and its new value."""
    from evotrainer.config.load import apply_overrides

    plain = [s.removeprefix("recipe.") for s in settings]
    name, _, value = plain[0].partition("=")
    if len(plain) == 1 and name.strip() in (*COMPOSITES, "start"):
        new = apply_overrides({}, [f"new={value}"])["new"]
        return single_factor(recipe, recipe.with_factor(name.strip(), new)), new
    try:
        values = apply_overrides(recipe.model_dump(mode="json"), [_whole(recipe, s) for s in plain])
    except ConfigError as e:
        raise ConfigError(str(e).replace("section.name=value, e.g. recipe.lr=1e-4", "rewards.robust=1")) from None
    old, now = (r.model_copy(update={"rewards": _paid(r)}) for r in (recipe, parse_recipe(values)))
    changed = diff(old, now)
    if not changed:
        raise ConfigError(f"{' '.join(settings)}: the recipe has these values already; nothing would change")
    if len(changed) == 1:
        factor, (_, new) = next(iter(changed.items()))
        return factor, new
    try:
        return (factor := single_factor(old, now)), now.value(factor)
    except SingleFactorError:
        raise ConfigError(
            f"a backtest changes one factor at a time, this changes {len(changed)}: {format_diff(changed)}; "
            f"only these go together: {', '.join(' + '.join(v) for v in COMPOSITES.values())}"
        ) from None


def _paid(recipe: Recipe) -> dict[str, float]:
    return {k: w for k, w in recipe.rewards.items() if w}


def _whole(recipe: Recipe, setting: str) -> str:
    """`group_filter=snr_top_p` stands for `group_filter.kind=snr_top_p`, and so does what is no kind: the error then
    lists them. A section is none."""
    key, eq, value = setting.partition("=")
    now = getattr(recipe, key.strip(), None)
    of_kinds = isinstance(now, BaseModel) and "kind" in type(now).model_fields
    return f"{key}.kind{eq}{value}" if of_kinds and not value.strip().startswith("{") else setting


def replay_change(
    subject: Subject,
    intervention: Intervention,
    note: str = "",
    accept_tier_e: bool = False,
    until: float | None = None,
) -> ReplayedChange:
    """Replay a change on one subject, code in the sandbox; ConfigError where it pays a component that is not stored.
    `until`: see `RewardRunner.until`."""
    b = subject.batch
    if intervention.factor == "rewards" and isinstance(intervention.new, Mapping):
        _check_components(subject, intervention.new)
    with closing(RewardRunner(accept_tier_e, until)) as scorer:  # it opens the sandbox when there is code to run
        context = replace(subject.context, scorer=scorer, hooks=scorer)
        result = backtest(intervention, subject.recipe, b, context)
    gone: tuple[LostTask, ...] = ()
    if intervention.factor in SAMPLING and "lost_tasks" in result.numbers:
        gone = _lost(subject, intervention)
    return ReplayedChange(subject, intervention, result, note, gone)


def pays_truth(subject: Subject) -> bool:
    """Is what the recipe pays the truth itself, up to its scale, so that nothing stands for it?"""
    b = subject.batch
    known = ~np.isnan(b.truth)
    paid, truth = compose(b, subject.recipe)[known].round(9), b.truth[known]
    levels = [np.unique(paid[truth == v]) for v in np.unique(truth)]
    return len(levels) > 1 and all(len(x) == 1 for x in levels) and bool(np.all(np.diff(np.concatenate(levels)) > 0))


def _check_components(subject: Subject, new: Mapping[str, Any]) -> None:
    stored = subject.batch.component_names
    unknown = sorted(c for c, w in new.items() if w and c not in stored)
    if not stored:
        raise ConfigError(f"{subject.name}: no reward components are stored, only rewards; a reward change needs them")
    if unknown:
        raise ConfigError(
            f"{subject.name}: no component {', '.join(unknown)} is stored; there are: {', '.join(stored)}"
        )
    if not any(subject.recipe.rewards.values()):
        raise ConfigError(
            f"{subject.name}: what the rewards pay is unknown (no weighted sum of {', '.join(stored)} gives them); "
            "name it: --paid visible=1,format=0.1"
        )


def _lost(subject: Subject, iv: Intervention) -> tuple[LostTask, ...]:
    """Tasks that the change no longer trains on, hardest first; those of unknown outcome last."""
    b = subject.batch
    child = subject.recipe.with_factor(iv.factor, iv.new)
    gone = np.flatnonzero(lost(ReplayInput(b, subject.recipe, child, subject.context))[0])
    known = ~np.isnan(b.truth)
    judged = np.bincount(b.task[known], minlength=b.n_tasks)
    right = np.bincount(b.task[known], weights=b.truth[known], minlength=b.n_tasks)
    rate: dict[int, float | None] = {}
    for task in gone.tolist():
        rate[task] = float(right[task] / judged[task]) if judged[task] else None

    def hardest_first(task: int) -> tuple[bool, float, int]:
        of_task = rate[task]
        return of_task is None, of_task or 0.0, task

    order = sorted(rate, key=hardest_first)[:NAMED]
    attempts = np.bincount(b.task, minlength=b.n_tasks)
    first = [int(np.flatnonzero(b.task == t)[0]) for t in order]  # a row of each, for the task's name
    names = b.column("task", first)
    return tuple(LostTask(name, int(attempts[t]), rate[t]) for t, name in zip(order, names, strict=True))
