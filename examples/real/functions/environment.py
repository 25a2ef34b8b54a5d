"""Short Python functions on strings and lists, for a language model of 135 million parameters; run in the sandbox.

A task is one operation, or two, in words, with an example. Which split a function belongs to follows from a hash of
its wording, so none is in two; gate and cert are drawn for each run. Rewards are those of the code environment
(docs/domains/code.md): the example is the visible test, the outcome is seven hidden ones as well.
"""

import ast
import hashlib
import random
from typing import Any, NamedTuple

from evotrainer.envs.base import DRAWN, Task, drawn
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.task_list import ListSource

SIZES = {"train": 4000, "search": 160, "gate": 160, "cert": 160}
OWNED = {"search": 15, "gate": 20, "cert": 20}
"""Per cent of all functions that a split owns; the rest is train's."""


class Op(NamedTuple):
    """An operation: kind of what it takes and gives, wording around {x} and {k}, Python likewise, and its constants."""

    takes: str
    gives: str
    phrase: str
    code: str
    constants: tuple[Any, ...] = (None,)


FEW, MANY, LETTERS = (2, 3, 4), tuple(range(2, 19)), tuple("abcdeghilmnoprstuw")
OPS = (
    Op("text", "text", "{x} reversed", "{x}[::-1]"),
    Op("text", "text", "{x} in upper case", "{x}.upper()"),
    Op("text", "text", "{x} in title case", "{x}.title()"),
    Op("text", "text", "the first character of {x}", "{x}[0]"),
    Op("text", "text", "the last character of {x}", "{x}[-1]"),
    Op("text", "text", "the first {k} characters of {x}", "{x}[:{k}]", FEW),
    Op("text", "text", "the last {k} characters of {x}", "{x}[-{k}:]", FEW),
    Op("text", "text", "{x} without its first {k} characters", "{x}[{k}:]", FEW),
    Op("text", "text", "{x} repeated {k} times", "{x} * {k}", (2, 3, 4, 5)),
    Op("text", "text", "{x} without spaces", "{x}.replace(' ', '')"),
    Op("text", "text", "{x} without the letter {k}", "{x}.replace('{k}', '')", LETTERS),
    Op("text", "text", "{x} with {k} replaced by *", "{x}.replace('{k}', '*')", LETTERS),
    Op("text", "text", "{x} followed by '{k}'", "{x} + '{k}'", ("!", "?", ".", "ing", "s", "er")),
    Op("text", "text", "'{k}' followed by {x}", "'{k}' + {x}", ("-", "un", "the ", "re")),
    Op("text", "number", "the length of {x}", "len({x})"),
    Op("text", "number", "the number of times the letter {k} occurs in {x}", "{x}.count('{k}')", LETTERS),
    Op("text", "number", "the number of words in {x}", "len({x}.split())"),
    Op("text", "truth", "True if {x} contains the letter {k}", "'{k}' in {x}", LETTERS),
    Op("text", "truth", "True if {x} ends with the letter {k}", "{x}.endswith('{k}')", LETTERS),
    Op("text", "truth", "True if {x} is longer than {k} characters", "len({x}) > {k}", (5, 6, 8, 10)),
    Op("list", "list", "{x} reversed", "{x}[::-1]"),
    Op("list", "list", "{x} sorted", "sorted({x})"),
    Op("list", "list", "{x} sorted in descending order", "sorted({x}, reverse=True)"),
    Op("list", "list", "the first {k} numbers of {x}", "{x}[:{k}]", FEW),
    Op("list", "list", "the last {k} numbers of {x}", "{x}[-{k}:]", FEW),
    Op("list", "list", "{x} without its first number", "{x}[1:]"),
    Op("list", "list", "{x} followed by {k}", "{x} + [{k}]", MANY),
    Op("list", "list", "each number of {x} plus {k}", "[n + {k} for n in {x}]", MANY),
    Op("list", "list", "each number of {x} times {k}", "[n * {k} for n in {x}]", MANY),
    Op("list", "list", "the squares of {x}", "[n * n for n in {x}]"),
    Op("list", "list", "the numbers of {x} greater than {k}", "[n for n in {x} if n > {k}]", MANY),
    Op("list", "list", "the numbers of {x} less than {k}", "[n for n in {x} if n < {k}]", MANY),
    Op("list", "list", "the even numbers of {x}", "[n for n in {x} if n % 2 == 0]"),
    Op("list", "number", "the sum of {x}", "sum({x})"),
    Op("list", "number", "the length of {x}", "len({x})"),
    Op("list", "number", "the largest number of {x}", "max({x})"),
    Op("list", "number", "the smallest number of {x}", "min({x})"),
    Op("list", "number", "the first number of {x}", "{x}[0]"),
    Op("list", "number", "the last number of {x}", "{x}[-1]"),
    Op("list", "number", "the number of times {k} occurs in {x}", "{x}.count({k})", MANY),
    Op("list", "truth", "True if {x} contains {k}", "{k} in {x}", MANY),
    Op("list", "truth", "True if {x} has more than {k} numbers", "len({x}) > {k}", FEW),
    Op("number", "number", "{x} plus {k}", "{x} + {k}", MANY),
    Op("number", "number", "{x} times {k}", "{x} * {k}", MANY),
)
NAMES = {
    "text": ("s", "text", "word", "name", "line", "title", "phrase"),
    "list": ("x", "numbers", "values", "items", "scores", "prices", "ages"),
}
CALLED = {"text": "the string", "list": "the list"}
WORDS = (
    *("red apple", "little star", "green tea", "open road", "silent night", "winter rain", "lemon tree", "alpha"),
    *("banana", "train", "sister", "orange", "internet", "house on a hill", "one two three", "salt and pepper"),
    *("north east", "a lion", "river stone"),
)
Chain = tuple[tuple[Op, Any], ...]


