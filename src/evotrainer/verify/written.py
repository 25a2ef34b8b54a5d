"""Code of a trial's recipe, run again on its stored rollouts: written reward components, hooks' weights and advantages.

What `select` of a hook drew is not: it is shown the tags of all training tasks, which no rollout holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from evotrainer.algorithm.advantages import advantages, flat, nested, weighed
from evotrainer.errors import EvoTrainerError
from evotrainer.factors.payable import unpayable
from evotrainer.records.chain import Event
from evotrainer.records.events import TrialFinished
from evotrainer.records.hooks import DETAIL, group_view, hook_of, rollout_views, wrong_advantages, wrong_weights
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.records.written import evidence
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.verify.report import Problem, Record
from evotrainer.verify.trials import recipe_of

MOST = 512
"""Rollouts of a trial that are scored again, evenly spread over those that it stored."""
STEPS = 8
"""Steps of a trial whose weights and advantages are computed again, evenly spread over its training."""


def components(record: Record, event: Event) -> Iterator[Problem]:
    """Every value of a written component follows from its source and the rollout that it is stored with."""
    t: TrialFinished = event.body
    recipe = recipe_of(record, t)
    sources = {n: s for r in recipe.chain for n, s in r.written.items()} if recipe else {}
    if not sources or t.status != "complete" or not t.parts:
        return
    try:
        with closing(RewardRunner(record.task.sandbox.accept_tier_e)) as scorer:
            stored = _stored(record, t)
            shown = [evidence(r.turns, r.components, r.detail, unpayable(record.opened.environment)) for r in stored]
            for name, source in sources.items():
                again = scorer(source, shown).values if shown else []
                wrong = [(r, v) for r, v in zip(stored, again, strict=True) if r.components.get(name, "nothing") != v]
                record.checked["written components"] += len(stored)
                if wrong:
                    r, v = wrong[0]
                    yield Problem(
                        "rollouts",
                        f"trial {t.trial}: {len(wrong)} of {len(stored)} values of {name} do not follow from its "
                        f"source, e.g. rollout {r.id}: {r.components.get(name, 'nothing')} stored, {v} computed",
                    )
    except EvoTrainerError as e:
        yield Problem("rollouts", f"trial {t.trial}: its written components cannot be computed again: {e}")


def _stored(record: Record, t: TrialFinished) -> list[Rollout]:
    """Rollouts of the train and search splits that were graded, evenly spread over all."""
    from evotrainer.harness.columns.batch import Batch
    from evotrainer.harness.columns.source import stored
    from evotrainer.records.reading import read_batches

    batch = Batch.over(stored(read_batches([record.folder / "rollouts" / t.trial])))
    step = max(1, -(-batch.n // MOST))
    return batch.rollouts_at(range(0, batch.n, step))


def hooks(record: Record, event: Event) -> Iterator[Problem]:
    """Weights and advantages that a training stored follow from its hooks and the rollouts of the step."""
    from evotrainer.records.reading import load

    t: TrialFinished = event.body
    recipe = recipe_of(record, t)
    if recipe is None or t.status != "complete" or not t.parts:
        return
    steps = [s for s in range(1, recipe.whole_steps + 1) if _edits(recipe.at(s))]
    kept = unpayable(record.opened.environment)
    try:
        with closing(RewardRunner(record.task.sandbox.accept_tier_e)) as caller:
            for step in steps[:: max(1, -(-len(steps) // STEPS))]:
                rows = load([record.folder / "rollouts" / t.trial], split="train", step=step)
                again = _ReplayedHooks(recipe.at(step), step - recipe.at(step).before, kept, caller)
                wrong = again.differences(list(_grouped(rows)))
                record.checked["hooked rollouts"] += len(rows)
                if wrong:
                    yield Problem("rollouts", f"trial {t.trial}: step {step}: {len(wrong)} {wrong[0]}")
    except EvoTrainerError as e:
        yield Problem("rollouts", f"trial {t.trial}: its hooks cannot be run again: {e}")


def _edits(recipe: Recipe) -> bool:
    return any(hook_of(recipe.hooks, entry) for entry in ("advantages", "weights"))


def _grouped(rows: Sequence[Rollout]) -> Iterator[list[Rollout]]:
    """The groups of a step in stored order, their rollouts in the order of their attempts."""
    groups: dict[str, list[Rollout]] = {}
    for r in rows:
        groups.setdefault(r.group, []).append(r)
    yield from groups.values()


@dataclass(frozen=True, slots=True)
class _ReplayedHooks:
    """The hooks of one step, run again."""

    recipe: Recipe
    step: int
    protected: Sequence[str]
    caller: RewardRunner

    def differences(self, groups: list[list[Rollout]]) -> list[str]:
        """What a stored weight or advantage is, and what it would be."""
        return self._weights(groups) + self._advantages(groups)

    def _weights(self, groups: list[list[Rollout]]) -> list[str]:
        found = hook_of(self.recipe.hooks, "weights")
        if found is None:
            return []
        wrong = []
        rounds: dict[int, list[list[Rollout]]] = {}
        for g in groups:
            rounds.setdefault(_weight(g[0])["round"], []).append(g)
        for of_round in rounds.values():
            shown = rollout_views(of_round, self.step, self.recipe.steps, self.protected)
            (answer,) = self.caller.call(found[1], "weights", [(shown,)]).values
            flat = [r for g in of_round for r in g]
            values = [math.nan] * len(flat) if wrong_weights(answer, len(flat)) else answer
            for r, w in zip(flat, values, strict=True):
                if not _same(_weight(r)["weight"], w):
                    wrong.append(_line("weights", found[0], r, _weight(r)["weight"], w))
        return wrong

    def _advantages(self, groups: list[list[Rollout]]) -> list[str]:
        kept = [g for g in groups if any(r.advantage is not None for r in g)]
        if not kept or self.recipe.credit.kind == "turn":  # rewards of turns are not stored
            return []
        r = self.recipe
        rewards = flat([[x.reward for x in g] for g in kept])
        values = nested(advantages(*rewards, r), kept)
        name = ""
        if found := hook_of(r.hooks, "advantages"):
            shown = [group_view(g, a, self.step, r.steps, self.protected) for g, a in zip(kept, values, strict=True)]
            answers = self.caller.call(found[1], "advantages", [(x,) for x in shown]).values
            name = found[0]
            pairs = zip(answers, kept, strict=True)
            values = [[math.nan] * len(g) if wrong_advantages(s, [x.reward for x in g]) else s for s, g in pairs]
        if weighs := hook_of(r.hooks, "weights"):
            name = name or weighs[0]
            values = [
                [None if a is None else weighed(a, _weight(x)["weight"] or 0.0) for a, x in zip(row, g, strict=True)]
                for row, g in zip(values, kept, strict=True)
            ]
        return [
            _line("advantages", name, x, x.advantage, a)
            for row, g in zip(values, kept, strict=True)
            for a, x in zip(row, g, strict=True)
            if not _same(x.advantage, a)
        ]


def _weight(r: Rollout) -> dict[str, Any]:
    """What a training with a hook for weights stored of a rollout."""
    detail = r.detail.get(DETAIL) if isinstance(r.detail, Mapping) else None
    return (
        dict(detail)
        if isinstance(detail, Mapping) and {"weight", "round"} <= detail.keys()
        else {"weight": None, "round": 0}
    )


def _same(a: float | None, b: float | None) -> bool:
    """Equal but for the last bits, in which the sums of other machines differ."""
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _line(what: str, name: str, r: Rollout, stored: object, computed: object) -> str:
    return f"{what} of {name} do not follow from its source, e.g. rollout {r.id}: {stored} stored, {computed} computed"
