"""Generated repositories: several modules, one bug, tests, a history, and the fix that a full history would show."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evotrainer.envs.swe.bugs import mutate
from evotrainer.envs.swe.compositions import buggy, honest, prompt_split
from evotrainer.envs.swe.ops import INPUTS, OPS, Meaning, OpLine, chained, meaning_of
from evotrainer.envs.swe.world import Commit, HiddenCall, Repo

_WORDS = """
bump calc norm shift scale tune adjust wrap fold squash lift drop trim pack mix blend grade score
rank price cost rate tax fee bonus level power boost decay step jump turn spin pulse wave phase tone
depth width height gain load merge rest slide stack swing weigh
"""
NAMES = tuple(_WORDS.split())
FILES = ("util", "core", "tools", "base", "model", "logic", "rules", "engine", "helper", "stock", "board", "panel")
FLOWS = ("main", "flow", "app")
VISIBLE_FILE = "test_all.py"
HIDDEN_FILE = "test_hidden.py"
MAX_SHOWN = 999
"""Largest absolute value in an issue or a visible test."""
MAX_HIDDEN = 99_999
"""Largest absolute value in a hidden test."""
TWEAKS = ("tweak", "update", "refactor")


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the repositories."""

    modules: int = 2
    functions: int = 2
    """Functions per module."""
    steps: tuple[int, ...] = (2,)
    """Operations of a function, drawn from these."""
    documented: float = 0.7
    """Functions whose comment is their specification."""
    indirect: float = 0.0
    """Tasks whose issue speaks of a function that calls the buggy one, in a module of its own."""


CHANGES = 2
"""Commits of the history after the first one, where there are functions for them."""


class DegenerateRepoError(Exception):
    """The draw gives no sound repository; draw again."""


@dataclass(frozen=True, slots=True)
class Function:
    """Its lines follow from the steps, or from the functions that it calls one after the other."""

    name: str
    steps: tuple[OpLine, ...] = ()
    documented: bool = True
    calls: tuple[str, ...] = ()

    def text(self, lines: Sequence[str] | None = None) -> str:
        """Source, with other lines of code where given."""
        doc = "; ".join(s.phrase for s in self.steps) if self.documented else "todo"
        if self.calls:
            doc = " then ".join(self.calls)
        if lines is None:
            lines = [s.line for s in self.steps] or [f"x = {c}(x)" for c in self.calls]
        body = (f"# {doc}", *lines, "return x")
        return "\n".join([f"def {self.name}(x):", *(f"    {line}" for line in body)])


@dataclass(frozen=True, slots=True)
class Fault:
    """The bug: line `at` of the target is wrong, or left out (`step` None)."""

    target: Function
    at: int
    kind: str
    step: OpLine | None

    @property
    def steps(self) -> tuple[OpLine, ...]:
        """The target's steps as they really run."""
        wrong = () if self.step is None else (self.step,)
        return (*self.target.steps[: self.at], *wrong, *self.target.steps[self.at + 1 :])


def draw_steps(rng: random.Random, ops: Sequence[str]) -> tuple[OpLine, ...]:
    """Operations with constants."""
    return tuple(OpLine(o, rng.randint(*c) if (c := OPS[o].constants) else 0) for o in ops)


def draw_fault(rng: random.Random, split: str, name: str, plan: Plan) -> Fault:
    ops, at, kind = buggy(rng, split, rng.choice(plan.steps))
    steps = draw_steps(rng, ops)
    wrong = mutate(rng, kind, steps[at])
    if wrong == steps[at]:
        raise DegenerateRepoError
    return Fault(Function(name, steps, rng.random() < plan.documented), at, kind, wrong)


def _small(y: int | None) -> bool:
    return y is not None and abs(y) <= MAX_SHOWN


def differing(right: Meaning, wrong: Meaning) -> list[int]:
    """Inputs on which right and wrong give different small numbers."""
    both = zip(INPUTS, right.values, wrong.values, strict=True)
    return [x for x, a, b in both if a != b and _small(a) and _small(b)]


@dataclass(frozen=True, slots=True)
class RepositoryDraft:
    """A repository before its texts are written."""

    fault: Fault
    reported: Function
    """The function that the issue speaks of."""
    input: int
    issue: str
    functions: Mapping[str, tuple[Function, ...]]
    """Module (without .py) -> its functions."""
    right: Mapping[str, Meaning]
    wrong: Mapping[str, Meaning]


