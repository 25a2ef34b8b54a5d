"""A cheap environment: write the digits of a number backwards. Scored in-process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evotrainer.envs.base import Episode, Score, Task, refuse_held_out
from evotrainer.records.rollout import Finish, Turn

WORDS = ("reverse ", " -> ", "10", "25")
SHAPE = {"d": 32, "layers": 2, "heads": 2, "kv_heads": 1, "hidden": 64, "context": 64}


def prompt(digits: str) -> str:
    return f"reverse {digits} -> "


class ReverseEnv:
    """Components: exact (all digits right), digits (share of positions right), never (does not apply)."""

    name = "reverse"
    version = "1"
    components: Mapping[str, str] = {"exact": "reversed exactly", "digits": "share of digits right", "never": "None"}
    knobs: Mapping[str, tuple[Any, ...]] = {"length": (3, 2)}
    capabilities = ()
    proxy = None
    offers: Sequence[str] = ("references", "wordings")

    def __init__(self, n: int = 64, length: int = 3, faulty: bool = False) -> None:
        rng = random.Random(1)
        self.n, self.length, self.faulty = n, length, faulty
        numbers = ["".join(rng.choice("0123456789") for _ in range(length)) for _ in range(4 * n)]
        self.split = {s: numbers[i * n : (i + 1) * n] for i, s in enumerate(("train", "search", "gate", "cert"))}

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(f"{split}-{i}", split, prompt(d), {"gold": d[::-1]}) for i, d in enumerate(self.split[split])]

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        return Episode(task, knobs, [Turn("user", task.prompt)])

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        for e, a, f in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", a))
            e.done, e.finish = True, f

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        return [self._score(e, i) for i, e in enumerate(episodes)]

    def _score(self, e: Episode, i: int) -> Score:
        if self.faulty and i % 5 == 0:
            return Score({}, "unknown", "grader died", "sandbox")
        gold, said = e.task.data["gold"], e.turns[-1].text
        right = sum(a == b for a, b in zip(gold, said, strict=False)) / len(gold)
        exact = float(said == gold)
        return Score({"exact": exact, "digits": right, "never": None}, "correct" if exact else "incorrect")

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, str]]:
        """Half of them wrong in one digit: room for reinforcement learning."""
        rng = random.Random(seed)
        out = []
        for _ in range(n):
            d = "".join(rng.choice("0123456789") for _ in range(self.length))
            answer = list(d[::-1])
            if rng.random() < 0.5:
                answer[rng.randrange(self.length)] = rng.choice("0123456789")
            out.append((prompt(d), "".join(answer)))
        return out

    def references(self, tasks: Sequence[Task], knobs: Mapping[str, Any]) -> list[tuple[str, ...] | None]:
        """The right answer; none for every eighth task."""
        refuse_held_out(tasks)
        return [(t.prompt, t.data["gold"]) if int(t.id.split("-")[1]) % 8 else None for t in tasks]

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """Ten or 25 in front, which means nothing."""
        refuse_held_out([task])
        return replace(task, prompt=rng.choice(("10", "25")) + task.prompt)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "hash": "toy", "sandbox_tier": None}

    def close(self) -> None:
        return None


class GuessDigitEnv(ReverseEnv):
    """Two turns: the first answer is echoed back with "again: ", the second one counts."""

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        for e, a, f in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", a))
            if len(e.turns) >= 4:
                e.done, e.finish = True, f
            else:
                e.turns.append(Turn("user", f"again: {a[:3]} -> "))


def logits(policy: Any, ids: list[int]) -> Any:
    """Next-token logits [len(ids), V] of one sequence."""
    from evotrainer.trainers.embedded.forward import Network
    from evotrainer.trainers.embedded.packing import TrainRow, pack

    batch = pack([TrainRow(0, (ids[0],), (*ids[1:], 0))], policy.shape)
    return (Network(policy, batch, False).forward() @ (policy.head * policy.norm).t()).detach()
