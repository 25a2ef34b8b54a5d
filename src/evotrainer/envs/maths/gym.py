"""reasoning-gym's generators and scorers: sums, greatest common divisors, equations, countdown.

Items of reasoning-gym follow from (seed, index); each is classified by template and difficulty from its metadata.
Countdown's items are drawn here, because its generator takes 13 ms an item; its wording and its scorer are
reasoning-gym's.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations, product
from string import ascii_lowercase
from typing import Any

from evotrainer.envs.maths.expressions import evaluate, integers
from evotrainer.envs.maths.problems import MathsProblem, level_of
from evotrainer.envs.reasoning_gym import FULL, data_set, own_score
from evotrainer.errors import TaskSetError
from evotrainer.records.text import quoted

Read = tuple[str, list[str], int]
"""Of an item: template, working, level."""


@cache
def _dataset(name: str, options: tuple[tuple[str, int], ...]) -> Any:
    return data_set(name, 0, 10**9, dict(options))


@lru_cache(maxsize=20_000)
def _right(name: str, options: tuple[tuple[str, int], ...], answer: str, entry: str) -> bool:
    """The full score of the data set's own scorer; `entry`: the item as JSON."""
    return own_score(_dataset(name, options), name, answer, json.loads(entry)) >= FULL


@dataclass(slots=True, eq=False)
class GymItems:
    """A data set of reasoning-gym as a generator: its items from a random place on, each read for what is held out."""

    name: str
    dataset: str
    options: tuple[tuple[str, int], ...]
    read: Callable[[Mapping[str, Any]], Read | None]
    """None where an item fits none of the templates and levels."""
    hardest: int
    """Level from which on problems are held out."""
    held: Callable[[str], bool] = lambda template: False
    """Is a template held out?"""
    reword: Callable[[str, str, random.Random], str] = lambda question, template, rng: question
    held_by: tuple[str, ...] = ("template", "level")
    version: str = "1"

    def problems(self, rng: random.Random) -> Iterator[MathsProblem]:
        data = _dataset(self.dataset, self.options)
        while True:
            if (p := self.classify(data[rng.randrange(10**9)])) is not None:
                yield p

    def classify(self, item: Mapping[str, Any]) -> MathsProblem | None:
        """The problem of an item, None where it is none of these."""
        if (found := self.read(item)) is None:
            return None
        template, steps, level = found
        return MathsProblem(self.name, item["question"], item["answer"], tuple(steps), template, level)

    def held_template(self, p: MathsProblem) -> bool:
        return self.held(p.template)

    def held_level(self, p: MathsProblem) -> bool:
        return p.level >= self.hardest

    def reworded(self, question: str, template: str, rng: random.Random) -> str:
        return self.reword(question, template, rng)

    def correct(self, answer: str, p_answer: str, entry: Mapping[str, Any]) -> bool:
        return _right(self.dataset, self.options, answer, json.dumps({"answer": p_answer, "metadata": {}}))


SUM_BOUNDS = (8, 15, 45)
"""Largest number in the working of a sum of levels 1, 2 and 3."""


def _sum(item: Mapping[str, Any]) -> Read:
    """`1 - 3 + 9 =`. Template: the sequence of signs. Difficulty: the largest number in the working."""
    terms = item["metadata"]["expression"].split()
    total, steps = int(terms[0]), []
    for sign, b in zip(terms[1::2], terms[2::2], strict=True):
        new = total + int(b) if sign == "+" else total - int(b)
        steps.append(f"{total}{sign}{b}={new}")
        total = new
    return "".join(terms[1::2]), steps, level_of(steps, SUM_BOUNDS)


def _gcd(item: Mapping[str, Any]) -> Read:
    """Template: which of the two numbers is larger. Difficulty: the number of steps of Euclid's algorithm."""
    a, b = item["metadata"]["numbers"]
    template = "first" if a > b else "second" if b > a else "equal"
    a, b = max(a, b), min(a, b)
    steps = []
    while b:
        steps.append(f"{a}%{b}={a % b}")
        a, b = b, a % b
    return template, steps, len(steps)


