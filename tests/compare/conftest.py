"""The arms of the comparison are agents while these tests run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.compare.agents import register

from evotrainer.agents import AGENTS


@pytest.fixture(autouse=True)
def arms() -> Iterator[None]:
    before = dict(AGENTS)
    register()
    yield
    AGENTS.clear()
    AGENTS.update(before)
