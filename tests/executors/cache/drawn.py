"""Trials that are drawn: the files a worker leaves (policy, rollouts, result), a function of their
specification alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.executors.cache import with_cache
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.scores import split_score
from evotrainer.executors.spec import EvalPlan, Heartbeat, TrialSpec, write_atomic
from evotrainer.records import keys
from evotrainer.records.durable import sha256_tree
from evotrainer.records.events import RunOpened, SplitScore, TaskDraw, TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.rollout import Rollout, Turn, groups_of, rollout_id
from evotrainer.records.store import RolloutStore
from evotrainer.records.weights import weights_sha256


def policy_file(folder: Path, text: str) -> Path:
    """A policy folder whose weights are a text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(text)
    (folder / "config.json").write_text("{}")
    return folder


class DrawnExecutor(LocalExecutor):
    """Computes in no time. `lost`: trials with an attempt lost to the infrastructure; `failing`: trials that fail."""

    def __init__(self, run_dir: Path, lost: Sequence[str] = (), failing: Sequence[str] = ()) -> None:
        super().__init__(run_dir, 1)
        self.lost, self.failing = lost, failing
        self.ran: list[TrialSpec] = []

    def run(
        self,
        specs: Sequence[TrialSpec],
        on_progress: Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None] = lambda _: None,
    ) -> Iterator[TrialFinished]:
        for spec in specs:
            if (done := self.result(spec)) is None:
                self.ran.append(spec)
                on_progress([(spec, None)])
                self.prepare(spec)
                done = self.compute(spec)
            yield done

    def compute(self, spec: TrialSpec) -> TrialFinished:
        folder = self.run_dir / "trials" / spec.trial
        if spec.trial in self.failing:
            return self.record_failure(spec, folder, "crash", "drawn", 1.0, None)
        made = spec.train or not spec.policy_dir
        policy = folder / "policy" if made else self.run_dir / spec.policy_dir
        if made:
            start = weights_sha256(self.run_dir / spec.policy_dir) if spec.policy_dir else "scratch"
            policy_file(policy, f"{spec.recipe.hash if spec.train else spec.warm_start} {spec.seed} {start}")
        weights = (policy / "model.safetensors").read_text()
        parts, scores = [], []
        for kind in ("rollouts", "sealed"):
            with contextlib.closing(RolloutStore(self.run_dir / kind / spec.trial)) as store:
                if spec.train and kind == "rollouts":
                    for step in range(1, spec.recipe.steps + 1):
                        store.append(groups_of(self.draw(spec, weights, "train", step)))
                for plan in spec.evals:
                    if plan.sealed == (kind == "sealed"):
                        rows = self.draw(
                            spec, weights, plan.split, spec.recipe.steps if spec.train else spec.policy_step
                        )
                        rows = rows[: plan.attempts * 2]
                        groups = groups_of(rows)
                        store.append(groups)
                        scores.append(split_score(groups, plan.split, rows[0].step, plan.attempts))
                parts += [(str(p.path.relative_to(self.run_dir)), p.sha256) for p in store.seal()]
        return self.finish(spec, policy, parts, scores)

    def finish(
        self, spec: TrialSpec, policy: Path, parts: list[tuple[str, str]], scores: list[SplitScore]
    ) -> TrialFinished:
        folder = self.run_dir / "trials" / spec.trial
        own = [folder / "spec.json", *([policy] if policy.is_relative_to(folder) else [])]
        finished = TrialFinished(
            trial=spec.trial,
            branch=spec.branch,
            seed=spec.seed,
            status="complete",
            cpu_s=10.0,
            wall_s=20.0,
            steps=spec.recipe.steps if spec.train else 0,
            policy_sha256=weights_sha256(policy) or "",
            policy_path=str(policy.relative_to(self.run_dir)) if policy.is_relative_to(self.run_dir) else str(policy),
            scores=tuple(scores),
            curve=tuple({"step": float(s), "cpu_s": 2.0 * s} for s in range(1, spec.recipe.steps + 1))
            if spec.train
            else (),
            parts=tuple(p for p, _ in parts),
            parts_sha256=tuple(sha for _, sha in parts),
            files={k: v for p in own for k, v in sha256_tree(p, self.run_dir).items()},
            env_knobs={**spec.protocol.knobs, **spec.env_knobs},
        )
        write_atomic(folder / "result.json", finished.model_dump_json())
        return finished

    def draw(self, spec: TrialSpec, weights: str, split: str, step: int) -> list[Rollout]:
        """Eight attempts at each of two tasks; in training each task is drawn twice."""
        policy = f"{spec.branch}/{spec.seed}@{step - 1 if split == 'train' else step}"
        variant = f'#{{"knob": {len(spec.env_knobs)}}}' if spec.env_knobs else ""
        out = []
        for i, k in ((i, k) for i in range(2) for k in range(8)):
            task, draw = f"{split}+{i}", f"+{k // 4}" if split == "train" and k >= 4 else ""
            right = (
                random.Random(f"{weights}/{spec.seed}/{split}/{step}/{i}/{k}/{spec.protocol.temperature}").random()
                < 0.5
            )
            fault = spec.trial in self.lost and split == "search" and i == k == 0
            out.append(
                Rollout(
                    id=rollout_id(spec.run, spec.branch, spec.seed, step, task + variant, k),
                    task=task,
                    turns=(Turn("user", "say"), Turn("assistant", "yes" if right else "no", tokens=1)),
                    reward=None if fault else float(right),
                    components={"right": float(right)},
                    outcome="correct" if right else "incorrect",
                    run=spec.run,
                    branch=spec.branch,
                    policy=policy,
                    split=split,
                    step=step,
                    seed=spec.seed,
                    group=f"{policy}/{task}{variant}{draw}",
                    k=k,
                    error_kind="sandbox" if fault else None,
                )
            )
        return out


