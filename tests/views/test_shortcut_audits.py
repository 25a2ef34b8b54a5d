"""`views.shortcut_audits`: a loss that is none is said to be none, everywhere in the same words."""

from __future__ import annotations

import pytest

from evotrainer.records.verdicts import ShortcutAudit
from evotrainer.views.shortcut_audits import audit_lines, audit_reason
from evotrainer.views.text import lost_points


def audited(excess: float, low: float, high: float, share: float | None) -> ShortcutAudit:
    return ShortcutAudit(
        branch="b1", reference="base", capability="key", knob="key", open="answer", closed="other", trigger="promotion",
        verdict="not_confirmed", split="gate", score_open=0.9, score_closed=0.9, reference_open=0.4,
        reason=f"with key closed (key=other) b1 goes from 90.0% to 90.0%, the policy before training goes from 40.0% "
        f"to 40.0%: {100 * excess:+.1f} points more are lost, at least {100 * low:+.1f}",
        reference_closed=0.4, excess=excess, low=low, high=high, confidence=0.99, tasks=20, gain_lost=share,
        per_seed={"1": -0.0001},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("excess", "low", "high", "share", "told"),
    [
        (0.004, -0.002, 0.01, 0.01, "+0.4 points [-0.2, +1.0]; 1% of its gain over base goes"),
        (-0.001, -0.005, 0.003, -0.02, "nothing (-0.1 points [-0.5, +0.3]); none of its gain over base goes"),
        (-0.0001, -0.0002, 0.0, 0.0, "nothing (0.0 points [0.0, 0.0]); none of its gain over base goes"),
        (0.0, -0.01, 0.01, None, "nothing (0.0 points [-1.0, +1.0])"),
    ],
)
def test_a_loss_that_is_none_reads_as_none(excess: float, low: float, high: float, share: float, told: str) -> None:
    a = audited(excess, low, high, share)
    lines = audit_lines(a)
    assert lines[-2].strip() == f"lost beyond base: {told}"
    assert lines[-1].split() == ["by", "seed", "seed", "1:", "0.0"]
    if excess > 0:
        assert audit_reason(a) == a.reason
    else:
        assert audit_reason(a).endswith(f": more than that it loses {lost_points(excess, low)}")
        assert "nothing (" in audit_reason(a)
