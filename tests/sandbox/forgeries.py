"""Attacks on the verdict, as data (`tests/data/verdict_forgeries.toml`): wrong solutions to be graded right."""

from __future__ import annotations

from tests.tables import table

TESTS = (((2, 3), 5), ((10, -4), 6), ((7, 8), 15))
SCRIPT_TESTS = (("2 3\n", "5\n"), ("10 -4\n", "6\n"), ("7 8\n", "15\n"))
_DATA: dict[str, dict[str, str]] = table("verdict_forgeries")
SOLUTIONS, SCRIPTS = _DATA["solutions"], _DATA["scripts"]
"""Wrong solutions of `add(a, b)`, and of "read two integers, print their sum"."""
MESSAGES, SCRIPT_MESSAGES = _DATA["messages"], _DATA["script messages"]
"""The same that speak our own protocol (descriptor 4)."""
LOOSE = ("true for one", "a fraction for an integer")
"""Solutions that are right but for the type, which `==` in the tests does not ask for."""
