"""Sharpened and really trained policies, read twice: `python -m bench.sharpening letters|math FOLDER [seeds]`.

Sharpened: a policy's last norm times 2 or 3, which scales its logits and trains nothing. Trained: the task's starting
recipe and one-factor changes of it, each seed a training of its own. Prints one row per policy (finding of the
harness against the base policy, on search) and one per recipe (gate of the judge against the base policy and against
the starting recipe).
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.envs import open_environment
from evotrainer.executors.scores import split_score
from evotrainer.harness import Batch, Harness, HarnessContext
from evotrainer.judge import InterimAnalysis, JudgeConfig, judge
from evotrainer.judge.inputs import JudgeInput
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer

ROOT = Path(__file__).resolve().parents[2]
CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "lr x 0.5": {"lr": 0.5},
    "lr x 2": {"lr": 2.0},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 1.3": {"temperature": 1.3},
    "entropy bonus 0.01": {"entropy_bonus": 0.01},
    "groups of 4": {"group_size": 4},
    "dr_grpo": {"loss": "dr_grpo"},
}
TASKS, ATTEMPTS = 200, 4


@dataclass
class Reading:
    """A policy, read twice on search."""

    name: str
    seed: int
    score: SplitScore
    rollouts: list[Rollout]
    greedy_cpu_s: float
    sampled_cpu_s: float

    def trial(self) -> TrialFinished:
        gate = self.score.model_copy(update={"split": "gate"})
        return TrialFinished(
            trial=f"{self.name}-{self.seed}", branch=self.name, seed=self.seed, status="complete", cpu_s=0, wall_s=0,
            steps=1, scores=(gate,),
        )  # fmt: skip


def read(task: TaskFile, environment: Any, policy: Path, name: str, seed: int) -> Reading:
    """Both readings of a policy, at the task's temperature and greedily."""
    trainer = EmbeddedTrainer()

    def attempts(n: int, greedy: bool) -> tuple[list[Sequence[Rollout]], float]:
        ask = EvalRequest(Identity("bench", name, seed), task.recipe, policy, "search", 1, n, TASKS, greedy)
        began = time.process_time()
        found: list[Sequence[Rollout]] = list(trainer.evaluate(ask, environment, lambda _: None))
        return found, time.process_time() - began

    sampled, cost = attempts(ATTEMPTS, False)
    greedy, second = attempts(1, True)
    score = split_score(sampled, "search", 1, ATTEMPTS, greedy=greedy)
    return Reading(name, seed, score, [r for g in sampled for r in g], second, cost)


def scaled(policy: Path, factor: float, out: Path) -> Path:
    """A copy of a policy whose last norm is multiplied."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(policy, out, dirs_exist_ok=True)
    path = out / "model.safetensors"
    weights = load_file(path)
    (name,) = [k for k in weights if k.endswith("norm.weight") and ".layers." not in k]
    save_file(weights | {name: weights[name] * factor}, path, metadata={"format": "pt"})
    return out


def finding(r: Reading, before: SplitScore) -> str:
    """What the harness says of a policy against another."""
    context = HarnessContext(
        before=before.per_task, greedy=r.score.greedy_per_task, greedy_before=before.greedy_per_task
    )
    report = Harness.default().read(Batch.of(r.rollouts), "", context)
    return next((f.severity for f in report.findings if f.detector == "sharpening"), "-")


def gate(branch: list[Reading], control: list[Reading]) -> str:
    """The judge's sentence on one side against another."""
    ours, theirs = ([r.trial() for r in side] for side in (branch, control))
    given = JudgeInput("branch", "control", ours, theirs, None, JudgeConfig(min_seeds=2))
    v = judge(given, InterimAnalysis(number=1, alpha=0.02))
    said = [g for g in v.gates if g.gate == "sharpening"]
    return f"{v.kind}: {said[0].message}" if said else f"{v.kind}: no second reading"


def factors(recipe: Recipe, change: Mapping[str, Any]) -> Recipe:
    for name, value in change.items():
        recipe = recipe.with_factor(name, recipe.lr * value if name == "lr" else value)
    return recipe


