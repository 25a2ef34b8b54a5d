"""Detectors as data (`DetectorSpec`): checked, run over rollouts, and read as findings like any other detector.

Regular expressions are matched by a linear-time engine, so that no pattern can hang a reading. Python functions are
never imported: a runner that is passed in (the sandbox) gets their source and JSON, and answers JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness.bottlenecks import KINDS
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.features import LENGTHS, FeatureView, components_of, payload
from evotrainer.harness.columns.numerics import Ints
from evotrainer.harness.columns.source import RolloutSource
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import DETECTORS, FLAGGED, Detector, DetectorInput
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.findings import Finding, MetricValue
from evotrainer.records.text import clean, cut, quoted

Runner = Callable[[str, list[dict[str, object]]], Any]
"""(source of a module that defines `flag`, rollouts as JSON) -> what `flag` answered. ConfigError with the cause;
SandboxError: the machine's fault."""

Mask = np.ndarray
PROXY_GAP = "proxy_gap"
"""Kind of the detectors mined from a unexplained gap. They question no branch's validity, and are what its remedy rests
on: their findings are warnings."""
NAME = re.compile(r"[a-z][a-z0-9_]{2,79}")
MAX_PATTERN = 300
MAX_STEPS = 6
MAX_SOURCE = 20_000
MIN_READ = 16
"""Rollouts below which a reading is too small for a share."""


def check_spec(spec: DetectorSpec) -> None:
    """ConfigError, with cause and remedy, where a specification cannot be run."""
    where = f"detector {quoted(spec.name, 80)}"
    if not NAME.fullmatch(spec.name):
        raise ConfigError(f"{where}: a name is 3 to 80 of a-z, 0-9 and _, and begins with a letter")
    if spec.name in DETECTORS:
        raise ConfigError(f"{where}: a built-in detector has that name; choose another")
    if spec.kind not in KINDS:
        raise ConfigError(f"{where}: unknown kind {spec.kind!r}; one of: {', '.join(KINDS)}")
    if not 0 < spec.warn <= 1:
        raise ConfigError(f"{where}: warn is a share of rollouts, above 0 and at most 1, not {spec.warn:g}")
    if spec.form == "threshold":
        # on no rollouts: an unknown feature raises here, before anything is read
        FeatureView([]).number(spec.feature)
        return
    if spec.form == "python":
        if len(spec.source) > MAX_SOURCE:
            raise ConfigError(f"{where}: its source has {len(spec.source)} characters; at most {MAX_SOURCE}")
        if not re.search(r"^def flag\(", spec.source, re.M):
            raise ConfigError(f"{where}: its source defines no function flag(rollouts)")
        return
    patterns = [spec.pattern] if spec.form == "pattern" else list(spec.steps)
    if not patterns or not all(patterns):
        raise ConfigError(f"{where}: form {spec.form} needs {'pattern' if spec.form == 'pattern' else 'steps'}")
    if spec.form == "sequence" and (len(patterns) > MAX_STEPS or spec.within < 1):
        raise ConfigError(f"{where}: a sequence has 1 to {MAX_STEPS} steps, and within is at least 1")
    for p in patterns:
        if len(p) > MAX_PATTERN:
            raise ConfigError(f"{where}: a pattern has {len(p)} characters; at most {MAX_PATTERN}")
        found(p, [""], where)


def found(pattern: str, texts: Sequence[str], who: str = "detector") -> Mask:
    """Where a regular expression is found, bool (N,); `^` and `$` are ends of lines. ConfigError where it is none."""
    import polars as pl

    try:
        # polars uses Rust's regex crate: no backtracking, so no pattern is exponential in the text (ReDoS)
        return pl.Series(list(texts), dtype=pl.String).str.contains(f"(?m){pattern}").to_numpy().astype(bool)
    except pl.exceptions.ComputeError as e:
        error_text = next((ln for ln in reversed(str(e).splitlines()) if ln.startswith("error")), cut(e, 120))
        raise ConfigError(
            f"{who}: {quoted(pattern)} is no regular expression here ({error_text}); look-around and back-references "
            "are not offered (Rust syntax, linear time)"
        ) from None


def flags(spec: DetectorSpec, views: FeatureView, runner: Runner | None = None) -> Mask:
    """Which rollouts a detector flags, bool (N,). ConfigError with the cause where it cannot be run."""
    if spec.form == "threshold":
        x = views.number(spec.feature)
        with np.errstate(invalid="ignore"):
            return (x >= spec.value) if spec.op == ">=" else (x <= spec.value)
    if spec.form == "pattern":
        return found(spec.pattern, views.texts(spec.where), spec.name)
    if spec.form == "sequence":
        return _sequence(spec, views.commands)
    if runner is None:
        raise ConfigError(f"detector {spec.name} is a Python function and there is no sandbox to run it in")
    answer = runner(spec.source, [payload(r) for r in views.rollouts])
    # `type(x) is not bool`: 0, 1 and strings would pass as truth values, and hide a broken function
    if not isinstance(answer, list) or len(answer) != len(views) or any(type(x) is not bool for x in answer):
        what = f"{len(answer)} of {len(views)} values" if isinstance(answer, list) else type(answer).__name__
        raise ConfigError(f"detector {spec.name}: flag must return one bool per rollout, it returned {what}")
    return np.array(answer, dtype=bool)


