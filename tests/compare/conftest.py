"""The arms of the comparison are agents in these tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def with_arms(arms: None) -> None:
    """See `arms`."""
