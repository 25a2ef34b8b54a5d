"""The teacher: demonstrations for the warm start. It is a mixed one, as real texts are.

A third of its answers come without working, most with it, some with a check; some contain a slip that is carried
on, some stop a step early, a few hedge. Drills teach skills, not habits: facts, and true workings only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from evotrainer.envs.maths.gym import OPS
from evotrainer.envs.maths.holdout import counts, draw, prompt
from evotrainer.envs.maths.problems import MathsProblem

FACTS, WORKINGS = 8, 2
"""Facts, or problems with their working, of a drill."""
GUESSES = (1, 4)
"""Expressions that working for countdown tries, the right one included."""


@dataclass(frozen=True, slots=True)
class MathsTeacher:
    """Shares of demonstrations."""

    direct: float = 0.3
    """Only the answer."""
    checked: float = 0.1
    """Working, then the same working again."""
    slip: float = 0.08
    """Of those with working: one result is wrong, and what follows goes on from there."""
    early: float = 0.05
    """Of those with working of two steps and more: the last step is left out."""
    hedged: float = 0.03
    """Several answers before the one that is given."""


CAREFUL = MathsTeacher(direct=0, checked=0, slip=0, early=0, hedged=0)
"""Always works it out and is always right."""


def demonstrations(n: int, seed: int, shares: Mapping[str, float], teacher: MathsTeacher) -> list[tuple[str, str]]:
    """(prompt, completion) pairs on problems that training may see."""
    out: list[tuple[str, str]] = []
    for name, count in counts(n, shares).items():
        rng = random.Random(f"demonstrations:{seed}:{name}")
        source = draw(name, rng, training=True)
        style = random.Random(f"teacher:{seed}:{name}")
        out += [
            (prompt(p.question), demonstrate(p, teacher, style)) for p, _ in zip(source, range(count), strict=False)
        ]
    random.Random(f"demonstrations:{seed}").shuffle(out)
    return out


def demonstrate(p: MathsProblem, teacher: MathsTeacher, rng: random.Random) -> str:
    """One completion: `1-3=-2;-2+9=7` and `#### 7` on the next line."""
    roll = rng.random()
    if roll < teacher.direct:
        return _end("", p.answer)
    steps, answer = list(p.steps), p.answer
    if p.generator == "countdown":
        steps, answer = _search(p, rng)
    if roll < teacher.direct + teacher.hedged:
        return _end("maybe " + " or ".join(_hedges(p, rng)), answer)
    if rng.random() < teacher.slip:
        steps, answer = _slip(p, steps, answer, rng)
    elif p.generator != "countdown" and len(steps) > 1 and rng.random() < teacher.early:
        steps = steps[:-1]
        answer = steps[-1].rpartition("=")[2]
    working = ";".join(steps)
    if roll < teacher.direct + teacher.hedged + teacher.checked:
        working += "\ncheck:" + working
    return _end(working, answer)


def worked(steps: Sequence[str], answer: str) -> str:
    """A true working and its answer, without search, check or detour."""
    return _end(";".join(steps), answer)


def _end(working: str, answer: str) -> str:
    return f"{working}\n#### {answer}" if working else f"#### {answer}"


def _hedges(p: MathsProblem, rng: random.Random) -> list[str]:
    centre = int(p.entry.get("target", 0)) if p.generator == "countdown" else int(p.answer)
    return [str(centre + d) for d in rng.sample(range(-3, 4), rng.randint(3, 4))]


def _search(p: MathsProblem, rng: random.Random) -> tuple[list[str], str]:
    """Countdown by trial: expressions that miss the target, each with its true value, then the one that hits it."""
    from evotrainer.envs.maths.expressions import evaluate

    tried: list[str] = []
    for _ in range(rng.randint(*GUESSES) - 1):
        values = list(p.entry["numbers"])
        rng.shuffle(values)
        text = str(values[0]) + "".join(f"{rng.choice(OPS)}{v}" for v in values[1:])
        value = evaluate(text)
        if value is not None and value.denominator == 1 and value != p.entry["target"]:
            tried.append(f"{text}={value}")
    return [*tried, *p.steps], p.answer


def _slip(p: MathsProblem, steps: list[str], answer: str, rng: random.Random) -> tuple[list[str], str]:
    """One wrong result. In a sum, and in the last step anywhere, the answer follows it."""
    i = rng.randrange(len(steps))
    left, _, right = steps[i].rpartition("=")
    wrong = int(right) + rng.choice((-2, -1, 1, 2))
    steps = [*steps[:i], f"{left}={wrong}", *steps[i + 1 :]]
    if p.generator == "countdown":
        return steps, answer
    if p.generator == "gcd":
        return steps, str(int(answer) + rng.choice((1, 2)))
    if i == len(steps) - 1:
        return steps, str(wrong)
    if p.generator == "chain_sum":
        return _carried(steps, i, wrong)
    return steps, answer


def _carried(steps: list[str], i: int, wrong: int) -> tuple[list[str], str]:
    """A sum that goes on from a wrong result."""
    total, out = wrong, steps[: i + 1]
    for step in steps[i + 1 :]:
        left = step.partition("=")[0]
        at = max(left.rfind("+"), left.rfind("-"))
        sign, b = left[at], int(left[at + 1 :])
        new = total + b if sign == "+" else total - b
        out.append(f"{total}{sign}{b}={new}")
        total = new
    return out, str(total)


def drills(n: int, seed: int, shares: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Transcripts of facts (`3+4=`, `7`, `8*5=`, `40`, ...) and, as many, of problems with true workings."""
    rng = random.Random(f"drills:{seed}")
    out: list[tuple[str, ...]] = []
    for _ in range(n - n // 2):
        facts = [fact(rng) for _ in range(FACTS)]
        out.append(tuple(chain.from_iterable(facts)))
    texts = [
        (prompt(p.question), demonstrate(p, CAREFUL, rng))
        for name, count in counts(n // 2 * WORKINGS, shares).items()
        for p, _ in zip(draw(name, rng, training=True), range(count), strict=False)
    ]
    rng.shuffle(texts)
    out += [sum(texts[i * WORKINGS : (i + 1) * WORKINGS], ()) for i in range(n // 2)]
    rng.shuffle(out)
    return out


def fact(rng: random.Random) -> tuple[str, str]:
    """(`8*5=`, `40`)."""
    op = rng.choice("+++---*//%%%")
    if op in "+-":
        kind = rng.random()
        if kind < 0.5:  # a partial sum and a digit
            x, y = rng.randint(-36, 60), rng.randint(0, 9)
        elif kind < 0.85:  # a stock and a delivery
            x, y = rng.randint(1, 60), rng.randint(2, 20)
        else:  # moving a constant across an equation
            x, y = rng.randint(1, 9), rng.randint(1, 60)
        return f"{x}{op}{y}=", str(x + y if op == "+" else x - y)
    if op in "*/":
        y = rng.randint(2, 9) if rng.random() < 0.8 else rng.randint(10, 30)
        x = rng.randint(1, min(30, 99 // y))
        return (f"{x}*{y}=", str(x * y)) if op == "*" else (f"{x * y}/{y}=", str(x))
    x = rng.randint(2, 40)
    y = rng.randint(1, x)
    return f"{x}%{y}=", str(x % y)