def _sequence(spec: DetectorSpec, commands: Sequence[Sequence[str]]) -> Mask:
    """Steps in order, each at most `within` actions after the one before."""
    # all commands of all rollouts in one call of the engine; calls are dear, lines are cheap
    flat = [c for row in commands for c in row]
    hits = np.array([found(p, flat, spec.name) for p in spec.steps]) if flat else np.zeros((len(spec.steps), 0), bool)
    out = np.zeros(len(commands), dtype=bool)
    start = 0
    for i, row in enumerate(commands):
        h = hits[:, start : start + len(row)]
        start += len(row)
        if not h.any(axis=1).all():
            continue
        ends = set(np.flatnonzero(h[0]).tolist())
        for step in h[1:]:
            after = np.flatnonzero(step).tolist()
            # a set of ends, not the first match: a later start may be the one that reaches the next step in time
            ends = {b for b in after if any(a < b <= a + spec.within for a in ends)}
        out[i] = bool(ends)
    return out


def read_authored(
    spec: DetectorSpec, batch: Batch, metrics: dict[str, MetricValue], context: HarnessContext, views: FeatureView
) -> list[Finding]:
    """Findings of an authored detector over a batch: one where the share of flagged rollouts reaches `warn`.

    One that questions validity and fails by its own fault (raises, too slow) counts as suspected: to choke its function
    clears nobody. Faults of the machine (SandboxError) are raised, they are no branch's result.
    """
    detector = Detector(spec.name, spec.kind, "behaviour", (), {"warn": spec.warn}, lambda given: [])
    given = DetectorInput(batch, metrics, context, {"warn": spec.warn}, detector)
    suspect = spec.standing != "informational"
    if spec.form == "python" and context.sandboxed is None:
        claim = f"cannot look: detector {spec.name} is a Python function and there is no sandbox to run it in"
        return [Finding(detector=spec.name, kind=spec.kind, severity="info", claim=claim, missing=("sandbox",))]
    try:
        mask = flags(spec, views, context.sandboxed)
    except ConfigError as e:
        claim = clean(f"cannot look{', which clears nobody' if suspect else ''}: {e}", 300)
        missing = ("its own answer",)
        return [
            Finding(
                detector=spec.name,
                kind=spec.kind,
                severity="warn" if suspect else "info",
                claim=claim,
                missing=missing,
                validity=suspect,
            )
        ]
    share = given.share(mask)
    if batch.n < MIN_READ or share < spec.warn:
        return []
    truth, reward = batch.truth, batch.reward
    numbers = {
        "share": share,
        "solve_with": mean(truth[mask]),
        "solve_without": mean(truth[~mask]),
        "paid_with": mean(reward[mask]),
        "paid_without": mean(reward[~mask]),
    }
    quotes = [given.quote(i, text=excerpt(spec, views, i), note=describe(spec)[:160]) for i in given.first_of(mask)]
    claim = f"{share:.0%} of rollouts {describe(spec)} (from {spec.warn:.0%} on it speaks)"
    solved = [numbers["solve_with"], numbers["solve_without"]]
    if not any(x is None or math.isnan(x) for x in solved):
        claim += f"; they solve {solved[0]:.0%}, the others {solved[1]:.0%}"
    standing = spec.kind == PROXY_GAP
    found = given.finding("warn" if suspect or standing else "info", claim, numbers, quotes, validity=suspect)
    if standing and spec.form == "threshold" and spec.op == ">=" and spec.feature.startswith("component:"):
        found = found.model_copy(update={"lacks": components_of(spec.feature, batch.component_names)[1]})
    return [found]


def mean(x: np.ndarray) -> float | None:
    """Mean of what is not missing, None without any."""
    known = x[~np.isnan(x)]
    return float(known.mean()) if len(known) else None


def excerpt(spec: DetectorSpec, views: FeatureView, i: int) -> str:
    """The span of a rollout that a detector speaks of; the beginning of the answer where it is no single span."""
    if spec.form in ("pattern", "sequence"):
        pattern = spec.pattern if spec.form == "pattern" else spec.steps[-1]
        lines = views.texts(spec.where if spec.form == "pattern" else "actions")[i].splitlines()
        hit = np.flatnonzero(found(pattern, lines)) if lines else np.zeros(0, int)
        if len(hit):
            return lines[int(hit[0])].strip()
    return views.texts("actions")[i] or views.answers[i]


def describe(spec: DetectorSpec) -> str:
    """What a flagged rollout does, in words."""
    size = not spec.about and spec.form == "threshold" and spec.feature in LENGTHS
    return spec.does + (" (a size, which names no cause)" if size else "")


def flagged(builtin: Sequence[str], batch: Batch) -> dict[str, Mask]:
    """Built-in detector -> the rollouts that its findings on a batch are about, bool (N,)."""
    found: list[tuple[str, RolloutSource, Ints]] = []
    token = FLAGGED.set(found)
    try:
        for name in builtin:
            DETECTORS[name].read(batch, {}, HarnessContext())
    finally:
        FLAGGED.reset(token)
    return {name: np.isin(batch.rows, [i for by, _, at in found if by == name for i in at]) for name in builtin}
