"""Demonstrations for the warm start: a teacher who makes honest mistakes, played through the tools.

Issue demonstrations run on scrubbed repositories: nothing that a history shows there is the fix. Applying a commit is
taught by another kind of task, `backport: f`, which asks for just that.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.bugs import fitting, mutate
from evotrainer.envs.swe.generate import FILES, NAMES, TWEAKS, Function, Plan, draw_steps, honest, repositories
from evotrainer.envs.swe.ops import OPS
from evotrainer.envs.swe.world import Commit, Repo, World

SCRUBBED = {"history": "scrubbed", "tests": "protected", "visible_tests": "shown"}
FULL = SCRUBBED | {"history": "full"}
BACKPORT = "backport: {f}"
LARGER = {"modules": 4, "functions": 3, "steps": (2, 3), "indirect": 0.5}


@dataclass(frozen=True, slots=True)
class SweTeacher:
    """Shares of demonstrations."""

    wrong_edit: float = 0.3
    """With a wrong edit first; half of them are submitted without a test."""
    backport: float = 0.25
    """Of the task that asks for a commit's change."""
    explore: float = 0.12
    """Issue demonstrations that look at the history."""
    larger: float = 0.15
    """On repositories of the size LARGER, so that one policy serves both sizes."""


@dataclass(slots=True)
class Script:
    """A demonstration in the making: actions played on a handle."""

    knobs: Mapping[str, str]
    repo: Repo
    actions: list[str]


def demonstrations(world: World, plan: Plan, teacher: SweTeacher, n: int, seed: int) -> list[tuple[str, ...]]:
    """`n` of (prompt, action, observation, ..., action)."""
    return play(world, scripts(random.Random(f"demonstrations:{seed}"), plan, teacher, n))


def scripts(rng: random.Random, plan: Plan, teacher: SweTeacher, n: int) -> list[Script]:
    """What the teacher does on `n` repositories of train compositions."""
    larger = replace(plan, **LARGER)  # type: ignore[arg-type]
    out = []
    for _ in range(n):
        size = larger if rng.random() < teacher.larger else plan
        backport = rng.random() < teacher.backport
        out.append(_backport(rng, size) if backport else _issue(rng, size, teacher))
    return out


def play(world: World, played: Sequence[Script]) -> list[tuple[str, ...]]:
    """Run all scripts together, turn by turn: (prompt, action, observation, ..., last action) of each."""
    handles = [world.open(s.repo, s.knobs) for s in played]
    out: list[list[str]] = [[s.repo.issue] for s in played]
    for turn in range(max(len(s.actions) for s in played) if played else 0):
        going = [i for i, s in enumerate(played) if turn < len(s.actions)]
        seen = world.act([handles[i] for i in going], [tools.parse(played[i].actions[turn]) for i in going])
        for i, o in zip(going, seen, strict=True):
            out[i].append(played[i].actions[turn])
            if turn + 1 < len(played[i].actions):
                out[i].append(o.text)
    for h in handles:
        world.close(h)
    return [tuple(x) for x in out]


def gold_edit(repo: Repo) -> str:
    """The one action that turns the base into the fix."""
    (path, new), old = next(iter(repo.gold.items())), repo.files[next(iter(repo.gold))]
    a, b = old.splitlines(), new.splitlines()
    at = next(i for i, line in enumerate(b) if i >= len(a) or a[i] != line)
    verb = "edit" if len(a) == len(b) else "insert"
    return f"{verb} {path} {at + 1} {b[at].strip()}"


def reference(repo: Repo, knobs: Mapping[str, str]) -> Script:
    """What a careful engineer does: nothing is guessed, no history is looked at, every edit is tested where tests are
    shown."""
    if repo.tags["reported"] == "caller":
        actions = _trace(repo)
    else:
        actions = [f"grep def {repo.tags['function']}", f"cat {repo.tags['module']}"]
    check = ["test"] if knobs["visible_tests"] == "shown" else []
    return Script(knobs, repo, [*actions, gold_edit(repo), *check, "submit"])


def _issue(rng: random.Random, plan: Plan, teacher: SweTeacher) -> Script:
    repo = repositories(rng, "train", plan)
    target, home = repo.tags["function"], repo.tags["module"]
    actions = _look(rng, repo)
    if rng.random() < teacher.explore:
        actions.append("git log")
        if rng.random() < 0.7:
            newest = len(repo.history) < 3 or rng.random() < 0.6
            actions.append(f"git show HEAD~{0 if newest else rng.randrange(len(repo.history) - 1)}")
    if repo.tags["reported"] == "caller":
        actions += _trace(repo)
    else:
        actions += [f"grep def {target}"] if rng.random() < 0.8 else []
        actions.append(f"cat {home}")
    fix = gold_edit(repo)
    if rng.random() < teacher.wrong_edit:
        actions.append(_wrong(rng, fix))
        if rng.random() < 0.5:
            return Script(SCRUBBED, repo, [*actions, "submit"])
        actions.append("test")
        fix = fix if fix.startswith("edit") else "edit" + fix.removeprefix("insert")
    actions.append(fix)
    if rng.random() < 0.5:
        actions.append("test")
    return Script(SCRUBBED, repo, [*actions, "submit"])


def _look(rng: random.Random, repo: Repo) -> list[str]:
    return (["ls"] if rng.random() < 0.3 else []) + (["test"] if rng.random() < 0.1 else [])


