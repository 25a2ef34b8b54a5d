"""Conformance kits: prove an environment, an agent or a trainer of your own before a run depends on it.

Each function raises AssertionError with what is wrong and returns nothing; call them from your own tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.envs.base import SPLITS
from evotrainer.errors import ConfigError
from evotrainer.records.evidence import Backtest, Briefing, Intervention
from evotrainer.records.recipe import Recipe, lint, single_factor

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.envs.base import Environment
    from evotrainer.records.rollout import Rollout
    from evotrainer.trainers.base import Trainer


def check_environment(world: Environment, sample: int = 4) -> None:
    """Splits are disjoint and stable, episodes end, scores name every component, outcomes are known."""
    seen: dict[str, str] = {}
    for split in SPLITS:
        tasks = world.tasks(split)
        assert tasks, f"split {split!r} is empty"
        assert [t.id for t in tasks] == [t.id for t in world.tasks(split)], f"split {split!r} changes between calls"
        for t in tasks:
            assert t.split == split, f"task {t.id} of split {split!r} says it is of {t.split!r}"
            for key in (t.id, t.prompt):
                where = seen.setdefault(key, split)
                assert where == split, f"{key[:60]!r} is in {where!r} and in {split!r}: the splits must be disjoint"
    tasks = list(world.tasks("train"))[:sample]
    knobs = {k: v[0] for k, v in world.knobs.items()}
    for text in ("", "nonsense \x00 \u2603", "x" * 5000):
        episodes = [world.reset(t, knobs) for t in tasks]
        for e, t in zip(episodes, tasks, strict=True):
            assert e.turns and e.turns[-1].role != "assistant", (
                f"reset of {t.id} must end with the policy's turn to come"
            )
        world.step(episodes, [text] * len(episodes), ["stop"] * len(episodes))
        scores = world.score(episodes)
        assert len(scores) == len(episodes), "score must answer once per episode, in order"
        for s in scores:
            if s.error_kind is None:
                assert set(s.components) == set(world.components), (
                    f"score names {sorted(s.components)}, components are {sorted(world.components)}"
                )
                assert s.outcome in ("correct", "incorrect", "unknown"), f"unknown outcome {s.outcome!r}"
            else:
                assert s.outcome == "unknown", "an infrastructure fault has no outcome: it is never a wrong answer"
    if world.proxy:
        assert set(world.proxy) <= set(world.components), f"proxy {world.proxy} is not among the components"
    description = json.dumps(world.describe())
    assert "hash" in json.loads(description), "describe() must have a hash of the task set"
    demos = world.demonstrations(8, seed=1)
    assert demos == world.demonstrations(8, seed=1), "demonstrations must follow from their seed"
    held_out = {t.prompt for s in SPLITS if s != "train" for t in world.tasks(s)}
    assert not held_out & {p for p, _ in demos}, "a demonstration shows a held-out task"


class NoTools:
    """Tools that have seen nothing: every backtest is silent, there are no rollouts."""

    def backtest(self, intervention: Intervention) -> Backtest:
        return Backtest(factor=intervention.factor, verdict="silent", reason="nothing stored")

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return ()


def check_agent(agent: Agent, briefing: Briefing, tools: Any = None) -> None:
    """Every proposal is one factor of the champion's recipe, passes the lint, and says what would refute it."""
    proposal = agent.propose(briefing, tools or NoTools())
    assert proposal.agent, "a proposal names its agent"
    assert proposal.interventions or proposal.stop, "neither an intervention nor a reason to stop"
    hashes: set[str] = set()
    for iv in proposal.interventions:
        try:
            child = briefing.champion.recipe.with_factor(iv.factor, iv.new)
        except ConfigError as e:
            raise AssertionError(f"{iv.factor}: {e}") from None
        assert single_factor(briefing.champion.recipe, child) == iv.factor, (
            f"{iv.factor} is not the factor that differs"
        )
        bad = [x.message for x in lint(child) if x.level == "error"]
        assert not bad, f"{iv.factor}: {bad}"
        assert iv.hypothesis and iv.success_criterion and iv.rollback, (
            f"{iv.factor}: hypothesis, criterion and rollback"
        )
        assert child.hash not in hashes, f"{iv.factor}: the same recipe twice in one proposal"
        hashes.add(child.hash)


def check_trainer(
    trainer: Trainer, world: Environment, policy_dir: Path, work_dir: Path, rewards: Mapping[str, float]
) -> None:
    """Two real steps: rollouts reach the sink first, the same seed gives the same weights, another seed others."""
    from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest

    recipe = Recipe(steps=2, prompts_per_step=4, group_size=4, max_tokens=16, rewards=dict(rewards), lr=1e-3)
    shas = []
    for i, seed in enumerate((1, 1, 2)):
        stored: list[Rollout] = []
        steps: list[int] = []

        def on_step(row: dict[str, float], stored: list[Rollout] = stored, steps: list[int] = steps) -> None:
            assert len(stored) >= 16 * (len(steps) + 1), "rollouts of a step must be stored before the step is reported"
            steps.append(int(row["step"]))

        request = TrainRequest(Identity("kit", "b0", seed), recipe, policy_dir, work_dir / str(i), checkpoint_every=1)
        result = trainer.train(request, world, stored.extend, on_step)
        assert steps == [1, 2], f"steps must count from 1: {steps}"
        assert len(result.curve) == 2, "the curve has one entry per step"
        assert len({r.id for r in stored}) == len(stored), "rollout ids must differ"
        shas.append(trainer.policy_sha256(result.policy_dir))
    assert shas[0] == shas[1], "the same seed must give the same weights"
    assert shas[0] != shas[2], "another seed must give other weights"
    read = EvalRequest(Identity("kit", "b0", 1), recipe, policy_dir, "search", 0, attempts=2, tasks=3)
    assert len(trainer.evaluate(read, world, lambda _: None)) == 6, "evaluate answers tasks x attempts rollouts"
