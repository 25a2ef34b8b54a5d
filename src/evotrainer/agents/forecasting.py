"""Computes the chance of a promotion from a belief about gains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evotrainer.records.briefing import Briefing, PromotionThreshold

DRAWS = 4000
FOUND = 0.6
"""Share of an expected gain that the judge finds: changes were chosen for their luck on search, gains of several do not
add up, some proved invalid. Over 69 judged branches of 34 runs the chance had a Brier score of 0.34 without and 0.15
with what this module does, always saying how many were promoted 0.19; three domains tell this share for the fourth
as well (0.16)."""
PROVES = 0.84
"""Standard errors above what is asked for at which a gain is found four times in five: `judge.planned_seeds.POWER`."""


def proof_of(briefing: Briefing, gain: float) -> PromotionThreshold | None:
    """What the judge will ask of a change that expects this gain: with the seeds that prove it, or with those that the
    budget pays, where these are fewer. None: not known."""
    enough = (t for t in briefing.planned if gain >= t.gain + PROVES * t.se)
    found = next(enough, briefing.planned[-1] if briefing.planned else briefing.promotion_threshold)
    return max((t for t in (found, briefing.provable) if t), key=lambda t: t.gain, default=None)


def promotion_chances(
    gains: Sequence[tuple[float, float]], proofs: Sequence[PromotionThreshold | None], places: int
) -> list[float | None]:
    """Probability that each change is promoted, given (mean, sd) of its true gain and what is asked of it, score units.

    Observed gain = what is found of the gain + the judge's error. Only the best of the `places` branches of a round
    becomes champion, and only above its threshold. Spare proposals are rated as if they took the last place.
    """
    asked = [t for t in proofs if t is not None]
    if len(asked) < len(gains):
        return [None] * len(gains)
    rng = np.random.default_rng(0)
    noise_KD = rng.standard_normal((len(gains), DRAWS))
    sds = [(sd**2 + t.se**2) ** 0.5 for (_, sd), t in zip(gains, asked, strict=True)]
    seen_KD = FOUND * np.array([m for m, _ in gains])[:, None] + np.array(sds)[:, None] * noise_KD
    out: list[float | None] = []
    for i, t in enumerate(asked):
        others = places if i < places else places - 1  # a spare one takes the last place from who has it
        rivals = [j for j in range(min(others, len(gains))) if j != i]
        best_D = seen_KD[rivals].max(axis=0) if rivals else np.full(DRAWS, -np.inf)
        out.append(round(float(((seen_KD[i] > t.gain) & (seen_KD[i] > best_D)).mean()), 4))
    return out
