"""What the maths domain costs: items generated and attempts graded per CPU-second.

python -m bench.envs.maths [GSM8K_FOLDER]     # prints the tables of results.md; --help runs nothing
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from evotrainer.envs.base import SPLITS, Episode
from evotrainer.envs.maths import open_math
from evotrainer.envs.maths.demos import MathsTeacher, demonstrate
from evotrainer.envs.maths.env import MathEnv
from evotrainer.envs.maths.holdout import GENERATORS, draw
from evotrainer.envs.reasoning_gym import load

ITEMS = 2000


def seconds(work: Callable[[], object]) -> float:
    """CPU-seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def take(source: Iterable[object], n: int) -> None:
    for _ in zip(source, range(n), strict=False):
        pass


def generation() -> None:
    print("| generator | items per CPU-s | items that training may see, per CPU-s |\n|---|---|---|")
    for name, g in GENERATORS.items():
        take(g.problems(random.Random(0)), 3000)  # tables of the first use
        everything = ITEMS / seconds(lambda g=g: take(g.problems(random.Random(1)), ITEMS))  # type: ignore[misc]
        trained = ITEMS / seconds(lambda n=name: take(draw(n, random.Random(1), training=True), ITEMS))  # type: ignore[misc]
        print(f"| {name} | {everything:,.0f} | {trained:,.0f} |")


def episodes(world: MathEnv, split: str, texts: Sequence[str]) -> list[Episode]:
    """One finished episode for each text, on the split's tasks in turn."""
    tasks = world.tasks(split)
    out = [world.reset(tasks[i % len(tasks)], {}) for i in range(len(texts))]
    world.step(out, list(texts), ["stop"] * len(out))
    return out


def folder(text: str) -> Path:
    """A path that is a folder."""
    if not (path := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder; give the one with GSM8K's test.jsonl")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.envs.maths", description=__doc__.splitlines()[0])
    parser.add_argument("gsm8k", nargs="?", type=folder, metavar="GSM8K_FOLDER", help="also grade GSM8K's gold answers")
    chosen = parser.parse_args(arguments)
    print(f"import of the libraries: {seconds(load):.2f} CPU-s\n")
    generation()
    world = open_math({"name": "math"})
    made = {s: seconds(lambda s=s: world.tasks(s)) for s in ("train", *SPLITS[1:])}  # type: ignore[misc]
    print(
        f"\ntrain split: {made['train']:.2f} CPU-s; the three held-out splits: {sum(made.values()) - made['train']:.2f}"
    )
    print(f"20,000 demonstrations: {seconds(lambda: world.demonstrations(20_000, 0)):.2f} CPU-s")
    print(f"40,000 drills: {seconds(lambda: world.drills(40_000, 0)):.2f} CPU-s")

    print("\n| grading | attempts per CPU-s |\n|---|---|")
    teacher = MathsTeacher()
    for name in GENERATORS:
        rng = random.Random(2)
        tasks = [t for t in world.tasks("train") if t.tags["generator"] == name]
        by_question = {t.data["question"]: t for t in tasks}
        problems = [p for p, _ in zip(draw(name, rng, training=True), range(6000), strict=False)]
        shown = [(by_question[p.question], demonstrate(p, teacher, rng)) for p in problems if p.question in by_question]
        shown = (shown * (ITEMS // max(1, len(shown)) + 1))[:ITEMS]
        batch = [world.reset(t, {}) for t, _ in shown]
        world.step(batch, [c for _, c in shown], ["stop"] * len(batch))
        print(f"| {name} | {len(batch) / seconds(lambda b=batch: world.score(b)):,.0f} |")  # type: ignore[misc]
    if chosen.gsm8k:
        gsm = open_math({"name": "math", "source": str(chosen.gsm8k)})
        golds = [str(t.data["worked"]) for t in gsm.tasks("cert")]
        batch = episodes(gsm, "cert", golds)
        print(f"| GSM8K (math-verify) | {len(batch) / seconds(lambda: gsm.score(batch)):,.0f} |")


if __name__ == "__main__":
    main()
