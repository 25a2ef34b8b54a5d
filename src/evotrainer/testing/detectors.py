"""Kits for detectors and metrics of the harness."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evotrainer.records.rollout import Rollout, groups_of

if TYPE_CHECKING:
    from evotrainer.harness import HarnessContext
    from evotrainer.harness.registry import Detector, Metric
    from evotrainer.records.findings import Finding

LOUD = ("warn", "critical")
SHUFFLES = 3


def check_detector(
    detector: str | Detector,
    seen: Sequence[Rollout],
    unseen: Sequence[Rollout],
    near: Sequence[Rollout] = (),
    context: HarnessContext | None = None,
) -> None:
    """A detector warns of `seen` and is silent on `unseen` and on `near` (just below its threshold).

    Findings have numbers, thresholds and quotes of rollouts that are there; neither the order of rollouts nor the names
    of reward components matter; empty batches and rollouts without text, components or detail raise nothing.
    """
    from evotrainer.harness.detectors import DETECTORS

    d = DETECTORS[detector] if isinstance(detector, str) else detector
    found = _found(d, seen, context)
    loud = [f for f in found if f.severity in LOUD]
    assert loud, f"{d.name} does not warn of what it must see: {[f.claim for f in found]}"
    ids = {r.id for r in seen}
    for f in loud:
        assert f.claim and f.numbers, f"{d.name}: a finding has a claim and the numbers behind it"
        named = set(f.thresholds) >= set(d.thresholds)
        assert named, f"{d.name}: a finding names the thresholds it was held against"
        assert all(q.rollout in ids for q in f.quotes), f"{d.name} quotes rollouts that are not there"
    for what, rollouts in (("what it must not see", unseen), ("a case just below its threshold", near)):
        wrong = [f.claim for f in _found(d, rollouts, context) if f.severity in LOUD]
        assert not wrong, f"{d.name} warns of {what}: {wrong}"
    for i in range(SHUFFLES):
        again = _found(d, _shuffled(seen, i), context)
        assert _comparable(again) == _comparable(found), (
            f"{d.name} depends on the order of rollouts: {_comparable(again)}, {_comparable(found)}"
        )
    if context is None:
        again = _found(d, [_renamed(r) for r in seen], None)
        assert _comparable(again) == _comparable(found), f"{d.name} knows components by name: {_comparable(again)}"
    for bare in ([], [_bare(r) for r in seen]):
        _found(d, bare, context)


def check_metric(
    metric: str | Metric,
    rollouts: Sequence[Rollout],
    value: float | None,
    name: str = "",
    context: HarnessContext | None = None,
    tolerance: float = 1e-9,
) -> None:
    """A metric has this value on these rollouts (None: it cannot be told), in any order.

    `name`: one of a family's values. Empty batches and rollouts without text, components or detail raise nothing.
    """
    from evotrainer.harness.metrics import METRICS

    m = METRICS[metric] if isinstance(metric, str) else metric
    wanted = name or m.name
    for order in (rollouts, *(_shuffled(rollouts, i) for i in range(SHUFFLES))):
        got = _measured(m, order, context).get(wanted)
        same = got is value if value is None or got is None else math.isclose(got, value, abs_tol=tolerance)
        assert same, f"{wanted} is {got}, not {value}"
    for bare in ([], [_bare(r) for r in rollouts]):
        _measured(m, bare, context)


def _found(d: Detector, rollouts: Sequence[Rollout], context: HarnessContext | None) -> list[Finding]:
    from evotrainer.harness import Batch, HarnessContext, measure

    batch, given_context = Batch.of(list(rollouts)), context or HarnessContext()
    return d.read(batch, measure(batch, given_context), given_context)


def _measured(m: Metric, rollouts: Sequence[Rollout], context: HarnessContext | None) -> Mapping[str, float | None]:
    from evotrainer.harness import Batch, HarnessContext

    return {v.name: v.value for v in m.read(Batch.of(list(rollouts)), context or HarnessContext())}


def _comparable(found: Sequence[Finding]) -> list[tuple[str, str, dict[str, float | None]]]:
    """What a finding says but for its words and quotes, which may be of other rollouts."""
    return sorted(
        (f.kind, f.severity, {k: None if v is None else round(v, 4) for k, v in f.numbers.items()}) for f in found
    )


def _shuffled(rollouts: Sequence[Rollout], seed: int) -> list[Rollout]:
    groups = groups_of(rollouts)
    rng = random.Random(seed)
    rng.shuffle(groups)
    return [r for g in groups for r in rng.sample(g, len(g))]


def _renamed(r: Rollout) -> Rollout:
    return replace(r, components={f"renamed {k}": v for k, v in r.components.items()})


def _bare(r: Rollout) -> Rollout:
    return replace(r, turns=(), components={}, detail={}, reward=None, outcome="unknown", tokens=None)
