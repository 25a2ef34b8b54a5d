"""Contrast mining: which simple behaviours are frequent in suspicious rollouts and rare in clean ones?

Predicates are enumerated from the rollouts themselves (heads and parts of commands, sequences of them, words of
answers, what was observed, overlap, lengths, reward components and their differences), counted on both sides, and
tested with errors clustered by task. The level is divided by the number of predicates that were compared. What passes
is only a candidate: `admission.py` asks again on rollouts that mining never saw.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np

from evotrainer.harness.columns.features import LENGTHS, OVERLAPS, FeatureView, restates
from evotrainer.harness.columns.numerics import Floats
from evotrainer.harness.text import words
from evotrainer.records.detectors import DetectorSpec, GainExplanation

PLAINEST = ("length", "overlap", "commands", "sequence", "words", "observed")
"""Families of behaviours; of two that say the same of a gain the one of the earlier family is taken."""
LEAST = 10
"""Attempts from which a side's own success counts. Of a policy that all but always does the trick, the one attempt in
300 without it would else decide what the trick explains: 39% of a gain on one machine, over 90% on another."""


@dataclass(frozen=True, slots=True)
class _Split:
    """For K behaviours: how often they are shown, success with them, and what their becoming more frequent gained."""

    gain: float
    shown: tuple[Floats, Floats]
    """(before, now), (K,) each."""
    solved: tuple[Floats, Floats]
    came: Floats
    """Part of the gain, (K,)."""


def explain_gain(now: FeatureView, before: FeatureView) -> GainExplanation | None:
    """The behaviour is chosen on half of the tasks and measured on the other half. None where a half has no graded
    attempts on both sides. Shapes: any number of attempts a task; sides may differ in it."""
    sides = [_halves(v) for v in (now, before)]
    if not all(len(v) for side in sides for v in side):
        return None
    (choose_now, now_), (choose_before, before_) = sides
    spec, compared = _choose(choose_now, choose_before)
    if spec is None:
        return GainExplanation(gain=float(now_.solved.mean() - before_.solved.mean()), compared=compared)
    from evotrainer.harness.evolving.authored import flags

    on_before, on_now = (np.asarray(flags(spec, v), dtype=float)[:, None] for v in (before_, now_))
    x = _split(on_before, on_now, before_, now_)
    solved = [None if np.isnan(p[0]) else round(float(p[0]), 6) for p in x.solved]
    return GainExplanation(
        gain=round(x.gain, 6),
        compared=compared,
        detector=spec,
        share=round(float(x.came[0]) / x.gain, 6) if x.gain > 0 else 0.0,
        shown=round(float(x.shown[1][0]), 6),
        shown_before=round(float(x.shown[0][0]), 6),
        solved=solved[1],
        solved_before=solved[0],
        seen_before=round(float(x.shown[0][0]) * len(before_)),
    )


def _halves(views: FeatureView) -> tuple[FeatureView, FeatureView]:
    """Graded attempts in two halves of the tasks."""
    graded = ~np.isnan(views.batch.truth)
    odd = views.half_of_tasks
    return thin(views.pick(np.flatnonzero(graded & ~odd))), thin(views.pick(np.flatnonzero(graded & odd)))


def _choose(now: FeatureView, before: FeatureView) -> tuple[DetectorSpec | None, int]:
    """The behaviour whose becoming more frequent says most of the gain, and how many there were."""
    best: tuple[float, DetectorSpec] | None = None
    compared = 0
    for _, specs, on_now, on_before in sorted(predicates(now, before), key=lambda f: PLAINEST.index(f[0])):
        compared += len(specs)
        if not specs:
            continue
        x = _split(on_before, on_now, before, now)
        # more than the whole gain cannot be explained; rounded, so that behaviours alike to a point tie and the plainer
        # one wins
        came = np.round(np.minimum(x.came, x.gain), 2)
        # a behaviour that hardly became more frequent explains nothing, however well it pays
        came[x.shown[1] - x.shown[0] < LEAST_SHARE] = -1.0
        i = int(came.argmax())
        if came[i] > 0 and (best is None or came[i] > best[0]):
            best = float(came[i]), specs[i]
    return (best[1] if best else None), compared


def _split(on_before: Floats, on_now: Floats, before: FeatureView, now: FeatureView) -> _Split:
    """Columns [N, K] of either side, 1 where an attempt shows the behaviour."""
    shown, solved, with_it, without = [], [], [], []
    for x, v in ((on_before, before), (on_now, now)):
        y = v.solved.astype(float)
        shown.append(x.mean(axis=0))
        rate, trusted = _success(x, y)
        solved.append(rate)
        with_it.append((rate, trusted))
        without.append(_success(1 - x, y))
    pair, rest = _filled(*with_it), _filled(*without)
    # Kitagawa's composition part: the change in frequency times the mean advantage of showing it, of both sides
    came = (shown[1] - shown[0]) * ((pair[0] + pair[1]) - (rest[0] + rest[1])) / 2
    gain = float(now.solved.mean() - before.solved.mean())
    return _Split(gain, (shown[0], shown[1]), (solved[0], solved[1]), came)


_Rate = tuple[Floats, np.ndarray]
"""Share of correct attempts, and whether there were enough of them, (K,) each."""


def _success(x: Floats, y: Floats) -> _Rate:
    """Success of the attempts [N] that `x` [N, K] marks; NaN where it marks none."""
    count = x.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x * y[:, None]).sum(axis=0) / count, count >= LEAST


def _filled(before: _Rate, now: _Rate) -> tuple[Floats, Floats]:
    """A side where next to nobody shows it, or next to everybody, says nothing of the success there: the other side's
    is taken, and its own where that has no more to say."""
    (a, enough_a), (b, enough_b) = before, now
    own_a, own_b = np.nan_to_num(a), np.nan_to_num(b)
    return np.where(~enough_a & enough_b, own_b, own_a), np.where(~enough_b & enough_a, own_a, own_b)


LEVEL = 0.01
"""Error probability of the whole mining (Bonferroni over all predicates that were compared)."""
LEAST_DIFFERENCE = 0.15
"""Difference of the shares below which a behaviour explains little."""
LEAST_SHARE = 0.05
"""Predicates that hold for fewer rollouts on both sides are not compared."""
PER_FAMILY = 400
"""Predicates compared per family, the ones with the largest difference first."""
MOST_ROLLOUTS = 2000
"""Per side; evenly spread where there are more."""
OPS: tuple[Literal[">=", "<="], ...] = (">=", "<=")
QUANTILES = np.linspace(0.05, 0.95, 19)

_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^a-z0-9]+")
Key = tuple[str, ...]
Held = tuple[np.ndarray, np.ndarray]
"""Of one side, and of the other."""
Family = tuple[str, list[DetectorSpec], np.ndarray, np.ndarray]
"""(name, K predicates, columns [N, K] over one side, and over the other)"""


@dataclass(frozen=True, slots=True)
class CandidatePredicate:
    """A predicate with its contrast on the mining side."""

    spec: DetectorSpec
    family: str
    share_bad: float
    share_clean: float
    low: float
    """Lower bound of the difference at the corrected level."""
    p: float
    """After correction."""


@dataclass(frozen=True, slots=True)
class MinedPredicates:
    """The best candidate of each family, best first, and how many predicates were compared."""

    candidates: tuple[CandidatePredicate, ...]
    compared: int


def mine(
    bad: FeatureView,
    clean: FeatureView,
    components: Iterable[tuple[str, str]] = (),
    behaviours: bool = True,
    about: Callable[[DetectorSpec], bool] | None = None,
) -> MinedPredicates:
    """Contrast two sets of rollouts. components: pairs (a, b) where a may say yes to what b says no to; without
    `behaviours` they alone are compared; with `about` only those predicates for which it holds."""
    bad, clean = thin(bad), thin(clean)
    if not len(bad) or not len(clean):
        return MinedPredicates((), 0)
    families = predicates(bad, clean) if behaviours else []
    families.append(("components", *_differences(bad, clean, components)))
    if about is not None:
        kept = [(name, [i for i, s in enumerate(specs) if about(s)]) for name, specs, _, _ in families]
        families = [
            (name, [f[1][i] for i in at], f[2][:, at], f[3][:, at])
            for (name, at), f in zip(kept, families, strict=True)
        ]
    compared = sum(len(specs) for _, specs, _, _ in families)
    if not compared:
        return MinedPredicates((), 0)
    # Bonferroni over everything compared, in all families: the more one looks, the farther it must stand out
    q = NormalDist().inv_cdf(1 - LEVEL / compared)
    tasks_bad, tasks_clean = _codes(bad), _codes(clean)
    best: list[CandidatePredicate] = []
    for name, specs, x_bad, x_clean in families:
        if not specs:
            continue
        p_b, se_b = clustered(x_bad, tasks_bad)
        p_c, se_c = clustered(x_clean, tasks_clean)
        se = np.hypot(se_b, se_c)
        low = p_b - p_c - q * se
        p = np.array([min(1.0, compared * tail(z)) for z in ((p_b - p_c) / se).tolist()])
        passed = [
            i
            # rounded and stable: among predicates alike to a point, the first, which is the simplest, is taken
            for i in np.argsort(-np.round(low, 2), kind="stable").tolist()
            if p[i] < LEVEL and p_b[i] - p_c[i] >= LEAST_DIFFERENCE
        ]
        if passed:
            i = passed[0]
            # fires half way between the two sides' shares
            warn = min(1.0, max(0.02, round(float(p_b[i] + p_c[i]) / 2, 2)))
            spec = specs[i].model_copy(update={"warn": warn})
            best.append(CandidatePredicate(spec, name, float(p_b[i]), float(p_c[i]), float(low[i]), float(p[i])))
    return MinedPredicates(tuple(sorted(best, key=lambda c: -c.low)), compared)


def predicates(bad: FeatureView, clean: FeatureView) -> list[Family]:
    """Every behaviour that is compared, by family, as boolean columns over the rollouts of either side."""
    return [
        ("commands", *_patterns(bad, clean, _command_keys, _command_spec)),
        ("sequence", *_patterns(bad, clean, _sequence_keys, _sequence_spec)),
        ("words", *_patterns(bad, clean, _word_keys, _word_spec)),
        ("observed", *_patterns(bad, clean, _observed_keys, _observed_spec)),
        ("overlap", *_thresholds(bad, clean, OVERLAPS)),
        ("length", *_thresholds(bad, clean, LENGTHS)),
    ]


def thin(v: FeatureView, most: int = MOST_ROLLOUTS) -> FeatureView:
    """At most so many rollouts, evenly spread."""
    return v if len(v) <= most else v.pick(spread(len(v), most))


def spread(n: int, most: int) -> list[int]:
    """At most so many of n places, evenly spread."""
    return list(range(n)) if n <= most else np.linspace(0, n - 1, most).astype(int).tolist()


def clustered(x: np.ndarray, tasks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(share, standard error) of each boolean column of x [N, K]; errors clustered by task, and never below those
    of one task in t + 2 that differs, so that unanimous columns are not certain."""
    n, t = len(x), int(tasks.max()) + 1
    share = x.mean(axis=0)
    sums = np.zeros((t, x.shape[1]))
    np.add.at(sums, tasks, x - share)
    se = np.sqrt(t / max(t - 1, 1) * (sums**2).sum(axis=0)) / n
    # Laplace's rule of succession: t unanimous tasks leave room for about one in t + 2 that differs
    p = 1 / (t + 2)
    return share, np.maximum(se, math.sqrt(p * (1 - p) / t))


