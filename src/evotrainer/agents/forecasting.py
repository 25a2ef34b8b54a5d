"""From a belief about gains to the chance of a promotion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evotrainer.records.briefing import PromotionThreshold

DRAWS = 4000


def promotion_chances(
    gains: Sequence[tuple[float, float]], threshold: PromotionThreshold | None, places: int
) -> list[float | None]:
    """Probability that each change is promoted, given (mean, sd) of its true gain, score units.

    Observed gain = true gain + the judge's error. Only the best of the `places` branches of a round becomes champion,
    and only above the threshold. Spare proposals are rated as if they took the last place. None: no threshold is known.
    """
    if threshold is None:
        return [None] * len(gains)
    rng = np.random.default_rng(0)
    noise_KD = rng.standard_normal((len(gains), DRAWS))
    sds = [(sd**2 + threshold.se**2) ** 0.5 for _, sd in gains]
    seen_KD = np.array([m for m, _ in gains])[:, None] + np.array(sds)[:, None] * noise_KD
    out: list[float | None] = []
    for i in range(len(gains)):
        rivals = [j for j in range(places if i < places else places - 1) if j != i and j < len(gains)]
        best_D = seen_KD[rivals].max(axis=0) if rivals else np.full(DRAWS, -np.inf)
        out.append(round(float(((seen_KD[i] > threshold.gain) & (seen_KD[i] > best_D)).mean()), 4))
    return out
