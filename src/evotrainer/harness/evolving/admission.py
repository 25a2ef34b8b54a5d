"""Admission of a proposed detector, mined or written: what it says of versions that nobody looked at when it was made.

The rules, in order; the first that fails refuses and names its number:
1. it runs (its pattern compiles, its function answers in time and in form);
2. it costs at most MOST_CPU_S per 1,000 rollouts;
3. it separates: flagged shares of bad and clean held-out versions differ by LEAST_DIFFERENCE, at a level shared by all
   detectors that are considered together, errors clustered by task; what repeats the outcome explains no score, and a
   function that answers otherwise for the same rollouts in another order proves nothing;
4. it speaks of at least half of the bad versions;
5. it is silent on clean ones: it fires on none, and the probability that a new reading of a clean policy, as large as the
   largest one here, fires is at most MOST_FALSE_ALARM, with the error of the clean share's own estimate counted in;
6. it is not redundant: no detector in force flags nearly the same rollouts (Jaccard below MOST_OVERLAP).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.features import LENGTHS, RESTATES, Views, components_of, restates
from evotrainer.harness.evolving.authored import KNOWN, Mask, Runner, check_spec, flags
from evotrainer.harness.evolving.detector_quality import Fire, Version, fire_of_mask, over_steps, test_detector
from evotrainer.harness.evolving.mining import LEAST_DIFFERENCE, clustered, thin
from evotrainer.records.evidence import Admission, DetectorSpec

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

Series = Mapping[str, Sequence[tuple[int, Views]]]


def admit(
    spec: DetectorSpec,
    bad: Mapping[str, Views],
    clean: Mapping[str, Views],
    *,
    together: int = 1,
    builtin: Sequence[str] = (),
    authored: Sequence[DetectorSpec] = (),
    runner: Runner | None = None,
    spent: Callable[[], float] | None = None,
    steps: Series | None = None,
    damage: Mapping[str, int] | None = None,
) -> Admission:
    """Try a detector on held-out versions (name -> rollouts).

    together: detectors considered at once. builtin, authored: what is in force. spent: CPU-seconds used so far, the
    sandbox's included. steps: of bad versions, rollouts of training steps, oldest first, for the lead time against `damage`,
    the step at which the score moved. A fault of the machine (SandboxError) is no refusal: it is raised.
    """
    numbers: dict[str, float] = {"together": float(together)}

    def refuse(why: str, overlaps: str = "") -> Admission:
        return answer(False, why, overlaps)

    def answer(ok: bool, why: str, overlaps: str = "") -> Admission:
        kept = {k: round(v, 6) for k, v in numbers.items() if math.isfinite(v)}
        names = (tuple(bad), tuple(clean))
        return Admission(
            detector=spec, admitted=ok, reason=why, bad=names[0], clean=names[1], numbers=kept, overlaps=overlaps
        )

    try:
        check_spec(spec)
    except ConfigError as e:
        return refuse(f"cannot be run: {e}")
    if not any(map(len, bad.values())) or not any(map(len, clean.values())):
        side = "bad" if not any(map(len, bad.values())) else "clean"
        return refuse(f"no held-out {side} version to try it on")
    try:
        cost = cost_of(spec, [*bad.values(), *clean.values()], runner, spent or time.process_time)
        numbers["cpu_s_per_1000"] = cost
        if cost > MOST_CPU_S:
            return refuse(f"too slow: {cost:.1f} CPU-s per 1,000 rollouts, at most {MOST_CPU_S:g}")
        masks = {name: flags(spec, v, runner) for name, v in (*bad.items(), *clean.items())}
        if spec.form == "python" and (n := moody(spec, {**bad, **clean}, masks, runner)):
            return refuse(f"not deterministic: on the same rollouts in another order it answers otherwise for {n}")
    except ConfigError as e:
        return refuse(f"cannot be run: {e}")
    if why := repeats_outcome(spec, {**bad, **clean}, masks):
        return refuse(why)

    size = max(_tasks([v]) for v in (*bad.values(), *clean.values()))
    p_b, se_b, _ = pooled(masks, bad)
    p_c, se_c, high_c = pooled(masks, clean)
    z = (p_b - p_c) / math.hypot(se_b, se_c)
    p = min(1.0, together * _tail(z))
    alarm = _tail((spec.warn - p_c) / math.hypot(se_c, se_c * math.sqrt(_tasks(clean.values()) / size)))
    numbers |= {
        "share_bad": p_b,
        "share_clean": p_c,
        "clean_high": high_c,
        "z": z,
        "p": p,
        "false_alarm": alarm,
        "warn": spec.warn,
    }
    numbers |= _counts(spec, masks, bad, clean, runner, steps or {}, damage or {})
    if p_b - p_c < LEAST_DIFFERENCE or p > LEVEL:
        return refuse(
            f"does not separate: it flags {p_b:.0%} of bad and {p_c:.0%} of clean held-out rollouts (p = {p:.2g})"
        )
    if numbers["recall"] < 0.5:
        return refuse(
            f"misses: it fires on {numbers['recall']:.0%} of {len(bad)} bad held-out versions, at {spec.warn:.0%} flagged"
        )
    if numbers["false_positives"]:
        return refuse(
            f"cries wolf: it fires on {numbers['false_positives']:.0f} of {len(clean)} clean held-out versions"
        )
    if alarm > MOST_FALSE_ALARM:
        return refuse(
            f"too close: clean policies flag {p_c:.0%}, up to {high_c:.0%} at {BOUND:.0%} confidence; with {spec.warn:.0%} asked a "
            f"clean reading fires with probability {alarm:.0%}, at most {MOST_FALSE_ALARM:.0%}"
        )
    like, name = most_alike(masks, {**bad, **clean}, builtin, authored, runner)
    numbers["overlap"] = like
    if like >= MOST_OVERLAP:
        return refuse(
            f"redundant: it flags what {name} flags (Jaccard {like:.2f}, below {MOST_OVERLAP:g} is asked)", name
        )
    why = (
        f"flags {p_b:.0%} of bad and {p_c:.0%} of clean held-out rollouts (p = {p:.2g}); a clean reading fires with probability "
        f"{alarm:.2g} at most; {cost:.2g} CPU-s per 1,000 rollouts"
    )
    return answer(True, why, name)


def moody(spec: DetectorSpec, versions: Mapping[str, Views], masks: Mapping[str, Mask], runner: Runner | None) -> int:
    """Rollouts that a function flags otherwise when it is asked a second time, all versions shuffled together."""
    whole = Views.joined(versions.values())
    first = np.concatenate([masks[n] for n in versions])
    order = np.random.default_rng(0).permutation(len(whole))
    return int((flags(spec, whole.pick(order), runner) != first[order]).sum())


def repeats_outcome(spec: DetectorSpec, versions: Mapping[str, Views], masks: Mapping[str, Mask]) -> str:
    """Why a detector that says no more than the score is refused: it compares a reward component that is the outcome under
    another name, or its function flags what is right (or wrong) and nothing else. Empty where neither holds."""
    if spec.form == "threshold" and spec.feature.startswith("component:"):
        known = {c for v in versions.values() for c in v.batch.component_names}
        first, second = components_of(spec.feature, known)
        name = second if second and spec.op == "<=" else first
        if restates(list(versions.values()), name):
            return f"repeats the score: {name} is the outcome under another name, and explains nothing"
    if spec.form == "python":
        solved = np.concatenate([v.solved for v in versions.values()])
        same = float((np.concatenate([masks[n] for n in versions]) == solved).mean())
        if max(same, 1 - same) >= RESTATES:
            which = "right" if same >= RESTATES else "wrong"
            return f"repeats the score: it flags the rollouts that are {which} ({max(same, 1 - same):.0%} agree), and explains nothing"
    return ""


def cost_of(spec: DetectorSpec, views: Sequence[Views], runner: Runner | None, spent: Callable[[], float]) -> float:
    """CPU-seconds per 1,000 rollouts, measured on up to TIMED of them read afresh."""
    whole = thin(Views.joined(views), TIMED).batch
    unread = whole.source.take(whole.rows.tolist())
    read = None if spec.form == "threshold" and spec.feature in LENGTHS else whole.traits
    began = spent()
    some = Views(Batch.over(unread, read, apart=True))
    flags(spec, some, runner)
    return 1000 * (spent() - began) / len(some)


def pooled(masks: Mapping[str, Mask], versions: Mapping[str, Views]) -> tuple[float, float, float]:
    """(flagged share, standard error clustered by task, upper confidence bound) over all versions together."""
    x = np.concatenate([masks[n] for n in versions])
    share, se = _share(x, [t for v in versions.values() for t in v.tasks])
    return share, se, min(1.0, share + 1.645 * se)


def _tasks(views: Iterable[Views]) -> int:
    """Different tasks of some rollouts, at least 1."""
    return max(1, len({t for v in views for t in v.tasks}))


def _share(mask: Mask, tasks: Sequence[str]) -> tuple[float, float]:
    codes = np.unique(list(tasks), return_inverse=True)[1].astype(np.int64)
    share, se = clustered(mask.astype(float)[:, None], codes)
    return float(share[0]), float(se[0])


def _tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


def _counts(
    spec: DetectorSpec,
    masks: Mapping[str, Mask],
    bad: Mapping[str, Views],
    clean: Mapping[str, Views],
    runner: Runner | None,
    steps: Series,
    damage: Mapping[str, int],
) -> dict[str, float]:
    """Precision, recall, false positives and lead time over the held-out versions."""
    fires: dict[str, Fire] = {}
    for name in (*bad, *clean):
        whole = fire_of_mask(masks[name], spec.warn - 1e-9)
        series = [(s, fire_of_mask(flags(spec, v, runner), spec.warn - 1e-9)) for s, v in steps.get(name, ())]
        fires[name] = over_steps(series, whole)
    versions = [Version(n, True, damage=damage.get(n)) for n in bad] + [Version(n, False) for n in clean]
    c = test_detector(spec.name, fires, versions).unseen
    out = {
        "precision": c.precision,
        "precision_low": c.precision_low,
        "recall": c.recall,
        "recall_low": c.recall_low,
        "false_positive_rate": c.false_positive_rate,
        "false_positive_high": c.false_positive_high,
        "lead_steps": c.lead_steps,
    }
    found = {k: float(v) for k, v in out.items() if v is not None}
    return found | {"false_positives": float(sum(fires[n].fired for n in clean)), "versions": float(len(versions))}


def most_alike(
    masks: Mapping[str, Mask],
    versions: Mapping[str, Views],
    builtin: Sequence[str],
    authored: Sequence[DetectorSpec],
    runner: Runner | None,
) -> tuple[float, str]:
    """(largest Jaccard overlap of flagged rollouts with a detector in force, its name); (0, "") without any."""
    own = np.concatenate([masks[n] for n in versions])
    best, name = 0.0, ""

    def compare(other: Mask, who: str) -> None:
        nonlocal best, name
        either = int((own | other).sum())
        like = int((own & other).sum()) / either if either else 0.0
        if like > best:
            best, name = like, who

    for who in builtin:
        if who in KNOWN:
            compare(np.concatenate([KNOWN[who](v.batch) for v in versions.values()]), who)
    for s in authored:
        try:
            compare(np.concatenate([flags(s, v, runner) for v in versions.values()]), s.name)
        except ConfigError:
            continue  # it cannot look here, so it makes nothing redundant
    return best, name
