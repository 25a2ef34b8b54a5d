"""`judge.settings`: what is weaker than the defaults is named, and refuses nothing."""

from __future__ import annotations

import pytest

from evotrainer.judge import JudgeConfig, JudgeInput, judge, measure_noise, scores_of
from tests.judge.scored_trials import FIRST, planted, recomputed


def verdict(**settings: float) -> tuple[str, list[str], str]:
    branch, control = planted(0.12)
    config = JudgeConfig().model_copy(update=settings)
    given = JudgeInput("b1", "b0", branch, control, measure_noise("b0", scores_of(control, "gate")), config)
    v = judge(given, FIRST)
    assert not recomputed(v, given)
    return v.kind, [g.message for g in v.gates if g.gate == "settings"], v.reason


def test_the_defaults_are_not_spoken_of() -> None:
    kind, named, reason = verdict()
    assert (kind, named) == ("promote", []) and "weaker" not in reason


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"alpha": 0.2}, "alpha 0.2 (0.05)"),
        ({"min_effect": 0.0}, "min_effect 0 (0.01)"),
        ({"min_seeds": 2}, "min_seeds 2 (3)"),
        ({"max_error_share": 0.5}, "max_error_share 0.5 (0.05)"),
        ({"max_cost": 2.5}, "max_cost 2.5 (1.05)"),
    ],
)
def test_a_weaker_setting_is_named_in_the_verdict(settings: dict[str, float], told: str) -> None:
    kind, named, reason = verdict(**settings)
    assert kind == "promote" and told in reason and named == [f"weaker than the defaults: {told}"]


def test_stronger_settings_are_not_spoken_of() -> None:
    assert verdict(alpha=0.01, min_effect=0.02, max_cost=1.0)[1] == []
