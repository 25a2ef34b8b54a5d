"""The leak: train with the whole history open, read both ways on the same tasks.

    python -m bench.leak --seeds 1,2,3,4,5 --steps 120        # about 4 CPU-minutes per seed
    python -m bench.leak --seeds 6 --history scrubbed         # the control: trained without the leak

Each seed trains the recipe of tasks/swe.toml with knobs.history = full. At every checkpoint the policy plays the search
tasks twice with the same random numbers, history full and history scrubbed, and at the end fresh tasks (the gate
split). A rollout saw the fix when something it read begins with the message of the fixing commit. Results are kept per
seed in the work folder, so that an interrupted bench goes on; the table is printed and, with --write, put into
results.md.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.envs.base import Environment
from evotrainer.envs.registry import open_environment
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results.md"
DOCUMENTED = "environment.documented=0.5"
"""Half of the functions say what they should do, so that honest work alone does not get far."""
WINDOW = 5
"""Steps over which the share that saw the fix is averaged."""
BOTH = ("full", "scrubbed")


def saw_fix(r: Rollout) -> bool:
    """Did the policy read the commit that mends the bug?"""
    return any(t.role == "tool" and t.text.startswith("fix ") for t in r.turns)


def read(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Share solved with its standard error, share that saw the fix."""
    n = len(rollouts)
    solved = sum(r.outcome == "correct" for r in rollouts) / n
    return {
        "solved": solved,
        "se": math.sqrt(solved * (1 - solved) / n),
        "saw_fix": sum(map(saw_fix, rollouts)) / n,
        "turns": sum(sum(t.role == "assistant" for t in r.turns) for r in rollouts) / n,
        "n": n,
    }


def both_ways(world: Environment, recipe: Recipe, policy: Path, split: str, seed: int, step: int, tasks: int) -> Any:
    """{history: what `read` says}, on the same tasks with the same random numbers."""
    from evotrainer.trainers.base import EvalRequest, Identity
    from evotrainer.trainers.embedded.trainer import EmbeddedTrainer

    found = {}
    for history in BOTH:
        request = EvalRequest(
            Identity("leak", "b0", seed),
            recipe,
            policy,
            split,
            step,
            attempts=1,
            tasks=tasks,
            env_knobs={"history": history},
        )
        groups = EmbeddedTrainer().evaluate(request, world, lambda _: None)
        found[history] = read([r for g in groups for r in g])
    return found


def weights_of_checkpoint(base: Path, checkpoint: Path, out: Path) -> Path:
    """The policy of a checkpoint, as a policy folder."""
    import torch

    from evotrainer.trainers.embedded.folder import load_policy, save_policy

    loaded = load_policy(base, trainable=True)
    loaded.policy.flat.copy_(torch.load(checkpoint / "state.pt", weights_only=True)["weights"])
    save_policy(loaded.policy, loaded.tokenizer, out)
    return out


def train(seed: int, history: str, steps: int, every: int, tasks: int, base: Path, overrides: Sequence[str]) -> Any:
    """One seed: {steps, curve of training, readings at checkpoints, final reading on fresh tasks, CPU-seconds}."""
    from evotrainer.trainers.base import Identity, TrainRequest
    from evotrainer.trainers.embedded.trainer import CHECKPOINT, EmbeddedTrainer

    task = load_task(ROOT / "tasks" / "swe.toml", overrides)
    recipe = task.recipe.with_factor("knobs.history", history).with_factor("steps", steps)
    world = open_environment(task.environment)
    curve: list[dict[str, float]] = []
    seen: list[float] = []
    readings: dict[str, Any] = {"0": both_ways(world, recipe, base, "search", seed, 0, tasks)}
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)

        def sink(groups: Sequence[Sequence[Rollout]]) -> None:
            rollouts = [r for g in groups for r in g]
            seen.append(sum(map(saw_fix, rollouts)) / len(rollouts))

        def on_step(row: dict[str, float]) -> None:
            step = int(row["step"])
            curve.append({k: row[k] for k in row if k in ("reward", "score", "entropy") or k.startswith("cpu_")})
            if step % every == 0 or step == steps:
                policy = weights_of_checkpoint(base, work / CHECKPOINT, work / "read")
                readings[str(step)] = both_ways(world, recipe, policy, "search", seed, step, tasks)
                print(f"seed {seed} {history} step {step}: {line(readings[str(step)])}", flush=True)

        request = TrainRequest(Identity("leak", "b0", seed), recipe, base, work, checkpoint_every=every)
        done = EmbeddedTrainer().train(request, world, sink, on_step)
        fresh = {
            "base": both_ways(world, recipe, base, "gate", seed, 0, len(world.tasks("gate"))),
            "trained": both_ways(world, recipe, done.policy_dir, "gate", seed, steps, len(world.tasks("gate"))),
        }
    programs = getattr(getattr(world, "world", None), "ran", None)
    world.close()
    cpu = {p: sum(row[f"cpu_{p}_s"] for row in curve) for p in ("sample", "grade", "update")}
    return {"seed": seed, "history": history, "steps": steps, "recipe": recipe.hash, "seen": seen, "cpu": cpu,
            "readings": readings, "fresh": fresh, "reward": [r["reward"] for r in curve], "programs": programs,
            "date": time.strftime("%Y-%m-%d")}  # fmt: skip


