"""Repository tasks in the real world: the episodes of `bench.envs.swe_memory`, and what a turn of each tool costs.

python -m bench.envs.swe_real        # prints the tables of results.md

CPU-seconds of this process, of git here, and of every process in the shells (start of a shell included where said).
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

from bench.envs.swe_memory import SETS, measured
from evotrainer.envs.swe import tools
from evotrainer.envs.swe.demos import Script, SweTeacher, gold_edit, scripts
from evotrainer.envs.swe.env import SweConfig
from evotrainer.envs.swe.generate import repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.real import RealHandle, RealWorld
from evotrainer.sandbox import Sandbox
from evotrainer.sandbox.shell import EpisodeShell

EPISODES = 128
BATCH = 32
_TICK = os.sysconf("SC_CLK_TCK")


def inside_cpu(shell: EpisodeShell) -> float:
    """CPU-seconds of a shell's process 1 and of every command that it waited for."""
    started = shell._channel.started
    if started is None:
        return 0.0
    pid = started.process.pid
    total = 0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, words[11:15]))
    return total / _TICK


class Meter:
    """CPU-seconds of a world, shells that were started before it apart."""

    def __init__(self, world: RealWorld) -> None:
        self.world = world
        self.shells: list[EpisodeShell] = []

    def total(self) -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = time.process_time() + children.ru_utime + children.ru_stime
        grading = [self.world._grading] if self.world._grading else []
        return own + sum(inside_cpu(s) for s in {*self.shells, *grading})

    def cost(self, work: Callable[[], object]) -> tuple[float, float]:
        """(CPU-seconds, wall seconds)."""
        before, began = self.total(), time.perf_counter()
        work()
        return self.total() - before, time.perf_counter() - began


def warmed(world: RealWorld, repo: object, n: int) -> Meter:
    """A world with `n` idle shells and a grading shell."""
    meter = Meter(world)
    handles = [world.open(repo, {}) for _ in range(n)]  # type: ignore[arg-type]
    meter.shells = [h.shell for h in handles]
    world.grade(handles[:1])
    for h in handles:
        world.close(h)
    return meter


def play(world: RealWorld | MemoryWorld, played: list[Script]) -> None:
    for at in range(0, len(played), BATCH):
        part = played[at : at + BATCH]
        handles = [world.open(s.repo, s.knobs) for s in part]
        for turn in range(max(len(s.actions) for s in part)):
            going = [i for i, s in enumerate(part) if turn < len(s.actions)]
            world.act([handles[i] for i in going], [tools.parse(part[i].actions[turn]) for i in going])  # type: ignore[misc]
        world.grade(handles)  # type: ignore[arg-type]
        for h in handles:
            world.close(h)  # type: ignore[arg-type]


def episodes(config: SweConfig) -> None:
    played = scripts(random.Random(1), config.plan, SweTeacher(backport=0.0), EPISODES)
    world = RealWorld(keep=BATCH)
    meter = warmed(world, played[0].repo, BATCH)
    first, wall = meter.cost(lambda: play(world, played))
    second, _ = meter.cost(lambda: play(world, played))
    world.shutdown()
    with Sandbox.open() as box:
        memory, _, _ = measured(box, lambda w: play(w, played))
    turns = sum(len(s.actions) for s in played) / EPISODES
    print(
        f"| {EPISODES} | {turns:.1f} | {1000 * first / EPISODES:.1f} | {1000 * second / EPISODES:.1f} "
        f"| {EPISODES / second:.1f} | {EPISODES / wall:.1f} | {1000 * memory / EPISODES:.2f} | {second / memory:.0f} |"
    )


def per_tool(config: SweConfig) -> None:
    """CPU-ms of one turn of each tool."""
    rng = random.Random(2)
    repos = [repositories(rng, "train", config.plan) for _ in range(BATCH)]
    world = RealWorld(keep=BATCH)
    began = time.perf_counter()
    meter = warmed(world, repos[0], BATCH)
    start_wall = time.perf_counter() - began
    print(f"| start of a shell (wall) | {1000 * start_wall / BATCH:.0f} |")
    handles: list[RealHandle] = []

    def opened() -> None:
        for h in handles:
            world.close(h)
        handles[:] = [world.open(r, {}) for r in repos]

    cost, _ = meter.cost(opened)
    print(f"| build with git, check, open | {1000 * cost / BATCH:.1f} |")
    cost, _ = meter.cost(lambda: [opened() for _ in range(5)])
    print(f"| open (built before) | {1000 * cost / 5 / BATCH:.2f} |")
    for name in (
        "ls",
        "cat",
        "grep",
        "write",
        "edit",
        "git log",
        "git show",
        "git diff",
        "git status",
        "test",
        "submit",
    ):
        texts = {
            "cat": [f"cat {min(r.files)}" for r in repos],
            "grep": [f"grep {r.tags['function']}" for r in repos],
            "edit": [gold_edit(r) for r in repos],
            "write": ["write notes.txt\nx" for _ in repos],
            "git show": ["git show HEAD~0"] * BATCH,
        }.get(name, [name] * BATCH)
        parsed = [tools.parse(t) for t in texts]
        cost, _ = meter.cost(lambda parsed=parsed: [world.act(handles, parsed) for _ in range(5)])  # type: ignore[misc]
        print(f"| `{name}` | {1000 * cost / 5 / BATCH:.2f} |")
    cost, _ = meter.cost(lambda: world.grade(handles))
    print(f"| grade | {1000 * cost / BATCH:.1f} |")
    world.shutdown()


def main() -> None:
    argparse.ArgumentParser(description="What repository tasks with real git cost (minutes; no options).").parse_args()
    world = RealWorld()
    print(f"tier {world.sandbox.tier}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    world.shutdown()
    for name, config in SETS.items():
        print(f"\n{name}: {config.modules} modules of {config.functions} functions\n")
        print(
            "| episodes | turns each | CPU-ms each, first time | CPU-ms, repository built before | per CPU-second "
            "| per second, wall (first) | in memory, CPU-ms | ratio |"
        )
        print("|---|---|---|---|---|---|---|---|")
        episodes(config)
        print("\n| one turn | CPU-ms |\n|---|---|")
        per_tool(config)


if __name__ == "__main__":
    main()
