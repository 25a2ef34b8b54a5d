"""A skill: when this is diagnosed, that change had such an effect, with the trials for and against it.

Everything a skill claims is a function of its trials: pooled effect, domains, scope, expiry. So evidence merges by
putting trials together, and a claim that does not follow from the trials is found.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from evotrainer.records.frozen import Frozen
from evotrainer.records.skills import Claim, Condition, SkillAdvice, SkillTrial

FORMAT = 3
"""Version of evidence.json and of what SKILL.md makes of it. Version 2 cut long front matter. Version 1 holds the same
trials, with effects pooled at 90%: a change that the judge found
within the noise could be said to help."""
WORTHWHILE = 0.01
"""Gain of the gate score below which a change is not worth having, score units."""
CONFIDENCE = 0.95
"""Of the interval of a trial that states none."""
LEAST_SE, IDENTICAL_SE = 0.003, 0.01
"""Smallest standard error an effect is pooled with; and that of a byte-identical branch, which states 0: a change
that could not act in one recipe says little of others."""
VALID_DAYS = 180
"""Days after its newest trial at which a skill wants to be validated again."""
SOUND = "sound"
"""The trigger where no bottleneck stood out."""


class Pooled(Frozen):
    """Random-effects mean of trials (DerSimonian and Laird 1986), score units."""

    mean: float
    se: float
    low: float
    high: float
    """Two-sided interval at `confidence`, ..."""
    confidence: float
    """... the strictest at which a verdict behind it was given: one branch alone has the judge's own interval."""
    tau: float
    """Standard deviation of the effect between comparisons."""
    trials: int
    comparisons: int
    """Trials of one run against the same control share its noise and count as one."""


class Expiry(Frozen):
    """After any of these a skill counts for less until it is validated again."""

    generators: dict[str, str]
    """Domain -> task generator version of its newest trial."""
    evotrainer: str
    """Newest trial's version, major and minor."""
    until: str
    """Date, ISO 8601."""


class Skill(Frozen):
    """When `bottleneck` is diagnosed, changing `factor` in `direction` has this effect."""

    bottleneck: str
    factor: str
    direction: str
    trials: tuple[SkillTrial, ...] = Field(min_length=1)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.bottleneck, self.factor, self.direction

    @property
    def name(self) -> str:
        return skill_name(*self.key)

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(sorted({t.domain for t in self.trials}))

    @property
    def pooled(self) -> Pooled | None:
        return pool(self.trials)

    def of(self, domain: str) -> tuple[SkillTrial, ...]:
        return tuple(t for t in self.trials if t.domain == domain)

    @property
    def claim(self) -> Claim:
        return claim_of(self.trials)

    @property
    def validated(self) -> tuple[str, ...]:
        """Domains whose own trials settle what all trials claim."""
        if self.claim == "unsettled":
            return ()
        good = self.claim == "helps"
        own = {d: claim_of(self.of(d)) for d in self.domains}
        return tuple(d for d, c in own.items() if c != "unsettled" and (c == "helps") == good)

    @property
    def scope(self) -> Literal["domain-local", "cross-domain"]:
        return "cross-domain" if len(self.validated) >= 2 else "domain-local"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What held in every trial; `value` is the mildest seen."""
        held = [{(c.detector, c.number, c.relation): c for c in t.conditions} for t in self.trials]
        common = set.intersection(*(set(h) for h in held)) if held else set()
        out = []
        for key in sorted(common):
            seen = [h[key] for h in held]
            mildest = min if key[2] == ">=" else max
            out.append(mildest(seen, key=lambda c: c.value))
        return tuple(out)

    @property
    def supporting(self) -> tuple[SkillTrial, ...]:
        """Trials with a gain."""
        return tuple(t for t in self.trials if t.measured and (t.mean or 0.0) > 0)

    @property
    def opposing(self) -> tuple[SkillTrial, ...]:
        """Trials without one, and those that ended invalid or failed."""
        return tuple(t for t in self.trials if t not in self.supporting)

    @property
    def expiry(self) -> Expiry:
        newest = max(self.trials, key=lambda t: (t.proof.time, t.id))
        per_domain = {d: max(self.of(d), key=lambda t: (t.proof.time, t.id)).generator for d in self.domains}
        until = datetime.fromisoformat(newest.proof.time) + timedelta(days=VALID_DAYS)
        return Expiry(generators=per_domain, evotrainer=minor(newest.version), until=until.date().isoformat())

    def without(self, run: str) -> Skill | None:
        """The skill as other runs made it; None where there is no other."""
        left = tuple(t for t in self.trials if t.run != run)
        return self.model_copy(update={"trials": left}) if left else None

    def joined(self, trials: Iterable[SkillTrial]) -> Skill:
        """With more evidence; a trial that is there already is replaced, the order does not matter."""
        every = {t.id: t for t in (*self.trials, *trials)}
        order = sorted(every.values(), key=lambda t: (t.proof.time, t.run, t.branch))
        return self.model_copy(update={"trials": tuple(order)})


def direction(factor: str, old: Any, new: Any) -> str:
    """What a change does to a factor, the value itself aside: `up`, `to x`, `add r`, `replace r by q`, `kind x`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _rewards(old, new) if factor == "rewards" else _fields(old, new)
    if _numeric(old) and _numeric(new):
        return "up" if new > old else "down"
    if new is None or (old is None and _numeric(new)):
        return "off" if new is None else "on"
    return f"to {new}"


