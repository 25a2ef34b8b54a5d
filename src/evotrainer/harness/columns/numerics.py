"""Small vectorised statistics over grouped values. NaN means missing throughout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def finite(x: Any) -> float | None:
    """A JSON-able float, or None for NaN, infinities and non-numbers."""
    try:
        y = float(x)
    except (TypeError, ValueError, OverflowError):
        return None
    return y if math.isfinite(y) else None


def nan_or(x: Any) -> float:
    """`finite`, with NaN for None."""
    y = finite(x)
    return math.nan if y is None else y


def at_least(k: float, n: int, confidence: float) -> float:
    """The share that k of n shows at least, one-sided (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    return float(betaincinv(k, n - k + 1, 1 - confidence)) if k else 0.0


def distinct(values: Any) -> tuple[Any, Ints]:
    """(distinct values in ascending order, how often each occurs); sorts, which beats hashing for large arrays."""
    s = np.sort(values)
    first = np.flatnonzero(np.concatenate([[True], s[1:] != s[:-1]])) if len(s) else np.zeros(0, np.int64)
    return s[first], np.diff(np.concatenate([first, [len(s)]]))


def group_sums(values: Floats, group: Ints, n_groups: int) -> tuple[Floats, Floats]:
    """(count, sum) of the non-missing values per group, each of shape (n_groups,)."""
    ok = ~np.isnan(values)
    g = group[ok]
    return (
        np.bincount(g, minlength=n_groups).astype(float),
        np.bincount(g, weights=values[ok], minlength=n_groups).astype(float),
    )


def group_means(values: Floats, group: Ints, n_groups: int) -> Floats:
    """Mean of the non-missing values per group, shape (n_groups,); NaN where there is none."""
    count, total = group_sums(values, group, n_groups)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def centred(values: Floats, group: Ints, n_groups: int) -> Floats:
    """Values minus their group mean, NaN where missing; shape of `values`."""
    count, total = group_sums(values, group, n_groups)
    # no values: the mean is never used, as all rows of that group are NaN
    mean = total / np.maximum(count, 1)
    return values - mean[group]


def population_std(values: Floats, group: Ints, n_groups: int) -> Floats:
    """Population std per group, as a figure to look at; NaN for groups with fewer than two values. What trainers divide
    by and call zero is `algorithm.advantages.group_std`."""
    count, _ = group_sums(values, group, n_groups)
    # two passes: sum(x^2) - n mean^2 would leave large rounding errors where rewards are large
    _, squares = group_sums(centred(values, group, n_groups) ** 2, group, n_groups)
    std = np.sqrt(squares / np.maximum(count, 1))
    std[count < 2] = np.nan
    return std


def group_range(values: Floats, group: Ints, n_groups: int) -> tuple[Floats, Floats]:
    """(minimum, maximum) per group; (+inf, -inf) for empty groups."""
    ok = ~np.isnan(values)
    low, high = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
    np.minimum.at(low, group[ok], values[ok])
    np.maximum.at(high, group[ok], values[ok])
    return low, high


def clustered_mean(values: Floats, cluster: Ints) -> tuple[float | None, float | None, int]:
    """(mean, standard error, n) of the non-missing values.

    The error is the cluster-robust one of a ratio estimator, sqrt(C/(C-1) * sum_c (sum_i (x_i - m))^2) / n, because
    rollouts of one task are not independent. None for fewer than two clusters.
    """
    ok = ~np.isnan(values)
    x, c = values[ok], cluster[ok]
    n = len(x)
    if n == 0:
        return None, None, 0
    m = float(x.mean())
    sums = np.bincount(c, weights=x - m, minlength=1)
    # clusters whose values are all missing say nothing of the spread
    present = int((np.bincount(c, minlength=1) > 0).sum())
    if present < 2:
        return m, None, n
    se = math.sqrt(present / (present - 1) * float((sums**2).sum())) / n
    return m, se, n


def weighted_share(values: Floats, weight: Floats, cluster: Ints) -> tuple[float | None, float | None, int]:
    """(weighted mean, its standard error by cluster, how many have weight); None where none has.

    Linearisation of a ratio of sums (delta method): sqrt(C/(C-1) * sum_c (sum_i w_i (x_i - m))^2) / sum w.
    """
    n, total = int((weight > 0).sum()), float(weight.sum())
    if total <= 0:
        return None, None, 0
    m = float((values * weight).sum()) / total
    sums = np.bincount(cluster, weights=(values - m) * weight)
    present = len(np.unique(cluster[weight > 0]))
    se = math.sqrt(present / (present - 1) * float((sums**2).sum())) / total if present > 1 else None
    return m, se, n


def within_correlation(a: Floats, b: Floats, group: Ints, n_groups: int) -> float | None:
    """Pearson correlation of a and b after removing group means; None where either does not vary within groups."""
    ok = ~(np.isnan(a) | np.isnan(b))
    if ok.sum() < 3:
        return None
    x, y = centred(a[ok], group[ok], n_groups), centred(b[ok], group[ok], n_groups)
    sx, sy = float((x * x).sum()), float((y * y).sum())
    # rounding error of the centring would otherwise be correlated with itself
    if sx < 1e-12 or sy < 1e-12:
        return None
    return float((x * y).sum()) / math.sqrt(sx * sy)


def slope_t(values: list[float]) -> tuple[float, float]:
    """(change over the whole series, t statistic) of a least-squares line through equally spaced values.

    t is 0 for fewer than four points and +-99 for a perfect line.
    """
    n = len(values)
    if n < 4:
        return 0.0, 0.0
    y = np.asarray(values, dtype=float)
    # centred places: the intercept drops out of the slope
    x = np.arange(n) - (n - 1) / 2
    sxx = float((x * x).sum())
    b = float((x * y).sum()) / sxx
    residual = y - y.mean() - b * x
    # n - 2: two parameters, intercept and slope, were fitted
    sd = math.sqrt(float((residual**2).sum()) / (n - 2) / sxx)
    change = b * (n - 1)
    if abs(change) < 1e-12:
        return 0.0, 0.0
    # a perfect line has no residual: 99 is finite, so it can be stored as JSON, and beyond any threshold
    return change, float(np.clip(b / sd if sd > 1e-15 else math.copysign(99, b), -99, 99))


def glitches(values: list[float], sd: float) -> list[int]:
    """Places of single points that leave a curve and are back at the next one: further from the mean of their two
    neighbours than `sd` robust standard deviations (1.4826 MAD) of such differences, while these agree within half of
    that. Empty for fewer than 8 points, and where more than one in 20 (or two) would be: that is noise."""
    y = np.asarray(values, dtype=float)
    if len(y) < 8:
        return []
    off = y[1:-1] - (y[:-2] + y[2:]) / 2
    # a flat curve has no spread of its own: a hundredth of its size stands for it
    usual = max(1.4826 * float(np.median(np.abs(off - np.median(off)))), 0.01 * float(np.median(np.abs(y))), 1e-12)
    far = (np.abs(off) > sd * usual) & (np.abs(y[2:] - y[:-2]) < np.abs(off) / 2)
    found = [int(i) + 1 for i in np.flatnonzero(far)]
    return found if len(found) <= max(2, len(y) // 20) else []


def interpolated(values: list[float], at: list[int]) -> list[float]:
    """The curve with the points at these places replaced by the mean of their neighbours."""
    return [(values[i - 1] + values[i + 1]) / 2 if i in at else v for i, v in enumerate(values)]


def _ranks(value: Floats, group: Ints) -> tuple[Ints, Ints]:
    """1-based (minimum, maximum) rank of each value among the values of its group."""
    # one sort for all groups; a value's rank is its place less the place where its group starts
    order = np.lexsort((value, group))
    g, v = group[order], value[order]
    n = len(v)
    index = np.arange(n)
    new_group = np.r_[True, g[1:] != g[:-1]]
    start = np.maximum.accumulate(np.where(new_group, index, 0))
    new_run = new_group | np.r_[True, v[1:] != v[:-1]]
    run_start = np.maximum.accumulate(np.where(new_run, index, 0))
    last = np.r_[new_run[1:], True]
    # the nearest end of a run of equal values, looking from the right
    run_end = np.minimum.accumulate(np.where(last, index, n)[::-1])[::-1]
    low, high = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    low[order], high[order] = run_start - start + 1, run_end - start + 1
    return low, high


def pair_order(reward: Floats, truth: Floats, group: Ints, n_groups: int) -> tuple[Floats, Floats, Floats]:
    """(pairs, inverted, tied) per group over all (correct, incorrect) pairs of the same group, shape (n_groups,).

    A pair is inverted if the incorrect rollout has the larger reward. Rewards within 1e-9 tie.
    """
    ok = ~(np.isnan(reward) | np.isnan(truth))
    zero = np.zeros(n_groups)
    if not ok.any():
        return zero, zero.copy(), zero.copy()
    # weighted sums in another order differ in their last bits: such rewards tie
    r, t, g = np.round(reward[ok], 9), truth[ok] > 0.5, group[ok]
    low, high = _ranks(r, g)
    if not t.any():
        return zero, zero.copy(), zero.copy()
    low_c, high_c = _ranks(r[t], g[t])
    wrong_total = np.bincount(g[~t], minlength=n_groups).astype(float)
    # rank among all less rank among the correct ones: how many incorrect ones lie below (not above) each correct one.
    # Sorting takes n log n, counting pairs would take n^2 in a group
    below = (low[t] - low_c).astype(float)
    not_above = (high[t] - high_c).astype(float)
    gt = g[t]
    pairs = np.bincount(gt, minlength=n_groups) * wrong_total
    inverted = np.bincount(gt, weights=wrong_total[gt] - not_above, minlength=n_groups).astype(float)
    tied = np.bincount(gt, weights=not_above - below, minlength=n_groups).astype(float)
    return pairs, inverted, tied
