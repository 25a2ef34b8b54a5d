"""A game of several turns, as a user of verifiers (v1) writes one: guess a number, told higher or lower."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData]):
    @vf.reward(weight=0.5)
    async def digits(self, trace: vf.Trace) -> float:
        """Says a number and nothing else."""
        return float(trace.last_reply.isdigit())


class GuessConfig(vf.TasksetConfig):
    words: int = 60
    trouble: str = ""


class GuessTaskset(vf.Taskset[GuessTask, GuessConfig]):
    def load(self) -> Iterator[GuessTask]:
        rng = random.Random(0)
        for i in range(self.config.words):
            data = GuessData(prompt=f"Game {i}: a number from 1 to 9?", number=rng.randint(1, 9))
            yield GuessTask(data, self.config.task)


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task: GuessTask, agents: vf.Agents) -> None:
        trouble, guesses, won = self.config.taskset.trouble, 0, False
        if trouble == "setup":
            raise ConnectionError("no connection to the games' server")
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated and guesses < 4 and not won:
                guesses += 1
                said = segment.last_reply
                if said == "crash":
                    raise RuntimeError("the game fell over")
                if said == "die":
                    os._exit(0)
                if said == "hang":
                    time.sleep(600)
                if said == "wait":
                    await asyncio.sleep(600)
                won = said == str(task.data.number)
                if not won:
                    higher = said.isdigit() and int(said) < task.data.number
                    segment = await interaction.turn("higher" if higher else "lower")
        trace = interaction.trace
        trace.record_reward("won", float(won), 1.0)
        trace.record_metric("guesses", guesses)
        if said == "bonus":
            trace.record_reward("bonus", 1.0)
