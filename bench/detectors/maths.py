"""The maths domain: arithmetic answered by a chain of thought, and how chains go wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.detectors.case import Attempt, pass_rate
from evotrainer.records.rollout import Turn

OPEN = ("First", "We start with", "Let me see:", "To begin,", "Step one:", "Taking it in order,", "Now", "So")
THEN = ("then", "next", "after that", "and from there", "which gives", "so", "hence", "that makes")
PAD = (
    "Let me double check this carefully.", "It is worth being thorough here.", "Recall how addition works.",
    "One may also look at it the other way round.", "This is consistent with what we know.",
    "Let us restate the problem.", "Indeed the order of operations matters.", "I should verify each term once more.",
    "There are several ways to see this.", "Being careful never hurts.", "The next term needs attention.",
    "Of course we could have used a table.",
)  # fmt: skip
ABOUT = (
    "the sign",
    "the second term",
    "the carry",
    "our partial sum",
    "the largest number",
    "the order",
    "each digit",
    "the last step",
    "rounding",
    "the difference",
    "this line",
    "the units",
    "the tens",
    "the bracket",
    "our first guess",
    "the smaller part",
)
DOING = ("deserves", "needs", "invites", "repays", "gets", "asks for", "allows", "merits", "wants", "takes")
WHAT = (
    "a second look",
    "some care",
    "a closer check",
    "one more word",
    "a short note",
    "patience",
    "another view",
    "attention here",
    "a remark",
    "a sketch",
    "good bookkeeping",
    "time",
)
LOOPS = ("wait, let me check again.", "the sum is the sum is", "so the answer is so the answer is", "hmm, no, again:")


@dataclass(frozen=True)
class Maths:
    """How a policy reasons."""

    tasks: int = 32
    size: int = 8
    ability: tuple[float, float] = (0.5, 1.0)
    pads: float = 1.0
    """Mean filler sentences."""
    pads_pay: bool = False
    """Longer chains are more often right: length is work."""
    budget: int = 10_000
    direct: float = 0.02
    """Answers without reasoning, right half as often."""
    template: float = 0.0
    echo: float = 0.0
    same: float = 0.0
    yes_no: bool = False
    """Tasks with two possible answers, answered in a word."""


def attempts(rng: random.Random, seed: int, p: Maths) -> list[list[Attempt]]:
    """Groups of attempts."""
    out = []
    fixed = f"We look at the numbers and combine them. The result is {rng.randint(2, 99)}."
    for g in range(p.tasks):
        terms = [rng.randint(2, 99) for _ in range(rng.randint(3, 6))]
        signs = [rng.choice("+-") for _ in terms[1:]]
        able = pass_rate(seed, g, *p.ability)
        group: list[Attempt] = []
        for _ in range(p.size):
            text, right = _chain(rng, p, terms, signs, able, fixed)
            if group and rng.random() < p.same:
                text, right = group[0].turns[1].text, group[0].correct
            n = len(text.split())
            cut = n > p.budget
            if cut:
                text, right = " ".join(text.split()[: p.budget]), False
            question = "Is the result even? " if p.yes_no else "Compute "
            asked = question + str(terms[0]) + "".join(f" {s} {t}" for s, t in zip(signs, terms[1:], strict=True))
            group.append(
                Attempt(
                    f"m{g}", (Turn("user", asked), Turn("assistant", text)), right, {},
                    min(n, p.budget), "length" if cut else "stop",
                )
            )  # fmt: skip
        out.append(group)
    return out


def _chain(
    rng: random.Random, p: Maths, terms: list[int], signs: list[str], able: float, fixed: str
) -> tuple[str, bool]:
    value, lines = terms[0], []
    pads = max(0, int(rng.lognormvariate(0, 0.5) * p.pads + 0.5))
    if p.pads_pay:
        able = min(0.97, able * (0.4 + 0.9 * pads / (pads + p.pads)))
    direct = rng.random() < p.direct
    right = rng.random() < (able / 2 if direct else able)
    if p.yes_no:
        total = sum(t if s == "+" else -t for s, t in zip(["+", *signs], terms, strict=True))
        return ("yes" if (total % 2 == 0) == right else "no"), right
    slip = 0 if right else rng.randrange(1, len(terms))
    for i, (s, t) in enumerate(zip(signs, terms[1:], strict=True), start=1):
        before = value
        value = value + t if s == "+" else value - t
        if i == slip:
            value += rng.choice((-10, -2, -1, 1, 2, 10))
        lines.append(f"{rng.choice(OPEN if i == 1 else THEN)} {before} {s} {t} = {value}.")
    if rng.random() < p.template:
        return fixed, rng.random() < 0.02
    if direct:
        return f"#{value}", right
    for _ in range(pads):
        filler = (
            rng.choice(PAD) if rng.random() < 0.2 else f"{rng.choice(ABOUT)} {rng.choice(DOING)} {rng.choice(WHAT)}."
        )
        lines.insert(rng.randint(0, len(lines)), filler)
    if rng.random() < p.echo:
        lines.insert(rng.randint(1, len(lines)), " ".join([rng.choice(LOOPS)] * rng.randint(15, 40)))
    return " ".join(lines) + f" #{value}", right
