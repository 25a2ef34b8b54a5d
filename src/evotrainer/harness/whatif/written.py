"""Code of a change on stored rollouts: written reward components checked in the order of what a check costs, and
computed; hooks by `harness.whatif.hooks`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from evotrainer.errors import EvoTrainerError, TimeOverError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.whatif.copies import (
    MISSED,
    TINY,
    copied,
    is_length,
    least_left,
    limit,
    new_code,
    on_offer,
    within,
)
from evotrainer.harness.whatif.hooks import held_against
from evotrainer.records.recipe import Recipe
from evotrainer.records.text import cause
from evotrainer.records.untrusted_values import CallResults
from evotrainer.records.written import Scorer, evidence, static_fault

PROBES = 16
"""Rollouts that a component is tried on first, spread over the batch."""
SLOW_S = 0.02
"""CPU-seconds per rollout, on average, above which a component is too dear to be asked thousands of times."""
FAR = 3
"""Times SLOW_S from which it is not asked about all rollouts to know."""
MAY_FAIL = 0.01
"""Share of rollouts on which it may fail: there it pays nothing."""
CONSTANT = 0.95
AGAIN = 1024
"""Rollouts of a training on which its code is computed and measured again, evenly spread."""
Fault = tuple[str, str] | None
"""(label, why) of what ends a component."""


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """The batch with the values of all written components that a change pays, or what ended the change."""

    batch: Batch
    label: str = ""
    """Of `records.written.LABELS`; empty: nothing is against the change."""
    why: str = ""
    """What is against it or, without a label, why values are missing; empty: neither."""


def scored(batch: Batch, old: Recipe, new: Recipe, context: HarnessContext) -> ScoredBatch:
    """Check what a change writes anew, and compute what is not stored; see `check` and `hooks.held_against`.

    What a check of new code raises is held against the code: it ends no run. Our own errors are raised.
    """
    try:
        found = _rewards(batch, old, new, context)
        if found.why:
            return found
        label, why = held_against(found.batch, old, new, context)
        return ScoredBatch(found.batch, label, why)
    except EvoTrainerError:
        raise
    except Exception as e:
        fresh = [n for kind in ("written", "hooks") for n in new_code(old, new, kind)]
        if not fresh:
            raise
        why = f"{', '.join(fresh)}: its check ended with {type(e).__name__} ({cause(e)}); write it plainer"
        return ScoredBatch(batch, "probe_failed", f"probe_failed: {why}")


def on_own_rollouts(batch: Batch, recipe: Recipe, context: HarnessContext) -> Fault:
    """(label, why) of what a training's own rollouts say against code of its recipe: computed again it has other values
    than were stored, or there it tells the outcome, which it did not on those that it was admitted on."""
    chosen = batch.pick(range(0, batch.n, max(1, -(-batch.n // AGAIN))))
    shown = [evidence(r.turns, r.components, r.detail, context.unpayable) for r in chosen.rollouts_at(range(chosen.n))]
    for name, source in {n: s for r in recipe.chain for n, s in r.written.items()}.items():
        assert context.scorer is not None
        values = _floats(context.scorer(source, shown))
        if not np.array_equal(values, chosen.component(name), equal_nan=True):
            return "nondeterministic", f"{name}: computed again, it has other values than the training stored"
        if context.unpayable and (fault := _sold(source, shown, values, chosen, context)) is not None:
            return fault[0], f"{name}: {fault[1]}"
    if recipe.hooks:
        own = batch.pick(np.flatnonzero(np.array(batch.column("step")) > recipe.before))
        label, why = held_against(own, recipe.with_factor("hooks", {}), recipe, context)
        return (label, why) if label in ("reads_protected", "nondeterministic") else None
    return None


def _rewards(batch: Batch, old: Recipe, new: Recipe, context: HarnessContext) -> ScoredBatch:
    fresh = new_code(old, new, "written")
    for name, source in fresh.items():
        if (fault := static_fault(source, context.unpayable)) is not None:
            return ScoredBatch(batch, fault[0], f"{fault[0]}: {name}: {fault[1]}")
    paid = {n: s for r in (old, new) for n, s in r.written.items() if r.rewards.get(n)}
    missing = {n: s for n, s in paid.items() if bool(np.isnan(batch.component(n)).all())}
    wanted = fresh | missing
    if not wanted or not batch.n:
        return ScoredBatch(batch)
    if context.scorer is None:
        return ScoredBatch(batch, why=f"{', '.join(wanted)} is code, and there is no sandbox to run it in")
    shown = [evidence(r.turns, r.components, r.detail, context.unpayable) for r in batch.rollouts_at(range(batch.n))]
    values: dict[str, Floats] = {}
    for name, source in wanted.items():
        if name not in context.checked:
            context.checked[name] = check(source, shown, context.scorer)
        fault, answers = context.checked[name]
        if fault is None and name in fresh and context.unpayable:
            key = f"sold {name}"
            if key not in context.checked:
                with suppress(TimeOverError):  # what was replayed holds; a run has the time
                    context.checked[key] = _sold(source, shown, _floats(answers), batch, context)
            fault = context.checked.get(key)
        if fault is not None and name in fresh:
            return ScoredBatch(batch, fault[0], f"{fault[0]}: {name}: {fault[1]}")
        values[name] = _floats(answers)
    return ScoredBatch(batch.with_components(values))


def _sold(source: str, shown: Sequence[dict[str, Any]], values: Floats, batch: Batch, context: HarnessContext) -> Fault:
    """(label, why) where a component pays the outcome itself, by its values or by an expression of its own."""
    offered = on_offer(batch, context.unpayable)
    most, own = limit(offered, batch.truth), list(offered.values())
    if most <= 0 < least_left(offered, batch.truth) and (copy := copied(values, batch.truth, TINY)):
        return "reads_protected", copy  # it knows what nothing on offer tells
    if most <= 0 and context.scorer is not None:
        # what is on offer tells all: code is a copy where it tells as much beside another rollout's components
        other = np.random.default_rng(0).permutation(len(shown)).tolist()
        shown = [s | {k: shown[i][k] for k in ("components", "tests")} for s, i in zip(shown, other, strict=True)]
        most, own = MISSED, []
        if copied(values, batch.truth):
            values = _floats(context.scorer(source, shown))
    if (copy := copied(values, batch.truth, most)) and not is_length(values, shown):
        return "reads_protected", copy
    return within(source, shown, batch.truth, own, context.hooks, most) if context.hooks else None


def _floats(answers: CallResults) -> Floats:
    return np.array([np.nan if v is None else v for v in answers.values], dtype=np.float64)


def _slow(answers: CallResults, n: int) -> str:
    return f"{1000 * answers.cpu_s / n:.0f} CPU-ms a rollout; at most {1000 * SLOW_S:.0f}"


def check(source: str, shown: Sequence[dict[str, Any]], scorer: Scorer) -> tuple[Fault, CallResults]:
    """((label, why) or None, the values on all rollouts or on those that it was tried on).

    In this order: it fails on a few rollouts; it answers otherwise when asked again, in another order; it takes too
    long; it fails on over 1% of all; it has one value on 95% of the rollouts that it applies to.
    """
    places = sorted({round(i) for i in np.linspace(0, len(shown) - 1, min(PROBES, len(shown)))})
    first = scorer(source, [shown[i] for i in places])
    if first.failed:
        at = min(first.failed)
        return ("probe_failed", f"on {len(first.failed)} of {len(places)} rollouts: {first.failed[at]}"), first
    if first.cpu_s > FAR * SLOW_S * len(places):
        return ("too_slow", _slow(first, len(places))), first
    whole = scorer(source, shown)
    again = scorer(source, [shown[i] for i in reversed(places)])
    before = [whole.values[i] for i in places]
    if again.values[::-1] != before or first.values != before:
        return ("nondeterministic", "the same rollouts, asked for again in another order, have other values"), whole
    if whole.cpu_s > SLOW_S * len(shown):
        return ("too_slow", _slow(whole, len(shown))), whole
    if len(whole.failed) > MAY_FAIL * len(shown):
        at = min(whole.failed)
        return ("probe_failed", f"on {len(whole.failed)} of {len(shown)} rollouts: {whole.failed[at]}"), whole
    known = np.array([v for v in whole.values if v is not None])
    if not len(known):
        return ("constant", "it applies to no rollout"), whole
    share = float(np.unique(np.round(known, 9), return_counts=True)[1].max()) / len(known)
    if share >= CONSTANT:
        return ("constant", f"it has one value on {share:.0%} of rollouts"), whole
    return None, whole