def trained(task: TaskFile, environment: Any, base: Path, folder: Path, name: str, seed: int) -> Path:
    """The policy of a training, from the folder where it was trained before."""
    work = folder / f"{name.replace(' ', '_')}-{seed}"
    if not (work / "done").exists():
        ask = TrainRequest(Identity("bench", name, seed), factors(task.recipe, CHANGES[name]), base, work)
        EmbeddedTrainer().train(ask, environment, lambda _: None, lambda _: None)
        (work / "done").touch()
    return work / "policy"


def rows(domain: str, folder: Path, seeds: int, names: list[str]) -> Iterator[list[str]]:
    task, base = prepared(domain, folder)
    environment = open_environment(task.environment)
    before = [read(task, environment, base, "base", s) for s in range(1, seeds + 1)]
    policies = {"base": [base] * seeds}
    for name in names:
        policies[name] = [trained(task, environment, base, folder, name, s) for s in range(1, seeds + 1)]
    own = {name: [read(task, environment, p, name, s) for s, p in enumerate(ps, 1)] for name, ps in policies.items()}
    for name in names:
        for r in own[name]:
            yield row(name, r, before[r.seed - 1], finding(r, before[r.seed - 1].score))
        yield [f"{name}, judge", "", "", gate(own[name], before)]
        if name != "start" and "start" in own:
            yield [f"{name} against start, judge", "", "", gate(own[name], own["start"])]
    for name in ("base", "start"):
        for x in (2.0, 3.0):
            if name not in own:
                continue
            sharp = [
                read(task, environment, scaled(p, x, folder / f"{name}-x{x:g}-{s}"), f"{name} x {x:g}", s)
                for s, p in enumerate(policies[name], 1)
            ]
            for r in sharp:
                yield row(f"{name} x {x:g}", r, own[name][r.seed - 1], finding(r, own[name][r.seed - 1].score))
            yield [f"{name} x {x:g}, judge", "", "", gate(sharp, own[name])]
    cost = [(r.greedy_cpu_s, r.sampled_cpu_s) for rs in own.values() for r in rs]
    g, s = (sum(x) / len(cost) for x in zip(*cost, strict=True))
    yield [f"CPU-s of a reading of {TASKS} tasks", f"sampled {s:.2f}", f"greedy {g:.2f}", ""]


def row(name: str, r: Reading, before: Reading, said: str) -> list[str]:
    def moved(a: float | None, b: float | None) -> str:
        return f"{100 * (b or 0):.1f} -> {100 * (a or 0):.1f}"

    both = moved(r.score.score, before.score.score), moved(r.score.greedy, before.score.greedy)
    return [f"{name}, seed {r.seed}", *both, said]


def prepared(domain: str, folder: Path) -> tuple[TaskFile, Path]:
    """The task, and its base policy, made where it is missing."""
    if domain == "math":
        task = load_task(ROOT / "tasks" / "math.toml", ["recipe.steps=20"])
        found = resolve_base(task.policy.base)
        assert found is not None
        return task, found
    from evotrainer.cli.base import base
    from evotrainer.cli.init import init

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "letters" / "task.toml").exists():
        init(folder / "letters")
        base(folder / "letters" / "task.toml", ["policy.warm_start.steps=120"], out=folder / "base")
    return load_task(folder / "letters" / "task.toml", ["recipe.rewards={sorted_word=1.0}"]), folder / "base"


def main(domain: str, folder: Path, seeds: int, names: list[str]) -> None:
    found = list(rows(domain, folder, seeds, names))
    (folder / f"{domain}.json").write_text(json.dumps(found, indent=1))
    print(f"| {domain} | sampled | greedy | finding |\n|---|---|---|---|")
    for r in found:
        print("| " + " | ".join(r) + " |")


if __name__ == "__main__":
    chosen = sys.argv[4].split(",") if len(sys.argv) > 4 else list(CHANGES)
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3, chosen)
