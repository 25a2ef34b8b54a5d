"""Failures that a learning curve alone shows, without rollouts: rules about quantities, whichever trainer logged them.

A curve is noisy: what counts is the mean of its last fifth against that of its first, beyond 4 standard errors, with
the noise taken from differences of neighbouring steps, and by enough to matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from evotrainer.algorithm.advantages import ZERO_STD
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, slope_t
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import DETECTORS, Detector, DetectorInput, detector
from evotrainer.records.findings import Finding, Layer, Severity

CURVE_DETECTORS: dict[str, Detector] = {}
"""Name -> detector; it takes the place of the detector of rollouts of the same name."""
STRICTER = {"curve_glitch": {"sd": 10.0}, "score_jump": {"warn": 1.0}}
"""Thresholds of detectors that are less sure of a curve alone (`level_shift` speaks of jumps)."""
MIN_POINTS = 8
CORRECTNESS = ("acc", "correct", "exact", "solve", "pass", "success", "answer", "verif", "outcome", "match", "test")
"""Parts of names of reward components that say whether an answer is right."""
NO_GOAL = (
    "loss err wer cer ppl nll bpb mae mse rmse time len tokens turns count num std kl entropy clip clipped min max "
    "median step steps cost samples fail failed hack timeout timeouts refusal tag no missing empty"
)
"""Words in names of what a better policy may have less of."""
NO_GOAL_PARTS = "penalt length repetition overlong runtime perplexity error incorrect wrong invalid trunc failure"
"""Parts of words of the same."""
FALL = {"drop": 0.15, "few_drop": 0.25, "few": 5, "t": 3.0}
"""When an outcome falls: by which part of its start, by which if there are fewer points than `few`, and t."""


class Series(NamedTuple):
    """One quantity of a curve where it is a finite number. `start` and `end` are its means over the first and the last
    fifth of its points (at most 20)."""

    key: str
    steps: list[float]
    y: list[float]

    @property
    def label(self) -> str:
        return self.key.removeprefix("eval/").removeprefix("rewards/").removesuffix("/mean")

    @property
    def width(self) -> int:
        return max(1, min(20, len(self.y) // 5))

    @property
    def start(self) -> float:
        return round(float(np.mean(self.y[: self.width])), 12) + 0.0

    @property
    def end(self) -> float:
        return round(float(np.mean(self.y[-self.width :])), 12) + 0.0  # no -1.1e-16

    @property
    def far(self) -> float:
        """Noise where neighbours are alike (the same data, a slow drift): from differences at lag 4."""
        return max(self.noise(4), self.noise()) if len(self.y) > 4 else self.noise()

    def scale(self, level: float) -> float:
        """What a fall from this level is measured against: the level, or for a curve that goes below 0, where a ratio
        means nothing, how far it gets from 0, 10 times its noise at least."""
        return max(level, 1e-12) if min(self.y) >= 0 else max(*map(abs, self.y), 10 * self.far)

    @property
    def climbs(self) -> bool:
        """Does it rise: beyond noise, or where it is too short to tell, nearly every point above all before it?"""
        few = 3 <= len(self.y) < MIN_POINTS
        return _ordered(self.y[::-1]) and self.end > self.start if few else self.moves() > 0

    def noise(self, lag: int = 1) -> float:
        """Standard deviation of a single point about the curve, from the differences of neighbours."""
        y = np.asarray(self.y, dtype=float)
        off = y[lag:] - y[:-lag]
        off = off - np.median(off)
        # half of the plain deviation at least: where most points are equal the MAD is 0
        return max(1.4826 * float(np.median(np.abs(off))), 0.5 * float(off.std()), 1e-9) / math.sqrt(2)

    def moves(self, by: float = 0.05, sure: bool = True) -> int:
        """1 where it rises, -1 where it falls, by this part of its level at least; 0 where noise may explain it or it
        is too short to tell. Not `sure`: enough to excuse something."""
        if len(self.y) < MIN_POINTS:
            return 0
        # neighbours that are alike say less: rho of an AR(1)
        far = self.far if sure else self.noise()
        rho = min(0.8, 1 - (self.noise() / far) ** 2)
        z = (self.end - self.start) / (far * math.sqrt(2 / self.width * (1 + rho) / (1 - rho)))
        size = (self.end - self.start) / max(abs(self.start), abs(self.end), 1e-12)
        return int(math.copysign(1, z)) if abs(z) > 4 and abs(size) > by else 0


class CurveInput(DetectorInput):
    """What a detector of curves looks at."""

    def series(self, key: str, finite: bool = True) -> Series:
        points = [(p.get("step", float(i)), p[key]) for i, p in enumerate(self.context.curve, 1) if key in p]
        points = [(s, v) for s, v in points if not finite or math.isfinite(v)]
        return Series(key, [s for s, _ in points], [v for _, v in points])

    def keys(self, start: str, end: str = "") -> list[str]:
        every = dict.fromkeys(k for p in self.context.curve for k in p)
        return [k for k in every if k.startswith(start) and k.endswith(end)]

    def goals(self) -> tuple[list[Series], list[Series]]:
        """(what says how good the policy is: a score, held-out columns, components about correctness; the other
        components of which more is better as far as their names tell)."""
        named = [self.series(k) for k in (*self.keys("score"), *self.keys("eval/"), *self.keys("rewards/", "/mean"))]
        named = [s for s in named if s.y and not _no_goal(s.label.lower())]
        right = [s for s in named if not s.key.startswith("rewards/") or any(w in s.label.lower() for w in CORRECTNESS)]
        return right, [s for s in named if s not in right]

    def gaining(self) -> bool:
        """Does an outcome rise, or without one the reward, and none fall?"""
        seen = [s for s in self.goals()[0] if len(s.y) >= MIN_POINTS] or [self.series("reward")]
        return any(s.moves(0.1, sure=False) > 0 for s in seen) and not any(s.moves() < 0 for s in seen)


def _ordered(y: Sequence[float]) -> bool:
    """Is nearly every later point lower than every earlier one?"""
    return bool(np.mean([b < a for a, b in combinations(y, 2)]) > 0.9)


def _no_goal(name: str) -> bool:
    words = "".join(c if c.isalnum() else " " for c in name).split()
    return bool({*NO_GOAL.split()} & {*words}) or any(part in name for part in NO_GOAL_PARTS.split())


CurveFunction = Callable[[CurveInput], list[Finding]]


def curve_detector(name: str, kind: str, layer: Layer, **thresholds: float) -> Callable[[CurveFunction], CurveFunction]:
    """Register a detector of curves."""
    return detector(name, kind, layer, thresholds=thresholds, registry=CURVE_DETECTORS)  # type: ignore[return-value]


def detect_in_curve(context: HarnessContext, names: Sequence[str]) -> list[Finding]:
    """Findings of a curve without rollouts: of the detectors of curves, and of those of `names` that read one."""
    empty = Batch.of(())
    out = [f for d in CURVE_DETECTORS.values() for f in d.function(CurveInput(empty, {}, context, d.thresholds, d))]
    others = (DETECTORS[n] for n in names if n not in CURVE_DETECTORS)
    return out + [f for d in others for f in d.read(empty, {}, context, STRICTER.get(d.name))]


def _lasting(mask: Sequence[bool]) -> int:
    """How many of the last points have something, without a break."""
    return next((i for i, x in enumerate(reversed(mask)) if not x), len(mask))


def _since(steps: Sequence[float], k: int) -> str:
    if k == len(steps):
        return f"in all {k} steps, from the first"
    return f"in the last {k} of {len(steps)} steps, from step {steps[-k]:g} on"


def _are(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"


@curve_detector("divergence", "divergence", "signal", least=2, share=0.1, warn=50.0, critical=1000.0, kl=2.0)
def divergence(given: CurveInput) -> list[Finding]:
    """NaN or infinity (also null after numbers) in loss, gradient norm, KL, entropy or reward: critical where it lasts
    to the end (2 steps or more) or holds in a tenth of the steps, else warn. A gradient norm or KL whose median over
    the last 3 steps is above 50 times its median: warn, critical above 1000 times, or a KL above 2 nats."""
    limits, out = given.thresholds, []
    ends: dict[int, list[Series]] = {}
    for key in ("grad_norm", "kl", "ppo_kl", "loss", "entropy", "reward"):
        s = given.series(key, finite=False)
        mask = [not math.isfinite(v) for v in s.y]
        at, k = [i for i, x in enumerate(mask) if x], _lasting(mask)
        if k >= limits["least"]:
            ends.setdefault(k, []).append(s)
        elif at:
            level: Severity = "critical" if len(at) > max(limits["least"], limits["share"] * len(mask)) else "warn"
            claim = f"{key} is no finite number in {len(at)} of {len(mask)} steps, first at step {s.steps[at[0]]:g}"
            out.append(given.finding(level, claim, {"steps": float(len(at)), "first": s.steps[at[0]]}))
        elif len(s.y) >= MIN_POINTS and key in ("grad_norm", "kl", "ppo_kl"):
            last, usual = float(np.median(s.y[-3:])), float(np.median(s.y))
            if usual > 0 and (found := given.level(last / usual)):
                found = "critical" if key == "kl" and last > limits["kl"] else found
                claim = f"{key} ends at {last:.3g}, {last / usual:,.0f} times its median"
                out.append(given.finding(found, claim, {"ratio": last / usual}))
    for k, bad in sorted(ends.items()):
        logged = map(given.series, ("reward", "reward_std", "loss"))
        still = [s.label for s in logged if len(s.y) >= k and not any(s.y[-k:])]
        claim = f"{_are([s.key for s in bad])} NaN or infinite {_since(bad[0].steps, k)}"
        claim += f", and {_are(still)} 0 there" if still else ""
        if k < len(bad[0].steps):
            claim += ": the training is broken from there on; go back to a checkpoint before it, with a lower lr"
        out.append(given.finding("critical", claim, {"steps": float(k), "first": bad[0].steps[-k]}))
    return out


@curve_detector("proxy_slopes", "proxy_gap", "score", **FALL)
def proxy_slopes(given: CurveInput) -> list[Finding]:
    """The reward rises while an outcome falls: a score, a held-out column, a reward component about correctness (by its
    name) or, as a warning, any other. From 5 points on critical: by more than 15% of where it began, with t < -3 and
    beyond noise; of 3 or 4 points warn, where each is lower than the one before and the fall above 25%. Warn where the
    reward has fewer than 8 points, nearly each above all before. And what `proxy_slopes` finds between reward and
    score, unless the score rises, too."""
    r, (right, others) = given.series("reward"), given.goals()
    out = []
    sure = len(r.y) >= MIN_POINTS
    for s in [*right, *(others if sure else [])] if r.climbs else []:
        if level := _fall(s, given.thresholds):
            where = "" if len(s.y) >= 0.9 * len(r.y) else f" at the {len(s.y)} steps that have it"
            claim = f"over {len(r.y)} steps the reward rose from {r.start:.3g} to {r.end:.3g} while {s.label} "
            claim += f"fell from {s.start:.3g} to {s.end:.3g}{where}: what is rewarded is not what is wanted"
            numbers = {"gap_change": r.end - r.start - (s.end - s.start), "true_change": s.end - s.start}
            out.append(given.finding(level if s in right and sure else "warn", claim, numbers))
    if out or given.series("score").moves(sure=False) > 0:
        return out
    return DETECTORS["proxy_slopes"].read(given.batch, {}, given.context)


def _fall(s: Series, limits: Mapping[str, float]) -> Severity | None:
    """How bad the fall of an outcome is; None where there is none beyond noise."""
    if (n := len(s.y)) < 3:
        return None
    drop = (s.start - s.end) / s.scale(s.start)
    if n < limits["few"]:
        return "warn" if drop > limits["few_drop"] and all(b < a for a, b in pairwise(s.y)) else None
    if drop < limits["drop"] or slope_t(s.y)[1] > -limits["t"]:
        return None
    return "critical" if (s.moves() < 0 if n >= MIN_POINTS else _ordered(s.y)) else None


@curve_detector("policy_collapse", "policy_collapse", "score", run=3, chance=1e-3, warn=0.5, critical=0.15, z=8.0)
def policy_collapse(given: CurveInput) -> list[Finding]:
    """Reward, an outcome or a component falls to 0 and stays: the last 3 points or more are 0, which the share of zeros
    before makes less likely than one in 1,000. Or reward or outcome falls from its best (mean of a tenth of the curve)
    to less than half at the end (critical 15%), beyond 8 standard errors, or as for `proxy_slopes`, and nothing
    gains."""
    limits, out = given.thresholds, []
    (right, others), gains = given.goals(), given.gaining()
    for s in [given.series("reward"), *right, *others]:
        n, width = len(s.y), max(3, len(s.y) // 10)
        size = float(np.median([abs(v) for v in s.y if v] or [0.0]))
        zero = [abs(v) <= 0.01 * size for v in s.y]
        k = _lasting(zero)
        # the chance of such an end, were zeros as frequent as before it (rule of succession)
        chance = ((sum(zero) - k + 1) / (n - k + 2)) ** k
        # 0 is no floor of a reward of +-1: its mean may be 0 for a while
        least = limits["run"] if min(s.y, default=0.0) >= 0 else MIN_POINTS
        if k >= least <= n - k and chance < limits["chance"]:
            claim = f"{s.label} falls to 0 and stays there {_since(s.steps, k)}; before it was {size:.3g} (median)"
            out.append(given.finding("critical", claim, {"steps": float(k), "before": size}))
        elif n >= 2 * MIN_POINTS and not gains and s not in others:
            means = np.convolve(s.y, np.ones(width) / width, mode="valid")
            peak, end = float(means.max()), float(means[-1])
            level = given.level_low(left := 1 - (peak - end) / s.scale(peak))
            if level and peak - end > limits["z"] * s.far * math.sqrt(2 / width):
                at = s.steps[int(means.argmax()) + width // 2]
                claim = f"{s.label} falls from {peak:.3g} (its best, about step {at:g}) to {end:.3g} at the end"
                out.append(given.finding(level, claim, {"ratio": left, "peak": peak}))
        elif s in right and not (r := given.series("reward")).climbs and (level := _fall(s, FALL)):
            claim = f"{s.label} fell from {s.start:.3g} to {s.end:.3g}"
            claim += ", and the reward does not rise beyond its noise" if r.y else ""
            level = "warn" if 0 < len(r.y) < MIN_POINTS else level
            out.append(given.finding(level, claim, {"change": s.end - s.start}))
    return out


@curve_detector("truncation", "truncation", "signal", warn=0.3, critical=0.5, rise=0.15, all=0.9)
def truncation(given: CurveInput) -> list[Finding]:
    """Completions that reach the token limit: their share over the last fifth of the curve above 30% (critical 50%; one
    level less where it is falling by a third), or risen by 15 points while nothing gains (warn)."""
    s, limits = given.series("completions/clipped_ratio"), given.thresholds
    if len(s.y) < 3 or max(s.y) > 1 + 1e-6 or min(s.y) < 0:
        return []
    level = given.level(s.end)
    if s.moves(0.33) < 0:  # a policy that learns to end its answers is on its way out by itself
        level = "warn" if level == "critical" else None
    if level is None and s.moves() > 0 and s.end - s.start > limits["rise"] and not given.gaining():
        level = "warn"
    if level is None:
        return []
    k = _lasting([v >= limits["all"] for v in s.y])
    claim = f"{s.end:.0%} of completions reach the token limit "
    claim += _since(s.steps, k) if k >= 3 else f"at the end ({s.start:.0%} at the start)"
    ended = given.series("completions/mean_terminated_length").y
    if ended and k and not any(ended[-k:]):
        claim += "; none ends by itself (mean_terminated_length 0)"
    if k >= 3 and _dead(given)[0] >= 3:
        claim += "; so no answer can be graded, which is why every group is without reward spread"
    claim += ": raise max_completion_length, or ask for shorter answers"
    return [given.finding(level, claim, {"share": s.end, "start": s.start, "steps": float(k)})]


def _dead(given: CurveInput) -> tuple[int, list[float], str]:
    """(how many of the last steps had no group with spread, the steps, what says so)."""
    ways = (
        ("frac_reward_zero_std", lambda v: v >= 0.99, "every group was dead"),
        ("reward_std", lambda v: v < ZERO_STD, "the reward's spread within groups was 0"),
        ("grad_norm", lambda v: v == 0, "the gradient norm was 0"),
    )
    found = [(_lasting([bad(v) for v in s.y]), s.steps, words) for k, bad, words in ways if (s := given.series(k)).y]
    for name, words in (("reward", "every rollout had the same reward"), ("advantage", "all advantages were equal")):
        low, high = given.series(f"{name}_min"), given.series(f"{name}_max")
        if low.steps == high.steps:
            found.append((_lasting([b - a < ZERO_STD for a, b in zip(low.y, high.y, strict=True)]), low.steps, words))
    return max(found, key=lambda x: x[0], default=(0, [], ""))


def _constant(s: Series) -> bool:
    return len(s.y) >= FALL["few"] and float(np.ptp(s.y)) <= 1e-9


def _solved(given: CurveInput, k: int) -> Series | None:
    """The reward or outcome that is near 1 over the last k points, or rose to its highest above it; no reward whose
    training says that answers are wrong."""
    r, right = given.series("reward"), given.goals()[0]
    wrong = any(np.mean(s.y[-k:]) < 0.5 for s in right if not s.key.startswith("eval/"))
    ends = [(s, float(np.mean(s.y[-k:]))) for s in (right if wrong or not r.y else [r, *right])]
    return next((s for s, x in ends if 0.9 <= x <= 1 + 1e-9 or s.y[0] < x >= max(1, max(s.y) - 1e-9)), None)


@curve_detector("dead_training", "dead_training", "signal", min_steps=3, warn=0.8)
def dead_training(given: CurveInput) -> list[Finding]:
    """Nothing is learnt at the end of the curve, for 3 steps or more: every group has zero variance, the reward's
    spread within groups or over all rollouts is 0, all advantages are equal, or the gradient norm is exactly 0. Names
    the cause where the curve has it: truncation, or components whose spread lies between prompts. Where reward or
    outcome is near 1, it is `saturation` (info; warn from the first step). A reward that is the same number in every
    step (5 or more) is a finding without such columns, too: critical where all outcomes are constant, else warn. Above
    80% of dead groups on average: `dead_groups`, a warning, where neither reward nor an outcome is near 1."""
    k, steps, words = _dead(given)
    r, right, dead = given.series("reward"), given.goals()[0], given.series("frac_reward_zero_std")
    level: Severity = "critical"
    same = f"the reward is {r.y[0]:.4g} in all {len(r.y)} steps, from the first" if _constant(r) else ""
    # what says so may be logged more sparsely than the reward
    if same and k < max(given.thresholds["min_steps"], min(len(r.y), len(steps))):
        level = "critical" if right and all(map(_constant, right)) else "warn"
        k, steps, claim = len(r.y), r.steps, f"{same}: nothing is learnt there"
    elif k >= given.thresholds["min_steps"]:
        claim = f"{words} {_since(steps, k)}: nothing is learnt there{f'; {same}' * bool(same)}"
    else:
        if len(dead.y) < MIN_POINTS or _solved(given, dead.width) or not (found := given.level(dead.end)):
            return []
        claim = f"{dead.end:.0%} of groups are dead at the end of the curve ({dead.start:.0%} at its start)"
        return [given.finding(found, claim, {"dead": dead.end}, kind="dead_groups")]
    numbers = {"steps": float(k), "of": float(len(steps))}
    if s := _solved(given, k):
        claim = f"{s.label} is {np.mean(s.y[-k:]):.3g} {_since(steps, k)}, and nothing is left to learn: "
        claim += "the tasks are solved (or the grader pays every answer); harder tasks would teach more"
        return [given.finding("warn" if k == len(steps) else "info", claim, numbers, kind="saturation")]
    if (cut := given.series("completions/clipped_ratio").y) and min(cut[-k:]) >= 0.9:
        claim += "; the cause is truncation: no answer ends before the token limit"
    spread = {x: y[-1] for x in given.keys("rewards/", "/std") if (y := given.series(x).y) and y[-1] > 1e-6}
    if spread:
        name = max(spread, key=lambda x: spread[x])
        claim += f"; {name} is {spread[name]:.3g}, but that spread lies between prompts, not within groups"
    if same and not spread and "the cause" not in claim:
        claim += ": does the grader fit the form of the answers, and are the tasks within reach?"
    return [given.finding(level, claim, numbers)]


@curve_detector("off_policy_drift", "off_policy_drift", "signal", growth=10.0, least=0.01, critical=0.5)
def off_policy_drift(given: CurveInput) -> list[Finding]:
    """KL grows tenfold or more in the later half of the curve (from 0.01 nats on: warn; above 0.5 critical), so
    exponentially: a KL that starts at 0 and levels off does not. And what `off_policy_drift` finds."""
    s, limits = given.series("kl"), given.thresholds
    half = Series("kl", s.steps[len(s.y) // 2 :], s.y[len(s.y) // 2 :])
    if len(s.y) >= MIN_POINTS and s.end > limits["least"] and half.end > limits["growth"] * max(half.start, 1e-9):
        claim = f"kl grows {s.y[-1] / max(s.y[0], 1e-9):,.0f}-fold, from {s.y[0]:.3g} to {s.y[-1]:.3g}, "
        claim += f"{half.end / max(half.start, 1e-9):,.0f}-fold in the later half alone: it does not level off"
        level: Severity = "critical" if s.end > limits["critical"] else "warn"
        return [given.finding(level, claim, {"kl": s.end, "late": half.end / max(half.start, 1e-9)})]
    return DETECTORS["off_policy_drift"].read(given.batch, {}, given.context)


def _ratio(given: CurveInput, key: str, what: str) -> list[Finding]:
    """A finding where the end of a quantity is far from its start, as a ratio: beyond `warn`, `critical`; where
    something gains, only beyond `gaining`, and a warning."""
    s, limits = given.series(key), given.thresholds
    if not (way := s.moves()) or s.start <= 0 or (way > 0) != (limits["warn"] > 1):
        return []
    ratio = s.end / s.start
    level = given.level(ratio) if way > 0 else given.level_low(ratio)
    if gains := given.gaining():
        level = "warn" if level and way * (ratio - limits["gaining"]) > 0 else None
    if level is None:
        return []
    worse = [x.label for x in given.goals()[0] if x.moves() < 0]
    level = "critical" if worse else level
    claim = f"{what} {'rose' if way > 0 else 'fell'} from {s.start:.4g} to {s.end:.4g}, {ratio:.2g} of its start, "
    gained = "while the score rose" if gains else "and nothing gained"
    claim += f"while {worse[0]} fell" if worse else gained
    return [given.finding(level, claim, {"ratio": ratio, "start": s.start, "end": s.end})]


@curve_detector("efficiency_collapse", "efficiency_collapse", "behaviour", warn=0.4, critical=0.1, gaining=0.2)
def efficiency_collapse(given: CurveInput) -> list[Finding]:
    """Length falls below 40% of its start (critical 10%, or where an outcome falls with it); where something gains,
    below 20%: warn."""
    return _ratio(given, "completions/mean_length", "mean length")


@curve_detector("length_gaming", "length_gaming", "behaviour", warn=2.0, critical=5.0, gaining=1e9)
def length_gaming(given: CurveInput) -> list[Finding]:
    """Length grows twofold (critical fivefold, or where an outcome falls), and neither reward nor an outcome gains."""
    return _ratio(given, "completions/mean_length", "mean length")


@curve_detector("entropy_collapse", "entropy_collapse", "signal", warn=0.33, critical=0.15, gaining=0.03)
def entropy_collapse(given: CurveInput) -> list[Finding]:
    """Entropy ends below a third of its start (critical 15%) and nothing gains (alone a lower entropy is what learning
    looks like, arXiv 2505.22617); where something does, below 3%: warn."""
    return _ratio(given, "entropy", "entropy")


@curve_detector("entropy_growth", "policy_collapse", "signal", warn=3.0, gaining=1e9)
def entropy_growth(given: CurveInput) -> list[Finding]:
    """Entropy ends above three times its start, and nothing gains."""
    return _ratio(given, "entropy", "entropy")


@curve_detector("level_shift", "infrastructure", "score", sd=6.0, size=0.2, up=0.5, drop=0.33, factor=0.67, window=6)
def level_shift(given: CurveInput) -> list[Finding]:
    """Between two steps the level of reward, an outcome, length, entropy, KL or gradient norm changes and stays so (or
    a reward or outcome drops by a third, whatever follows: a policy that lost a checkpoint's learning learns again):
    lines through the 6 points before and after part by more than 6 standard deviations of a point and a fifth of the
    level (a reward or outcome that rises: by half; KL and gradient norm: threefold), half of it in the one step. So a
    resume looks that lost the optimizer's state, or changed data, sampling or reward. One finding, where most shift."""
    found: dict[float, list[str]] = {}
    levels = ("reward", "score", "completions/mean_length", "entropy", "kl", "grad_norm")
    for s in map(given.series, (*levels, *given.keys("eval/"))):
        at = _shift(s, given.thresholds)
        if at is not None and any(s.y[-3:]):  # a fall to 0 that stays is `policy_collapse`
            found.setdefault(s.steps[at[0]], []).append(f"{s.label} from {at[1]:.3g} to {at[2]:.3g}")
    if not found:
        return []
    step = max(found, key=lambda x: len(found[x]))
    claim = f"the level shifts at step {step:g}: {', '.join(found[step])}; look at what changed there"
    claim += " (a resume, the optimizer's state, data, sampling, the reward)"
    return [given.finding("warn", claim, {"columns": float(len(found[step])), "step": step})]


def _shift(s: Series, limits: Mapping[str, float]) -> tuple[int, float, float] | None:
    """(first place of the new level, level before, level after) of the largest step of a curve."""
    w, y = int(limits["window"]), np.asarray(s.y, dtype=float)
    if len(y) < 3 * w:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(y, w)
    a, b = windows[: len(y) - 2 * w + 1], windows[w:]
    # lines through the points before and after, both read between the two (weights of least squares)
    x = np.arange(w) - (w - 1) / 2
    before, after = (v @ (1 / w + side * (w / 2) * x / (x @ x)) for v, side in ((a, 1), (b, -1)))
    low, high = np.median(a, axis=1), np.median(b, axis=1)
    # of the levels, too, and half of it in the one step: a steep line that ends is no shift
    gap: Floats = np.minimum(np.abs(after - before), np.abs(high - low))
    step = np.abs(np.diff(y))[w - 1 : len(y) - w]
    part = np.full(len(low), limits["factor" if s.key in ("kl", "grad_norm") else "size"])
    if goal := s.key in ("reward", "score") or s.key.startswith("eval/"):
        part[high > low] = limits["up"]  # learning may be fast
    scale = np.maximum(np.maximum(np.abs(low), np.abs(high)), s.scale(0.0))
    gap[(step < gap / 2) | (gap <= limits["sd"] * s.noise()) | (gap <= part * scale)] = 0
    at = int(gap.argmax())
    # it stays: nearly all of the rest is nearer to the new level than to the old one
    rest = y[at + w :]
    stays = np.mean(np.abs(rest - high[at]) < np.abs(rest - low[at])) > 0.9
    # one or two drops; more are a curriculum, whose tasks get harder again and again
    places = np.flatnonzero((gap > limits["drop"] * scale) & (low > high))
    drops = goal and at in places and np.sum(np.diff(places) > w) < 2
    return (at + w, float(low[at]), float(high[at])) if gap[at] and (stays or drops) else None