def draft(rng: random.Random, split: str, plan: Plan) -> RepositoryDraft:
    """Draw what decides the issue text first, so that a text of another split is refused cheaply."""
    names = rng.sample(NAMES, plan.modules * plan.functions + bool(plan.indirect) * plan.functions)
    leaves = names[: plan.modules * plan.functions]
    fault = draw_fault(rng, split, rng.choice(leaves), plan)
    right: dict[str, Meaning] = {fault.target.name: meaning_of(fault.target.steps)}
    wrong: dict[str, Meaning] = {fault.target.name: meaning_of(fault.steps)}
    others = {n: Function(n, documented=rng.random() < plan.documented) for n in leaves if n != fault.target.name}
    for n in others:
        steps = draw_steps(rng, honest(rng, rng.choice(plan.steps)))
        others[n] = Function(n, steps, others[n].documented)
        right[n] = wrong[n] = meaning_of(steps)
    reported, flows = fault.target, []
    for i, n in enumerate(names[len(leaves) :]):
        first = fault.target.name if i == 0 else rng.choice(leaves)
        called = rng.sample([first, rng.choice([x for x in leaves if x != first])], 2)
        flows.append(Function(n, calls=tuple(called)))
        right[n], wrong[n] = chained([right[c] for c in called]), chained([wrong[c] for c in called])
    if flows and rng.random() < plan.indirect:
        reported = flows[0]
    found = differing(right[reported.name], wrong[reported.name])
    if not found:
        raise DegenerateRepoError
    x = rng.choice(found)
    issue = f"issue: {reported.name}({x}) gives {wrong[reported.name](x)}, expected {right[reported.name](x)}"
    if prompt_split(issue) != split:
        raise DegenerateRepoError
    every = [fault.target if n == fault.target.name else others[n] for n in leaves]
    files = rng.sample(FILES, plan.modules)
    modules = {f: tuple(every[i * plan.functions : (i + 1) * plan.functions]) for i, f in enumerate(files)}
    if flows:
        modules[rng.choice(FLOWS)] = tuple(flows)
    return RepositoryDraft(fault, reported, x, issue, modules, right, wrong)


def _module_of(d: RepositoryDraft, name: str) -> str:
    return next(m for m, fs in d.functions.items() if any(f.name == name for f in fs))


def module_text(d: RepositoryDraft, module: str, lines: Mapping[str, Sequence[str]]) -> str:
    """Source of a module; lines: function -> lines of code that stand in place of its own."""
    functions = d.functions[module]
    called = sorted({c for f in functions for c in f.calls})
    imports = [f"from {_module_of(d, c)} import {c}" for c in called]
    parts = (["\n".join(imports)] if imports else []) + [f.text(lines.get(f.name)) for f in functions]
    return "\n\n".join(parts) + "\n"


def _test_text(d: RepositoryDraft, cases: Sequence[tuple[str, str, int]]) -> str:
    """Tests (test name, function, input), each one assert."""
    used = {f for _, f, _ in cases}
    imports = [
        f"from {m} import {', '.join(f.name for f in fs if f.name in used)}"
        for m, fs in d.functions.items()
        if any(f.name in used for f in fs)
    ]
    tests = [f"def {t}():\n    assert {f}({x}) == {d.right[f](x)}" for t, f, x in cases]
    return "\n\n".join(["\n".join(imports), *tests]) + "\n"


def build(
    rng: random.Random, d: RepositoryDraft, plan: Plan, split: str, message: str = "fix", shown: str = ""
) -> Repo:
    """Write texts, tests and history of a draft. `shown`: another issue text than the draft's."""
    fault, target = d.fault, d.fault.target.name
    home = _module_of(d, target) + ".py"
    broken = {target: [s.line for s in fault.steps]}
    files = {f"{m}.py": module_text(d, m, broken) for m in d.functions}
    gold = {home: module_text(d, home.removesuffix(".py"), {})}
    visible = {VISIBLE_FILE: _test_text(d, _visible_cases(rng, d))}
    f2p, p2p = _hidden_cases(rng, d)
    history, older = _history(rng, d, {**files, **visible}, broken, plan)
    ids = {t: f"{HIDDEN_FILE}::{t}" for t, _, _ in (*f2p, *p2p)}
    calls = {ids[t]: HiddenCall(_module_of(d, f), f, (x,), d.right[f](x)) for t, f, x in (*f2p, *p2p)}
    pair = ">".join(s.op for s in fault.target.steps)
    return Repo(
        id=f"{split}-{target}",
        files=files,
        issue=shown or d.issue,
        history=history,
        future=(Commit(f"{message} {target}", {home: files[home]}, gold),),
        visible=visible,
        fail_to_pass=tuple(ids[t] for t, _, _ in f2p),
        pass_to_pass=tuple(ids[t] for t, _, _ in p2p),
        gold=gold,
        calls=calls,
        tags={
            "bug": fault.kind,
            "operations": pair,
            "documented": "yes" if fault.target.documented else "no",
            "reported": "caller" if d.reported is not fault.target else "itself",
            "function": target,
            "module": home,
            "tweaked": " ".join(older),
        },
    )


