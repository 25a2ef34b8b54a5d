"""Bundles of changes: which part of one is which, and whether each has a measurement of its own."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from evotrainer.config.task import TaskFile
from evotrainer.projections.branches import START, Branch, Probe
from evotrainer.projections.state import RunState
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import BUNDLE, Recipe, fields_of
from evotrainer.records.search import ProbeRecord
from evotrainer.records.verdicts import Estimate

KNOCKOUTS = 12
"""Trainings of a bundle without one of its factors, for all factors together; each has one at least."""


def largest_bundle(task: TaskFile) -> int:
    """Most factors in which a branch, or a search training, may differ from the champion."""
    return max(task.run.changes, task.run.bundle)


def knockout_seeds(task: TaskFile, factors: int) -> tuple[int, ...]:
    """Fresh seeds on which a bundle of so many factors is trained without one of them: certification's, as many as
    `KNOCKOUTS` trainings hold. The bundle itself has all."""
    return task.run.certify_seeds[: knockouts_each(factors)]


def knockouts_each(factors: int) -> int:
    """Knock-outs of each factor of a bundle, where there are as many fresh seeds."""
    return max(1, KNOCKOUTS // max(1, factors))


def said_elsewhere(state: RunState, parent: Recipe, bundle: Recipe, part: Recipe) -> Estimate | None:
    """What a bundle has over a part of it on search, by all trainings but the fresh ones that knock-outs rest on.

    The priors are the same for every factor: what a proposer expects of his changes has no say in whether they stay.
    None where the part has a value that nothing was trained with (without a start it has the steps of both), and where
    the factor was trained in the whole bundle only: the model would give it a share of the bundle's gain.
    """
    from evotrainer.projections.pooled import TrainingScore, dearer, fit, levels

    branches, probes = [b.record() for b in state.branches.values()], [p.record() for p in state.probes.values()]
    start, base = state.branches[START].recipe, state.branches[START].record()

    seen = [TrainingScore(b.recipe, x, dearer(b, base)) for b in branches for x in b.scores]
    seen += [TrainingScore(p.recipe, p.score, dearer(p, base)) for p in probes if p.score is not None and not p.invalid]
    whole, rest = levels(start, bundle), levels(start, part)
    if not _apart(parent, bundle, part, [x.recipe for x in seen]):
        return None
    model = fit(start, seen, {})
    if not rest <= model.counts.keys():
        return None
    mean, sd = model.gain(whole, rest)
    return Estimate(mean=round(mean, 9), sd=round(sd, 9))


def _apart(parent: Recipe, bundle: Recipe, part: Recipe, trained: Iterable[Recipe]) -> bool:
    """Was what a part lacks of its bundle trained without all of the bundle? `parent`: what the bundle changes, since a
    value may be taken back to the starting recipe's."""
    from evotrainer.projections.pooled import levels

    whole, rest = levels(parent, bundle), levels(parent, part)
    return any((whole - rest) & had and not whole <= had for had in (levels(parent, r) for r in trained))


def wrong_step(
    probes: Mapping[str, Probe | ProbeRecord], incumbent: str, changes: Mapping[str, Any], departs: str, most: int
) -> str:
    """Why a search training may not be made so: it takes more than `most` changes from the recipe that it departs from,
    or that is no search training of the same champion. Empty where it may. `probes`: those so far, by name."""
    from_ = probes.get(departs)
    if departs and (from_ is None or from_.incumbent != incumbent):
        return f"it departs from {departs}, which is no search training from {incumbent}"
    before = from_.changes if from_ else {}
    step = [f for f in sorted(before.keys() | changes.keys()) if not same_change(before, changes, f)]
    if len(step) <= most:
        return ""
    return f"it changes {len(step)} factors of {departs or incumbent} at once ({', '.join(step)}), run.changes={most}"


def same_change(a: Mapping[str, Any], b: Mapping[str, Any], factor: str) -> bool:
    """Do both leave the factor alone, or give it the same value?"""
    return (factor in a) == (factor in b) and json.dumps(a.get(factor), sort_keys=True) == json.dumps(
        b.get(factor), sort_keys=True
    )


def is_bundle(b: Branch) -> bool:
    """Does the branch change several factors at once?"""
    return b.intervention is not None and b.intervention.factor == BUNDLE


def part_of(bundle: Intervention, keep: Collection[str]) -> Intervention:
    """The bundle with these factors only; a single one is an ordinary change of that factor."""
    old, new = ({f: v for f, v in side.items() if f in keep} for side in (bundle.old, bundle.new))
    factor = BUNDLE
    if len(new) == 1:
        (factor,) = new
        old, new = old[factor], new[factor]
    left_out = ", ".join(sorted(bundle.new.keys() - set(keep)))
    return bundle.model_copy(
        update={
            "factor": factor,
            "old": old,
            "new": new,
            "hypothesis": f"without {left_out} the bundle does as well ({bundle.hypothesis})",
            "forecast": None,
            "skills": (),
            "reopens": "",
            "changed": "",
        }
    )


def without(parent: Recipe, bundle: Intervention, factor: str) -> Intervention:
    """The bundle with one of its factors knocked out. Without a start its recipe is trained from where the parent's is,
    for as many steps as the bundle: going on from a policy must be worth more than training for as long."""
    part = part_of(bundle, bundle.new.keys() - {factor})
    if "start" not in fields_of(factor):
        return part
    steps = parent.with_changes(bundle.new).whole_steps - parent.before
    old, new = (dict(x) if part.factor == BUNDLE else {part.factor: x} for x in (part.old, part.new))
    told = {"old": old | {"steps": parent.steps}, "new": new | {"steps": steps}}
    return part.model_copy(update={"factor": BUNDLE, **told})


def unmeasured(state: RunState, branch: str) -> list[str]:
    """Factors of a bundle that no knock-out has measured and kept: it cannot be promoted while there are any.

    A part of a bundle rests on the bundle's own knock-outs; a single change on its verdict.
    """
    b = state.branches[branch]
    if not is_bundle(b):
        return []
    assert b.intervention is not None
    mine = {k.factor for k in state.knockouts if k.kept and k.branch in (branch, b.reduces)}
    return sorted(b.intervention.new.keys() - mine)
