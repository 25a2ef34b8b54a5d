"""Rollouts of a command that still trains: read as they grow, so that whoever watches the run sees them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evotrainer.errors import EvoTrainerError
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.base import RolloutSink, TrainerEnvironment, TrainRequest
from evotrainer.trainers.command import outputs
from evotrainer.trainers.command.options import CommandOptions
from evotrainer.trainers.command.request import TaskLine

EVERY_S, SHARE = 5.0, 20
"""Read anew at most every so many seconds, and so many times what the last reading took."""
Steps = dict[int, list[list[Rollout]]]


class RolloutReading:
    """What one training wrote: every group reaches the sink once, graded once."""

    def __init__(
        self,
        out: Path,
        options: CommandOptions,
        request: TrainRequest,
        environment: TrainerEnvironment,
        lines: Mapping[str, TaskLine],
        sink: RolloutSink,
    ) -> None:
        self.out, self.options, self.request, self.environment = out, options, request, environment
        self.lines, self.sink = lines, sink
        self.tasks: dict[str, Any] = {str(t.id): t for t in environment.tasks("train")}
        self._graded: dict[str, Rollout] = {}
        self._given: set[str] = set()
        self._next = time.monotonic() + EVERY_S

    def look(self) -> None:
        """Give the steps that are whole: a later one has begun. What cannot be read yet is read again.

        Nothing where steps may be numbered by updates (`updates_per_step`): only the end tells which is which.
        """
        r = self.request.recipe
        if not self.options.rollouts or r.updates_per_step > 1 or time.monotonic() < self._next:
            return
        began = time.monotonic()
        with contextlib.suppress(EvoTrainerError, OSError, ValueError):
            read = outputs.rollouts_in(self.out, self.options)
            found = outputs.numbered([x for x in read if isinstance(x, Rollout)])
            last = max((x.step for x in found), default=0)
            if last <= r.steps:
                for groups in self._labelled([x for x in found if x.step < last]).values():
                    self.give(groups)
        now = time.monotonic()
        self._next = now + max(EVERY_S, SHARE * (now - began))

    def all(self, name: str) -> Steps:
        """Everything of a command that ended, by step; FaultsError where nothing can be read."""
        return self._labelled(outputs.read_rollouts(self.out, self.options, name))

    def give(self, groups: list[list[Rollout]]) -> None:
        """To the sink, what it did not get yet."""
        if fresh := [g for g in groups if not {r.id for r in g} <= self._given]:
            self.sink(fresh)
            self._given |= {r.id for g in fresh for r in g}

    def _labelled(self, found: list[Rollout]) -> Steps:
        steps = outputs.labelled(found, self.request, self.environment, self.lines)
        if not self.options.grade:
            return steps
        new = [g for groups in steps.values() for g in groups if not {r.id for r in g} <= self._graded.keys()]
        for group in outputs.graded(new, self.environment, self.tasks, self.request.recipe.knobs):
            self._graded |= {r.id: r for r in group}
        return {s: [[self._graded[r.id] for r in g] for g in groups] for s, groups in steps.items()}
