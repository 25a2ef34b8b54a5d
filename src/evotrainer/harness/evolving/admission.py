"""Admission of a proposed detector, mined or written: what it says of versions that nobody looked at when it was made.

The rules, in order; the first that fails refuses and names its number:
1. it runs (its pattern compiles, its function answers in time and in form);
2. it costs at most MOST_CPU_S per 1,000 rollouts;
3. it separates: flagged shares of bad and clean held-out versions differ by LEAST_DIFFERENCE, at a level shared by all
   detectors that are considered together, errors clustered by task; what repeats the outcome explains no score, and a
   function that answers otherwise for the same rollouts in another order proves nothing;
4. it speaks of at least half of the bad versions;
5. it is silent on clean ones: it fires on none, and the probability that a new reading of a clean policy, as large as
   the largest one here, fires is at most MOST_FALSE_ALARM, with the error of the clean share's own estimate counted in;
6. it is not redundant: no detector of the current version flags nearly the same rollouts (Jaccard below MOST_OVERLAP).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.features import LENGTHS, RESTATES, FeatureView, components_of, restates
from evotrainer.harness.columns.numerics import at_least
from evotrainer.harness.evolving.authored import Mask, Runner, check_spec, flagged, flags
from evotrainer.harness.evolving.mining import LEAST_DIFFERENCE, clustered, tail, thin
from evotrainer.records.detectors import Admission, DetectorSpec

LEVEL = 0.01
"""Error probability of the separation test, shared by the detectors considered together."""
MOST_FALSE_ALARM = 0.05
BOUND = 0.95
"""One-sided confidence of the upper bound of the clean share."""
MOST_OVERLAP = 0.8
MOST_CPU_S = 5.0
"""CPU-seconds per 1,000 rollouts, features included."""
TIMED = 500
"""Rollouts on which the cost is measured."""


def admit(
    spec: DetectorSpec,
    bad: Mapping[str, FeatureView],
    clean: Mapping[str, FeatureView],
    *,
    together: int = 1,
    builtin: Sequence[str] = (),
    authored: Sequence[DetectorSpec] = (),
    runner: Runner | None = None,
    spent: Callable[[], float] | None = None,
) -> Admission:
    """Try a detector on held-out versions (name -> rollouts).

    together: detectors considered at once. builtin, authored: those of the current version. spent: CPU-seconds used so
    far, the sandbox's included. A fault of the machine (SandboxError) is no refusal: it is raised.
    """
    numbers: dict[str, float] = {"together": float(together)}
    versions = {**bad, **clean}

    def answer(ok: bool, why: str, overlaps: str = "") -> Admission:
        return Admission(
            detector=spec,
            admitted=ok,
            reason=why,
            bad=tuple(bad),
            clean=tuple(clean),
            numbers={k: round(v, 6) for k, v in numbers.items() if math.isfinite(v)},
            overlaps=overlaps,
        )

    try:
        check_spec(spec)
    except ConfigError as e:
        return answer(False, f"cannot be run: {e}")
    for side, held in (("bad", bad), ("clean", clean)):
        if not any(map(len, held.values())):
            return answer(False, f"no held-out {side} version to try it on")
    try:
        masks, why = _tried(spec, versions, runner, spent or time.process_time, numbers)
    except ConfigError as e:
        return answer(False, f"cannot be run: {e}")
    if why or (why := repeats_outcome(spec, versions, masks)):
        return answer(False, why)

    numbers |= separation(masks, bad, clean, spec.warn, together)
    fired = {name: speaks(mask, spec.warn) for name, mask in masks.items()}
    numbers |= rates(fired, bad) | {
        "false_positives": float(sum(fired[n] for n in clean)),
        "versions": float(len(fired)),
    }
    if why := _says_too_little(numbers, len(bad), len(clean), spec.warn):
        return answer(False, why)
    like, name = most_similar(masks, versions, builtin, authored, runner)
    numbers["overlap"] = like
    if like >= MOST_OVERLAP:
        asked = f"Jaccard {like:.2f}, below {MOST_OVERLAP:g} is asked"
        return answer(False, f"redundant: it flags what {name} flags ({asked})", name)
    return answer(True, _praise(numbers), name)


def _praise(x: Mapping[str, float]) -> str:
    """The numbers that an admitted detector stands on."""
    return (
        f"flags {x['share_bad']:.0%} of bad and {x['share_clean']:.0%} of clean held-out rollouts "
        f"(p = {x['p']:.2g}); a clean reading fires with probability {x['false_alarm']:.2g} at most; "
        f"{x['cpu_s_per_1000']:.2g} CPU-s per 1,000 rollouts"
    )


def _tried(
    spec: DetectorSpec,
    versions: Mapping[str, FeatureView],
    runner: Runner | None,
    spent: Callable[[], float],
    numbers: dict[str, float],
) -> tuple[dict[str, Mask], str]:
    """(what it flags of each version, why it is refused); its cost goes into `numbers`. ConfigError where it fails."""
    # cost before everything: what is too slow is not run over all versions to find out
    cost = numbers["cpu_s_per_1000"] = cost_of(spec, list(versions.values()), runner, spent)
    if cost > MOST_CPU_S:
        return {}, f"too slow: {cost:.1f} CPU-s per 1,000 rollouts, at most {MOST_CPU_S:g}"
    masks = {name: flags(spec, v, runner) for name, v in versions.items()}
    if spec.form == "python" and (n := inconsistent_rows(spec, versions, masks, runner)):
        return masks, f"not deterministic: on the same rollouts in another order it answers otherwise for {n}"
    return masks, ""


def separation(
    masks: Mapping[str, Mask],
    bad: Mapping[str, FeatureView],
    clean: Mapping[str, FeatureView],
    warn: float,
    together: int,
) -> dict[str, float]:
    """Rule 3's numbers and the false alarm of rule 5."""
    p_b, se_b, _ = pooled(masks, bad)
    p_c, se_c, high_c = pooled(masks, clean)
    z = (p_b - p_c) / math.hypot(se_b, se_c)
    # A new reading errs like the largest one here: its share's error grows with the root of how much smaller it is than
    # all clean ones together. The clean share that it is held against is an estimate, whose error comes on top.
    size = max(_tasks([v]) for v in (*bad.values(), *clean.values()))
    se_new = se_c * math.sqrt(_tasks(clean.values()) / size)
    return {
        "share_bad": p_b,
        "share_clean": p_c,
        "clean_high": high_c,
        "z": z,
        "p": min(1.0, together * tail(z)),  # Bonferroni over the detectors considered together
        "false_alarm": tail((warn - p_c) / math.hypot(se_c, se_new)),
        "warn": warn,
    }


