"""Moves that shape the reward by length and repetition. For reward components see `agents/rewards.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evotrainer.agents.catalogue.values import CLIPPED, LENGTH, of, when
from evotrainer.agents.moves import Move, Situation

NO_LENGTH = {"kind": "none", "weight": 0.0, "soft": 0.75}


def overlong(s: Situation) -> Iterable[Any]:
    return [{"kind": "overlong", "weight": 0.5, "soft": 0.75}] if s.recipe.length.kind == "none" else []


SHAPE: tuple[Move, ...] = (
    Move(
        "overlong_penalty",
        "length",
        "reward",
        {"truncation": 0.5, "length_gaming": 0.6},
        of(overlong),
        "a soft penalty near the limit stops growth without touching short answers",
        CLIPPED,
        "down",
        0.03,
    ),
    Move(
        "short_if_correct",
        "length",
        "reward",
        {"length_gaming": 0.5},
        when(lambda r: r.length.kind == "none", {"kind": "correct_bonus", "weight": 0.1, "soft": 0.75}),
        "only correct answers are paid for being short",
        LENGTH,
        "down",
        2.0,
    ),
    Move(
        "length_off",
        "length",
        "reward",
        {
            "efficiency_collapse": 0.9,
            "laziness": 0.5,
            "action_timidity": 0.4,
            "abandonment": 0.4,
            "false_revival": 0.3,
        },
        when(lambda r: r.length.kind != "none", NO_LENGTH),
        "the length rule pays for stopping early, right or wrong",
        LENGTH,
        "up",
        2.0,
        subtracts=True,
    ),
    Move(
        "repetition_penalty",
        "repetition_penalty",
        "reward",
        {"echo_trap": 0.7, "length_gaming": 0.3},
        when(lambda r: r.repetition_penalty == 0, 0.2),
        "text that repeats itself is unlearnt once it costs reward",
        LENGTH,
        "down",
        1.0,
    ),
    Move(
        "repetition_off",
        "repetition_penalty",
        "reward",
        {"false_revival": 0.4},
        when(lambda r: r.repetition_penalty > 0, 0.0),
        "the penalty makes spread that is not about the task",
        subtracts=True,
    ),
)
