"""Finds unexplained gaps: a branch is paid for wrong attempts, as much as its parent was, and no finding says why.

Nothing moved, so there is no version to contrast it with; its own rollouts are the contrast: those that earn the paid
component and are wrong against those that earn it and are right. What the wrong ones lack is sought among the
components that training may pay, so that what is found can be acted upon; the outcome, under whatever name, explains
nothing. One half of the tasks is mined, the other is held out, the base policy's with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evotrainer.factors.payable import on_offer
from evotrainer.projections.branches import Branch
from evotrainer.records import keys
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.events import GapSeen
from evotrainer.run import admissions
from evotrainer.run.context import RunContext
from evotrainer.run.contrasts import ContrastSides

if TYPE_CHECKING:
    from evotrainer.harness.columns.features import FeatureView

MINED, HELD_OUT = "even", "odd"
"""Halves of the tasks."""
SIDES = ("wrong", "right")

COPIES = 0.999
"""Share of rollouts on which a component that may be paid agrees with the outcome and is held for a copy of it that the
environment did not declare. What is declared is left out anyway, and a good remedy may agree on 98%: on one quickstart
in several all but 36 of 1,973 paid programs crashed on perturbed inputs exactly where they were wrong."""


def examine(ctx: RunContext, n: int, b: Branch) -> GapSeen | None:
    """The unexplained gap of a branch, with the detector of what its paid and wrong rollouts lack.

    None where its environment does not say which component is the outcome: then nothing tells what misses the point;
    and where pay and outcome parted in training, which a contradiction tells already.
    """
    from evotrainer.harness.columns.features import FeatureView, restates
    from evotrainer.harness.evolving.gaps import unexplained_gap
    from evotrainer.harness.evolving.mining import mine

    outcome = ctx.state.environment.get("outcome") or ()
    total = sum(w for w in b.recipe.rewards.values() if w > 0)
    # more than half: where two make the pay together, who earns one of them and not the other was not paid for that
    paid = [k for k, w in b.recipe.rewards.items() if w > total / 2 and k not in outcome]
    now = {t.trial: ctx.rollouts.views(t.trial) for t in b.complete}
    moved = ctx.recorded(keys.gap(b.branch))
    parted = moved is not None and moved.body.trigger == "contradiction"
    if parted or not outcome or not paid or not all(map(len, now.values())):
        return None
    gap = unexplained_gap(now, b.findings, paid)
    if gap is None or gap.paid is None:
        return None
    ctx.observer.step(f"looks for detectors of what is paid and wrong in {b.branch}")
    component = gap.paid[0]
    sides = split(ctx, component, now)
    bad, clean = (FeatureView.joined(side.values()) for side in (sides.bad, sides.clean))
    others = [c for c in on_offer(ctx.state.environment) if c not in outcome and not b.recipe.rewards.get(c)]
    pairs = [(component, c) for c in others if not restates([bad, clean], c, COPIES)]
    mined = mine(bad, clean, pairs, behaviours=False)
    return admissions.tried(
        ctx,
        n,
        b,
        b.branch,
        gap,
        mined,
        sides,
        lambda c, spec: warning(spec, c.share_clean, FeatureView.joined(now.values())),
        f"none of {mined.compared} components that may be paid tells the two sides apart",
        by_itself=True,
    )


def split(ctx: RunContext, component: str, now: dict[str, FeatureView]) -> ContrastSides:
    """Rollouts that earn the component, right and wrong, mined and held out; those of the base policy held out."""
    from evotrainer.harness.columns.rollout_reader import earning, halves

    out = ContrastSides()
    base = {keys.BASE_TRIAL: ctx.rollouts.views(keys.BASE_TRIAL)} if ctx.state.base else {}
    for trial, view in (now | base).items():
        for half, part in halves(view):
            if half == MINED and trial not in now:
                continue
            for ended, held, mined in zip(SIDES, (out.held_bad, out.held_clean), (out.bad, out.clean), strict=True):
                side = mined if half == MINED else held
                if len(some := earning(part, component, ended)):
                    side[f"{trial} search, {half} tasks, {component} {ended}"] = some
    return out


def warning(spec: DetectorSpec, clean: float, whole: FeatureView) -> DetectorSpec:
    """The detector as a warning: it speaks from halfway between what paid and right rollouts show and what the whole
    branch shows."""
    from evotrainer.harness.evolving.authored import PROXY_GAP, flags

    shown = float(np.mean(flags(spec, whole)))
    return spec.model_copy(
        update={"kind": PROXY_GAP, "standing": "informational", "warn": max(0.02, round((clean + shown) / 2, 2))}
    )