def _codes(v: FeatureView) -> np.ndarray:
    return np.unique(v.tasks, return_inverse=True)[1].astype(np.int64)


def tail(z: float) -> float:
    """Chance of a normal number above z."""
    return 0.5 * math.erfc(z / math.sqrt(2))


# -- predicates on texts -----------------------------------------------------------------------------------------------


def _patterns(
    bad: FeatureView,
    clean: FeatureView,
    keys: Callable[[FeatureView], list[set[Key]]],
    spec: Callable[[Key], DetectorSpec],
) -> tuple[list[DetectorSpec], np.ndarray, np.ndarray]:
    """Keys of either side as boolean columns [N, K]."""
    of_bad, of_clean = keys(bad), keys(clean)
    n_bad = Counter(k for row in of_bad for k in row)
    n_clean = Counter(k for row in of_clean for k in row)
    frequent = [
        k
        for k in n_bad.keys() | n_clean.keys()
        if n_bad[k] >= LEAST_SHARE * len(bad) or n_clean[k] >= LEAST_SHARE * len(clean)
    ]
    # shorter keys first, so that of two that say the same the simpler one is taken
    frequent.sort(key=lambda k: (-round(n_bad[k] / len(bad) - n_clean[k] / len(clean), 2), len(k), k))
    chosen = frequent[:PER_FAMILY]
    place = {k: i for i, k in enumerate(chosen)}

    def columns(rows: Sequence[set[Key]]) -> np.ndarray:
        x = np.zeros((len(rows), len(chosen)))
        for i, row in enumerate(rows):
            for k in row:
                if (at := place.get(k)) is not None:
                    x[i, at] = 1.0
        return x

    return [spec(k) for k in chosen], columns(of_bad), columns(of_clean)


