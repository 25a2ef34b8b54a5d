"""`judge.alpha_spending`: the level is never overspent, however a run is cut into rounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.judge.alpha_spending import next_looks, share
from evotrainer.records.verdicts import Verdict


def verdict(look: int, alpha: float, kind: str = "reject") -> Verdict:
    """A bare verdict that spent its look."""
    return Verdict(branch="b", control="b0", kind=kind, reason="", alpha=alpha, look=look)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_alpha_is_never_overspent_however_the_run_is_cut_into_rounds(sizes: list[int]) -> None:
    past: list[Verdict] = []
    for size in sizes:
        past += [verdict(look.number, look.alpha) for look in next_looks(past, 0.05, size)]
    assert [v.look for v in past] == list(range(1, sum(sizes) + 1))
    spent = sum(v.alpha or 0.0 for v in past)
    assert spent == pytest.approx(0.05 * sum(share(j) for j in range(1, len(past) + 1)))
    assert spent < 0.05


def test_the_shares_sum_to_less_than_one_for_ever() -> None:
    assert sum(share(j) for j in range(1, 200_000)) < 1


def test_branches_of_one_round_share_equally_so_their_order_is_free() -> None:
    looks = next_looks([], 0.05, 3)
    assert len({look.alpha for look in looks}) == 1


def test_a_promotion_hands_its_level_to_the_next_round_only() -> None:
    first = next_looks([], 0.05, 2)
    lost = [verdict(x.number, x.alpha) for x in first]
    won = [verdict(first[0].number, first[0].alpha, "promote"), lost[1]]
    plain, rich = next_looks(lost, 0.05)[0], next_looks(won, 0.05)[0]
    assert rich.alpha == pytest.approx(plain.alpha + first[0].alpha)
    after = [verdict(rich.number, rich.alpha)]
    plain_after = [verdict(plain.number, plain.alpha)]
    assert next_looks(won + after, 0.05)[0].alpha == pytest.approx(next_looks(lost + plain_after, 0.05)[0].alpha)
