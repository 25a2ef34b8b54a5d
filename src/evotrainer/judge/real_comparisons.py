"""A/A comparisons of a run's own trainings: one recipe on both sides, judged as if it were two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from evotrainer.judge.alpha_spending import next_look
from evotrainer.judge.decide import judge
from evotrainer.judge.inputs import JudgeConfig, JudgeInput
from evotrainer.judge.simulate import Rate, Share
from evotrainer.judge.stats import measure_noise, scores_of
from evotrainer.records.events import NoiseMeasured, TrialFinished
from evotrainer.records.frozen import Frozen

SPLITS_MOST = 60
"""At most so many splits of one recipe's trainings are judged, each in both directions."""


class RealComparisons(Frozen):
    """A/A comparisons of real trainings: the same recipe on both sides, other seeds."""

    comparisons: int
    independent: int
    """Comparisons that share no training with another one: what the number is worth at least."""
    promoted: Share
    """At the level of a run's first look of one branch."""
    promoted_plain: Share
    """At 5% each, nothing spent: what a single comparison would err."""
    harmful: int
    """Whole interval below 0 at the first look's level."""
    groups: dict[str, int]
    """Recipe's branch -> its trainings."""
    left_out: dict[str, int] = {}
    """Branches with too few trainings for two sides, and how many they have."""


def real_comparisons(
    groups: Mapping[str, Sequence[TrialFinished]], config: JudgeConfig, *, seed: int = 0, most: int = SPLITS_MOST
) -> RealComparisons:
    """Judge every split of each recipe's trainings into two sides of `min_seeds`, or of half of them where there are
    fewer (at least two), each side against the other.

    All splits where there are at most `most`, else `most` drawn at random. Splits of one recipe share trainings, and
    the two directions of a split are mirror images: `independent` counts disjoint ones. Noise is pooled over the other
    recipes, so that no side speaks for itself twice.
    """
    rng = np.random.default_rng(seed)
    hits = plain = harmful = total = independent = 0
    used: dict[str, int] = {}
    left: dict[str, int] = {}
    first = next_look((), config.alpha)
    # two levels from the same splits: what the run's first look errs, and what an uncorrected 5% test would
    plain_look = first.model_copy(update={"alpha": config.alpha})
    scored = {name: _scored(trials, config.split) for name, trials in groups.items()}
    for name, trials in scored.items():
        size = min(config.min_seeds, len(trials) // 2)
        if size < 2:
            left[name] = len(trials)
            continue
        # without the recipe itself: pooled noise that holds both sides of the split would make every split look typical
        noise: NoiseMeasured | None = None
        for other, ts in scored.items():
            if other != name and len(ts) > 1:
                noise = measure_noise(other, scores_of(list(ts.values()), config.split), earlier=noise)
        splits = _splits(sorted(trials), size, most, rng)
        used[name] = len(trials)
        # disjoint pairs of sides only; overlapping splits are correlated and add little evidence about the error rate
        independent += len(trials) // (2 * size)
        own = config.model_copy(update={"min_seeds": size})
        both_ways = [pair for s in splits for pair in (s, s[::-1])]
        for a, b in both_ways:
            left_side, right_side = ([trials[i] for i in x] for x in (a, b))
            given = JudgeInput("branch", "control", left_side, right_side, noise, own)
            v = judge(given, first)
            w = judge(given, plain_look)
            total += 1
            hits += v.kind == "promote"
            plain += w.kind == "promote"
            harmful += v.effect is not None and v.effect.high < 0
    return RealComparisons(
        comparisons=total,
        independent=independent,
        promoted=Share.of(Rate(hits, total)) if total else Share(hits=0, runs=0, value=0.0, low=0.0, high=1.0),
        promoted_plain=Share.of(Rate(plain, total)) if total else Share(hits=0, runs=0, value=0.0, low=0.0, high=1.0),
        harmful=harmful,
        groups=used,
        left_out=left,
    )


def _scored(trials: Sequence[TrialFinished], split: str) -> dict[int, TrialFinished]:
    """Complete trials with scores on the split, by seed."""
    return {t.seed: t for t in trials if t.status == "complete" and scores_of([t], split)}


Split = tuple[tuple[int, ...], tuple[int, ...]]


def _splits(seeds: Sequence[int], size: int, most: int, rng: np.random.Generator) -> list[Split]:
    """Unordered pairs of disjoint subsets of `size` seeds: all, or `most` of them."""
    every: list[Split] = []
    for a in combinations(seeds, size):
        rest = [s for s in seeds if s not in a and s > a[0]]  # the side with the smallest seed comes first
        every += [(a, b) for b in combinations(rest, size)]
        # 20 trainings in sides of 3 are nearly 400,000 splits: a bound on memory, and then only these are drawn from
        if len(every) > 20_000:
            break
    if len(every) <= most:
        return every
    chosen = sorted(rng.choice(len(every), most, replace=False))
    return [every[i] for i in chosen]
