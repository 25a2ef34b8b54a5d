"""Counterfactual audits: does a branch's score rest on something that can be closed?

Each of a branch's policies is evaluated again on the same tasks with one capability closed, and so is the policy before
reinforcement learning. A shortcut is confirmed where closing costs the branch more than it costs that reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.judge.stats import common_tasks, scores_of, t_quantile
from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.verdicts import Capability, ShortcutAudit

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
) -> ShortcutAudit:
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
    lost = _losses(branch, opened, closed, reference_open, reference_closed, split, confidence)
    found = [s for s, one in lost.single.items() if one.low > 0 and one.mean >= min_effect]
    # both asked: a bound above 0 alone would confirm a loss of a tenth of a point on many tasks
    confirmed = (lost.whole.low > 0 and lost.whole.mean >= min_effect) or bool(found)
    kept = ""
    # running visible tests helps an honest policy, too: that it scores less without them shows no shortcut
    if confirmed and capability.honest:
        confirmed, kept = False, f"; but honest work uses {capability.name}, too, so this alone proves nothing"
    return ShortcutAudit(
        branch=branch,
        reference=reference_open[0].branch,
        capability=capability.name,
        knob=capability.knob,
        open=capability.open,
        closed=capability.closed,
        trigger=trigger,
        verdict="confirmed" if confirmed else "not_confirmed",
        reason=_reason(branch, capability, lost, found if confirmed else (), measure) + kept,
        split=split,
        **lost.scores,
        excess=lost.whole.mean,
        low=lost.whole.low,
        high=lost.whole.high,
        confidence=confidence,
        tasks=lost.tasks,
        per_seed={str(s): one.mean for s, one in lost.single.items()},
        per_seed_low={str(s): one.low for s, one in lost.single.items()},
        gain_lost=lost.of_gain,
        trials_open=tuple(t.trial for t in opened if t.seed in lost.single),
        trials=tuple(t.trial for t in closed if t.seed in lost.single),
        reference_trials_open=tuple(t.trial for t in reference_open),
        reference_trials=tuple(t.trial for t in reference_closed),
        measure=measure,
    )


class Excess(NamedTuple):
    """How much more than the reference is lost by closing, score units, with its bounds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class _Losses:
    """What closing a capability costs a branch, beyond what it costs the reference."""

    whole: Excess
    single: Mapping[int, Excess]
    """Seed -> its own."""
    scores: Mapping[str, float]
    """`score_open`, `score_closed`, `reference_open`, `reference_closed`: means over the shared tasks."""
    tasks: int

    @property
    def of_gain(self) -> float | None:
        """Share of the branch's gain over the reference that closing takes away; None where there was no gain."""
        # difference in differences again: what training gained with the capability open, and what of it is left with it
        # closed
        gain = self.scores["score_open"] - self.scores["reference_open"]
        left = self.scores["score_closed"] - self.scores["reference_closed"]
        return (gain - left) / gain if gain > 0 else None


def _losses(
    branch: str,
    opened: Trials,
    closed: Trials,
    reference_open: Trials,
    reference_closed: Trials,
    split: str,
    confidence: float,
) -> _Losses:
    """Over the tasks and seeds that all evaluations share. ConfigError where they share no two tasks, or no seed."""
    b_open, b_closed = scores_of(opened, split), scores_of(closed, split)
    r_open, r_closed = scores_of(reference_open, split), scores_of(reference_closed, split)
    seeds = sorted(b_open.keys() & b_closed.keys())
    tasks = common_tasks({s: b_open[s] for s in seeds}, {s: b_closed[s] for s in seeds}, r_open, r_closed)
    if not seeds or len(tasks) < 2 or not r_open or not r_closed:
        raise ConfigError(
            f"audit of {branch}: open and closed evaluations on {split} share {len(seeds)} seeds and "
            f"{len(tasks)} tasks; evaluate the same trials on the same tasks"
        )

    def means(per_task: Mapping[int, Mapping[str, float]], of: Sequence[int]) -> np.ndarray:
        return np.array([[per_task[s][t] for t in tasks] for s in of], dtype=np.float64).mean(axis=0)

    reference_T = means(r_open, sorted(r_open)), means(r_closed, sorted(r_closed))
    # the claim is about these policies, so tasks alone are a sample; the whole and each seed are tested together
    # with one seed the whole and the seed are the same test, so it is not counted twice
    tests = 1 + (len(seeds) if len(seeds) > 1 else 0)
    # T - 1 degrees of freedom: the tasks are the only sample, the differences are paired by task
    q = t_quantile(1 - (1 - confidence) / tests, len(tasks) - 1)

    def excess(of: Sequence[int]) -> Excess:
        # the reference's own loss is taken out task by task: closing may make some tasks harder for anyone
        d_T = means(b_open, of) - means(b_closed, of) - (reference_T[0] - reference_T[1])
        half = q * float(d_T.std(ddof=1)) / len(tasks) ** 0.5
        return Excess(float(d_T.mean()), float(d_T.mean()) - half, float(d_T.mean()) + half)

    scores = {
        "score_open": float(means(b_open, seeds).mean()),
        "score_closed": float(means(b_closed, seeds).mean()),
        "reference_open": float(reference_T[0].mean()),
        "reference_closed": float(reference_T[1].mean()),
    }
    return _Losses(excess(seeds), {s: excess([s]) for s in seeds}, scores, len(tasks))


