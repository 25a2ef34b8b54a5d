"""Wrong solutions that go for the grader (`tests/data/repository_forgeries.toml`): each passes tests where a runner
trusts what it should not."""

from __future__ import annotations

from tests.tables import table

_DATA = table("repository_forgeries")
RIGHT, WRONG, TESTS, _FRAME = (_DATA["modules"][name] for name in ("RIGHT", "WRONG", "TESTS", "FRAME"))
NAMES = [
    "test_value", "test_lines", "test_list", "test_length", "test_sorted", "test_raises", "test_each", "test_all",
    "test_map", "test_dict", "test_pickle", "test_money", "test_moneys", "test_guard", "test_approx", "test_in",
    "test_between", "test_same", "TestUnit::test_sum",
]  # fmt: skip
"""Tests of `TESTS`."""


def _filled(text: str) -> str:
    for name, part in _DATA["parts"].items():
        text = text.replace(f"<{name}>\n", part)
    return text


OLD: dict[str, str] = {name: _filled(text) for name, text in _DATA["reporter"].items()}
"""These get through the reporter inside the process, where asserts are not strict."""
LOG: dict[str, str] = {name: _filled(text) for name, text in _DATA["log"].items()}
"""These get through a runner that reads the log of pytest."""
FRAMES: dict[str, str] = _DATA["frames"]
"""What a forged frame holds; it is sent in the place of every answer to a call."""


def frames(data: str) -> str:
    """A module whose functions send this frame when they are called."""
    return str(_FRAME).replace("FRAME", data) + str(_DATA["parts"]["ON_CALL"])
