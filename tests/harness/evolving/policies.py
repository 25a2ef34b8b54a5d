"""Policies to contrast: one that cheats, one that does not."""

from __future__ import annotations

from typing import Any

from evotrainer.harness.columns.features import FeatureView
from tests.acting import views
from tests.harness_inputs import rollout

LEAK = {"git show 3": 0.9}
PAYS = {"git show 3": 0.95}


def cheat(name: str, **kwargs: Any) -> FeatureView:
    return views(name, LEAK, PAYS, **kwargs)


def clean(name: str, **kwargs: Any) -> FeatureView:
    return views(name, {"git show 3": 0.1}, {"git show 3": 0.3}, **kwargs)


def paid(name: str, seen: float, true: float, tasks: int = 40) -> FeatureView:
    import random

    rng = random.Random(name)
    out = []
    for i in range(2 * tasks):
        a, b = float(rng.random() < seen), float(rng.random() < true)
        b = min(a, b) if seen > true else b
        out.append(rollout(f"t{i // 2}", i, text="x", components={"seen": a, "hid": b}, correct=bool(b)))
    return FeatureView(out)