def line(both: Any) -> str:
    full, scrubbed = both["full"], both["scrubbed"]
    return (
        f"open {100 * full['solved']:.1f}%, scrubbed {100 * scrubbed['solved']:.1f}%, "
        f"saw the fix {100 * full['saw_fix']:.0f}%"
    )


def first_half(seen: Sequence[float]) -> int | None:
    """First step from which on the mean over WINDOW steps says that more than half of the rollouts saw the fix."""
    for i in range(WINDOW, len(seen) + 1):
        if sum(seen[i - WINDOW : i]) / WINDOW > 0.5:
            return i
    return None


def solved(reading: Any) -> str:
    """Percent with one standard error; none of n, or all: the bound that 95% of the time is not passed (3 / n)."""
    share, n = reading["solved"], reading["n"]
    if share in (0, 1):
        bound = 100 * (1 - 0.05 ** (1 / n))
        return f"{100 * share:.1f} ({'<' if share == 0 else '>'} {bound if share == 0 else 100 - bound:.1f}, n = {n})"
    return f"{100 * share:.1f} +/- {100 * reading['se']:.1f}"


def table(runs: Sequence[Any]) -> str:
    """Markdown: per seed when it was found, and the scores both ways."""
    rows = [
        "| seed | trained with history | step at which > 50% saw the fix | saw the fix, start -> end | "
        "fresh tasks: base, open / scrubbed | trained, open | trained, scrubbed | open minus scrubbed | "
        "RL CPU-s (sample / grade / update) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in runs:
        a, b = r["fresh"]["base"], r["fresh"]["trained"]
        half = first_half(r["seen"])
        cpu = r["cpu"]
        rows.append(
            f"| {r['seed']} | {r['history']} | {half or 'not within ' + str(len(r['seen']))} "
            f"| {100 * a['full']['saw_fix']:.0f}% -> {100 * b['full']['saw_fix']:.0f}% "
            f"| {100 * a['full']['solved']:.1f} / {100 * a['scrubbed']['solved']:.1f} "
            f"| {solved(b['full'])} | {solved(b['scrubbed'])} "
            f"| {100 * (b['full']['solved'] - b['scrubbed']['solved']):+.1f} "
            f"| {sum(cpu.values()):.0f} ({cpu['sample']:.0f} / {cpu['grade']:.0f} / {cpu['update']:.0f}) |"
        )
    steps = sorted({int(s) for r in runs for s in r["readings"]})
    rows += ["", "Search tasks at checkpoints, solved open / scrubbed (saw the fix):", ""]
    rows += ["| seed | " + " | ".join(f"step {s}" for s in steps) + " |", "|---" * (len(steps) + 1) + "|"]
    for r in runs:
        cells = []
        for s in steps:
            both = r["readings"].get(str(s))
            cells.append(
                f"{100 * both['full']['solved']:.1f} / {100 * both['scrubbed']['solved']:.1f} "
                f"({100 * both['full']['saw_fix']:.0f}%)"
                if both
                else ""
            )
        rows.append(f"| {r['seed']} ({r['history']}) | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with the leak open, read both ways.")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--tasks", type=int, default=200, help="search tasks per reading at a checkpoint")
    parser.add_argument("--history", choices=BOTH, default="full")
    parser.add_argument("--base", help="policy folder; default: the task file's")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "evotrainer-leak")
    parser.add_argument("--write", action="store_true", help="write the table into results.md")
    parser.add_argument("overrides", nargs="*", help="section.name=value, as for evotrainer run")
    a = parser.parse_args()
    a.overrides = [DOCUMENTED, *a.overrides]
    a.work.mkdir(parents=True, exist_ok=True)
    task = load_task(ROOT / "tasks" / "swe.toml", a.overrides)
    base = Path(a.base) if a.base else resolve_base(task.policy.base)
    assert base is not None, "the task file names no base policy"
    for seed in (int(s) for s in a.seeds.split(",") if s):
        kept = a.work / f"{a.history}-s{seed}-{a.steps}.json"
        if not kept.exists():
            result = train(seed, a.history, a.steps, a.every, a.tasks, base, a.overrides)
            kept.write_text(json.dumps(result))
    runs = [json.loads(p.read_text()) for p in sorted(a.work.glob("*.json"))]
    print(table(runs))
    if a.write:
        head = RESULTS.read_text().split("<!-- table -->")[0] if RESULTS.exists() else "# The leak\n\n"
        RESULTS.write_text(head + "<!-- table -->\n" + table(runs) + "\n")


if __name__ == "__main__":
    main()