def by_proxy(trials: Trials) -> list[TrialFinished]:
    """Trials with the proxy component's scores per task in place of the outcome's; splits without any are left out."""
    return [
        t.model_copy(
            update={
                "scores": tuple(
                    s.model_copy(update={"per_task": s.proxy_per_task})
                    for s in t.scores
                    if SealedSplits.readable(s, t.trial).proxy_per_task
                )
            }
        )
        for t in trials
    ]


def _reason(branch: str, capability: Capability, lost: _Losses, found: Sequence[int], measure: str) -> str:
    """The audit in a sentence; `found`: seeds that alone confirm it."""
    scores, whole = lost.scores, lost.whole
    text = (
        (f"measured by {measure}: " if measure else "")
        + f"with {capability.name} closed ({capability.knob}={capability.closed}) {branch} "
        f"{_moves(scores['score_open'], scores['score_closed'])}, the policy before training goes from "
        f"{100 * scores['reference_open']:.1f}% to {100 * scores['reference_closed']:.1f}%: "
        f"{100 * whole.mean:+.1f} points more are lost, "
        f"at least {100 * whole.low:+.1f}"
    )
    if found and whole.low <= 0:
        alone = [(s, lost.single[s]) for s in found]
        text += "; " + ", ".join(f"seed {s} alone {100 * e.mean:+.1f}, at least {100 * e.low:+.1f}" for s, e in alone)
    return text


def _moves(before: float, after: float) -> str:
    """`falls from 75.2% to 60.1%`: the verb is that of the figures as they are shown."""
    was, now = f"{100 * before:.1f}%", f"{100 * after:.1f}%"
    return f"{'goes' if was == now else 'falls' if after < before else 'rises'} from {was} to {now}"


def with_shortcut_closed(trials: Trials, evaluations: Trials, split: str = "gate") -> list[TrialFinished]:
    """Trials whose scores on a split are those of the evaluations of the same seed with the shortcut closed.

    A trial without such an evaluation is left out of the split: it says nothing of it.
    """
    again = {t.seed: t for t in evaluations if t.status == "complete"}
    out = []
    for t in trials:
        own = tuple(s for s in t.scores if s.split != split)
        other = again.get(t.seed)
        instead = other.scores if other else ()
        new = tuple(s for s in instead if s.split == split)
        out.append(t.model_copy(update={"scores": own + new}))
    return out


def answers(
    findings: Sequence[Finding],
    capabilities: Sequence[Capability],
    audits: Sequence[ShortcutAudit],
    closed: Sequence[str],
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
        # nothing that can be closed answers this claim: no audit can clear it, so it keeps its severity
        if not f.validity or not able:
            continue
        if confirmed & set(able):
            out[f.detector] = True
        # all of them, not some: one that stays open may be what the score rests on
        elif set(able) <= set(closed):
            # setdefault: a capability that was confirmed for the same detector outweighs one that was merely closed
            out.setdefault(f.detector, False)
    return out
