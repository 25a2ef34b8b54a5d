"""The handful of metrics that a decision on a branch rested on; the others are folded away."""

from __future__ import annotations

from evotrainer.views.model import BranchView, RunView

ALWAYS = ("accuracy", "proxy_gap")


def deciding(b: BranchView, view: RunView) -> list[str]:
    """Names of the metrics: the score, proxy and true component and their gap, what its recipe pays, what it or a
    branch made from it predicted, and what lies outside its healthy range."""
    pair = view.proxy or ()
    paid = [k for k, w in b.recipe.rewards.items() if w] if b.recipe else []
    components = [n for c in (*pair, *paid) for n in (f"rewards/{c}/mean", c)]
    near = [x for x in view.branches.values() if x.intervention and b.name in (x.name, x.parent)]
    predicted = [x.intervention.prediction.metric for x in near if x.intervention]
    outside = [m.name for m in b.metrics if m.flag in ("low", "high")]
    seen = {m.name for m in b.metrics if m.flag != "unseen"}
    return [n for n in dict.fromkeys((*ALWAYS, *components, *predicted, *outside)) if n in seen]
