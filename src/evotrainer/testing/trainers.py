"""Kit for trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.records.recipe import Recipe

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment
    from evotrainer.records.rollout import Rollout
    from evotrainer.trainers.base import Trainer


def check_trainer(
    trainer: Trainer, environment: Environment, policy_dir: Path, work_dir: Path, rewards: Mapping[str, float]
) -> None:
    """Two real steps: rollouts reach the sink first, the same seed gives the same weights, another seed others; and two
    more from the policy that these made."""
    from evotrainer.errors import TrainerError
    from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest
    from evotrainer.trainers.continued import read_note, train_chain

    recipe = Recipe(steps=2, prompts_per_step=4, group_size=4, max_tokens=16, rewards=dict(rewards), lr=1e-3)
    shas = []
    for i, seed in enumerate((1, 1, 2)):
        stored: list[Rollout] = []
        steps: list[int] = []

        def on_step(row: dict[str, float], stored: list[Rollout] = stored, steps: list[int] = steps) -> None:
            assert len(stored) >= 16 * (len(steps) + 1), "rollouts of a step must be stored before the step is reported"
            steps.append(int(row["step"]))

        request = TrainRequest(Identity("kit", "b0", seed), recipe, policy_dir, work_dir / str(i), checkpoint_every=1)

        def sink(groups: Sequence[Sequence[Rollout]], stored: list[Rollout] = stored) -> None:
            assert all(len({(r.group, r.task) for r in g}) == 1 for g in groups), "a group is attempts at one task"
            stored += (r for g in groups for r in g)

        result = trainer.train(request, environment, sink, on_step)
        assert steps == [1, 2], f"steps must count from 1: {steps}"
        assert len(result.curve) == 2, "the curve has one entry per step"
        assert len({r.id for r in stored}) == len(stored), "rollout ids must differ"
        shas.append(trainer.policy_sha256(result.policy_dir))
    assert shas[0] == shas[1], "the same seed must give the same weights"
    assert shas[0] != shas[2], "another seed must give other weights"
    more: list[Rollout] = []
    work = work_dir / "chain"
    whole = TrainRequest(Identity("kit", "b0", 1), recipe.with_factor("start", "champion"), policy_dir, work)
    chained = train_chain(trainer, whole, environment, lambda gs: more.extend(r for g in gs for r in g), lambda _: None)
    note = read_note(work)
    assert note is not None and note.policy_sha256 == shas[0], "what is gone on from is the first recipe's own training"
    assert chained.steps == 4 and {r.step for r in more} == {1, 2, 3, 4}, "steps of `before` count for rollouts"
    assert len({r.id for r in more}) == len(more), "rollout ids must differ"
    hooks = recipe.with_factor("hooks", {"plain": "def advantages(group):\n    return group['advantages']\n"})
    try:
        asked = TrainRequest(Identity("kit", "b0", 1), hooks, policy_dir, work_dir / "hooks")
        trainer.train(asked, environment, lambda _: None, lambda _: None)
    except TrainerError:
        pass
    else:
        raise AssertionError("hooks that nobody runs must be refused: trainers.hooks.StepHooks does, or TrainerError")
    read = EvalRequest(Identity("kit", "b0", 1), recipe.of_attempts, policy_dir, "search", 0, attempts=2, tasks=3)
    sizes = [len(g) for g in trainer.evaluate(read, environment, lambda _: None)]
    assert sizes == [2, 2, 2], "evaluate answers a group of rollouts for each task"