def _trace(repo: Repo) -> list[str]:
    """From the caller that the issue names to the buggy function: read the caller, then the functions that it calls."""
    caller = repo.issue.removeprefix("issue: ").partition("(")[0]
    path, text = next((p, t) for p, t in repo.files.items() if f"def {caller}(x):" in t)
    doc = text.split(f"def {caller}(x):\n    # ", 1)[1].split("\n", 1)[0]
    actions = [f"grep def {caller}", f"cat {path}"]
    seen = {path}
    for name in doc.split(" then "):
        where = next(p for p, t in repo.files.items() if f"def {name}(x):" in t)
        actions.append(f"grep def {name}")
        if where not in seen:
            actions.append(f"cat {where}")
            seen.add(where)
        if name == repo.tags["function"]:
            break
    return actions


def _wrong(rng: random.Random, fix: str) -> str:
    """A plausible wrong edit of the right line: the verb and the line of the fix, with another operation."""
    verb, path, number, right = fix.split(" ", 3)
    while True:
        (step,) = draw_steps(rng, [rng.choice(list(OPS))])
        if step.line != right:
            return f"{verb} {path} {number} {step.line}"


def _backport(rng: random.Random, plan: Plan) -> Script:
    """The change of one commit, among others that the branch is ahead by; the task names its function."""
    verb = rng.choice(TWEAKS)
    repo = repositories(rng, "train", plan, verb, BACKPORT)
    if rng.random() < 0.3:
        repo = _ahead(repo, rng)
    back = next(i for i, c in enumerate(reversed(repo.future)) if c.message.split()[-1] == repo.tags["function"])
    actions = [*(["ls"] if rng.random() < 0.1 else []), "git log", f"git show HEAD~{back}"]
    if rng.random() < 0.3:
        actions.append(f"grep def {repo.tags['function']}")
    actions += [f"cat {repo.tags['module']}", gold_edit(repo)]
    if rng.random() < 0.4:
        actions.append("test")
    return Script(FULL, repo, [*actions, "submit"])


def _ahead(repo: Repo, rng: random.Random) -> Repo:
    """The same with a later commit on top, of a function of another module."""
    others = [p for p in repo.files if p not in repo.gold]
    if not others:
        return repo
    path = rng.choice(others)
    lines = repo.files[path].splitlines()
    spots = [i for i, ln in enumerate(lines) if ln.startswith("    x = ") and "(x)" not in ln]
    if not spots:
        return repo
    at = rng.choice(spots)
    name = next(ln for ln in reversed(lines[:at]) if ln.startswith("def ")).removeprefix("def ").partition("(")[0]
    (step,) = draw_steps(rng, [rng.choice(("add", "mul", "cap"))])
    new = "\n".join([*lines[:at], "    " + step.line, *lines[at + 1 :]]) + "\n"
    top = Commit(f"{rng.choice(TWEAKS)} {name}", {path: repo.files[path]}, {path: new})
    return replace(repo, future=(*repo.future, top))


def drills(plan: Plan, n: int, seed: int) -> list[tuple[str, ...]]:
    """Short exercises, one third each: lines from a specification, mend a line, apply a commit."""
    rng = random.Random(f"drills:{seed}")
    kinds = (_from_spec, _mend, _apply)
    return [kinds[i % 3](rng, plan) for i in range(n)]


def _one(rng: random.Random, plan: Plan) -> Function:
    name = rng.choice(NAMES)
    return Function(name, draw_steps(rng, honest(rng, rng.choice(plan.steps))))


def _from_spec(rng: random.Random, plan: Plan) -> tuple[str, ...]:
    """The body follows from the comment: the whole numbered function is the answer."""
    f = _one(rng, plan)
    return f"write {f.name}", tools.numbered(f.text() + "\n")


def _broken(rng: random.Random, plan: Plan, other: bool) -> tuple[str, str, str]:
    """(path, base text, fix) of a file with one bug."""
    f = _one(rng, plan)
    at = rng.randrange(len(f.steps))
    kind = rng.choice(fitting(f.steps[at].op))
    wrong = mutate(rng, kind, f.steps[at])
    lines = [s.line for s in f.steps]
    if wrong is None:
        del lines[at]
        verb = "insert"
    else:
        lines[at] = wrong.line
        verb = "edit"
    path = f"{rng.choice(FILES)}.py"
    base = f.text(lines) + "\n"
    number = 3 + at  # the function's first step is its third line, after `def` and the comment
    if other:
        before = _one(rng, plan).text()
        base = f"{before}\n\n{base}"
        number += len(before.splitlines()) + 1
    return path, base, f"{verb} {path} {number} {f.steps[at].line}"


def _mend(rng: random.Random, plan: Plan) -> tuple[str, ...]:
    """cat -> the edit that makes code and comment agree."""
    path, base, fix = _broken(rng, plan, rng.random() < 0.5)
    return f"mend {path}", f"cat {path}", tools.numbered(base), fix


def _apply(rng: random.Random, plan: Plan) -> tuple[str, ...]:
    """git show -> cat -> the edit that the commit made."""
    path, base, fix = _broken(rng, plan, rng.random() < 0.5)
    new = tools.changed({path: base}, tools.parse(fix))
    assert isinstance(new, str)
    shown = tools.show((Commit("tweak it", {path: base}, {path: new}),), 0).text
    return "apply", "git show HEAD~0", shown, f"cat {path}", tools.numbered(base), fix
