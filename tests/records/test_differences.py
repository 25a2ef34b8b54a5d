"""Where a recorded value and a recomputed one differ."""

from __future__ import annotations

from evotrainer.records.differences import differences


def test_what_is_on_one_side_alone_is_a_difference() -> None:
    assert differences({"a": {"x": 1.0, "y": 2.0}}, {"a": {"x": 1.0}}) == ["a.y: 2.0 in the ledger, None recomputed"]
    assert differences({"a": 1}, {"a": 1, "b": [0]}) == ["b: None in the ledger, [0] recomputed"]
    assert differences([1, 2], [1]) == [": [1, 2] in the ledger, [1] recomputed"]


def test_sentences_and_the_last_bits_of_numbers_are_none() -> None:
    assert differences({"x": 1.0, "reason": "a"}, {"x": 1.0 + 1e-12, "reason": "b"}) == []
    assert len(differences({"x": [1.0]}, {"x": [1.0 + 1e-6]})) == 1