def _numeric(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _rewards(old: Mapping[str, float], new: Mapping[str, float]) -> str:
    a, b = ({k: v for k, v in m.items() if v} for m in (old, new))
    added, removed = sorted(b.keys() - a.keys()), sorted(a.keys() - b.keys())
    if added and removed:
        return f"replace {' '.join(removed)} by {' '.join(added)}"
    if added:
        return "add " + " ".join(added)
    if removed:
        return "remove " + " ".join(removed)
    moved = [f"{k} {'up' if b[k] > a[k] else 'down'}" for k in sorted(a) if a[k] != b[k]]
    return "weight " + " ".join(moved)


def _fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if old.get("kind") != new.get("kind"):
        return f"kind {new.get('kind')}"
    parts = [f"{k} {direction(k, old.get(k), new.get(k))}" for k in sorted(old.keys() | new.keys())
             if old.get(k) != new.get(k)]  # fmt: skip
    return " ".join(parts) or "same"


def skill_name(bottleneck: str, factor: str, direction: str) -> str:
    """Folder name of a skill: at most 64 of [a-z0-9-]; a hash at the end where letters had to go."""
    text = f"{bottleneck} {factor} {direction}"
    plain = re.sub(r"[ _.\-]+", "-", text)
    slug = re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9-]", "-", plain)).strip("-")
    if slug == plain.strip("-") and len(slug) <= 64:
        return slug
    return f"{slug[:55].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def pool(trials: Sequence[SkillTrial]) -> Pooled | None:
    """Random-effects mean over independent comparisons; None where nothing was measured."""
    from math import sqrt

    from scipy.special import stdtrit

    by: dict[tuple[str, str], list[SkillTrial]] = {}
    for t in trials:
        if t.measured:
            by.setdefault((t.run, t.control), []).append(t)
    if not by:
        return None
    # trials against one control share its noise: the mean of them errs as if they were wholly correlated
    y: list[float] = []
    v: list[float] = []
    dfs: list[float] = []
    for group in by.values():
        y.append(sum(t.mean or 0.0 for t in group) / len(group))
        v.append(max(LEAST_SE, sum(t.se or IDENTICAL_SE for t in group) / len(group)) ** 2)
        dfs.append(max(1.0, min(t.df or 1.0 for t in group)))
    # variance between comparisons by moments (DerSimonian and Laird): q is what fixed-effect weights leave over
    w = [1 / x for x in v]
    fixed = sum(a * b for a, b in zip(w, y, strict=True)) / sum(w)
    q = sum(a * (b - fixed) ** 2 for a, b in zip(w, y, strict=True))
    spare = sum(w) - sum(a * a for a in w) / sum(w)
    tau2 = max(0.0, (q - (len(y) - 1)) / spare) if len(y) > 1 and spare > 0 else 0.0
    w = [1 / (x + tau2) for x in v]
    mean, se = sum(a * b for a, b in zip(w, y, strict=True)) / sum(w), 1 / sqrt(sum(w))
    confidence = max(t.confidence or CONFIDENCE for group in by.values() for t in group)
    half = float(stdtrit(sum(dfs), 0.5 + confidence / 2)) * se
    r = [round(x, 6) for x in (mean, se, mean - half, mean + half, sqrt(tau2))]
    n = sum(map(len, by.values()))
    return Pooled(
        mean=r[0], se=r[1], low=r[2], high=r[3], confidence=confidence, tau=r[4], trials=n, comparisons=len(y)
    )


def claim_of(trials: Sequence[SkillTrial]) -> Claim:
    """What trials settle, by their pooled effect; `invalid` where all of them ended invalid."""
    p = pool(trials)
    if p is None:
        return "invalid" if trials and all(t.kind == "invalid" for t in trials) else "unsettled"
    if p.low > 0:
        return "helps"
    if p.high < 0:
        return "harms"
    return "no-gain" if p.high < WORTHWHILE else "unsettled"


def minor(version: str) -> str:
    """`0.1.3` -> `0.1`"""
    return ".".join(version.split(".")[:2])


def advise(
    skill: Skill, trials: Sequence[SkillTrial], *, domain: str, generator: str, base: str, version: str, now: str
) -> SkillAdvice:
    """The part of a skill's evidence in `trials` as advice to a run of this domain, base policy and time."""
    p = pool(trials)
    part = skill.model_copy(update={"trials": tuple(trials)})
    e = part.expiry
    reasons = []
    if domain in e.generators and e.generators[domain] != generator:
        reasons.append(f"made with task generator {e.generators[domain]}, now {generator}")
    if e.evotrainer != minor(version):
        reasons.append(f"made with evotrainer {e.evotrainer}")
    if now[:10] > e.until:
        reasons.append(f"valid until {e.until}")
    return SkillAdvice(
        name=skill.name,
        bottleneck=skill.bottleneck,
        factor=skill.factor,
        direction=skill.direction,
        claim=claim_of(trials),
        scope=skill.scope,
        domains=part.domains,
        mean=p.mean if p else None,
        se=p.se if p else None,
        low=p.low if p else None,
        high=p.high if p else None,
        trials=p.trials if p else 0,
        losses=sum(not t.measured and t.kind in ("invalid", "failed") for t in trials),
        values=_distinct(t.new for t in trials),
        foreign=domain not in part.domains,
        other_base=all(t.base != base for t in trials),
        expired="; ".join(reasons),
    )


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple({json.dumps(v, sort_keys=True): v for v in values}.values())
