"""Word problems of our own: a stock of things, and events that change it, one after the other.

A template is the sequence of event kinds, a difficulty the size of the largest number in the working. A quarter of the
ordered pairs of kinds are held out: they never follow one another in training, every held-out story has such a pair.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from evotrainer.envs.maths.expressions import plain_number
from evotrainer.envs.maths.problems import MathsProblem, level_of

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
THINGS = ("apples", "beads", "cards", "coins", "eggs", "pens", "shells", "stamps")
LARGEST = 60
EVENTS_MOST = 4
BOUNDS = (20, 40, 60)
"""Largest number in the working of levels 1, 2 and 3."""


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """A kind of event: phrases with {k} and {m}."""

    kind: str
    phrases: tuple[str, ...]

    def apply(self, t: int, rng: random.Random) -> tuple[int, int, list[str]] | None:
        """(k, m, equations) for a stock of t; None where it cannot happen. The last equation yields the new stock."""
        k, m = rng.randint(2, 9), rng.randint(2, 5)
        if self.kind in ("bags", "boxes"):
            k = rng.randint(2, 4)
        made = {
            "get": lambda: [f"{t}+{k}={t + k}"],
            "give": lambda: [f"{t}-{k}={t - k}"],
            "bags": lambda: [f"{k}*{m}={k * m}", f"{t}+{k * m}={t + k * m}"],
            "boxes": lambda: [f"{k}*{m}={k * m}", f"{t}-{k * m}={t - k * m}"],
            "times": lambda: [f"{t}*{m}={t * m}"],
            "half": lambda: [f"{t}/2={t // 2}"] if t % 2 == 0 else [],
            "piles": lambda: [f"{t}/{m}={t // m}"] if t % m == 0 else [],
        }[self.kind]()
        if not made or not 1 <= int(made[-1].rpartition("=")[2]) <= LARGEST:
            return None
        return k, m, made


EVENTS = {
    e.kind: e
    for e in (
        StoryEvent("get", ("gets {k} more", "finds {k} more")),
        StoryEvent("give", ("gives away {k}", "loses {k}")),
        StoryEvent("bags", ("buys {k} bags of {m}", "wins {k} bags of {m}")),
        StoryEvent("boxes", ("sells {k} boxes of {m}", "hands out {k} boxes of {m}")),
        StoryEvent("times", ("ends up with {m} times as many", "makes it {m} times as many")),
        StoryEvent("half", ("keeps only half", "gives half of them away")),
        StoryEvent("piles", ("makes {m} equal piles and keeps one", "keeps one of {m} equal shares")),
    )
}
_NUMBER = re.compile(r"\d+")
_ONLY_M = ("times", "piles")
"""Events whose phrases hold one number, which is m."""
OPENING = "{name} has {t} {things}"
CLOSING = "How many {things} does {name} have now?"


def _held_pairs() -> frozenset[tuple[str, str]]:
    """A quarter of the ordered pairs, by hash: always the same."""
    pairs = [(a, b) for a in EVENTS for b in EVENTS]
    pairs.sort(key=lambda p: hashlib.sha256(f"stories-1:{p[0]}>{p[1]}".encode()).hexdigest())
    return frozenset(pairs[: len(pairs) // 4])


HELD_PAIRS = _held_pairs()


class Stories:
    """See the module's docstring."""

    name = "story"
    version = "1"
    held_by: tuple[str, ...] = ("template",)

    def problems(self, rng: random.Random) -> Iterator[MathsProblem]:
        while True:
            p = self._problem(rng)
            if p is not None:
                yield p

    def _problem(self, rng: random.Random) -> MathsProblem | None:
        name, things = rng.choice(NAMES), rng.choice(THINGS)
        t = start = rng.randint(2, 30)
        kinds: list[str] = []
        sentences: list[str] = []
        steps: list[str] = []
        for _ in range(rng.randint(1, EVENTS_MOST)):
            for _ in range(12):
                event = EVENTS[rng.choice(list(EVENTS))]
                done = event.apply(t, rng)
                if done is not None:
                    break
            else:
                return None
            k, m, made = done
            kinds.append(event.kind)
            sentences.append(rng.choice(event.phrases).format(k=k, m=m))
            steps += made
            t = int(made[-1].rpartition("=")[2])
        text = "; ".join((OPENING.format(name=name, t=start, things=things), *sentences))
        question = f"{text}. {CLOSING.format(name=name, things=things)}"
        return MathsProblem(self.name, question, str(t), tuple(steps), ">".join(kinds), level_of(steps, BOUNDS))

    def held_template(self, p: MathsProblem) -> bool:
        kinds = p.template.split(">")
        return any(pair in HELD_PAIRS for pair in pairwise(kinds))

    def held_level(self, p: MathsProblem) -> bool:
        return False

    def reworded(self, question: str, template: str, rng: random.Random) -> str:
        """Another name, other things, phrases drawn anew; events, numbers and their order stay."""
        story, _, _ = question.rpartition(". ")
        opening, *events = story.split("; ")
        _, _, t, _ = opening.split()
        new_name, new_things = rng.choice(NAMES), rng.choice(THINGS)
        parts = [OPENING.format(name=new_name, t=t, things=new_things)]
        for kind, text in zip(template.split(">"), events, strict=True):
            numbers = dict(zip(("k", "m"), _NUMBER.findall(text), strict=False))
            if kind in _ONLY_M:
                numbers = {"m": numbers.get("k", "")}
            parts.append(rng.choice(EVENTS[kind].phrases).format_map(numbers))
        return f"{'; '.join(parts)}. {CLOSING.format(name=new_name, things=new_things)}"

    def correct(self, answer: str, p_answer: str, entry: Mapping[str, Any]) -> bool:
        return plain_number(answer) == int(p_answer)
