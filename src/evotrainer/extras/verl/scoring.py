"""Grading inside verl's environment: the task file's environment, the recipe's weights and length rules.

Used by the plug-ins; needs neither verl nor torch, so that the same code is tested here. Every graded rollout is
written to the trial's `rollouts/` with its turns and all reward components, which verl's own dumps leave out.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evotrainer.algorithm.rewards import rewards_of, unpaid
from evotrainer.envs.base import Environment, EnvironmentWithSlots, Episode, Score, Task
from evotrainer.errors import FaultsError, MissingDependencyError, TaskSetError
from evotrainer.extras.verl.training import VerlTraining
from evotrainer.records.rollout import Finish, no_reward

ATTEMPTS = 3
"""Gradings of one completion before a fault of the infrastructure is accepted."""

TASK_SET = "task_set"
"""Kind of fault of a reward function that raises: not worth another attempt."""


@dataclass(frozen=True, slots=True)
class GradedRollout:
    """A graded rollout."""

    reward: float
    score: Score
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a rollout comes from in verl's terms: the uid of its group, its place there."""

    group: str
    k: int
    step: int


class ProcessGrader:
    """One for a process; calls are serialised, environments serve one at a time."""

    def __init__(self, training: VerlTraining) -> None:
        self.training, self.recipe = training, training.recipe
        self._lock = threading.Lock()
        self._env: Environment | None = None
        self._tasks: dict[str, Task] = {}

    def environment(self) -> Environment:
        """The task file's environment, opened when it is first needed."""
        if self._env is None:
            from evotrainer.envs import open_environment

            t = self.training
            self._env = open_environment(t.environment, accept_tier_e=t.accept_tier_e)
            if isinstance(self._env, EnvironmentWithSlots):
                self._env.use_scaffold(t.recipe.scaffold)
        return self._env

    def task(self, name: str) -> Task:
        """The train task of this id; TaskSetError where the environment no longer has it."""
        if not self._tasks:
            self._tasks = {t.id: t for t in self.environment().tasks("train")}
        try:
            return self._tasks[name]
        except KeyError:
            raise TaskSetError(
                f"the environment has no train task {name!r}; its data changed since the training began"
            ) from None

    def grade(self, name: str, text: str, ids: Sequence[int], finish: Finish, origin: Origin) -> GradedRollout:
        """Reward of a single-turn completion. FaultsError where the infrastructure failed every time."""
        with self._lock:
            task = self.task(name)
            for _ in range(ATTEMPTS):
                episode = self.environment().reset(task, self.recipe.knobs)
                self.environment().step([episode], [text], [finish])
                score = self._score(episode)
                if score.error_kind in (None, TASK_SET):
                    break
            return self._graded(episode, score, ids, finish, origin)

    def begin(self, name: str) -> Episode:
        """A fresh episode of a task."""
        with self._lock:
            return self.environment().reset(self.task(name), self.recipe.knobs)

    def step(self, episode: Episode, text: str, finish: Finish) -> list[str]:
        """One action; the texts that the environment answers."""
        with self._lock:
            before = len(episode.turns)
            self.environment().step([episode], [text], [finish])
            return [t.text for t in episode.turns[before:] if t.role != "assistant"]

    def end(self, episode: Episode, ids: Sequence[int], finish: Finish, origin: Origin) -> GradedRollout:
        """Reward of a finished episode of several turns. FaultsError where the infrastructure failed."""
        with self._lock:
            if finish != "stop":
                episode.finish = finish
            episode.done = True
            return self._graded(episode, self._score(episode), ids, finish, origin)

    def _score(self, episode: Episode) -> Score:
        """The environment's score; a reward function that raises is the task set's fault, and no score either."""
        try:
            (score,) = self.environment().score([episode])
        except (TaskSetError, MissingDependencyError) as e:
            return Score({}, "unknown", str(e), TASK_SET)
        wrong = {c: v for c, v in score.components.items() if no_reward(v)}
        for name, value in wrong.items():
            why = f"reward function {name!r} gave {value} on task {episode.task.id}; {no_reward(value)}"
            return Score({}, "unknown", why, TASK_SET)
        return score

    def _graded(
        self, episode: Episode, score: Score, ids: Sequence[int], finish: Finish, origin: Origin
    ) -> GradedRollout:
        (reward,) = rewards_of(self.recipe, [score.components], [ids])
        fault = score.error_kind is not None
        row: dict[str, Any] = {
            "group": origin.group,
            "k": origin.k,
            "step": origin.step,
            "task": episode.task.id,
            "turns": [{"role": t.role, "text": t.text} for t in episode.turns],
            "reward": None if fault else reward,
            "components": dict(score.components),
            "outcome": score.outcome,
            "finish": "error" if fault else (finish if finish != "stop" else episode.finish),
            "tokens": len(ids),
            "error": score.error,
            "error_kind": score.error_kind,
            "detail": dict(score.detail),
        }
        self._write(origin, row)
        if score.error_kind == TASK_SET:
            raise TaskSetError(str(score.error))
        if fault:
            raise FaultsError(
                f"task {episode.task.id}: grading failed for a reason of the infrastructure ({score.error_kind}: "
                f"{score.error}); the rollout is left out, not paid 0"
            )
        return GradedRollout(reward, score, tuple(unpaid(self.recipe, score.components)))

    def _write(self, origin: Origin, row: Mapping[str, Any]) -> None:
        """Append to this process's file of the step: one write call a line, so that lines stay whole."""
        folder = self.training.rollouts
        folder.mkdir(exist_ok=True)
        path = folder / f"{origin.step}-{socket.gethostname()}-{os.getpid()}.jsonl"
        line = json.dumps(row, ensure_ascii=False, default=str) + "\n"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
