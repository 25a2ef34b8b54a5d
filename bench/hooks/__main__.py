"""What a hook costs a real training, and whether one that mirrors a built-in option gives the same weights:
`python -m bench.hooks FOLDER tasks/math.toml --steps 12`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.trainers.test_hooks import FRESH, GRPO, LIVE

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.records.recipe import Recipe
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.trainers import get_trainer, sampler_dtype
from evotrainer.trainers.base import Identity, TrainRequest

ARMS: dict[str, Mapping[str, Any]] = {
    "as the task file says": {},
    "GRPO's normalisation, built in": {"reward_scaling": "group", "group_filter": {"kind": "none"}},
    "GRPO's normalisation, `advantages`": {"group_filter": {"kind": "none"}, "hooks": {"grpo": GRPO}},
    "zero-variance filter, built in": {"group_filter": {"kind": "zero_variance"}},
    "zero-variance filter, `weights`": {"group_filter": {"kind": "none"}, "hooks": {"live": LIVE}},
    "least seen, half solved first, `select`": {"hooks": {"fresh": FRESH}},
}


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.hooks")
    ask.add_argument("folder", type=Path)
    ask.add_argument("task", type=Path)
    ask.add_argument("--steps", type=int, default=12)
    given = ask.parse_args()
    task = load_task(given.task)
    base = resolve_base(task.policy.base)
    assert base is not None, "a base policy that is there"
    print("| arm | CPU-s a step | of it the hook's, ms | SHA-256 of the weights |\n|---|---|---|---|")
    with (
        closing(open_environment(task.environment, accept_tier_e=True)) as environment,
        closing(RewardRunner(accept_tier_e=True)) as runner,
    ):
        for n, (arm, changes) in enumerate(ARMS.items()):
            recipe: Recipe = task.recipe.with_changes({"steps": given.steps, **changes})
            trainer = get_trainer("embedded", sampler_dtype("auto"))
            request = TrainRequest(Identity("bench", "b0", 1), recipe, base, given.folder / str(n), hooks=runner)
            curve = trainer.train(request, environment, lambda groups: None, lambda entry: None).curve
            took = [sum(e.get(f"cpu_{k}_s", 0.0) for k in ("sample", "grade", "record", "update")) for e in curve]
            hook = sum(e.get("cpu_hook_s", 0.0) for e in curve) / len(curve)
            sha = trainer.policy_sha256(given.folder / str(n) / "policy")[:16]
            # a sandbox that is still open is in no phase of the clock
            print(f"| {arm} | {sum(took) / len(took) + hook:.3f} | {1000 * hook:.1f} | {sha} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
