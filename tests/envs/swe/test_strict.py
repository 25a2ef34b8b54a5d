"""Asserts of graded tests believe no object that claims to equal everything, and every honest value."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import types
import weakref
from typing import Any
from unittest.mock import ANY, Mock, call

import pytest

from evotrainer.envs.swe.strict_tests import strict, with_equality

TESTS = """
import unittest
from unittest.mock import ANY
import pytest

def equal(a, b): assert a == b
def either(a, b): assert a == b or a is b
def negated(a, b): assert not a == b
def within(a, b): assert a in b
def method(a, b): unittest.TestCase().assertEqual(a, b, "why")
def about(a): assert a == pytest.approx(3)
def some(a): assert a == {"k": ANY, "l": 3}
"""


class Money:
    def __init__(self, n: Any) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return bool(self.n == (other.n if isinstance(other, Money) else other))

    def __hash__(self) -> int:
        return hash(self.n)


class One:
    def __eq__(self, other: object) -> Any:
        return 1

    def __hash__(self) -> int:
        return 3


@dataclasses.dataclass
class Point:
    x: Any


class Three(enum.IntEnum):
    A = 3


Pair = collections.namedtuple("Pair", "a b")
Codeless = type("Codeless", (), {"__eq__": type("E", (), {"__call__": lambda *a: True})()})
Renamed = type("Money", (), {"__eq__": lambda s, o: True, "__hash__": None})
ONE = One()


def compiled(path: str) -> Any:
    scope: dict[str, Any] = {}
    exec(compile("class D:\n    def __eq__(s, o): return True", path, "exec"), scope)
    return scope["D"]()


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(strict(TESTS, frozenset({"Money"})), "/w/repo/tests/test_a.py", "exec"), found)
    return found


DISHONEST: list[tuple[Any, Any]] = [
    (ANY, 3),
    (ANY, Money(3)),
    (Codeless(), 3),
    (compiled("/usr/x.py"), 3),
    (compiled("/opt/x.py"), "a"),
    (ONE, 3),
    (Renamed(), 3),
    (weakref.proxy(ONE), 3),
    ([ANY], [3]),
    ((1, [ANY]), (1, [3])),
    ({"a": ANY}, {"a": 3}),
    ({ONE}, {3}),
    ({ONE: 1}, {3: 1}),
    (Pair(1, ANY), (1, 2)),
    (Point(ANY), Point(3)),
    (Money(ANY), 3),
    (Money(ANY), Money(3)),
    (collections.OrderedDict(a=ANY), {"a": 3}),
    (collections.Counter(a=ANY), {"a": 3}),  # type: ignore[arg-type]
    (types.MappingProxyType({"a": ANY}), {"a": 3}),
    ({"a": ANY}.items(), {"a": 3}.items()),
    (call(ANY), ((1,),)),
    (pytest.approx(0, abs=1e99), 3),
]


@pytest.mark.parametrize("check", ["equal", "either", "negated", "method"])
def test_what_claims_to_equal_everything_is_not_believed(scope: dict[str, Any], check: str) -> None:
    for a, b in DISHONEST:
        for x, y in ((a, b), (b, a)):
            with pytest.raises(AssertionError):
                scope[check](x, y)


def test_honest_values_are_believed(scope: dict[str, Any]) -> None:
    m = Mock()
    m(1, k=2)
    endless: list[Any] = [1]
    endless[0] = endless
    honest: list[tuple[Any, Any]] = [
        (3, 3.0), (True, 1), (2**70, 2.0**70), (10**400, 10**400), (float("inf"), float("inf")), (None, None),
        ("a", "a"), ([1, (2, {"a": 3})], [1, (2, {"a": 3})]), (Pair(1, 2), (1, 2)), (Three.A, 3), (Point(1), Point(1)),
        (Money(3.5), 3.5), (Money(3), Money(3)), ([Money(3)], [3]), ({"a": 1}.keys(), {"a"}),
        ({"a": 1}.items(), {("a", 1)}), (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(int, a=1), {"a": 1}), (decimal.Decimal(3), 3), (frozenset([1]), {1}),
        (bytearray(b"a"), b"a"), (range(3), range(3)), (endless, endless), (m.call_args, call(1, k=2)),
        (m.call_args_list, [call(1, k=2)]), (m.call_args, ((1,), {"k": 2})),
    ]  # fmt: skip
    for a, b in honest:
        scope["equal"](a, b)
        scope["equal"](b, a)
    with pytest.raises(AssertionError):
        scope["equal"](3, 4)
    scope["negated"](3, 4)


def test_what_the_test_itself_leaves_open_is_open(scope: dict[str, Any]) -> None:
    scope["about"](3.0000000001)
    scope["some"]({"k": Money(1), "l": 3})
    for name, value in (("about", ANY), ("about", 4), ("some", {"k": 1, "l": ANY}), ("some", ANY)):
        with pytest.raises(AssertionError):
            scope[name](value)


def test_membership_believes_no_more(scope: dict[str, Any]) -> None:
    for a, b in ((3, [1, 3]), ("a", {"a": 1}), ("a", "abc"), (3, range(4))):
        scope["within"](a, b)
    for a, b in ((ANY, [3]), (3, [ANY]), (ANY, (3,)), (ONE, {3: 1})):
        with pytest.raises(AssertionError):
            scope["within"](a, b)


def test_texts_keep_their_first_lines() -> None:
    text = "from __future__ import annotations\nfrom m import f\ndef test_a():\n    assert f() == 3\n"
    changed = strict(text)
    assert changed.startswith("from __future__") and "_equal_(f(), 3)" in changed
    assert strict("def (") == "def ("


def test_classes_with_an_equality_are_found() -> None:
    texts = [
        "class A:\n    def __eq__(self, o): return 1\nclass B:\n    x = 1\n",
        "class C:\n    __eq__ = None\n    class D:\n        pass\n",
        "class E(:\n    __eq__\n",
        "class F: pass",
    ]
    assert with_equality(texts) == {"A", "C", "E"}
