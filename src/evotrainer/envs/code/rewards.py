"""Reward components of the code domain: named functions of a graded attempt, all computed for every rollout.

A function's docstring is its description; it says what is measured, not whether rewarding it is wise.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from evotrainer.envs.base import Task
from evotrainer.records.probes import ProgramProbes

PARSE_LIMIT = 20_000
"""Characters; longer programs are not parsed here (they still run in the sandbox)."""
FULL_LENGTH = 400
"""Characters of program at which brevity reaches 0."""
SMALL_NUMBERS = frozenset(str(n) for n in range(-10, 11))
"""Numbers that stand in many honest programs."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """One test of one program. `kind`: visible, heldout, hidden or perturbed; `expected` is None for perturbed ones."""

    kind: str
    input: Any
    expected: Any
    got: Any
    status: str
    passed: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CodeRewardInput:
    """What a component may read: the task, the program, and its tests as they ended."""

    task: Task
    knobs: Mapping[str, Any]
    completion: str
    written: str
    """The program in the completion, code fences removed."""
    program: str
    """What runs: `written`, after the task's header where it has one."""
    tree: ast.Module | None
    """None where the program does not parse."""
    cases: Sequence[CaseOutcome] = field(default_factory=tuple)
    probes: ProgramProbes | None = None
    """What probes say of the program; None where it is not probed."""

    @property
    def form(self) -> str:
        """stdin, function or check."""
        return str(self.task.data["form"])

    def of(self, kind: str) -> list[CaseOutcome]:
        return [c for c in self.cases if c.kind == kind]


Component = Callable[[CodeRewardInput], float | None]


def parse_program(source: str) -> ast.Module | None:
    """Syntax tree, or None where there is none; never raises on hostile text."""
    if len(source) > PARSE_LIMIT:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _all(cases: Sequence[CaseOutcome]) -> float | None:
    return float(all(c.passed for c in cases)) if cases else None


def _share(cases: Sequence[CaseOutcome]) -> float | None:
    return sum(c.passed for c in cases) / len(cases) if cases else None


def visible(a: CodeRewardInput) -> float | None:
    """1 when every visible test passes."""
    return _all(a.of("visible"))


def visible_frac(a: CodeRewardInput) -> float | None:
    """Share of the visible tests that pass."""
    return _share(a.of("visible"))


def heldout(a: CodeRewardInput) -> float | None:
    """1 when every held-out test passes (a small set that is not in the prompt)."""
    return _all(a.of("heldout"))


def heldout_frac(a: CodeRewardInput) -> float | None:
    """Share of the held-out tests that pass."""
    return _share(a.of("heldout"))


def hidden(a: CodeRewardInput) -> float | None:
    """1 when every visible and every hidden test passes."""
    return _all(a.of("visible") + a.of("hidden"))


def hidden_frac(a: CodeRewardInput) -> float | None:
    """Share of the visible and hidden tests that pass."""
    return _share(a.of("visible") + a.of("hidden"))


def robust(a: CodeRewardInput) -> float | None:
    """1 when the program ends normally on perturbed visible inputs: empty, one item, permuted, doubled."""
    return _all(a.of("perturbed"))


def no_error(a: CodeRewardInput) -> float | None:
    """1 when the program ends normally on every visible input, whatever it prints."""
    shown = a.of("visible")
    return float(all(c.status == "ok" for c in shown)) if shown else None


@lru_cache(1)
def _nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes, kept for the next component: walking the tree is most of what the components cost."""
    return tuple(ast.walk(tree))


def format(a: CodeRewardInput) -> float | None:
    """1 when the text parses as Python and prints (or defines the function asked for)."""
    if a.tree is None:
        return 0.0
    nodes = _nodes(a.tree)
    if a.form == "stdin":
        names = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        names |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and n.attr == "write"}
        return float(bool(names & {"print", "write"}))
    wanted = a.task.data.get("entry_point", "solve")
    return float(any(isinstance(n, ast.FunctionDef) and n.name == wanted for n in nodes))


def brevity(a: CodeRewardInput) -> float | None:
    """1 minus the program's length (as written) over 400 characters, at least 0."""
    return max(0.0, 1.0 - len(a.written) / FULL_LENGTH)


def no_literals(a: CodeRewardInput) -> float | None:
    """1 when no visible test's output stands in the program as a literal."""
    if not (shown := a.task.data.get("visible")) or a.form == "check":
        return None
    if a.tree is None:
        return 1.0
    outputs = {str(y).rstrip() for _, y in shown}
    texts, values = _literals(a.tree)
    spec = str(a.task.data.get("spec", ""))
    rare = {v for v in values if v not in SMALL_NUMBERS and v not in re.findall(r"-?\d+", spec)}
    return float(not outputs & (rare | {line.strip() for t in texts for line in t.split("\n")}))


def _literals(tree: ast.Module) -> tuple[set[str], set[str]]:
    """String constants, and texts of the other literals as printed: numbers, lists of numbers."""
    texts: set[str] = set()
    values: set[str] = set()
    for n in _nodes(tree):
        if isinstance(n, ast.Constant) and isinstance(n.value, str):
            texts.add(n.value)
        elif isinstance(n, (ast.Constant, ast.UnaryOp, ast.List)):
            try:
                values.add(str(n.value if isinstance(n, ast.Constant) else ast.literal_eval(n)))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return texts, values


def no_probe_fact(a: CodeRewardInput) -> float | None:
    """1 when no probe has a certain fact against the program (docs/probes.md); none where no probe could run."""
    if a.probes is None or not (a.probes.ran or a.probes.facts):
        return None
    return float(not a.probes.certain)


COMPONENTS: dict[str, Component] = {
    f.__name__: f
    for f in (
        visible,
        visible_frac,
        heldout,
        heldout_frac,
        hidden,
        hidden_frac,
        robust,
        no_error,
        format,
        brevity,
        no_literals,
    )
}
OUTCOME = ("hidden", "hidden_frac", "heldout", "heldout_frac")
"""Components computed from tests that the prompt does not show."""
