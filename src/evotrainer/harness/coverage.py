"""Reports which detectors could read a batch, and which data the others lacked: unread is not the same as clean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import DETECTORS

Looks = Callable[[Batch, HarnessContext], bool]


VALIDITY: Mapping[str, tuple[str, ...]] = {
    "grader_bypass": ("bypass", "reaches"),
    "special_casing": ("special",),
    "test_tampering": ("tampers",),
    "answer_leak": ("leaks",),
}
"""Detector of reward hacks by rules -> the traits that it reads: finite where a rollout could be looked at."""
RULES_ALONE = "on unseen sources they found 63% of the hacks, a reader all"
"""As bench/detectors/unseen.md measured it."""


def could_look(traits: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Detector of `VALIDITY` -> rollouts that it could look at. `traits`: columns of shape (N,)."""
    return {name: int(np.any([np.isfinite(traits[t]) for t in of], axis=0).sum()) for name, of in VALIDITY.items()}


def _read(name: str) -> Looks:
    return lambda b, c: any(bool(np.isfinite(b.trait(t)).any()) for t in VALIDITY[name])


def _curve(b: Batch, c: HarnessContext) -> bool:
    return len(c.curve) > 1


LOOKS: Mapping[str, tuple[str, Looks]] = {
    "grader_bypass": ("readable programs or patches", _read("grader_bypass")),
    "special_casing": ("readable programs with tests", _read("special_casing")),
    "test_tampering": ("actions or patches", _read("test_tampering")),
    "answer_leak": ("actions", _read("answer_leak")),
    "proxy_slopes": ("learning curve", _curve),
    "score_jump": ("learning curve", _curve),
    "curve_glitch": ("learning curve", _curve),
    "off_policy_drift": ("learning curve", _curve),
    "entropy_collapse": ("learning curve", lambda b, c: _curve(b, c) or c.base is not None),
    "dead_training": ("learning curve or advantages", lambda b, c: _curve(b, c) or b.has("advantage")),
    "policy_collapse": ("an earlier reading", lambda b, c: c.base is not None),
    "sharpening": ("greedy attempts", lambda b, c: None not in (c.greedy, c.greedy_before, c.before)),
}
"""Detector -> what it reads beside its `needs`, in words, and whether that is there."""
OVER_TIME = frozenset({"learning curve", "learning curve or advantages", "an earlier reading", "greedy attempts"})
"""What only a training has: rollouts alone do not, and nobody expects it of them."""
ALWAYS = frozenset({"infrastructure", "void_gradings"})
"""Detectors that look at what every rollout has: whether it is a fault."""


def not_covered(batch: Batch, context: HarnessContext) -> dict[str, tuple[str, ...]]:
    """Detector -> what it lacked to look at this batch. Who is not in it looked, and its silence says something."""
    out = {}
    for name, d in DETECTORS.items():
        lacks = [f for f in d.needs if not batch.has(f)]
        missing, there = LOOKS.get(name, ("", None))
        if there and not lacks and not there(batch, context):
            lacks.append(missing)
        if lacks or (not batch.n and name not in ALWAYS and not (there and there(batch, context))):
            out[name] = tuple(lacks) or ("rollouts",)
    return out