class Place:
    """Runs that share a cache, their trials drawn."""

    def __init__(self, folder: Path, task_file: Path, overrides: Sequence[str] = ()) -> None:
        self.folder, self.cache = folder, folder / "cache"
        self.task: TaskFile = load_task(task_file, [f"run.cache={self.cache}", "recipe.steps=2", *overrides])
        self.base = policy_file(folder / "base", "weights")
        self.opened: list[str] = []
        """What a run is told of the cache in its first lines."""
        self.notes: list[str] = []

    def tell(self, line: str) -> None:
        (self.opened if "made by earlier runs" in line else self.notes).append(line)

    def run_dir(self, name: str) -> Path:
        """A run folder whose first event is recorded."""
        at = self.folder / name
        if not at.is_dir():
            at.mkdir()
            opened = RunOpened(run=name, task="t", task_hash="0", version="0", seed=0, agent="a", autonomy="full",
                               budget={}, machine={}, sandbox_tier="", environment={"hash": "1"},
                               base_policy={}, task_sha256="",
                               draw=TaskDraw(mode="fixed", commitment=""))  # fmt: skip
            with contextlib.closing(Ledger.open(at / "ledger.db", create=True)) as ledger:
                ledger.append("run", keys.RUN, opened)
        return at

    def spec(self, run: str, trial: str = "b0-s1", **changes: object) -> TrialSpec:
        """A training, evaluated on search and gate."""
        branch, _, seed = trial.partition("-s")
        told: dict[str, object] = {
            "run": run,
            "trial": trial,
            "branch": branch,
            "seed": int(seed.split("-")[0] or 0),
            "purpose": "branch",
            "train": True,
            "recipe": self.task.recipe,
            "protocol": self.task.recipe,
            "environment": self.task.environment,
            "policy_dir": str(self.base),
            "evals": (EvalPlan(split="search", attempts=4), EvalPlan(split="gate", attempts=4)),
        }
        return TrialSpec.model_validate({**told, **changes})

    def go(self, run: str, *specs: TrialSpec, **more: Sequence[str]) -> tuple[list[TrialFinished], list[str]]:
        """Results of a run's trials, and which were computed."""
        inner = DrawnExecutor(self.run_dir(run), **more)
        executor = with_cache(inner, self.run_dir(run), self.task, self.tell)
        by_trial = {r.trial: r for r in executor.run(specs)}
        return [by_trial[s.trial] for s in specs], [s.trial for s in inner.ran]

    def alone(self, run: str, *specs: TrialSpec) -> list[TrialFinished]:
        """The same without a cache, in a folder of that name elsewhere."""
        at = self.folder / "alone" / run
        at.mkdir(parents=True)
        return list(DrawnExecutor(at).run(specs))

    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("*/*.trial"))
