"""Settings that let more through than the defaults: named in every verdict that rests on them."""

from __future__ import annotations

from evotrainer.judge.inputs import JudgeConfig
from evotrainer.records.verdicts import Effect, GateResult

TASKS = 100
"""Fewer gate tasks than these are named: what 3 seeds find at 5 points or more was simulated with more
(bench/judge/results.md)."""
MAX_COST = 1.05
"""Default of `judge.max_cost` in task files."""


def weaker(config: JudgeConfig, effect: Effect) -> list[str]:
    """Each setting below its default, with the default in brackets."""
    d = JudgeConfig()
    rows = [
        (config.alpha > d.alpha * config.share * (1 + 1e-9), f"alpha {config.alpha / config.share:g} ({d.alpha:g})"),
        (not config.counted, "earlier runs on these gate tasks not counted (counted)"),
        (config.min_effect < d.min_effect, f"min_effect {config.min_effect:g} ({d.min_effect:g})"),
        (config.min_seeds < d.min_seeds, f"min_seeds {config.min_seeds} ({d.min_seeds})"),
        (
            config.max_error_share > d.max_error_share,
            f"max_error_share {config.max_error_share:g} ({d.max_error_share:g})",
        ),
        (config.max_cost is not None and config.max_cost > MAX_COST, f"max_cost {config.max_cost} ({MAX_COST:g})"),
        (effect.tasks < TASKS, f"{effect.tasks} gate tasks ({TASKS})"),
    ]
    return [text for below, text in rows if below]


def gate(config: JudgeConfig, effect: Effect) -> GateResult | None:
    """It refuses nothing; None where nothing is below its default."""
    if not (found := weaker(config, effect)):
        return None
    return GateResult(gate="settings", passed=None, message=f"weaker than the defaults: {', '.join(found)}", numbers={})
