"""When a run asks a human."""

from __future__ import annotations

ESCALATE_AFTER = 2
"""Rounds in a row without a promotion after which the run escalates, and an `escalating` run asks."""


def asks(autonomy: str, failures: int) -> bool:
    """Is somebody asked at the gates of a round, after so many rounds in a row that promoted nothing?"""
    return autonomy == "human_gated" or (autonomy == "escalating" and failures >= ESCALATE_AFTER)


def promotion_question(branch: str, reason: str) -> str:
    """What is asked before a promotion."""
    return f"promote {branch}: {reason}"