def _says_too_little(x: Mapping[str, float], n_bad: int, n_clean: int, warn: float) -> str:
    """The first of rules 3 to 5 that its numbers break, in words; empty where none."""
    p_b, p_c, alarm = x["share_bad"], x["share_clean"], x["false_alarm"]
    if p_b - p_c < LEAST_DIFFERENCE or x["p"] > LEVEL:
        shares = f"{p_b:.0%} of bad and {p_c:.0%} of clean held-out rollouts"
        return f"does not separate: it flags {shares} (p = {x['p']:.2g})"
    if x["recall"] < 0.5:
        return f"misses: it fires on {x['recall']:.0%} of {n_bad} bad held-out versions, at {warn:.0%} flagged"
    if x["false_positives"]:
        return f"cries wolf: it fires on {x['false_positives']:.0f} of {n_clean} clean held-out versions"
    if alarm > MOST_FALSE_ALARM:
        return (
            f"too close: clean policies flag {p_c:.0%}, up to {x['clean_high']:.0%} at {BOUND:.0%} confidence; "
            f"with {warn:.0%} asked a clean reading fires with probability {alarm:.0%}, "
            f"at most {MOST_FALSE_ALARM:.0%}"
        )
    return ""


def inconsistent_rows(
    spec: DetectorSpec, versions: Mapping[str, FeatureView], masks: Mapping[str, Mask], runner: Runner | None
) -> int:
    """Rollouts that a function flags otherwise when it is asked a second time, all versions shuffled together."""
    whole = FeatureView.joined(versions.values())
    first = np.concatenate([masks[n] for n in versions])
    # a function that keeps state, or reads its neighbours, can pass by the order in which it is called
    order = np.random.default_rng(0).permutation(len(whole))
    return int((flags(spec, whole.pick(order), runner) != first[order]).sum())