def _visible_cases(rng: random.Random, d: RepositoryDraft) -> list[tuple[str, str, int]]:
    """One test per function: what the issue says, and for the others an input on which the bug does not show."""
    out = []
    for f in (f for fs in d.functions.values() for f in fs):
        x = d.input
        if f.name != d.reported.name:
            right, wrong = d.right[f.name], d.wrong[f.name]
            both = zip(INPUTS, right.values, wrong.values, strict=True)
            target = f.name == d.fault.target.name
            pool = [x for x, y, z in both if _small(y) and (target or y == z)]
            if not pool:
                raise DegenerateRepoError
            x = rng.choice(pool)
        out.append((f"test_{f.name}", f.name, x))
    return out


def _hidden_cases(
    rng: random.Random, d: RepositoryDraft
) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """(test name, function, input) that fail at the base, and that pass there."""
    f2p: list[tuple[str, str, int]] = []
    p2p: list[tuple[str, str, int]] = []
    for f in (f for fs in d.functions.values() for f in fs):
        right, wrong = d.right[f.name], d.wrong[f.name]
        bad: list[int] = []
        good: list[int] = []
        for x, y, z in zip(INPUTS, right.values, wrong.values, strict=True):
            if y is not None and abs(y) <= MAX_HIDDEN:
                (good if y == z else bad).append(x)
        # the issue shows one failing input: a solution that special-cases it must not pass by that alone
        new = [x for x in bad if (f.name, x) != (d.reported.name, d.input)] or bad
        of_target = f.name == d.fault.target.name
        failing = rng.sample(new, min(len(new), 4 if of_target else 1))
        passing = rng.sample(good, min(len(good), 3 if of_target else 2))
        f2p += [(f"test_{f.name}_{i}", f.name, x) for i, x in enumerate(failing)]
        p2p += [(f"test_{f.name}_{i}", f.name, x) for i, x in enumerate(passing, len(failing))]
    if not f2p or not p2p:
        raise DegenerateRepoError
    return f2p, p2p


def _history(
    rng: random.Random, d: RepositoryDraft, base: Mapping[str, str], broken: Mapping[str, Sequence[str]], plan: Plan
) -> tuple[tuple[Commit, ...], list[str]]:
    """Commits that end at the base, none of which touches the target or writes the right line; functions tweaked."""
    leaves = [f for fs in d.functions.values() for f in fs if f.steps and f.name != d.fault.target.name]
    right = d.fault.target.steps[d.fault.at].line
    tweaked = rng.sample(leaves, min(CHANGES, len(leaves)))
    lines = dict(broken)
    tree = dict(base)
    commits: list[Commit] = []
    for f in tweaked:  # newest first
        now = [s.line for s in f.steps]
        at = rng.randrange(len(now))
        steps = draw_steps(rng, ("add", "mul", "cap", f.steps[at].op))
        old = [s.line for s in steps if s.line not in (now[at], right)]
        if now[at] == right or not old:
            raise DegenerateRepoError
        lines[f.name] = [*now[:at], rng.choice(old), *now[at + 1 :]]
        module = _module_of(d, f.name)
        path = f"{module}.py"
        before = module_text(d, module, lines)
        commits.append(Commit(f"{rng.choice(TWEAKS)} {f.name}", {path: before}, {path: tree[path]}))
        tree[path] = before
    start = Commit("start", dict.fromkeys(tree), dict(tree))
    return (start, *reversed(commits)), [f.name for f in tweaked]


def repositories(rng: random.Random, split: str, plan: Plan, message: str = "fix", header: str = "") -> Repo:
    """The next sound repository of a split. `header`: issue text that stands in place of the issue,
    `{f}` the function."""
    while True:
        try:
            d = draft(rng, split, plan)
            shown = header.replace("{f}", d.fault.target.name)
            return build(rng, d, plan, split, message, shown)
        except DegenerateRepoError:
            continue
