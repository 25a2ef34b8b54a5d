"""Splits: which problems are trained on, and which are held out, by template and by difficulty."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence, Set

from evotrainer.envs.base import Task
from evotrainer.envs.maths.gym import CHAIN_SUM, EQUATIONS, GCD, Countdown
from evotrainer.envs.maths.problems import Generator, MathsProblem
from evotrainer.envs.maths.stories import Stories
from evotrainer.errors import TaskSetError

_ALL: tuple[Generator, ...] = (CHAIN_SUM, GCD, EQUATIONS, Countdown(), Stories())
GENERATORS: Mapping[str, Generator] = {g.name: g for g in _ALL}
SHARES: Mapping[str, float] = {"chain_sum": 0.25, "gcd": 0.15, "equation": 0.25, "countdown": 0.05, "story": 0.3}
"""Share of each generator in every split and in the demonstrations."""
TASKS_VERSION = "1"
ASK = "\nEnd with #### and the answer.\n"
"""Stands after every question."""
PATIENCE = 20_000
"""Draws in a row without a new problem after which a generator counts as used up."""


def held(p: MathsProblem) -> tuple[bool, bool]:
    """(held out by template, held out by difficulty)."""
    g = GENERATORS[p.generator]
    return g.held_template(p), g.held_level(p)


def prompt(question: str) -> str:
    return question + ASK


def draw(name: str, rng: random.Random, *, training: bool) -> Iterator[MathsProblem]:
    """Problems of one generator that training may see, or that it may not."""
    for p in GENERATORS[name].problems(rng):
        if any(held(p)) != training:
            yield p


def as_task(p: MathsProblem, split: str, index: int) -> Task:
    """The task; `heldout` of its tags says by what it is kept from training: template, level, both or no."""
    template, level = held(p)
    kept = {(True, True): "both", (True, False): "template", (False, True): "level"}.get((template, level), "no")
    data = {"question": p.question, "answer": p.answer, "steps": list(p.steps), "entry": dict(p.entry)}
    tags = {"generator": p.generator, "template": p.template, "level": str(p.level), "heldout": kept}
    return Task(f"{split}-{p.generator}-{index}", split, prompt(p.question), {**data, "generator": p.generator}, tags)


def counts(size: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Tasks per generator, by largest remainder."""
    total = sum(shares.values())
    exact = {n: size * s / total for n, s in shares.items()}
    out = {n: int(x) for n, x in exact.items()}
    for n in sorted(exact, key=lambda n: (out[n] - exact[n], n))[: size - sum(out.values())]:
        out[n] += 1
    return out


def make_splits(
    splits: Sequence[str],
    sizes: Mapping[str, int],
    shares: Mapping[str, float],
    seed: int | str,
    known: Set[str] = frozenset(),
) -> dict[str, tuple[Task, ...]]:
    """The splits asked for, no problem text twice in them and none of `known`.

    Held-out splits have the generators' shares; half of a generator's tasks are held out by template (some of them by
    level, too), the other half by level only, where it offers both. Training and held-out problems differ by
    construction, for template and level follow from the text; so `train` is made apart from the others. TaskSetError
    where a generator runs dry.
    """
    seen = set(known)
    out: dict[str, tuple[Task, ...]] = {}
    for split in splits:
        tasks: list[Task] = []
        for name, n in counts(sizes[split], shares).items():
            rng = random.Random(f"maths-{TASKS_VERSION}:{seed}:{split}:{name}")
            tasks += _fresh(name, n, split, rng, seen)
        random.Random(f"maths-{TASKS_VERSION}:{seed}:{split}").shuffle(tasks)
        out[split] = tuple(tasks)
    return out


def _fresh(name: str, n: int, split: str, rng: random.Random, seen: set[str]) -> list[Task]:
    """n problems whose text is not in `seen`, which they join."""
    source = draw(name, rng, training=split == "train")
    kinds = ("",) if split == "train" else GENERATORS[name].held_by
    wanted = {k: n // len(kinds) + (i < n % len(kinds)) for i, k in enumerate(kinds)}
    got: list[Task] = []
    waited = 0
    while len(got) < n:
        p = next(source)
        kind = "" if split == "train" else "template" if held(p)[0] else "level"
        waited += 1
        if waited > PATIENCE:
            raise TaskSetError(
                f"environment math: generator {name} has no more than {len(got)} new problems for split {split}, "
                f"not {n}; lower the split's size or the generator's share in environment.mix"
            )
        if p.question in seen or not wanted[kind]:
            continue
        wanted[kind] -= 1
        waited = 0
        seen.add(p.question)
        got.append(as_task(p, split, len(got)))
    return got
