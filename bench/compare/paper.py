"""Trials on paper: scores are drawn instead of trained,
so that the decisions of a whole run can be tested in a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.executors.spec import EvalPlan, Heartbeat, TrialSpec
from evotrainer.records.events import SplitScore, TrialFinished

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.records.findings import HealthReport
    from evotrainer.records.rollout import Rollout


class PaperExecutor:
    """An executor that trains nothing: `api.start(task, out, executor=PaperExecutor(finish))`.

    `finish(spec)` says what a trial would have come to (`draw_result` draws one); `rollouts(spec)` what it would have
    stored, of splits `train` and `search`. Loop, judge, agents, harness, ledger and stores are the real ones.
    """

    def __init__(
        self,
        finish: Callable[[TrialSpec], TrialFinished],
        rollouts: Callable[[TrialSpec], Sequence[Rollout]] = lambda spec: (),
    ) -> None:
        self.finish = finish
        self.rollouts = rollouts
        self.folder = Path()
        self.ran: list[TrialSpec] = []
        """Specifications of the trials that ran, in order, over all runs it served."""

    def __call__(self, folder: Path, task: TaskFile) -> PaperExecutor:
        """Serve the run in `folder`, as an executor factory does."""
        self.folder = folder
        return self

    def run(
        self,
        specs: Sequence[TrialSpec],
        on_progress: Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None] = lambda _: None,
    ) -> Iterator[TrialFinished]:
        """Yield a result for each specification, in order, its rollouts stored."""
        for spec in specs:
            self.ran.append(spec)
            result = self.finish(spec)
            self._store(spec)
            on_progress([])
            yield result

    def _store(self, spec: TrialSpec) -> None:
        from evotrainer.records.rollout import groups_of
        from evotrainer.records.store import RolloutStore

        store_dir = self.folder / "rollouts" / spec.trial
        store_dir.mkdir(parents=True, exist_ok=True)  # also where nothing is stored: a complete trial has its folder
        if found := self.rollouts(spec):
            with RolloutStore(store_dir) as store:
                store.append(groups_of(found))
                store.seal()

    def forget(self, trial: str) -> None:
        """Does nothing: no result is kept."""

    def close(self) -> None:
        """Does nothing: it holds no resources."""


def draw_result(
    spec: TrialSpec,
    accuracy: float,
    seed_of: Callable[[EvalPlan], str] = lambda plan: plan.split,
    knobs: Mapping[str, Any] | None = None,
    *,
    steps: int = 12,
    tasks: int = 120,
    attempts: int = 4,
) -> TrialFinished:
    """A complete trial in which each of `attempts` at `tasks` tasks succeeds with probability `accuracy`.

    seed_of: evaluation -> what seeds its draws; knobs: the environment knobs it was evaluated under.
    """
    drawn: dict[str, dict[str, float]] = {}
    for plan in spec.evals:
        rng = random.Random(seed_of(plan))
        drawn[plan.split] = {
            f"{plan.split}-{i}": sum(rng.random() < accuracy for _ in range(attempts)) / attempts for i in range(tasks)
        }
    return paper_result(
        spec, drawn, attempts, steps, policy=f"sha-{spec.branch}-s{spec.seed}", env_knobs=dict(knobs or {})
    )


def paper_result(
    spec: TrialSpec,
    drawn: Mapping[str, Mapping[str, float]],
    attempts: int,
    steps: int,
    *,
    policy: str,
    env_knobs: Mapping[str, Any],
    health: tuple[HealthReport, ...] = (),
) -> TrialFinished:
    """A complete trial of these scores. `drawn`: split -> task -> share of its attempts that succeed.

    Greedy decoding scores as sampling does: a second draw would be a second noise, which reads as sharpening.
    """
    scores = []
    for plan in spec.evals:
        per_task = dict(drawn[plan.split])
        mean = sum(per_task.values()) / len(per_task)
        scores.append(
            SplitScore(
                split=plan.split,
                step=steps,
                score=mean,
                attempts=attempts,
                per_task=per_task,
                temperature=spec.recipe.deploy_temperature,
                greedy=mean if plan.greedy else None,
                greedy_per_task=per_task if plan.greedy else {},
            )
        )
    return TrialFinished(
        trial=spec.trial,
        branch=spec.branch,
        seed=spec.seed,
        status="complete",
        cpu_s=1.0,
        wall_s=1.0,
        steps=steps if spec.train else 0,
        policy_sha256=policy,
        policy_path=f"trials/{spec.trial}/policy",
        scores=tuple(scores),
        health=health,
        env_knobs=dict(env_knobs),
    )
