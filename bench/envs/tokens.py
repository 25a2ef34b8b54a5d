"""`python -m bench.envs.tokens`: sampling over many turns,
with caches kept and with a prefill of everything at every turn.

One thread, CPU-seconds of the sampling phase alone, the sides take turns in one process and must draw the same tokens.
Writes the section "Multi-turn sampling" of results.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from bench.trainer.__main__ import commit, load
from evotrainer.envs.base import Episode, Score, Task
from evotrainer.records.rollout import Finish, Turn
from evotrainer.trainers.base import WarmStartRequest
from evotrainer.trainers.clock import PhaseTimer
from evotrainer.trainers.embedded import attempts as module
from evotrainer.trainers.embedded.attempts import EmbeddedAttempt, run_attempts
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.sampler import MultiTurnSampler, Samples, SamplingParams
from evotrainer.trainers.embedded.warmstart import warm_start
from evotrainer.trainers.embedded.weights import Weights

RESULTS = Path(__file__).parent / "results.md"
SECTION = "## Multi-turn sampling"
PROMPTS, GROUP, ACTION = 16, 8, 26
SHAPE = {"d": 96, "layers": 3, "heads": 3, "kv_heads": 3, "hidden": 288}
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def text(rng: random.Random, low: int, high: int) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(low, high)))


def action(rng: random.Random) -> str:
    """2 to 25 characters, about 9 on average."""
    return "".join(rng.choices(LETTERS, k=2 + min(23, int(rng.expovariate(1 / 8)))))


class ChatWorld:
    """Observations of 4 to 29 characters, which is 5 to 30 tokens; an episode takes half to all of the turns."""

    components: Mapping[str, str] = {"none": "nothing is paid"}

    def __init__(self, turns: int) -> None:
        self.turns = turns
        rng = random.Random(1)
        self.train = [Task(f"t{i}", "train", text(rng, 20, 60)) for i in range(PROMPTS)]

    def tasks(self, split: str) -> Sequence[Task]:
        return self.train

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        e = Episode(task, knobs, [Turn("user", task.prompt)])
        e.state["left"] = random.Random(task.id).randint(self.turns // 2, self.turns)
        return e

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        for e, a, f in zip(episodes, actions, finishes, strict=True):
            e.turns.append(Turn("assistant", a))
            e.state["left"] -= 1
            if e.state["left"] == 0:
                e.done, e.finish = True, f
            else:
                e.turns.append(Turn("tool", text(random.Random(f"{e.task.id}{len(e.turns)}{a}"), 4, 29)))

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        return [Score({"none": None}, "unknown") for _ in episodes]

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, ...]]:
        rng = random.Random(seed)
        return [
            (text(rng, 20, 60), action(rng), *(x for _ in range(3) for x in (text(rng, 4, 29), action(rng))))
            for _ in range(n)
        ]

    def describe(self) -> dict[str, Any]:
        return {"name": "chat", "hash": "chat"}


@dataclass(frozen=True, slots=True)
class Measured:
    turns: int
    context: int
    transcript: float
    """Mean length, tokens."""
    tokens: int
    """Sampled per round."""
    seconds: dict[bool, float]
    """CPU-seconds of a round, with caches kept or not: the median."""


class UncachedSampler:
    """The same as `MultiTurnSampler` without caches that outlive a turn: every turn is prefilled from its beginning."""

    def __init__(
        self, w: Weights, prompts: Sequence[Sequence[int]], group: int, params: SamplingParams, turns: bool
    ) -> None:
        self.w, self.params = w, params
        self.contexts = [(*p,) for p in prompts for _ in range(group)]
        self.next = MultiTurnSampler(w, prompts, group, params, turns=False)
        self.actions: list[list[int]] = []

    def sample(self, u: Tensor) -> Samples:
        s = self.next.sample(u)
        self.actions = [ids[:n] for ids, n in zip(s.tokens.tolist(), s.lengths.tolist(), strict=True)]
        return s

    def append_observations(self, rows: Sequence[int], observations: Sequence[Sequence[int]]) -> None:
        contexts = [(*self.contexts[r], *self.actions[r], *o) for r, o in zip(rows, observations, strict=True)]
        self.contexts = contexts
        self.next = MultiTurnSampler(self.w, contexts, 1, self.params, turns=False)


def measure(folder: Path, turns: int, context: int, rounds: int) -> Measured:
    world = ChatWorld(turns)
    shape = {**SHAPE, "context": context}
    demos = world.demonstrations(512, 1)
    warm_start(WarmStartRequest(demos, (), "characters", shape, 60, 16, 3e-3, 0, folder))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    first: dict[bool, list[EmbeddedAttempt]] = {}
    for i in range(rounds):
        for reuse in (True, False) if i % 2 == 0 else (False, True):
            attempts, spent = one(folder, world, reuse)
            seconds[reuse].append(spent)
            first.setdefault(reuse, attempts)
    kept, replayed = first[True], first[False]
    if [a.ids for a in kept] != [a.ids for a in replayed]:
        raise SystemExit("the two sides drew different tokens")
    tokens = sum(len(a.logprobs) for a in kept)
    transcript = sum(len(a.prompt) + len(a.ids) for a in kept) / len(kept)
    return Measured(turns, context, transcript, tokens, {k: median(v) for k, v in seconds.items()})


def one(folder: Path, world: ChatWorld, reuse: bool) -> tuple[list[EmbeddedAttempt], float]:
    """Attempts of one round and the CPU-seconds of sampling them."""
    loaded = load_policy(folder)
    clock = PhaseTimer()
    plan = [(t, range(GROUP)) for t in world.train]
    params = SamplingParams(ACTION)
    generator = torch.Generator().manual_seed(0)
    with mock.patch.object(module, "MultiTurnSampler", MultiTurnSampler if reuse else UncachedSampler):
        attempts = run_attempts(
            world, loaded.policy, loaded.tokenizer, plan, {}, params, world.turns, generator, clock.mark
        )
    return attempts, clock.take()["sample"]


def report(rows: Sequence[Measured], rounds: int, tree: str) -> str:
    lines = [
        SECTION,
        "",
        f"`python -m bench.envs.tokens`, {datetime.date.today()}, commit {tree}; 2 cores, no GPU, one thread, fp32, "
        f"load average {load()}. CPU-seconds of sampling, medians of {rounds} rounds, the sides taking turns in one "
        f"process; both draw the same tokens. {PROMPTS} prompts x {GROUP} attempts; policy d 96, 3 layers, 3 heads; "
        f"observations of 5 to 30 tokens, actions of at most {ACTION}; an episode takes half to all of the turns.",
        "",
        "| turns | context | transcript, tokens | sampled tokens | caches kept, CPU-s | tokens/CPU-s | "
        "prefilled every turn, CPU-s | tokens/CPU-s | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for m in rows:
        kept, replayed = m.seconds[True], m.seconds[False]
        lines.append(
            f"| {m.turns} | {m.context} | {m.transcript:.0f} | {m.tokens} | {kept:.2f} | {m.tokens / kept:.0f} | "
            f"{replayed:.2f} | {m.tokens / replayed:.0f} | {replayed / kept:.2f} |"
        )
    return "\n".join(lines) + "\n"


def put(section: str) -> None:
    """Replace this section of results.md, or append it."""
    old = RESULTS.read_text() if RESULTS.exists() else "# Environments: benchmarks\n"
    found = re.search(rf"^{re.escape(SECTION)}$.*?(?=^## |\Z)", old, re.M | re.S)
    new = old[: found.start()] + section + ("\n" if found.end() < len(old) else "") + old[found.end() :] if found else (
        old.rstrip("\n") + "\n\n" + section
    )  # fmt: skip
    RESULTS.write_text(new)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.envs.tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--print-only", action="store_true", help="leave results.md as it is")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tree = commit()
    with tempfile.TemporaryDirectory() as tmp:
        rows = [measure(Path(tmp) / str(t), t, context, args.rounds) for t, context in ((10, 448), (30, 1024))]
    section = report(rows, args.rounds, tree)
    print(section)
    if not args.print_only:
        put(section)


if __name__ == "__main__":
    main()
