"""Kit for training scripts that the command trainer drives."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.envs.base import Environment
    from evotrainer.records.rollout import Rollout
    from evotrainer.trainers.base import Trainer
    from evotrainer.trainers.command.options import CommandOptions


def check_trainer_command(
    task: Path | str,
    work: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    repeatable: bool = True,
    tasks: int = 4,
) -> None:
    """Trainings of a task file's own script by its starting recipe, each in a new folder of `work` (default: one that
    is removed): five, and three more where it declares a checkpoint.

    What it wrote is read: rollouts of each step, a curve, a policy that can be evaluated on `tasks` search tasks.
    Another seed gives other weights, the same seed the same ones (`repeatable`), another start policy others, and an
    empty start policy's folder no training that ends well. Where it declares a checkpoint, a training that is killed
    (SIGKILL) after its first one goes on from it, to the same rollouts and weights, and one that is given another
    seed's checkpoint rests on that. Use few steps: `overrides=["recipe.steps=6"]`. AssertionError says what is wrong.
    """
    if work is None:
        with tempfile.TemporaryDirectory(prefix="evotrainer-kit-") as name:
            check_trainer_command(task, Path(name), overrides, repeatable=repeatable, tasks=tasks)
        return
    from evotrainer.config.load import load_task
    from evotrainer.envs import open_environment
    from evotrainer.trainers import check_recipes, get_trainer

    t = load_task(task, list(overrides))
    assert t.trainer.name == "command", f'{task}: trainer.name is {t.trainer.name!r}; set it to "command"'
    check_recipes(t.trainer.name, t.trainer.options, [t.recipe])
    with contextlib.closing(open_environment(t.environment, accept_tier_e=t.sandbox.accept_tier_e)) as environment:
        trainer = get_trainer("command", "fp32", t.trainer.options)
        kit = _Kit(t, environment, trainer, _base(t, environment, work))
        first = kit.train(work / "first", t.run.seeds[0])
        kit.check_outputs(first)
        kit.check_evaluation(first, tasks)
        if repeatable:
            again = kit.train(work / "again", t.run.seeds[0])
            assert again.sha == first.sha, "the same seed gave other weights: pass {seed} on, or say repeatable=False"
            assert again.said == first.said, "the same seed gave other rollouts"
        other = kit.train(work / "other", t.run.seeds[0] + 1)
        assert other.sha != first.sha, "another seed gave the same weights: pass {seed} on to the script"
        on = _Kit(t, environment, trainer, first.policy).train(work / "on", t.run.seeds[0])
        assert on.sha != first.sha, "another start policy gave the same weights: it does not train what {policy} names"
        kit.check_bad_end(work / "bad", t.run.seeds[0])
        if kit.options.checkpoint:
            kit.check_resume(work / "ended", t.run.seeds[0], first, repeatable)
            if repeatable:
                kit.check_rests_on(work / "swapped", t.run.seeds[0], first)


@dataclass
class _Training:
    """What one training left."""

    rollouts: list[Rollout] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    watched: list[int] = field(default_factory=list)
    sha: str = ""
    policy: Path = Path()
    resumed: bool = False

    @property
    def said(self) -> list[tuple[int, str, str]]:
        return [(r.step, r.task, r.completion) for r in self.rollouts]


@dataclass
class _Kit:
    task: TaskFile
    environment: Environment
    trainer: Trainer
    base: Path

    @property
    def options(self) -> CommandOptions:
        from evotrainer.trainers.command.options import parse

        return parse(self.task.trainer.options)

    def train(self, work: Path, seed: int, watch: Any = None) -> _Training:
        from evotrainer.trainers.base import Identity, TrainRequest

        out = _Training()
        request = TrainRequest(
            Identity("kit", "b0", seed), self.task.recipe, self.base, work,
            watch=watch or (lambda step, _: out.watched.append(step)),
        )  # fmt: skip
        done = self.trainer.train(
            request, self.environment, lambda groups: out.rollouts.extend(r for g in groups for r in g), out.rows.append
        )
        out.sha, out.policy, out.resumed = self.trainer.policy_sha256(done.policy_dir), done.policy_dir, done.resumed
        return out

    def check_outputs(self, t: _Training) -> None:
        recipe = self.task.recipe
        assert [row["step"] for row in t.rows] == list(range(1, recipe.steps + 1)), (
            f"the curve has the steps {[row['step'] for row in t.rows]}, the recipe {recipe.steps}: map or fix steps"
        )
        assert any("reward" in row for row in t.rows), "neither metrics nor rollouts tell a reward"
        if not self.options.rollouts:
            return
        each = Counter(r.step for r in t.rollouts)
        assert set(each) == set(range(1, recipe.steps + 1)), f"rollouts are there of the steps {sorted(each)} only"
        ours = {str(x.id) for x in self.environment.tasks("train")}
        known = sum(r.task in ours for r in t.rollouts)
        assert known, "no rollout repeats the prompt or the id of a train task: the environment can score none"
        most = recipe.prompts_per_step * recipe.group_size
        assert max(each.values()) <= 2 * most, f"{max(each.values())} rollouts in a step, by the recipe {most}"

    def check_evaluation(self, t: _Training, tasks: int) -> None:
        from evotrainer.trainers.base import EvalRequest, Identity

        asked = EvalRequest(
            Identity("kit", "b0", 1), self.task.recipe, t.policy, "search", self.task.recipe.steps, 2, tasks
        )
        groups = self.trainer.evaluate(asked, self.environment, lambda _: None)
        assert len(groups) == tasks and all(len(g) == 2 for g in groups), "an evaluation gives attempts for each task"
        lost = [r.error for g in groups for r in g if r.error_kind]
        assert not lost, f"attempts were lost: {lost[0]}"

    def check_resume(self, work: Path, seed: int, whole: _Training, repeatable: bool) -> None:
        self.kill_at_checkpoint(work, seed)
        resumed = self.train(work, seed)
        assert resumed.resumed, "it does not go on from its checkpoint"
        n, most = Counter(r.step for r in resumed.rollouts), Counter(r.step for r in whole.rollouts)
        assert n == most, (
            f"a resume left {dict(n)} rollouts a step, a whole training {dict(most)}: drop those behind the checkpoint"
        )
        if repeatable:
            assert resumed.sha == whole.sha, "a resume gave other weights than a training in one go"

    def kill_at_checkpoint(self, work: Path, seed: int) -> None:
        """Begin a training and kill it (SIGKILL) once it has a checkpoint."""
        from evotrainer.errors import TrainerError
        from evotrainer.trainers import get_trainer
        from evotrainer.trainers.command.outputs import matches
        from evotrainer.trainers.command.process import sweep

        home, pattern = work / "command", self.options.checkpoint

        def kill_it(step: int, reward: float | None) -> None:
            if matches(home / "out", pattern):
                sweep(home)

        once = get_trainer("command", "fp32", {**self.task.trainer.options, "restarts": 0})
        try:
            replace(self, trainer=once).train(work, seed, kill_it)
        except TrainerError as e:
            if "signal 9" not in str(e):
                raise AssertionError(f"it failed before it could be killed: {e}") from e
        else:
            raise AssertionError(f"{pattern} never showed a checkpoint while it trained; write one, or train longer")

    def check_rests_on(self, work: Path, seed: int, first: _Training) -> None:
        """A training that finds another seed's checkpoint gives other weights, or refuses it."""
        from evotrainer.errors import FaultsError, TrainerError

        self.kill_at_checkpoint(work, seed + 1)  # a script may keep none once it has ended
        with contextlib.suppress(TrainerError, FaultsError):
            assert self.train(work, seed).sha != first.sha, (
                "another checkpoint gave the same weights: it does not go on from the one that it is given; pass "
                "{checkpoint} on (trainer.options.resume)"
            )

    def check_bad_end(self, work: Path, seed: int) -> None:
        """What cannot be trained does not end well: an empty folder in the place of the start policy."""
        from evotrainer.errors import FaultsError, TrainerError

        (work / "nothing").mkdir(parents=True)
        with contextlib.suppress(TrainerError, FaultsError):
            replace(self, base=work / "nothing").train(work, seed)
            raise AssertionError(
                "it ended with exit code 0 and a policy where the folder {policy} was empty; have it fail"
            )


def _base(t: TaskFile, environment: Environment, work: Path) -> Path:
    from evotrainer.config.bases import resolve_base
    from evotrainer.executors.warm_start import make_base

    if (found := resolve_base(t.policy.base)) is not None:
        return found
    make_base(
        environment, t.policy.warm_start, work / "base", lambda _: None,
        trainer=t.trainer.name, trainer_options=t.trainer.options,
    )  # fmt: skip
    return work / "base"
