"""Evaluations that stand in for a trial's own scores are what their names say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.errors import IntegrityError
from evotrainer.projections.shortcuts import Shortcuts
from evotrainer.records.verdicts import Capability
from evotrainer.rules.evaluations import evaluations_under

LEAK = Capability(name="leak", knob="leak", open="on", closed="off")
OFF = {"leak": "off"}


def trial(name: str, **fields: Any) -> Any:
    return SimpleNamespace(
        **{"trial": name, "branch": "b1", "seed": 1, "policy_sha256": "a1", "env_knobs": {"leak": "on"}} | fields
    )


def standing_in(**fields: Any) -> list[Any]:
    found = trial("b1-s1-closed-leak", **{"env_knobs": OFF} | fields)
    state: Any = SimpleNamespace(shortcuts=Shortcuts((LEAK,)), trials={found.trial: SimpleNamespace(finished=found)})
    return evaluations_under(state, [trial("b1-s1")], OFF)


def test_the_evaluation_with_the_shortcut_closed_stands_in() -> None:
    assert [t.trial for t in standing_in()] == ["b1-s1-closed-leak"]


@pytest.mark.parametrize(
    "other", [{"env_knobs": {"leak": "on"}}, {"branch": "b9"}, {"seed": 77}, {"policy_sha256": "b2"}]
)
def test_one_that_is_not_what_its_name_says_decides_nothing(other: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match="b1-s1-closed-leak is an evaluation of b.*not what its name says"):
        standing_in(**other)
