"""Case memory in a run: what a briefing tells of the past, the rule that nothing is tried twice, the judge's bar.

The projections themselves are in `projections/history.py`; here they meet the loop's present state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evotrainer.projections.history import Now, cases, changed_since, repetition
from evotrainer.records.evidence import Bar, Case, HealthReport, Intervention

if TYPE_CHECKING:
    from evotrainer.run.loop import Loop


class Memory:
    """What one run remembers."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def now(self) -> Now:
        """What a branch opened now would rest on."""
        loop = self.loop
        return Now(
            recipe=loop.branches[loop.champion].recipe,
            closed=dict(loop.closed),
            harness=loop.harness.version,
            seeds=len(loop.task.run.seeds),
        )

    def cases(self, health: HealthReport) -> tuple[Case, ...]:
        """The run's branches as cases, with their likeness to the present diagnosis."""
        return tuple(cases(self.loop.ledger.events(), health))

    def reopenable(self) -> dict[str, tuple[str, ...]]:
        """Branch -> assumptions that changed since."""
        events, now = self.loop.ledger.events(), self.now()
        named = [b.name for b in self.loop.branches.values() if b.intervention]
        return {n: since for n in named if (since := changed_since(events, n, now))}

    def repeated(self, iv: Intervention) -> str:
        """Why the intervention would be a repetition; empty where it is none."""
        return repetition(self.loop.ledger.events(), iv, self.now())

    def bar(self) -> Bar | None:
        """Observed gain that the judge would promote at the next look, and its expected standard error."""
        from evotrainer.judge import next_looks
        from evotrainer.judge.stats import t_quantile

        loop, noise = self.loop, self.loop.noise
        if noise is None or not noise.numbers.get("df"):
            return None
        known = [v.effect for v in loop.verdicts if v.effect is not None and v.effect.se > 0]
        # between seeds as measured so far; between tasks as past comparisons had it on top
        trial = 2 * noise.numbers["v_trial"] / len(loop.task.run.seeds)
        task = max(0.0, sum(e.se**2 for e in known) / len(known) - trial) if known else 0.0
        se = (trial + task) ** 0.5
        look = next_looks(loop.verdicts, loop.task.judge.alpha, loop.task.run.branches)[0]
        level = t_quantile(1 - look.alpha, noise.numbers["df"])
        return Bar(gain=max(loop.task.judge.min_effect, level * se), se=se)
