"""Python detectors of agents and users, run over rollouts in the sandbox."""

from __future__ import annotations

import time
from contextlib import closing

from evotrainer.errors import ConfigError
from evotrainer.records.untrusted_values import in_words
from evotrainer.sandbox.model import Call, Limits
from evotrainer.sandbox.reward_runner import RewardRunner


class SandboxRunner:
    """Runs a Python detector's source in the sandbox, opened when it is first needed and closed after each use."""

    BLOCK = 100
    """Rollouts per call."""
    CPU_S = 2.0
    """CPU-seconds per call."""

    def __init__(self, accept_tier_e: bool = False) -> None:
        self.accept_tier_e = accept_tier_e
        self.cpu_s = 0.0

    def spent(self) -> float:
        """CPU-seconds of this process and of the functions that ran in the sandbox."""
        return time.process_time() + self.cpu_s

    def __call__(self, source: str, rollouts: list[dict[str, object]]) -> list[object]:
        """Answers of `flag`, block by block; ConfigError with the cause where one fails,
        SandboxError where the machine did."""
        out: list[object] = []
        blocks = [rollouts[i : i + self.BLOCK] for i in range(0, len(rollouts), self.BLOCK)]
        before = time.process_time()
        with closing(RewardRunner(self.accept_tier_e)) as runner:
            runner.open()
            opened = time.process_time() - before
            limits = Limits(cpu_s=self.CPU_S, memory_mb=512, output_kb=256)
            answers = runner.called(source, [Call("flag", (b,)) for b in blocks], limits, "detector")
        self.cpu_s += answers.cpu_s
        for i, (block, value) in enumerate(zip(blocks, answers.values, strict=True)):
            if i in answers.failed:
                raise ConfigError(f"flag(rollouts) ended with {answers.failed[i]} on {len(block)} rollouts; mend it")
            if type(value) is not list or len(value) != len(block):
                raise ConfigError(f"flag must return one bool per rollout of {len(block)}, not {in_words(value)}")
            out += value
        self.cpu_s -= opened  # the machinery's, not the detector's
        return out
