"""Values that were seen to raise where they are shown, stored or compared (`tests/data/hostile_values.toml`)."""

from __future__ import annotations

from tests.tables import table

_DATA: dict[str, dict[str, str]] = table("hostile_values")
VALUES, RAISES, PRINTS = _DATA["values"], _DATA["raises"], _DATA["prints"]
"""Name -> an expression that a program can return, a statement, a script."""
