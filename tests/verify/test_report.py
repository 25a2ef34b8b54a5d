"""`verify.report`: every kind of event has a check, or a reason for having none."""

from __future__ import annotations

from evotrainer.records.events import BODIES
from evotrainer.verify.chain_and_files import CHAIN_ONLY


def test_every_kind_of_event_has_a_check_or_a_reason_for_having_none() -> None:
    from evotrainer.verify import checks

    every = set(checks())
    assert set(BODIES) - every - set(CHAIN_ONLY) == set(), "a kind that nothing answers for"
    assert every | set(CHAIN_ONLY) <= set(BODIES), "no check of a kind that is gone"
    assert not every & set(CHAIN_ONLY)
