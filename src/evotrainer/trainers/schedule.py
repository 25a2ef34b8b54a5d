"""What every trainer derives from recipe and seed: learning rates, seeds of random numbers."""

from __future__ import annotations

import hashlib
import math

from evotrainer.records.recipe import Schedule


def learning_rate(peak: float, schedule: Schedule, step: int, steps: int) -> float:
    """Rate of step `step` (0-based) of `steps`."""
    if step < schedule.warmup:
        return peak * (step + 1) / schedule.warmup
    progress = (step - schedule.warmup) / max(1, steps - schedule.warmup)
    if schedule.kind == "linear":
        return peak * (1.0 - progress)
    if schedule.kind == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak


def seed_of(*parts: object) -> int:
    """63-bit seed from its parts, the same in every process."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
