"""Bundles of changes: which part of one is which, and whether each has a measurement of its own."""

from __future__ import annotations

from collections.abc import Collection

from evotrainer.projections.branches import Branch
from evotrainer.projections.state import RunState
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import BUNDLE


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


def unmeasured(state: RunState, branch: str) -> list[str]:
    """Factors of a bundle that no knock-out has shown to matter: it cannot be promoted while there are any.

    A part of a bundle rests on the bundle's own knock-outs; a single change on its verdict.
    """
    b = state.branches[branch]
    if not is_bundle(b):
        return []
    assert b.intervention is not None
    mine = {k.factor for k in state.knockouts if k.kept and k.branch in (branch, b.reduces)}
    return sorted(b.intervention.new.keys() - mine)
