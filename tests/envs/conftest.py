"""One sandbox for the whole folder: starting and probing it is what costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.source import CodeConfig, GrammarSource
from evotrainer.envs.swe.env import SweConfig, SweEnv
from evotrainer.sandbox import Sandbox


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    with Sandbox.open() as box:
        yield box


@pytest.fixture(scope="session")
def code_env(box: Sandbox) -> CodeEnv:
    """The default code environment."""
    return CodeEnv(GrammarSource(), open_sandbox=lambda: box)


@pytest.fixture(scope="session")
def functions(box: Sandbox) -> CodeEnv:
    """The same grammar, asking for functions."""
    config = CodeConfig(function_share=1.0, train=60, search=5, gate=5, cert=5)
    return CodeEnv(GrammarSource(config), open_sandbox=lambda: box)


@pytest.fixture(scope="session")
def swe(box: Sandbox) -> SweEnv:
    """Repository tasks, small splits."""
    return SweEnv(SweConfig(train=60, search=20, gate=20, cert=20), open_sandbox=lambda: box)
