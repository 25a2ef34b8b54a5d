"""A task with a tool server of its own, as a user of verifiers (v1) writes one."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["AddTaskset"]


class AddTools(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    @vf.tool
    async def add(self, a: int, b: int) -> int:
        """The sum of two numbers."""
        return a + b


class AddData(vf.TaskData):
    answer: str


class AddTask(vf.Task[AddData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        """The sum, and nothing else."""
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def calls(self, trace: vf.Trace) -> float:
        return float(len(trace.tool_messages))


class AddTaskset(vf.Taskset[AddTask, vf.TasksetConfig]):
    @classmethod
    def toolsets(cls, config: vf.TasksetConfig) -> list[vf.Toolset]:
        return [AddTools(vf.SharedToolsetConfig())]

    def load(self) -> Iterator[AddTask]:
        for i in range(40):
            yield AddTask(AddData(prompt=f"{i} + {i + 7}?", answer=str(2 * i + 7)), self.config.task)


if __name__ == "__main__":
    AddTools.run()