def _heads(lines: Iterable[str], most: int) -> set[Key]:
    """First one to `most` words of each line, numbers alike."""
    out: set[Key] = set()
    for line in lines:
        parts = _DIGITS.sub("0", line).split()[:most]
        out.update(tuple(parts[: i + 1]) for i in range(len(parts)))
    return out


def _command_keys(v: FeatureView) -> list[set[Key]]:
    """Heads of commands, and their arguments at any place (marked by an empty first word)."""
    out = []
    for row in v.commands:
        keys = _heads(row, 3)
        # a flag may be the sign (`--no-verify`), at any place in the command
        keys |= {("", w) for line in row for w in _DIGITS.sub("0", line).split()[1:12]}
        out.append(keys)
    return out


def _command_spec(key: Key) -> DetectorSpec:
    if key[0] == "":
        pattern, about = rf"\s{_escape(key[1])}(?:\s|$)", f"give a command the argument `{_shown(key[1:2])}`"
    else:
        pattern, about = _head_pattern(key), f"run `{_shown(key)}`"
    return _pattern_spec("does", key, "actions", pattern, about)


def _sequence_keys(v: FeatureView) -> list[set[Key]]:
    """Two actions one after the other, by the first two words of each."""
    out: list[set[Key]] = []
    for row in v.commands:
        short = [" ".join(_DIGITS.sub("0", c).split()[:2]) for c in row]
        out.append({(a, b) for a, b in pairwise(short) if a and b})
    return out


