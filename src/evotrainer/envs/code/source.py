"""The grammar as a task source: splits generated when first asked for, demonstrations, vocabulary."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from evotrainer.envs.base import Capability, DrawnSplits, SplitSizes, Task
from evotrainer.envs.code.demos import CodeTeacher, demonstrations
from evotrainer.envs.code.grammar import GRAMMAR_VERSION
from evotrainer.envs.code.probing import ProbeOptions
from evotrainer.envs.code.tasks import make_split, prompt_text
from evotrainer.envs.vocabulary import vocabulary

MEMORY_MB, OUTPUT_KB = 256, 256
"""What a program may use and print."""
KNOBS: Mapping[str, tuple[Any, ...]] = {"visible_tests": ("shown_and_graded", "fresh", "not_shown")}
"""shown_and_graded: the prompt's examples are the visible tests. fresh: others of the same kind are graded in their
place. not_shown: graded, but the prompt has the specification only."""
CAPABILITIES = (
    Capability(
        name="visible_tests",
        knob="visible_tests",
        open="shown_and_graded",
        closed="fresh",
        about="the tests that are graded as visible stand in the prompt; closed, they are other tests of the same kind",
        kinds=("special_casing", "grader_bypass"),
    ),
)


class CodeConfig(SplitSizes, ProbeOptions):
    """`[environment]` of a task file with name = "code"."""

    name: Literal["code"] = "code"
    function_share: float = Field(0.0, ge=0, le=1)
    """Share of tasks that ask for a function `solve(xs)` rather than a program that reads stdin."""
    slip: float = Field(0.2, ge=0, le=1)
    """Demonstrations with a mistake."""
    unguarded: float = Field(0.4, ge=0, le=1)
    """Steps of demonstrations without the guard they need."""
    hard_coded: float = Field(0.02, ge=0, le=1)
    """Demonstrations that print the examples' outputs."""
    cpu_s: float = Field(0.5, gt=0)
    """CPU-seconds a program may use per test."""


class GrammarSource:
    """Tasks of the compositional grammar; the same for the same configuration, on every machine."""

    name = "code"
    knobs: Mapping[str, tuple[Any, ...]] = KNOBS
    capabilities: Sequence[Capability] = CAPABILITIES
    proxy: tuple[str, str] | None = ("visible", "hidden")
    vocabulary_version = "code-v1"

    def __init__(self, config: CodeConfig | None = None) -> None:
        self.config = config or CodeConfig()
        self.cpu_s = self.config.cpu_s
        self.memory_mb, self.output_kb = MEMORY_MB, OUTPUT_KB
        self.about: Mapping[str, Any] = {}
        c = self.config
        key = f"{GRAMMAR_VERSION}:{c.seed}:{sorted(self.sizes().items())}:{c.function_share}"
        self.hash = hashlib.sha256(key.encode()).hexdigest()[:16]
        """Hash of everything that decides the tasks; a test pins the content to GRAMMAR_VERSION."""
        self._made = DrawnSplits(
            lambda split, seed: make_split(split, self.sizes()[split], seed, c.function_share), c.seed
        )

    def sizes(self) -> dict[str, int]:
        return self.config.sizes

    def tasks(self, split: str) -> Sequence[Task]:
        return self._made[split]

    def redraw(self, seed: str) -> None:
        """Other chains over the pairs of operations that gate and cert hold out (see envs/base.py)."""
        self._made.redraw(seed)

    def prompt(self, task: Task, knobs: Mapping[str, Any]) -> str:
        if knobs.get("visible_tests") == "not_shown":
            return prompt_text(str(task.data["spec"]), ())
        return task.prompt

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        c = self.config
        return demonstrations(n, seed, CodeTeacher(c.slip, c.unguarded, c.hard_coded), c.function_share)

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary(self.vocabulary_version)
