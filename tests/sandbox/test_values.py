"""Values cross the wall with their exact type, and nothing hostile comes back alive."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.sandbox import Call, Opaque, Program, Sandbox, decode, encode, same

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=1 << 500, max_value=1 << 600)
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary(max_size=20)
    | st.fractions()
    | st.decimals(allow_nan=False)
)
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.lists(inner, max_size=3).map(deque)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_a_value_survives_the_journey(value: Any) -> None:
    assert same(decode(json.loads(json.dumps(encode(value)))), value)


@settings(max_examples=25, deadline=None)
@given(values=st.lists(VALUES, max_size=4))
def test_a_value_survives_the_sandbox(box: Sandbox, values: list[Any]) -> None:
    program = Program("def echo(x): return x", calls=[Call("echo", (value,)) for value in values])
    cases = box.run([program])[0].cases
    assert all(same(case.value, value) for case, value in zip(cases, values, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (1, 1.0),
        (0, False),
        ((1, 2), [1, 2]),
        ([1, (2,)], [1, [2]]),
        ({1: 2}, {True: 2}),
        ({1: 2}, {1: 2.0}),
        ({1}, {1.0}),
        ({1}, frozenset({1})),
        ({(1, True)}, {(True, 1)}),
        ({}, set()),
        ({}, []),
        ("1", 1),
        ("a", b"a"),
        (None, False),
        (1 + 0j, 1),
        ({1: 2}, Counter({1: 2})),
        ({1: 2}, OrderedDict({1: 2})),
        ({1: 2}, defaultdict(int, {1: 2})),
        ([1], deque([1])),
        (Fraction(1), 1),
        (Decimal(1), 1),
        (range(2), [0, 1]),
        (0.1 + 0.2, 0.3),
        (Opaque("object"), Opaque("object")),
    ],
)
def test_alike_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert not same(decode(encode(one)), decode(encode(other)))


def test_nan_is_itself_and_order_in_sets_and_dicts_is_nothing() -> None:
    assert same([math.nan], [math.nan])
    assert same({1: "a", 2: "b"}, {2: "b", 1: "a"})
    assert same({3, 1, 2}, {1, 2, 3})
    assert not same(math.nan, 0.0)


def test_a_tolerance_loosens_floats_only() -> None:
    assert same([0.1 + 0.2], [0.3], tolerance=1e-9)
    assert same(1e20, 1e20 * (1 + 1e-12), tolerance=1e-9)
    assert not same(1.0, 1.1, tolerance=1e-9)
    assert not same(1, 1.0, tolerance=1.0)
    assert not same(math.inf, 1e308, tolerance=1.0)


@pytest.mark.parametrize(
    "hostile",
    [
        {"t": "nothing", "v": 1},
        {"t": "int", "v": "zz"},
        {"t": "int", "v": 5},
        {"t": ["list"], "v": 1},
        {"v": 1},
        {},
        {"t": "complex", "v": 3},
        {"t": "tuple", "v": "text"},
        {"t": "set", "v": [[1]]},
        {"t": "dict", "v": [[1, 2, 3]]},
        {"t": "dict", "v": [[i * (2**61 - 1), 0] for i in range(20_000)]},
        {"t": "dict", "v": [[1, 0], [True, 0]]},
        {"t": "set", "v": [7, 7]},
        {"t": "tuple", "v": [], "w": 0},
        {"t": "float", "v": "1.5"},
        {"t": "float", "v": "1" * 100},
        {"t": "complex", "v": ["1" * 100, "0"]},
        {"t": "Fraction", "v": [1, {"t": "int", "v": "1" * 5000}]},
        {"t": "range", "v": [0, {"t": "int", "v": "1" * 5000}, 1]},
        {"t": "opaque", "v": ["x" * 101, -1]},
        {"t": "dict", "v": ["ab"]},
        {"t": "Fraction", "v": [1, 0]},
        {"t": "Decimal", "v": "1" * 20_000},
        {"t": "Decimal", "v": "rubbish"},
        {"t": "range", "v": [0, 1, 0]},
        {"t": "bytes", "v": "xyz"},
        {"t": "deque", "v": [-1, []]},
        {"t": "opaque", "v": ["x", None]},
    ],
)
def test_hostile_encodings_are_refused(hostile: Any) -> None:
    with pytest.raises(ValueError):
        decode(hostile)


def test_deep_and_circular_values_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError):
        encode(circle)
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ValueError):
        decode(deep)


def test_what_cannot_travel_arrives_as_a_name(box: Sandbox) -> None:
    program = Program("class Thing: pass\ndef make(): return [Thing(), 1]", calls=[Call("make")])
    assert box.run([program])[0].cases[0].value == [Opaque("Thing"), 1]
