"""Branches worth training for `bench.backtest.forecast`:
`python -m bench.backtest.plan TASK [--branches 12] [--seed 1]`.

Draws single-factor changes uniformly among those that a replay can speak of (half of them rewards), as the random agent
draws among all, and prints the command that trains them. Nothing is chosen by a backtest.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import numpy as np

from evotrainer.agents.catalogue import candidates
from evotrainer.agents.changes import with_change
from evotrainer.agents.moves import Situation
from evotrainer.agents.symptoms import RewardEvidence
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.envs import open_environment
from evotrainer.envs.outcome import outcome_components
from evotrainer.harness.whatif.backtest import REPLAYED
from evotrainer.records.recipe import reward_moves

SAMPLING = (*sorted(REPLAYED - {"rewards"}), "group_size", "resample")
WEIGHTS = (0.2, 0.5, 1.0)


def draw(task: TaskFile, components: dict[str, str], n: int, seed: int) -> list[dict[str, object]]:
    """`n` different changes of the task's recipe: factor and new value."""
    rng = np.random.default_rng(seed)
    recipe = task.recipe
    near = Situation(recipe=recipe, start=recipe, components=components, evidence=RewardEvidence((), ()))
    rewards = []
    for c in sorted(components):
        for w in WEIGHTS:
            rewards.append({**recipe.rewards, c: w})
        if c not in recipe.rewards:
            rewards += [{**{k: v for k, v in recipe.rewards.items() if k != old}, c: 1.0} for old in recipe.rewards]
    rewards = [r for r in rewards if reward_moves(recipe.rewards, r) == 1]
    other = [(c.factor, c.variant.value) for c in candidates(near, set()) if c.factor in SAMPLING]
    pools = [[("rewards", r) for r in rewards], other]
    out: list[dict[str, object]] = []
    seen = {recipe.hash}
    while len(out) < n and any(pools):
        pool = pools[len(out) % 2] or pools[(len(out) + 1) % 2]
        factor, new = pool.pop(int(rng.integers(len(pool))))
        child = with_change(recipe, factor, new)
        if child is not None and child.hash not in seen:
            seen.add(child.hash)
            out.append({"factor": factor, "new": new, "why": "drawn for the forecast benchmark"})
    return out


def toml(value: object) -> str:
    """A value as inline TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument("--branches", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    task = load_task(args.task)
    world = open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)
    try:
        chosen = draw(task, dict(world.components), args.branches, args.seed)
        outcome = outcome_components(world)  # replays are forecast for every reward, the outcome's too
    finally:
        world.close()
    out = args.out or Path("runs") / f"forecast-{task.task.name}-{args.seed}"
    words = [
        "evotrainer", "run", str(args.task), "run.agent=fixed", f"run.agent_options={toml({'interventions': chosen})}",
        f"environment.payable={toml(list(outcome))}", "run.rounds=1", f"run.branches={len(chosen)}",
        "run.seeds=[1,2]", "judge.min_seeds=2", "judge.max_seeds=2", "judge.audit=never", "run.veto=false",
        "run.certify_seeds=[101]", "evaluation.cert_tasks=40", "evaluation.cert_attempts=1", "--plain",
        "--out", str(out),
    ]  # fmt: skip
    print(shlex.join(words))


if __name__ == "__main__":
    main()
