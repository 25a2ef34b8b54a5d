"""`run.contrasts`: where a curve rises."""

from __future__ import annotations

from evotrainer.records.detectors import DetectorSpec
from evotrainer.run.contrasts import rise_step


def test_the_step_where_a_curve_rises_is_found() -> None:
    curve = [{"step": float(i), "score": 0.2 + 0.6 * (i > 10)} for i in range(1, 21)]
    assert rise_step(curve) in (11, 12, 13)
    assert rise_step([{"step": float(i), "score": 0.2} for i in range(20)]) is None
    assert DetectorSpec(name="x", form="pattern").standing == "informational"