def repeats_outcome(spec: DetectorSpec, versions: Mapping[str, FeatureView], masks: Mapping[str, Mask]) -> str:
    """Why a detector that says no more than the score is refused: it compares a reward component that is the outcome
    under another name, or its function flags what is right (or wrong) and nothing else. Empty where neither holds."""
    if spec.form == "threshold" and spec.feature.startswith("component:"):
        known = {c for v in versions.values() for c in v.batch.component_names}
        first, second = components_of(spec.feature, known)
        # `a - b <= x` flags where b is high: b is the component that must not be the outcome
        name = second if second and spec.op == "<=" else first
        if restates(list(versions.values()), name):
            return f"repeats the score: {name} is the outcome under another name, and explains nothing"
    if spec.form == "python":
        solved = np.concatenate([v.solved for v in versions.values()])
        same = float((np.concatenate([masks[n] for n in versions]) == solved).mean())
        if max(same, 1 - same) >= RESTATES:
            which = "right" if same >= RESTATES else "wrong"
            return (
                f"repeats the score: it flags the rollouts that are {which} ({max(same, 1 - same):.0%} agree), "
                "and explains nothing"
            )
    return ""


def cost_of(
    spec: DetectorSpec, views: Sequence[FeatureView], runner: Runner | None, spent: Callable[[], float]
) -> float:
    """CPU-seconds per 1,000 rollouts, measured on up to TIMED of them read afresh."""
    whole = thin(FeatureView.joined(views), TIMED).batch
    # what was read once is cached: only rollouts read afresh cost what a reading costs
    unread = whole.source.take(whole.rows.tolist())
    read = None if spec.form == "threshold" and spec.feature in LENGTHS else whole.traits
    began = spent()
    some = FeatureView(Batch.over(unread, read, apart=True))
    flags(spec, some, runner)
    return 1000 * (spent() - began) / len(some)


def pooled(masks: Mapping[str, Mask], versions: Mapping[str, FeatureView]) -> tuple[float, float, float]:
    """(flagged share, standard error clustered by task, upper confidence bound) over all versions together."""
    x = np.concatenate([masks[n] for n in versions])
    share, se = _share(x, [t for v in versions.values() for t in v.tasks])
    # 1.645: the one-sided 95% point of a normal (BOUND)
    return share, se, min(1.0, share + 1.645 * se)


def _tasks(views: Iterable[FeatureView]) -> int:
    """Different tasks of some rollouts, at least 1."""
    return max(1, len({t for v in views for t in v.tasks}))


def _share(mask: Mask, tasks: Sequence[str]) -> tuple[float, float]:
    codes = np.unique(list(tasks), return_inverse=True)[1].astype(np.int64)
    share, se = clustered(mask.astype(float)[:, None], codes)
    return float(share[0]), float(se[0])


def speaks(mask: Mask, warn: float) -> bool:
    """Does a detector speak of rollouts of which it flags these? At the threshold itself it does."""
    return (float(np.mean(mask)) if len(mask) else 0.0) > warn - 1e-9


def rates(fired: Mapping[str, bool], bad: Collection[str]) -> dict[str, float]:
    """Precision, recall and false positives over versions, with exact one-sided bounds; what cannot be told is left
    out."""
    caught, spoke, n_bad = sum(fired[n] for n in bad), sum(fired.values()), len(bad)
    out: dict[str, float | None] = {}
    out["precision"], out["precision_low"], _ = exact(caught, spoke)
    out["recall"], out["recall_low"], _ = exact(caught, n_bad)
    out["false_positive_rate"], _, out["false_positive_high"] = exact(spoke - caught, len(fired) - n_bad)
    return {k: v for k, v in out.items() if v is not None}


def exact(k: int, n: int) -> tuple[float | None, float | None, float | None]:
    """(k/n, lower, upper bound), each bound one-sided at BOUND (Clopper and Pearson 1934); None for n = 0."""
    if n == 0:
        return None, None, None
    low, high = at_least(k, n, BOUND), 1 - at_least(n - k, n, BOUND)
    return round(k / n, 6), round(low, 6), round(high, 6)


def most_similar(
    masks: Mapping[str, Mask],
    versions: Mapping[str, FeatureView],
    builtin: Sequence[str],
    authored: Sequence[DetectorSpec],
    runner: Runner | None,
) -> tuple[float, str]:
    """(largest Jaccard overlap of flagged rollouts with a current detector, its name); (0, "") without any."""
    own = np.concatenate([masks[n] for n in versions])
    best, name = 0.0, ""

    def compare(other: Mask, who: str) -> None:
        nonlocal best, name
        either = int((own | other).sum())
        like = int((own & other).sum()) / either if either else 0.0
        if like > best:
            best, name = like, who

    found = [flagged(builtin, v.batch) for v in versions.values()]
    for who in builtin:
        compare(np.concatenate([m[who] for m in found]), who)
    for s in authored:
        try:
            compare(np.concatenate([flags(s, v, runner) for v in versions.values()]), s.name)
        except ConfigError:
            continue  # it cannot look here, so it makes nothing redundant
    return best, name
