"""Every data set of reasoning-gym as an environment: `reasoning-gym:NAME`, scored by its own scorer.

Items follow from (seed, index), so splits are seeds; a question's hash says whether it may be trained on, whatever seed
or difficulty it came from, so that no draw and no level shows training what others are examined in.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import re
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import Field

from evotrainer.envs.base import DRAWN, Episode, Score, SplitSizes, Task, drawn
from evotrainer.envs.slots import PROMPT, SYSTEM, ScaffoldedEnvironment
from evotrainer.errors import MissingDependencyError, TaskSetError, install
from evotrainer.records.frozen import parsed
from evotrainer.records.text import cause

SCHEME = "reasoning-gym:"
FULL = 0.999
"""reasoning-gym pays partial credit for near misses; only its full score is a right answer."""
MISSING = f"this environment needs reasoning-gym; {install('math')}"
OWN = "own"
"""The difficulty of a data set's own settings."""
DATA = {"composite": "it is made of other data sets; name one of them"}
"""Data sets that cannot stand alone, and why."""
PYTHON = frozenset(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"))
SYMPY = frozenset(
    ("simple_integration", "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown")
)
"""Data sets whose scorers evaluate the answer, by `eval` and by sympy's parser: they get only what can do no harm."""
FUNCTIONS = frozenset(
    ["sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "sqrt"]
)
MOST_CHARS, MOST_NODES, MOST_POWER, MOST_NUMBER = 20_000, 400, 400, 10**15
RUNS = ("codeio",)
"""Data sets that run programs of their own data to make an item; some of these write files where they are."""
SCORE_S = 10.0
"""Seconds that a scorer may take for one answer."""


class GymConfig(SplitSizes):
    """`[environment]` with name = "reasoning-gym:NAME"."""

    name: str
    train: int = Field(1000, ge=1)
    """Tasks per split."""
    search: int = Field(100, ge=1)
    gate: int = Field(200, ge=1)
    cert: int = Field(200, ge=1)
    options: dict[str, Any] = {}
    """Settings of the data set, as reasoning-gym names them: {max_terms = 4}."""


@cache
def load() -> Any:
    """reasoning-gym; MissingDependencyError where it is not installed."""
    try:
        import reasoning_gym
    except ImportError as e:
        raise MissingDependencyError(f"{MISSING} ({e})") from None
    return reasoning_gym


def gym_version() -> str:
    """Version of the installed reasoning-gym; MissingDependencyError where there is none. Does not import it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        raise MissingDependencyError(MISSING) from None


def data_set(name: str, seed: int, size: int, options: Mapping[str, Any], level: int | None = None) -> Any:
    """A data set of reasoning-gym, at a level of its curriculum or with its own settings; TaskSetError for settings
    that it refuses."""
    factory = load().factory
    kind, config = factory.DATASETS[name]
    given = {"seed": seed, "size": size, **options}
    try:
        if level is None:
            settings = config(**given)
        else:
            curriculum = factory.create_curriculum(name)
            for attribute, about in curriculum.attributes.items():
                curriculum.set_attr_level(attribute, min(level, len(about.levels) - 1))
            settings = curriculum.generate_configuration(given)
        if hasattr(settings, "validate"):
            settings.validate()
        return kind(config=settings)
    except (TypeError, AssertionError, ValueError) as e:
        known = ", ".join(f for f in config.__dataclass_fields__ if f not in ("seed", "size"))
        raise TaskSetError(f"environment.options of {SCHEME}{name}: {cause(e)}; there are: {known}") from None


def own_score(data: Any, name: str, answer: str | None, entry: Mapping[str, Any]) -> float:
    """What the data set's scorer gives an answer. What its scorer would evaluate as Python, and is no plain
    expression, is an empty answer to it. TimeoutError where it does not come to an end."""
    if answer is not None and not harmless(answer, name):
        answer = ""
    with _limited():
        try:
            return float(data.score_answer(answer, entry))
        except (TimeoutError, MemoryError):
            raise
        except Exception:  # it cannot read the answer
            return 0.0


def harmless(answer: str, name: str) -> bool:
    """May a data set's scorer have it: no number without an end and, where it is evaluated, plain arithmetic, lists of
    texts or what is no expression at all?"""
    if len(answer) > MOST_CHARS or re.search(r"[eE][+-]?\d{4}", answer):
        return False
    if name not in PYTHON | SYMPY:
        return True
    try:
        tree = ast.parse(answer.strip(), mode="eval")
        nodes = list(ast.walk(tree))
    except SyntaxError:
        return name in PYTHON  # `eval` says the same; sympy's parser reads more than Python
    except (ValueError, MemoryError, RecursionError):
        return False
    if len(nodes) > MOST_NODES or not all(map(_plain, nodes)):
        return False
    if any(isinstance(n, ast.List | ast.Tuple) for n in nodes):
        return not any(isinstance(n, ast.BinOp) for n in nodes)  # nothing repeats them
    return _growth(tree) <= MOST_POWER


def _plain(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=x):
            return isinstance(x, str) or (isinstance(x, int | float) and abs(x) <= MOST_NUMBER)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in FUNCTIONS
        case ast.Name(id=name):
            return "_" not in name
        case ast.LShift() | ast.RShift():
            return False
    kinds = ast.Expression | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.List | ast.Tuple | ast.Load
    return isinstance(node, kinds)


def _growth(node: ast.AST) -> float:
    """By how much powers multiply the digits of a number at most."""
    below = max((_growth(n) for n in ast.iter_child_nodes(node)), default=1.0)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Pow):
        return below
    for n in ast.walk(node.right):
        if isinstance(n, ast.Pow | ast.Call):
            return float("inf")
        if isinstance(n, ast.Constant):
            below *= max(1.0, abs(n.value)) if isinstance(n.value, int | float) else float("inf")
    return below


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """TimeoutError after SCORE_S, where a signal can say so."""
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def over(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, SCORE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def trained_on(question: str) -> bool:
    """Does a question belong to training? Half of all do."""
    return hashlib.blake2b(question.encode(), digest_size=1).digest()[0] % 2 == 0


class GymEnv(ScaffoldedEnvironment):
    """One data set, single-turn. The answer is what the last <answer> tag holds."""

    redraws = True
    one_turn = True
    components: Mapping[str, str] = {
        "correct": "the data set's scorer gives its full score",
        "score": "what the data set's scorer gives, partial credit included",
        "format": "the answer stands in an <answer> tag",
    }
    outcome_components: Sequence[str] = ("correct", "score")
    slots = (
        SYSTEM,
        PROMPT.model_copy(update={"default": "{task}\n\nGive the final answer alone between <answer> and </answer>."}),
    )

    def __init__(self, config: GymConfig) -> None:
        self.name, self.config = config.name, config
        self.data = config.name.removeprefix(SCHEME)
        known = load().factory.DATASETS
        if self.data not in known or self.data in DATA:
            near = get_close_matches(self.data, known, 1)
            hint = DATA.get(self.data) or (f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}")
            raise TaskSetError(f"environment {self.name}: no data set {self.data!r} of reasoning-gym; {hint}")
        levels = tuple(range(_levels(self.data)))
        self.knobs = {"difficulty": (OWN, *levels)} if levels else {}
        self._made: dict[tuple[str, Any, str], tuple[Task, ...]] = {}
        self._scorer: Any = None
        self._draw = ""

    def _sizes(self) -> dict[str, int]:
        return self.config.sizes

    def _of_split(self, split: str) -> Sequence[Task]:
        return self._at_level(split, OWN)

    def redraw(self, seed: str) -> None:
        """Other questions for gate and cert, none of them a search or training question."""
        self._draw = seed

    def _at_level(self, split: str, level: Any) -> tuple[Task, ...]:
        draw = self._draw if split in DRAWN else ""
        if (key := (split, level, draw)) not in self._made:
            earlier = {"gate": ("search",), "cert": ("search", "gate")}.get(split, ())
            seen = {t.prompt for s in earlier for t in self._at_level(s, level)}
            made = self._generate(split, level, draw, seen)
            self._made[key] = drawn(made, draw) if draw else made
        return self._made[key]

    def _generate(self, split: str, level: Any, draw: str, seen: set[str]) -> tuple[Task, ...]:
        n = int(getattr(self.config, split))
        text = f"{self.config.seed}:{split}:{draw}"
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1
        data = data_set(self.data, seed, 4 * (n + len(seen)) + 64, self.config.options, None if level == OWN else level)
        out: list[Task] = []
        for i in range(len(data)):
            entry = self._item(data, i)
            question = str(entry["question"])
            if question in seen or trained_on(question) != (split == "train"):
                continue
            seen.add(question)
            tags = {"data_set": self.data, "difficulty": str(level)}
            out.append(Task(f"{split}-{len(out)}", split, question, {"entry": dict(entry)}, tags))
            if len(out) == n:
                return tuple(out)
        if out and level != OWN:  # an easy level has few questions: they come again
            return tuple(replace(out[i % len(out)], id=f"{split}-{i}") for i in range(n))
        raise TaskSetError(
            f"environment {self.name}: {split} has {len(out)} different questions, not {n}; set environment.{split} to "
            "fewer, or widen environment.options"
        )

    def _item(self, data: Any, i: int) -> Any:
        if self.data not in RUNS:
            return data[i]
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            return data[i]

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        return Episode(self._at(task, knobs), dict(knobs), self.opening(task, knobs))

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> Any:
        return self._scaffold.opening(self._at(task, knobs).prompt)

    def _at(self, task: Task, knobs: Mapping[str, Any]) -> Task:
        """The task of the same place at the difficulty that is set."""
        level = knobs.get("difficulty", OWN)
        if level == OWN:
            return task
        place = [t.id for t in self._at_level(task.split, OWN)].index(task.id)
        return replace(self._at_level(task.split, level)[place], id=task.id)

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        return [self._score(e) for e in episodes]

    def _score(self, e: Episode) -> Score:
        if self._scorer is None:
            self._scorer = data_set(self.data, 0, 64, self.config.options)
        answer = load().utils.extract_answer(e.turns[-1].text if e.done else "")
        entry = e.task.data["entry"]
        try:
            value = own_score(self._scorer, self.data, answer, entry)
        except (TimeoutError, MemoryError):
            why = f"the scorer of {self.data} did not come to an end with this answer within {SCORE_S:g} s"
            return Score(dict.fromkeys(self.components), "unknown", error=why, error_kind="scorer")
        right = value >= FULL
        values = {"correct": float(right), "score": value, "format": float(answer is not None)}
        detail = {**e.task.tags, "right_answer": str(entry["answer"])[:80]}
        return Score(values, "correct" if right else "incorrect", detail=detail)

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        """(question, its answer in a tag) of train tasks, from a place that the seed names."""
        train = self.tasks("train")
        known = [t for t in train if t.data["entry"]["answer"] is not None]
        first = seed % max(1, len(known))
        chosen = (known[first:] + known[:first])[:n]
        told = [(t.prompt, f"<answer>{t.data['entry']['answer']}</answer>") for t in chosen]
        return [self._scaffold.transcript(d) for d in told]

    def _hash(self) -> str:
        c = self.config
        key = [self.data, self.version, gym_version(), c.seed, self._sizes(), sorted(c.options.items())]
        return hashlib.sha256(json.dumps(key, default=str).encode()).hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "reasoning_gym": gym_version()}


def _levels(name: str) -> int:
    """How many levels the data set's curriculum has; 0: it has none."""
    factory = load().factory
    if not factory.has_curriculum(name):
        return 0
    return max((len(a.levels) for a in factory.create_curriculum(name).attributes.values()), default=0)


def open_gym(options: Mapping[str, Any]) -> GymEnv:
    """`[environment]` with name = "reasoning-gym:NAME". Raises TaskSetError."""
    return GymEnv(parsed(GymConfig, options, f"environment {options['name']!s}", TaskSetError))
