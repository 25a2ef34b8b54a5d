"""Counterfactual audits: does a branch's score rest on something that can be closed?

Each of a branch's policies is evaluated again on the same tasks with one capability closed, and so is the policy before
reinforcement learning. A shortcut is confirmed where closing costs the branch more than it costs that reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.judge.stats import common_tasks, scores_of, t_quantile
from evotrainer.records.events import TrialFinished
from evotrainer.records.evidence import Audit, Capability, Finding

CONFIDENCE = 0.99
"""One-sided, for the branch as a whole and each of its seeds together (Bonferroni)."""

Trials = Sequence[TrialFinished]


def settle_audit(
    branch: str,
    capability: Capability,
    trigger: str,
    opened: Trials,
    closed: Trials,
    reference_open: Trials,
    reference_closed: Trials,
    *,
    split: str = "gate",
    min_effect: float = 0.01,
    confidence: float = CONFIDENCE,
    measure: str = "",
) -> Audit:
    """The audit of a branch from its evaluations with the capability open and closed; a pure function of ledger bodies.

    Confirmed: the branch as a whole, or one of its seeds, loses more by the closing than the reference does (lower
    bound above 0, at least `min_effect`). Never for a capability that honest work uses as well: whatever is lost, it
    may be that. `measure`: the proxy component, whose scores are then compared in place of the outcome's. Raises
    ConfigError where the evaluations share no task or no seed.
    """
    if measure:
        opened, closed, reference_open, reference_closed = (
            by_proxy(x) for x in (opened, closed, reference_open, reference_closed)
        )
    b_open, b_closed = scores_of(opened, split), scores_of(closed, split)
    r_open, r_closed = scores_of(reference_open, split), scores_of(reference_closed, split)
    seeds = sorted(b_open.keys() & b_closed.keys())
    tasks = common_tasks({s: b_open[s] for s in seeds}, {s: b_closed[s] for s in seeds}, r_open, r_closed)
    if not seeds or len(tasks) < 2 or not r_open or not r_closed:
        raise ConfigError(
            f"audit of {branch}: open and closed evaluations on {split} share {len(seeds)} seeds and "
            f"{len(tasks)} tasks; evaluate the same trials on the same tasks"
        )

    def mean(per_task: Mapping[int, Mapping[str, float]], of: Sequence[int]) -> np.ndarray:
        return np.array([[per_task[s][t] for t in tasks] for s in of], dtype=np.float64).mean(axis=0)

    r_T = mean(r_open, sorted(r_open)) - mean(r_closed, sorted(r_closed))
    tests = 1 + (len(seeds) if len(seeds) > 1 else 0)
    q = t_quantile(1 - (1 - confidence) / tests, len(tasks) - 1)

    def bounds(d_T: np.ndarray) -> tuple[float, float, float]:
        half = q * float(d_T.std(ddof=1)) / len(tasks) ** 0.5
        return float(d_T.mean()), float(d_T.mean()) - half, float(d_T.mean()) + half

    whole, low, high = bounds(mean(b_open, seeds) - mean(b_closed, seeds) - r_T)
    single = {s: bounds(mean(b_open, [s]) - mean(b_closed, [s]) - r_T) for s in seeds}
    scores = {
        "score_open": float(mean(b_open, seeds).mean()),
        "score_closed": float(mean(b_closed, seeds).mean()),
        "reference_open": float(mean(r_open, sorted(r_open)).mean()),
        "reference_closed": float(mean(r_closed, sorted(r_closed)).mean()),
    }
    gain = scores["score_open"] - scores["reference_open"]
    lost = (gain - (scores["score_closed"] - scores["reference_closed"])) / gain if gain > 0 else None
    found = [s for s, (m, lo, _) in single.items() if lo > 0 and m >= min_effect]
    confirmed = (low > 0 and whole >= min_effect) or bool(found)
    kept = ""
    if confirmed and capability.honest:
        confirmed, kept = False, f"; but honest work uses {capability.name}, too, so this alone proves nothing"
    return Audit(
        branch=branch,
        reference=reference_open[0].branch,
        capability=capability.name,
        knob=capability.knob,
        open=capability.open,
        closed=capability.closed,
        trigger=trigger,
        verdict="confirmed" if confirmed else "not_confirmed",
        reason=_reason(branch, capability, scores, whole, low, found, single, confirmed, measure) + kept,
        split=split,
        **scores,
        excess=whole,
        low=low,
        high=high,
        confidence=confidence,
        tasks=len(tasks),
        per_seed={str(s): m for s, (m, _, _) in single.items()},
        per_seed_low={str(s): lo for s, (_, lo, _) in single.items()},
        gain_lost=lost,
        trials_open=tuple(t.trial for t in opened if t.seed in seeds),
        trials=tuple(t.trial for t in closed if t.seed in seeds),
        reference_trials_open=tuple(t.trial for t in reference_open),
        reference_trials=tuple(t.trial for t in reference_closed),
        measure=measure,
    )


def by_proxy(trials: Trials) -> list[TrialFinished]:
    """Trials with the proxy component's scores per task in place of the outcome's; splits without any are left out."""
    return [
        t.model_copy(
            update={
                "scores": tuple(
                    s.model_copy(update={"per_task": s.proxy_per_task}) for s in t.scores if s.proxy_per_task
                )
            }
        )
        for t in trials
    ]


def _reason(
    branch: str,
    capability: Capability,
    scores: Mapping[str, float],
    whole: float,
    low: float,
    found: Sequence[int],
    single: Mapping[int, tuple[float, float, float]],
    confirmed: bool,
    measure: str,
) -> str:
    text = (
        (f"measured by {measure}: " if measure else "")
        + f"with {capability.name} closed ({capability.knob}={capability.closed}) {branch} falls from "
        f"{100 * scores['score_open']:.1f}% to {100 * scores['score_closed']:.1f}%, "
        f"the policy before training goes from {100 * scores['reference_open']:.1f}% to "
        f"{100 * scores['reference_closed']:.1f}%: {100 * whole:+.1f} points more are lost, at least {100 * low:+.1f}"
    )
    if confirmed and low <= 0:
        text += "; " + ", ".join(
            f"seed {s} alone {100 * single[s][0]:+.1f}, at least {100 * single[s][1]:+.1f}" for s in found
        )
    return text


def closed_world(trials: Trials, evaluations: Trials, split: str = "gate") -> list[TrialFinished]:
    """Trials with their scores on a split replaced by those of the evaluations of the same seed in the closed world.

    A trial without such an evaluation is left out of the split: it cannot speak for that world.
    """
    again = {t.seed: t for t in evaluations if t.status == "complete"}
    out = []
    for t in trials:
        own = tuple(s for s in t.scores if s.split != split)
        other = again.get(t.seed)
        new = tuple(s for s in other.scores if s.split == split) if other else ()
        out.append(t.model_copy(update={"scores": own + new}))
    return out


def answers(
    findings: Sequence[Finding], capabilities: Sequence[Capability], audits: Sequence[Audit], closed: Sequence[str]
) -> dict[str, bool]:
    """Detector -> True where an audit confirmed what it claims,
    False where its capabilities are closed in this judgement.

    `closed`: names of the capabilities that were closed in the evaluations that are judged. A detector whose claim no
    closed capability answers is absent: its finding stands by itself.
    """
    confirmed = {a.capability for a in audits if a.confirmed}
    out: dict[str, bool] = {}
    for f in findings:
        able = [c.name for c in capabilities if c.answers(f.kind)]
        if not f.validity or not able:
            continue
        if confirmed & set(able):
            out[f.detector] = True
        elif set(able) <= set(closed):
            out.setdefault(f.detector, False)
    return out