def _sequence_spec(key: Key) -> DetectorSpec:
    steps = tuple(_head_pattern(k.split()) for k in key)
    about = "run " + " and then ".join(f"`{_shown([k])}`" for k in key)
    return DetectorSpec(name=_name("then", key), form="sequence", steps=steps, within=1, about=about, origin="mined")


def _word_keys(v: FeatureView) -> list[set[Key]]:
    """One to three words of an answer that is no series of actions, numbers alike."""
    out: list[set[Key]] = []
    for text, row in zip(v.answers, v.commands, strict=True):
        found = [] if row else [_DIGITS.sub("0", w) for w in words(text[:4000])]
        out.append({tuple(found[i : i + n]) for n in (1, 2, 3) for i in range(len(found) - n + 1)})
    return out


def _word_spec(key: Key) -> DetectorSpec:
    parts = [(rf"\b{_escape(w)}\b" if w[0].isalnum() or w[0] == "_" else _escape(w)) for w in key]
    return _pattern_spec("writes", key, "answer", r"\s*".join(parts), f"write `{_shown(key)}`")


def _observed_keys(v: FeatureView) -> list[set[Key]]:
    return [_heads(text.splitlines()[:80], 2) for text in v.observations]


def _observed_spec(key: Key) -> DetectorSpec:
    about = f"are shown a line that begins with `{_shown(key)}`"
    return _pattern_spec("sees", key, "observations", _head_pattern(key), about)


