"""What a grading costs, in CPU time of everything involved: parent, zygote and children.

    python -m bench.sandbox            # prints the tables of results.md

`--load` adds the check that right solutions pass at 1x and 6x oversubscription.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from evotrainer.sandbox import Call, Check, Limits, Program, Sandbox
from evotrainer.sandbox.model import Tier

SCRIPT = """
n = int(input())
numbers = list(map(int, input().split()))
print(sum(x for x in numbers if x % 2 == 0))
"""
STDIN = "6\n3 1 4 1 5 92\n"
FUNCTION = "def total(numbers):\n    return sum(x for x in numbers if x % 2 == 0)\n"
ASSERTS = "def check(candidate):\n" + "".join(
    f"    assert candidate([{i}, 2]) == {i + 2 - i % 2 * i}\n" for i in range(8)
)
SLOW = "import time\nwhile time.process_time() < 0.6: pass\nprint('done')"


@dataclass(frozen=True)
class Cost:
    """CPU-milliseconds per item, by who spent them."""

    parent: float
    zygote: float
    child: float
    wall: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.parent + self.zygote + self.child


def own_cpu() -> float:
    """CPU-seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def zygote_cpu(box: Sandbox) -> float:
    """CPU-seconds of the zygotes themselves, without their children."""
    pids = [slot.zygote.pid for lane in box._lanes for slot in lane.slots if slot.zygote]
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def measure(box: Sandbox, work: Program | Check, count: int) -> Cost:
    """The cost of one of `count` gradings of the same kind, in one batch."""
    parent, zygote, wall = own_cpu(), zygote_cpu(box), time.monotonic()
    if isinstance(work, Program):
        runs = box.run([work] * count)
        assert all(case.ok for run in runs for case in run.cases)
        child = sum(run.cpu_s for run in runs)
    else:
        checks = box.run_checks([work] * count)
        assert all(check.passed for check in checks)
        child = sum(check.cpu_s for check in checks)
    spent = (own_cpu() - parent, zygote_cpu(box) - zygote, child, time.monotonic() - wall)
    return Cost(*(1000 * part / count for part in spent))


def best(box: Sandbox, work: Program | Check, count: int, repeats: int) -> tuple[Cost, float]:
    """Cheapest and median total of several batches: neighbours on the machine only ever add."""
    costs = [measure(box, work, count) for _ in range(repeats)]
    return min(costs, key=lambda cost: cost.total), statistics.median(cost.total for cost in costs)


def work_items() -> dict[str, Program | Check]:
    """What is graded."""
    calls = tuple(Call("total", ([1, 2, i],)) for i in range(8))
    return {
        "script, 1 case": Program(SCRIPT, stdins=(STDIN,)),
        "script, 8 cases": Program(SCRIPT, stdins=(STDIN,) * 8),
        "function, 1 call": Program(FUNCTION, calls=calls[:1]),
        "function, 8 calls": Program(FUNCTION, calls=calls),
        "check, 8 asserts (two processes)": Check(FUNCTION, "total", ASSERTS),
    }


def throughput(count: int, repeats: int, tiers: list[Tier]) -> None:
    """Gradings per second of two cores, by CPU time."""
    print("| tier | graded | parent | zygote | child | total CPU-ms | median | per second of two cores |")
    print("|---|---|---|---|---|---|---|---|")
    for tier in tiers:
        with Sandbox.open(tier=tier) as box:
            for name, work in work_items().items():
                measure(box, work, 20)
                cost, median = best(box, work, count, repeats)
                parts = f"{cost.parent:.2f} | {cost.zygote:.2f} | {cost.child:.2f}"
                rate = 2000 / cost.total
                print(f"| {box.tier} | {name} | {parts} | {cost.total:.2f} | {median:.2f} | {rate:.0f} |", flush=True)


def opening() -> None:
    """CPU-seconds of opening with all probes: this process, the zygote, and every probe's program."""
    start, wall = own_cpu(), time.monotonic()
    with Sandbox.open() as box:
        parent, elapsed = own_cpu() - start, time.monotonic() - wall
        zygote = zygote_cpu(box)
        ticks = 0
        for slot in box._lanes[0].slots:
            if slot.zygote:
                fields = Path(f"/proc/{slot.zygote.pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[13]) + int(fields[14])
        probes = ticks / os.sysconf("SC_CLK_TCK")
    total = parent + zygote + probes
    print(
        f"\nopen: {total:.2f} CPU-s ({elapsed:.2f} s wall): parent {parent:.2f}, zygote {zygote:.2f}, "
        f"probes {probes:.2f}"
    )


def load_check(copies: int) -> None:
    """Right solutions of 0.6 CPU-s under a 2 s CPU limit, `copies` times as many at once as there are cores."""
    cores = len(os.sched_getaffinity(0))
    with Sandbox.open(workers=copies * cores) as box:
        programs = [Program(SLOW, stdins=("",), limits=Limits(cpu_s=2.0))] * (copies * cores)
        start = time.monotonic()
        passed = sum(run.cases[0].stdout == "done\n" for run in box.run(programs))
    print(f"load {copies}x: {passed} of {len(programs)} right solutions pass ({time.monotonic() - start:.1f} s wall)")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="gradings per batch")
    parser.add_argument("--repeats", type=int, default=5, help="batches; the cheapest counts")
    parser.add_argument("--load", action="store_true", help="also check verdicts at 1x and 6x load")
    parser.add_argument("--tiers", default="A", help="tiers to measure, as in ABCD")
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, commit {commit.stdout.strip()}\n")
    throughput(options.count, options.repeats, list(options.tiers))
    opening()
    if options.load:
        load_check(1)
        load_check(6)


if __name__ == "__main__":
    main()