def filled(text: str, x: str, k: Any) -> str:
    return text.replace("{x}", x).replace("{k}", str(k))


def wording(chain: Chain, name: str) -> str:
    text = f"{CALLED[chain[0][0].takes]} {name}"
    for op, k in chain:
        text = filled(op.phrase, text, k)
    return f"Write a Python function f({name}) that returns {text}."


def program(chain: Chain, name: str) -> str:
    text = name
    for op, k in chain:
        whole = isinstance(ast.parse(text, mode="eval").body, ast.BinOp)
        text = filled(op.code, f"({text})" if whole else text, k)
    return f"def f({name}):\n    return {text}"


def owner(spec: str) -> str:
    """The split that owns a function asked for: by a hash of its wording, and of nothing else."""
    place = int(hashlib.sha256(spec.encode()).hexdigest(), 16) % 100
    for split, share in OWNED.items():
        if place < share:
            return split
        place -= share
    return "train"


def draw_chain(rng: random.Random) -> Chain:
    """One operation four times in five, else two that read well together."""
    first = rng.choice([op for op in OPS if op.takes in NAMES])
    chain: Chain = ((first, rng.choice(first.constants)),)
    after = [op for op in OPS if op.takes == first.gives and op is not first and op.phrase.endswith("{x}")]
    if after and rng.random() < 1 / 5:
        second = rng.choice(after)
        chain += ((second, rng.choice(second.constants)),)
    return chain


def drawn_input(kind: str, rng: random.Random) -> Any:
    if kind == "text":
        return rng.choice(WORDS)
    return [rng.randint(0, 20) for _ in range(rng.randint(3, 6))]


def tests_of(chain: Chain, gold: str, rng: random.Random) -> list[list[Any]] | None:
    """A visible and seven hidden tests; None where outputs hardly differ, or an input is too short for the chain."""
    scope: dict[str, Any] = {}
    exec(gold, scope)  # a program of ours, made of OPS
    inputs: list[Any] = []
    while len(inputs) < 8:
        if (x := drawn_input(chain[0][0].takes, rng)) not in inputs:
            inputs.append(x)
    try:
        tests = [[[x], scope["f"](x)] for x in inputs]
    except (IndexError, ValueError):
        return None
    if len(chain) > 1 and chain[0][0].gives == chain[0][0].takes:
        # a first operation that changes no output asks for nothing
        exec(program(chain[1:], "x"), scope)
        if sum(scope["f"](*x) != y for x, y in tests[1:]) < 2:
            return None
    enough = 2 if chain[-1][0].gives == "truth" else 3
    return tests if len({repr(y) for _, y in tests[1:]}) >= enough else None


def as_task(chain: Chain, spec: str, gold: str, split: str, n: int, rng: random.Random) -> Task | None:
    tests = tests_of(chain, gold, rng)
    if tests is None:
        return None
    (((shown,), value), *hidden) = tests
    data = {
        "form": "call",
        "spec": spec,
        "entry_point": "f",
        "header": "",
        "preamble": "",
        "gold": gold,
        "golds": [gold],
        "visible": tests[:1],
        "hidden": hidden,
        "perturb": False,
    }
    tags = {"steps": str(len(chain)), "kind": chain[0][0].takes, "gives": chain[-1][0].gives}
    prompt = f"{spec}\nExample: f({shown!r}) is {value!r}\n```python\n{gold.splitlines()[0]}\n```"
    return Task(f"{split}-{n}", split, prompt, data, tags=tags)


def make_split(split: str, seed: str) -> list[Task]:
    """Tasks of the functions that a split owns, each once; in train again with other examples."""
    rng = random.Random(f"{seed}:{split}")
    out: list[Task] = []
    seen: set[str] = set()
    while len(out) < SIZES[split]:
        chain = draw_chain(rng)
        name = rng.choice(NAMES[chain[0][0].takes])
        spec = wording(chain, name)
        if owner(spec) != split or (split in OWNED and spec in seen):
            continue
        task = as_task(chain, spec, program(chain, name), split, len(out), rng)
        if task is None or task.prompt in seen:
            continue
        seen.update((spec, task.prompt))
        out.append(task)
    return out


class Functions(ListSource):
    """The tasks as a source of the code environment, which draws gate and cert of a seed."""

    def __init__(self) -> None:
        super().__init__("real-functions", [t for s in SIZES for t in make_split(s, "13")], cpu_s=0.5)

    def redraw(self, seed: str) -> None:
        self._splits |= {s: drawn(make_split(s, seed), seed) for s in DRAWN}


def environment() -> CodeEnv:
    """What `environment.name` in task.toml points to."""
    return CodeEnv(Functions())
