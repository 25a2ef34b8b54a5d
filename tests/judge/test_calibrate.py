"""`judge.calibrate`: the gate's own error and power, and what would reach the targets."""

from __future__ import annotations

import pytest

from evotrainer.judge import JudgeConfig
from evotrainer.judge.calibrate import Costs, GateShape, calibrate
from evotrainer.judge.components import measured
from tests.judge.scored_trials import nothing, repeats


def test_a_calibration_says_what_misses_the_targets_and_what_would_do() -> None:
    parts = measured(repeats(6), None, [])
    shape = GateShape(rounds=1, branches=2, seeds=3, config=JudgeConfig(max_seeds=4, worthwhile=0.08))
    c = calibrate(parts, shape, nothing(), runs=20, costs=Costs(training=10.0, gate_evaluation=2.0))
    effects = [r.effect for r in c.power]
    assert 0.08 in effects and effects == sorted(effects)
    assert c.power[-1].first.value >= c.power[0].first.value
    assert c.options[0].max_seeds == 4 and c.options[0].cpu_s == pytest.approx(10 * c.options[0].trainings)
    doubled = next(o for o in c.options if o.attempts == 4)
    assert doubled.cpu_s == pytest.approx(12 * doubled.trainings)
    assert any("fewer than 20" in p for p in c.problems)
    if c.recommended is not None:
        assert c.options[c.recommended].reaches
    assert Costs(training=10.0).run(3, 2.0) is None
