"""Text and numbers for readers."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evotrainer.projections import text
from evotrainer.records.text import counted

ANY = st.text(st.characters())


@pytest.mark.parametrize(
    ("n", "what", "told"),
    [
        (1, "key", "1 key"),
        (2, "key", "2 keys"),
        (0, "branch", "0 branches"),
        (1, "policy", "1 policy"),
        (1200, "policy", "1,200 policies"),
        (3, "greedy reading", "3 greedy readings"),
    ],
)
def test_one_thing_is_told_in_the_singular(n: int, what: str, told: str) -> None:
    assert counted(n, what) == told


@given(ANY)
def test_nothing_that_steers_a_terminal_survives(raw: str) -> None:
    for out in (text.clean(raw), text.one_line(raw)):
        assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") for c in out)
        assert not set(out) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200f")
    assert "\n" not in text.one_line(raw)


@given(st.recursive(st.none() | st.integers() | ANY, lambda x: st.lists(x) | st.dictionaries(ANY, x), max_leaves=8))
def test_json_in_a_script_element_cannot_close_it_and_says_the_same_visibly(value: object) -> None:
    out = text.script_json(value)
    assert not set(out) & set("<>&\u2028\u2029")
    assert out.isascii()
    assert json.loads(out) == text.seen(json.loads(json.dumps(value)))


def test_huge_texts_are_cut_and_the_cut_is_named() -> None:
    out = text.clean("A" * 10_000_000)
    assert len(out) < 3_000
    assert "9,988,000 more characters not shown" in out
    assert "characters on this line" in text.clean("A" * 5_000 + "\nend")
    assert text.clean("A" * 5_000 + "\nend").endswith("\nend")
    assert text.clean("short\n\ttext") == "short\n\ttext"


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.1234, "0.123"),
        (-2.5, "-2.5"),
        (1640.0, "1,640"),
        (1e-7, "1.00e-07"),
        (0.02, "0.02"),
    ],
)
def test_numbers_are_written_for_readers(x: float | None, shown: str) -> None:
    assert text.number(x) == shown


def test_differences_are_points_with_a_sign_and_tiny_ones_are_no_signed_zero() -> None:
    assert text.points(0.1214) == "+12.1"
    assert text.points(-0.012) == "-1.2"
    assert text.points(-0.0001) == "0.0"
    assert text.point_range(-0.05, 0.008) == "[-5.0, +0.8]"


@pytest.mark.parametrize(
    ("s", "shown"),
    [(0, "0 s"), (4.26, "4.3 s"), (59.7, "1 min"), (750, "12 min 30 s"), (3600, "1 h 00 min"), (11_160, "3 h 06 min")],
)
def test_durations_are_written_for_readers(s: float, shown: str) -> None:
    assert text.duration(s) == shown


def test_a_confidence_below_1_is_never_shown_as_100_percent() -> None:
    assert [text.confidence(x) for x in (0.95, 0.996, 0.99944, 1.0)] == ["95%", "99.6%", "99.9%", "100%"]


def test_a_change_names_only_what_differs() -> None:
    old = {"kind": "none", "keep": 0.9}
    assert text.change("group_filter", old, {"kind": "ema_std", "keep": 0.9}) == "group_filter.kind: none → ema_std"
    assert (
        text.change("group_filter", old, {"kind": "ema_std", "keep": 0.8})
        == "group_filter: kind none → ema_std, keep 0.9 → 0.8"
    )
    assert text.change("rewards", {"visible": 1.0}, {"hidden": 1.0}) == "rewards: - visible, + hidden 1"
    assert text.change("rewards", {"visible": 1.0}, {"visible": 1.0, "hidden": 1.0}) == "rewards: + hidden 1"
    assert text.change("rewards", {"visible": 1.0, "x": 1.0}, {"visible": 1.0}) == "rewards: - x"
    assert text.change("rewards", {"x": 1.0, "y": 1.0}, {"x": 2.0, "z": 0.5}) == "rewards: x 1 → 2, - y, + z 0.5"
    both = (
        {"averaging": {"decay": 0.9, "kind": "none", "share": 0.5}, "lr": 1},
        {
            "averaging": {"decay": 0.9, "kind": "ema"},
            "lr": 2,
        },
    )
    assert text.change("bundle", *both) == "bundle: averaging.kind none → ema, lr 1 → 2"
    assert text.change("averaging", *(x["averaging"] for x in both)) == "averaging.kind: none → ema"
    rewards = {"rewards": {"x": 1.0}, "lr": 1}, {"rewards": {"y": 1.0}, "lr": 1}
    assert text.change("bundle", *rewards) == "bundle.rewards: - x, + y 1"
    assert text.differing(*(x["averaging"] for x in both)) == ({"kind": "none", "share": 0.5}, {"kind": "ema"})
    assert text.change("lr", 0.0002, 0.0004) == "lr: 0.0002 → 0.0004"


def test_a_recorded_command_names_the_run() -> None:
    told = "suspected; read its rollouts: evotrainer show RUN b1; RUN stays"
    assert text.of_run(told, "runs/mine") == "suspected; read its rollouts: evotrainer show runs/mine b1; RUN stays"
