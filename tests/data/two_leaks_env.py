"""The letters of tests/data/leaky_env.py with a second leak beside the key: a door."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from evotrainer.envs.base import Capability

SPEC = importlib.util.spec_from_file_location("leaky_env", Path(__file__).parent / "leaky_env.py")
assert SPEC and SPEC.loader
LEAKY = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(LEAKY)


class TwoLeaksEnv(LEAKY.LeakyEnv):
    """Open at the start: both."""

    def __init__(self) -> None:
        super().__init__()
        self.knobs = {**self.knobs, "door": ("open", "shut")}
        door = Capability(name="door", knob="door", open="open", closed="shut", about="a second way to the answer")
        self.capabilities = (*self.capabilities, door)


def environment() -> TwoLeaksEnv:
    return TwoLeaksEnv()
