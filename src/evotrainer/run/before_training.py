"""Told before the trainings: why they may learn little from the base policy's attempts, the worst cause first."""

from __future__ import annotations

from evotrainer.harness import factors_of
from evotrainer.projections.base_policy import DEAD, FEW
from evotrainer.records.findings import Finding, HealthReport
from evotrainer.records.text import counted, quoted

NEVER_CORRECT = 0.65
"""Rank of an outcome that is 0 throughout: after what the harness finds critical, before what it warns of."""


def doubts(health: HealthReport, score: float | None, outcome: str, attempt: str, remedy: str) -> list[str]:
    """Every bottleneck of the base policy's health report, an outcome that is never true, and last the `remedy` for a
    weak policy. Empty where attempts succeed, and nothing critical is found in nearly all of them.

    `score`: on search; `outcome`: what is judged by; `attempt`: one of them, as text; `remedy`: empty for a policy that
    is strong enough.
    """
    if (score is None or score >= FEW) and not any(throughout(f) for f in health.claims):
        return []
    causes = [(b.score, b.explanation + _factors(b.name)) for b in health.bottlenecks]
    if score == 0 and health.rollouts:
        told = (
            f"the outcome ({outcome}) is 0 for each of {counted(health.rollouts, 'attempt')}, as for {quoted(attempt)}"
        )
        causes.append((NEVER_CORRECT, f"{told}: does the grader fit the form of the answers?"))
    texts = [*(text for _, text in sorted(causes, key=lambda c: -c[0])), *filter(None, [remedy])]
    many = len(texts) > 1
    return [f"trainings may learn little{f' ({n} of {len(texts)})' * many}: {x}" for n, x in enumerate(texts, 1)]


def throughout(f: Finding) -> bool:
    """Is it critical, and found in nearly every rollout or group? Detectors put the share they compare first."""
    return f.severity == "critical" and DEAD <= next(iter(f.numbers.values()), 0.0) <= 1


def _factors(kind: str) -> str:
    factors = factors_of(kind)
    return f" (look at {', '.join(f'recipe.{x}' for x in factors)})" if factors else ""
