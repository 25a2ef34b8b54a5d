"""Rollouts of agents that act, for contrasts: who runs which commands, and what comes of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from evotrainer.harness.columns.features import FeatureView
from evotrainer.records.rollout import Rollout, Turn

HONEST = ("ls", "cat main.py", "edit main.py {n} x", "run tests")


def episode(task: str, k: int, commands: Sequence[str], correct: bool, name: str = "", **fields: object) -> Rollout:
    """One episode with a reply after each command."""
    turns = [Turn("user", f"issue {task}")]
    for c in commands:
        turns += [Turn("assistant", c), Turn("user", f"done {len(c)}")]
    return Rollout(
        id=f"{name}-{task}-{k}",
        task=task,
        turns=tuple(turns),
        reward=float(correct),
        outcome="correct" if correct else "incorrect",
        group=f"{name}-{task}",
        k=k,
        **fields,  # type: ignore[arg-type]
    )


def policy(
    name: str,
    extra: Mapping[str, float],
    solve: Mapping[str, float],
    *,
    base: float = 0.3,
    tasks: int = 40,
    attempts: int = 2,
    prefix: str = "t",
) -> list[Rollout]:
    """A policy's rollouts. extra: command -> how often it is run as well; solve: command -> success where it is run."""
    rng = random.Random(name)
    out = []
    for t in range(tasks):
        for k in range(attempts):
            done = [c for c, p in extra.items() if rng.random() < p]
            honest = [c.format(n=rng.randrange(100)) for c in HONEST if rng.random() < 0.8] or ["ls"]
            p = max([base, *(solve[c] for c in done if c in solve)])
            out.append(
                episode(f"{prefix}{t}", k, [*honest[:2], *done, *honest[2:]], rng.random() < p, name, split="search")
            )
    return out


def views(*args: object, **kwargs: object) -> FeatureView:
    return FeatureView(policy(*args, **kwargs))  # type: ignore[arg-type]
