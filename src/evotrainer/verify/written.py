"""Written reward components of a trial, computed again on its stored rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from evotrainer.config.payable import unpayable
from evotrainer.errors import EvoTrainerError
from evotrainer.records.chain import Event
from evotrainer.records.events import TrialFinished
from evotrainer.records.rollout import Rollout
from evotrainer.records.written import evidence
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.verify.report import Problem, Record
from evotrainer.verify.trials import recipe_of

MOST = 512
"""Rollouts of a trial that are scored again, evenly spread over those that it stored."""


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
    return batch.some(range(0, batch.n, step))
