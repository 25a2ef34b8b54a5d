"""Repository tasks in memory: episodes per second of recorded action sequences, and what a turn of each tool costs.

python -m bench.envs.swe_memory        # prints the tables of results.md; --episodes N, --sets standard

CPU-seconds of this process, the sandbox's zygotes and its programs together. Every episode has a repository of its own,
so that nothing is remembered from another one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence

from bench.sandbox.__main__ import zygote_cpu
from evotrainer.envs.swe import tools
from evotrainer.envs.swe.demos import SweTeacher, gold_edit, scripts
from evotrainer.envs.swe.env import SweConfig
from evotrainer.envs.swe.generate import repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.sandbox import Program, RunResult, Sandbox

EPISODES = 512
BATCH = 128
SETS = {
    "standard": SweConfig(),
    "long": SweConfig(modules=4, functions=3, steps=(2, 3), indirect=0.5),
}


class Meter:
    """A sandbox that counts the CPU-seconds of its programs and its zygotes."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.tier, self.report = box.tier, box.report
        self.programs_s = 0.0

    def run(self, programs: Sequence[Program]) -> list[RunResult]:
        out = self.box.run(programs)
        self.programs_s += sum(r.cpu_s for r in out)
        return out

    def close(self) -> None:
        """Whoever opened the sandbox closes it."""

    def total(self) -> float:
        """CPU-seconds of this process, the zygotes and all programs."""
        return time.process_time() + zygote_cpu(self.box) + self.programs_s


def measured(box: Sandbox, work: Callable[[MemoryWorld], object]) -> tuple[float, float, int]:
    """(CPU-seconds, wall seconds, programs run) of work on a fresh world."""
    meter = Meter(box)
    world = MemoryWorld(lambda: meter)  # type: ignore[arg-type, return-value]
    before, began = meter.total(), time.perf_counter()
    work(world)
    return meter.total() - before, time.perf_counter() - began, world.ran


def episodes(box: Sandbox, config: SweConfig, count: int) -> None:
    rng = random.Random(1)
    played = scripts(rng, config.plan, SweTeacher(backport=0.0), count)

    def play(world: MemoryWorld) -> None:
        for at in range(0, count, BATCH):
            part = played[at : at + BATCH]
            handles = [world.open(s.repo, s.knobs) for s in part]
            for turn in range(max(len(s.actions) for s in part)):
                going = [i for i, s in enumerate(part) if turn < len(s.actions)]
                world.act([handles[i] for i in going], [tools.parse(part[i].actions[turn]) for i in going])
            world.grade(handles)

    total, wall, ran = measured(box, play)
    turns = sum(len(s.actions) for s in played)
    print(
        f"| {count} | {turns / count:.1f} | {ran} | {total:.2f} | {1000 * total / count:.2f} "
        f"| {60 * count / total:,.0f} | {60 * count / wall:,.0f} |"
    )


def per_tool(box: Sandbox, config: SweConfig) -> None:
    """CPU-ms of one turn of each tool, in batches."""
    rng = random.Random(2)
    repos = [repositories(rng, "train", config.plan) for _ in range(BATCH)]

    def actions(name: str) -> Sequence[str]:
        first = [min(r.files) for r in repos]
        texts = {
            "cat": [f"cat {p}" for p in first],
            "grep": [f"grep {r.tags['function']}" for r in repos],
            "edit": [gold_edit(r) for r in repos],
            "write": [f"write {p}\nx = 1" for p in first],
            "git show": ["git show HEAD~0"] * BATCH,
        }
        return texts.get(name, [name] * BATCH)

    names = ("ls", "cat", "grep", "edit", "write", "git log", "git show", "git diff", "git status", "submit")
    world = MemoryWorld(lambda: box)
    for name in names:
        handles = [world.open(r, {}) for r in repos]
        parsed = [tools.parse(t) for t in actions(name)]
        began = time.process_time()
        world.act(handles, parsed)
        print(f"| `{name}` | {1000 * (time.process_time() - began) / BATCH:.3f} |")
    began = time.process_time()
    for r in repos:
        world.open(r, {})
    print(f"| open | {1000 * (time.process_time() - began) / BATCH:.3f} |")

    def fresh(world: MemoryWorld) -> None:
        world.act([world.open(r, {}) for r in repos], [tools.parse("test")] * BATCH)

    def again(world: MemoryWorld) -> None:
        for _ in range(11):
            fresh(world)

    once, _, _ = measured(box, fresh)
    more, _, _ = measured(box, again)
    print(f"| `test`, new content (its hidden tests run with it) | {1000 * once / BATCH:.3f} |")
    print(f"| `test`, content seen before | {1000 * max(0.0, more - once) / (10 * BATCH):.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What repository tasks in memory cost: episodes, and one turn of each tool."
    )
    parser.add_argument(
        "--episodes", type=int, default=EPISODES, help="recorded action sequences per set (default: 512)"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    asked = parser.parse_args()
    with Sandbox.open() as box:
        box.run([])
        print(f"tier {box.tier}")
        for name in asked.sets:
            config = SETS[name]
            print(f"\n{name}: {config.modules} modules of {config.functions} functions\n")
            print(
                "| episodes | turns each | programs run | CPU-s | CPU-ms per episode | per CPU-minute | "
                "per minute, wall |"
            )
            print("|---|---|---|---|---|---|---|")
            episodes(box, config, asked.episodes)
            print("\n| one turn | CPU-ms |\n|---|---|")
            per_tool(box, config)


if __name__ == "__main__":
    main()