def _pattern_spec(
    verb: str, key: Key, where: Literal["answer", "actions", "observations"], pattern: str, about: str
) -> DetectorSpec:
    name = _name(verb, key)
    return DetectorSpec(name=name, form="pattern", where=where, pattern=pattern, about=about, origin="mined")


def _head_pattern(key: Sequence[str]) -> str:
    return r"^\s*" + r"\s+".join(_escape(w) for w in key) + r"(?:\s|$)"


def _escape(word: str) -> str:
    """A word as a pattern in which 0 stands for any number."""
    return re.escape(word[:60]).replace("0", r"\d+")


def _shown(key: Sequence[str]) -> str:
    """Words of a key for a reader: N is any number."""
    return " ".join(key).replace("0", "N")


def _name(verb: str, key: Sequence[str]) -> str:
    slug = _LETTERS.sub("_", "_".join(key).lower()).strip("_")
    return f"mined_{verb}_{slug or 'signs'}"[:60].rstrip("_")


# -- predicates on numbers ---------------------------------------------------------------------------------------------


def _differences(
    bad: FeatureView, clean: FeatureView, pairs: Iterable[tuple[str, str]]
) -> tuple[list[DetectorSpec], np.ndarray, np.ndarray]:
    """One reward component says yes and another says no, as boolean columns [N, K]."""
    specs: list[DetectorSpec] = []
    held: list[Held] = []
    for a, b in pairs:
        f = f"component:{a} - {b}"
        x, y = bad.number(f), clean.number(f)
        if not np.isfinite(x).any() or not np.isfinite(y).any() or restates([bad, clean], a):
            continue
        name, about = _name("earns", (a, "not", b)), f"earn {a} and not {b}"
        specs.append(DetectorSpec(name=name, form="threshold", feature=f, value=0.5, about=about, origin="mined"))
        held.append((x >= 0.5, y >= 0.5))
    return specs, *_columns(bad, clean, held)


def _columns(bad: FeatureView, clean: FeatureView, held: Sequence[Held]) -> Held:
    """What holds on either side, as columns [N, K]."""
    x, y = zip(*held, strict=True) if held else ((), ())
    return np.array(x, dtype=float).reshape(-1, len(bad)).T, np.array(y, dtype=float).reshape(-1, len(clean)).T


def _thresholds(
    bad: FeatureView, clean: FeatureView, features: Iterable[str]
) -> tuple[list[DetectorSpec], np.ndarray, np.ndarray]:
    """Each feature at its pooled quantiles, from above and from below, as boolean columns [N, K]."""
    specs: list[DetectorSpec] = []
    held: list[Held] = []
    for f in features:
        x, y = bad.number(f), clean.number(f)
        pooled = np.concatenate([x, y])
        known = pooled[np.isfinite(pooled)]
        # a feature that most rollouts do not have would compare who has it, not what it is
        if len(known) < 0.5 * len(pooled) or not len(known):
            continue
        # values that occur: a threshold in a gap would be worded with a number that nobody ever saw
        cuts = np.unique(np.quantile(known, QUANTILES, method="nearest"))
        low, high = float(known.min()), float(known.max())
        for cut in cuts.tolist():
            for op in OPS:
                if (op == ">=" and cut <= low) or (op == "<=" and cut >= high):
                    continue  # holds for all
                slug = "at_least" if op == ">=" else "at_most"
                name = _name(_LETTERS.sub("_", f.lower()), (slug, f"{cut:g}".replace("-", "minus_")))
                specs.append(DetectorSpec(name=name, form="threshold", feature=f, op=op, value=cut, origin="mined"))
                with np.errstate(invalid="ignore"):
                    held.append((x >= cut, y >= cut) if op == ">=" else (x <= cut, y <= cut))
    return specs, *_columns(bad, clean, held)


def named(c: CandidatePredicate, taken: Iterable[str]) -> CandidatePredicate:
    """The candidate under a name that is not taken."""
    used, name, k = set(taken), c.spec.name, 2
    while name in used:
        name, k = f"{c.spec.name[:56]}_{k}", k + 1
    return c if name == c.spec.name else replace(c, spec=c.spec.model_copy(update={"name": name}))
