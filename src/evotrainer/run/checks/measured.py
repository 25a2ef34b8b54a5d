"""What the base policy's attempts say before the trainings: why these may learn little, the worst cause first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evotrainer.harness import factors_of
from evotrainer.projections.base_policy import DEAD
from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import Finding, HealthReport
from evotrainer.records.recipe import Recipe
from evotrainer.records.text import counted, quoted

MANY = 100
"""Attempts of the base policy, none of which succeeds, from which a run stops and asks: fewer may be bad luck."""
NEVER_CORRECT = 0.65
"""Rank of an outcome that is 0 throughout: after what the harness finds critical, before what it warns of."""


def unscored_components(base: TrialFinished, recipe: Recipe, outcome: str) -> Iterator[str]:
    """Notes on what gave None for every attempt of the base policy on search: the outcome, or a reward that is paid."""
    for s in (s for s in base.scores if s.split == "search"):
        none = [c for c, w in recipe.rewards.items() if w and c not in s.components] if s.components else []
        asks = "for every attempt of the base policy on search: check the function, and what the policy answers"
        if s.score is None:
            yield f"the outcome ({outcome}) gave no number, so that nothing is measured, {asks}"
        yield from (f"reward {c!r}, which is paid, gave None, so that it pays nothing, {asks}" for c in none)


def health_doubts(health: HealthReport, score: float | None, outcome: str, attempt: str, remedy: str) -> Sequence[str]:
    """Bottlenecks of the base policy's health report, an outcome that is never true, and last the `remedy` for a weak
    policy. Where attempts succeed, only bottlenecks that hold of nearly all of them: a model that solves 5% has learned
    as much as one that solves 15 (bench/real/README.md).

    `score`: on search; `outcome`: what is judged by; `attempt`: one of them, as text; `remedy`: empty for a policy that
    is strong enough.
    """
    found = {f.detector for f in health.claims if score == 0 or throughout(f)}
    causes = [(b.score, b.explanation + _factors(b.name)) for b in health.bottlenecks if found & set(b.findings)]
    if score == 0 and health.rollouts:
        never = (
            f"the outcome ({outcome}) is 0 for each of {counted(health.rollouts, 'attempt')}, as for {quoted(attempt)}"
        )
        causes.append((NEVER_CORRECT, f"{never}: does the grader fit the form of the answers?"))
    texts = [*(text for _, text in sorted(causes, key=lambda c: -c[0])), *filter(None, [remedy])]
    many = len(texts) > 1
    return [f"trainings may learn little{f' ({n} of {len(texts)})' * many}: {x}" for n, x in enumerate(texts, 1)]


def never_learns(health: HealthReport, score: float | None) -> bool:
    """No attempt of the base policy succeeds, and none earns more than the others at its task: no training starts."""
    return (
        score == 0
        and health.rollouts >= MANY
        and any(f.detector == "dead_groups" and throughout(f) for f in health.claims)
    )


def throughout(f: Finding) -> bool:
    """Is it critical, and found in nearly every rollout or group? Detectors put the share they compare first."""
    return f.severity == "critical" and DEAD <= next(iter(f.numbers.values()), 0.0) <= 1


def _factors(kind: str) -> str:
    factors = factors_of(kind)
    return f" (look at {', '.join(f'recipe.{x}' for x in factors)})" if factors else ""