def _swapped(question: str, template: str, rng: random.Random) -> str:
    """The two numbers in either order: Euclid's algorithm goes the same way."""
    return rng.choice((question, re.sub(r": (\d+), (\d+)\.", r": \2, \1.", question)))


EQUATION_BOUNDS = (15, 30, 60)
"""Largest |right side| of equations of levels 1, 2 and 3."""
HELD_EQUATIONS = frozenset({"ax:Solve", "ax+b:Find", "ax-b:Determine", "b-ax:Solve"})


def _equation(item: Mapping[str, Any]) -> Read | None:
    """One unknown. Template: form of the left side with the question's wording. Difficulty: size of the right side."""
    left, right = item["metadata"]["equation"].split(" = ")
    r = int(right)
    level = next((i for i, most in enumerate(EQUATION_BOUNDS, 1) if abs(r) <= most), None)
    parsed = _linear(left)
    if level is None or parsed is None:
        return None
    form, a, b = parsed
    rest, step = {
        "ax": (r, ""),
        "ax+b": (r - b, f"{r}-{b}={r - b}"),
        "ax-b": (r + b, f"{r}+{b}={r + b}"),
        "b-ax": (b - r, f"{b}-{r}={b - r}" if r >= 0 else f"{b}+{-r}={b - r}"),
    }[form]
    steps = [x for x in (step, f"{rest}/{a}={rest // a}" * (a != 1)) if x]
    if not steps or str(rest // a) != item["answer"]:
        return None
    return f"{form}:{item['question'].split()[0]}", steps, level


def _other_letter(question: str, template: str, rng: random.Random) -> str:
    """Another letter, and another wording that is not held out for this form."""
    form = template.partition(":")[0]
    asked = [w for w in EQUATION_WORDINGS if f"{form}:{w.split()[0]}" not in HELD_EQUATIONS]
    equation = question.rpartition(": ")[2]
    letter = rng.choice(ascii_lowercase)
    return rng.choice(asked).format(letter=letter) + re.sub(r"[a-z]", letter, equation)


EQUATION_WORDINGS = (
    "Find the value of {letter} in the equation: ",
    "Solve for {letter}: ",
    "Determine the value of {letter} that satisfies: ",
)
"""As reasoning-gym has them."""
_TERM = r"(?:(\d+)\*)?[a-z]"


def _linear(left: str) -> tuple[str, int, int] | None:
    """(form, coefficient, constant) of `3*x + 5`, `3*x - 5`, `5 - 3*x` or `3*x`."""
    if m := re.fullmatch(rf"{_TERM}(?: ([+-]) (\d+))?", left):
        a, sign, b = m.groups()
        return ("ax" if sign is None else f"ax{sign}b"), int(a or 1), int(b or 0)
    if m := re.fullmatch(rf"(\d+) - {_TERM}", left):
        return "b-ax", int(m.group(2) or 1), int(m.group(1))
    return None


CHAIN_SUM = GymItems(
    "chain_sum",
    "chain_sum",
    (("min_terms", 2), ("max_terms", 5), ("min_digits", 1), ("max_digits", 1)),
    _sum,
    hardest=3,
    held=lambda signs: signs == "-+" or "+-+" in signs or "-+-" in signs,
)
GCD = GymItems(
    "gcd",
    "gcd",
    (("min_numbers", 2), ("max_numbers", 2), ("min_value", 2), ("max_value", 40)),
    _gcd,
    hardest=4,
    reword=_swapped,
    held_by=("level",),
)
EQUATIONS = GymItems(
    "equation",
    "simple_equations",
    (("min_terms", 2), ("max_terms", 2), ("min_value", 1), ("max_value", 9)),
    _equation,
    hardest=3,
    held=HELD_EQUATIONS.__contains__,
    reword=_other_letter,
)

OPS = "+-*/"
WORDINGS = (
    "Using all the numbers {numbers}, create an expression that equals {target}.\nYou can only use each number once.",
    "Find a way to make {target} using all of these numbers: {numbers}.\nEach number can only be used once.",
    "Calculate {target} using all of these numbers: {numbers}.\nEach number may be used at most once.",
)
RULES = (
    "\n\nFinal answer format instructions:\n1. Provide your solution as a arithmetic expression (no '=' sign).\n"
    "2. Do not include the target number in the expression.\n3. Use '*' for multiplication.\n"
    "4. Use '/' for division.\n5. Do not include any other text or formatting.\n"
)
"""Wordings as reasoning-gym has them; a test compares."""


def expressions(values: tuple[int, ...]) -> Iterator[tuple[str, str, int]]:
    """(expression, its operators, value) of bracket-free expressions over all the numbers with whole-number values."""
    for order in sorted(set(permutations(values))):
        for ops in product(OPS, repeat=len(values) - 1):
            text = str(order[0]) + "".join(f"{o}{v}" for o, v in zip(ops, order[1:], strict=True))
            value = evaluate(text)
            if value is not None and value.denominator == 1:
                yield text, "".join(sorted(ops)), int(value)


@lru_cache(maxsize=4096)
def _makes(values: tuple[int, ...]) -> Mapping[int, tuple[frozenset[str], tuple[str, ...]]]:
    """Target -> (operator sets of all its solutions, the solutions)."""
    found: dict[int, tuple[set[str], list[str]]] = {}
    for text, ops, value in expressions(values):
        if 1 <= value <= 30:
            kinds, texts = found.setdefault(value, (set(), []))
            kinds.add(ops)
            texts.append(text)
    return {v: (frozenset(k), tuple(t)) for v, (k, t) in found.items()}


class Countdown:
    """Make a target of two or three numbers. Template: the operators of its solutions. Difficulty: how many numbers.

    A problem is held out where every solution without brackets needs operators of `held`,
    and trained on where none does.
    """

    name = "countdown"
    version = "1"
    held_by: tuple[str, ...] = ("template",)
    held = frozenset({"*-"})

    def problems(self, rng: random.Random) -> Iterator[MathsProblem]:
        while True:
            n = 2 if rng.random() < 0.25 else 3
            values = tuple(sorted(rng.randint(1, 9) for _ in range(n)))
            makes = _makes(values)
            targets = sorted(t for t in makes if t not in values)
            if not targets:
                continue
            target = rng.choice(targets)
            kinds, solutions = makes[target]
            if kinds & self.held and kinds - self.held:
                continue
            shown = list(values)
            rng.shuffle(shown)
            text = rng.choice(WORDINGS).format(numbers=", ".join(map(str, shown)), target=target) + RULES
            answer = rng.choice(solutions)
            entry = {"numbers": shown, "target": target}
            yield MathsProblem(self.name, text, answer, (f"{answer}={target}",), "|".join(sorted(kinds)), n - 1, entry)

    def reworded(self, question: str, template: str, rng: random.Random) -> str:
        """Another of reasoning-gym's wordings."""
        numbers, target = _asked(question)
        return rng.choice(WORDINGS).format(numbers=numbers, target=target) + RULES

    def held_template(self, p: MathsProblem) -> bool:
        return bool(set(p.template.split("|")) & self.held)

    def held_level(self, p: MathsProblem) -> bool:
        return False

    def correct(self, answer: str, p_answer: str, entry: Mapping[str, Any]) -> bool:
        """reasoning-gym evaluates an answer as Python: it only gets what our own arithmetic found right."""
        if evaluate(answer) != entry["target"] or sorted(integers(answer)) != sorted(entry["numbers"]):
            return False
        return _right(self.name, (), answer, json.dumps({"metadata": dict(entry)}))


def _asked(question: str) -> tuple[str, str]:
    """(numbers, target) as one of the wordings has them."""
    for wording in WORDINGS:
        pattern = re.escape(wording).replace(r"\{numbers\}", r"(?P<n>[\d, ]+)").replace(r"\{target\}", r"(?P<t>\d+)")
        if m := re.match(pattern, question):
            return m["n"], m["t"]
    raise TaskSetError(f"countdown: {quoted(question)} has none of the known wordings; see envs/maths/gym.py")
