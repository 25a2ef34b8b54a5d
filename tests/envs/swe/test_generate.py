"""`envs.swe.generate`: sound tasks, and compositions that evaluation splits keep to themselves."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from evotrainer.envs.base import SPLITS, Task
from evotrainer.envs.swe import tools
from evotrainer.envs.swe.bugs import BUGS
from evotrainer.envs.swe.compositions import owned, pair_split, prompt_split
from evotrainer.envs.swe.env import SweConfig, SweEnv
from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.ops import OPS, OpLine, evaluate
from evotrainer.envs.swe.world import Repo
from evotrainer.sandbox import Sandbox

LONG = Plan(modules=4, functions=3, steps=(2, 3), indirect=0.5)
PHRASES = {re.sub(r"\{k\}", r"\\d+", op.phrase): name for name, op in OPS.items()}


@pytest.fixture(scope="module")
def tasks() -> dict[str, list[Task]]:
    """The shipped task set, 500 of the train tasks."""
    memory = SweEnv(SweConfig(train=500))
    return {s: list(memory.tasks(s)) for s in SPLITS}


def _repo(t: Task) -> Repo:
    found: Repo = t.data["repo"]
    return found


def _specs(texts: dict[str, str] | list[str]) -> Iterator[tuple[str, ...]]:
    """Operations of every specification comment, read back from the text itself."""
    for text in texts.values() if isinstance(texts, dict) else texts:
        for comment in re.findall(r"# (.+)", text):
            ops = [next((n for p, n in PHRASES.items() if re.fullmatch(p, part)), None) for part in comment.split("; ")]
            if all(ops):
                yield tuple(o for o in ops if o)


def _pairs(ops: tuple[str, ...]) -> set[tuple[str, str]]:
    return set(pairwise(ops))


def test_every_ordered_pair_of_operations_belongs_to_one_split() -> None:
    sizes = {s: len(owned(s)) for s in SPLITS}
    assert sum(sizes.values()) == len(OPS) * (len(OPS) - 1)
    assert all(n >= 15 for n in sizes.values())


@pytest.mark.parametrize("split", SPLITS)
def test_the_buggy_function_has_a_pair_of_its_split_and_no_other_function_has(
    tasks: dict[str, list[Task]], split: str
) -> None:
    for t in tasks[split]:
        ops = tuple(t.tags["operations"].split(">"))
        splits = [pair_split(a, b) for a, b in _pairs(ops)]
        assert split in splits
        assert set(splits) <= {split, "train"}
        for spec in _specs(dict(_repo(t).files)):
            if spec != ops:
                assert all(pair_split(a, b) == "train" for a, b in _pairs(spec))


def test_no_held_out_composition_is_in_another_split_or_in_a_demonstration(
    tasks: dict[str, list[Task]], swe: SweEnv
) -> None:
    def compositions(ts: list[Task]) -> set[tuple[str, str]]:
        return {(t.tags["operations"], t.tags["bug"]) for t in ts}

    held_out = {s: compositions(tasks[s]) for s in SPLITS}
    for a in SPLITS:
        assert len({bug for _, bug in held_out[a]}) == len(BUGS), f"{a} has every class of bug"
        for b in SPLITS:
            assert a == b or not held_out[a] & held_out[b]
    shown = [x for d in (*swe.demonstrations(150, 5), *swe.drills(300, 5)) for x in d]
    found = {p for spec in _specs(shown) for p in _pairs(spec)}
    assert len(found) > 60
    assert {pair_split(a, b) for a, b in found} == {"train"}


def test_issue_texts_are_disjoint_by_construction(tasks: dict[str, list[Task]]) -> None:
    for split, ts in tasks.items():
        assert len({t.prompt for t in ts}) == len(ts)
        assert {prompt_split(t.prompt) for t in ts} == {split}


def test_the_classes_of_bugs_are_recorded_and_all_occur(tasks: dict[str, list[Task]]) -> None:
    counts = Counter(t.tags["bug"] for t in tasks["train"])
    assert set(counts) == set(BUGS)
    assert min(counts.values()) >= 20


@pytest.mark.parametrize(("plan", "count"), [(Plan(), 60), (LONG, 30)])
def test_the_fix_passes_and_the_base_fails_what_it_must(box: Sandbox, plan: Plan, count: int) -> None:
    rng = random.Random(7)
    repos = [repositories(rng, "train", plan) for _ in range(count)]
    memory = MemoryWorld(lambda: box)
    handles = [memory.open(r, {}) for r in repos]
    for repo, grade in zip(repos, memory.grade(handles), strict=True):
        assert {i for i, ok in grade.hidden.items() if not ok} == set(repo.fail_to_pass)
        assert not grade.own_visible, "the repository's own tests show the bug"
    for h in handles:
        h.tree.update(h.repo.gold)
    for repo, grade in zip(repos, memory.grade(handles), strict=True):
        assert all(grade.hidden.values()) and set(grade.hidden) == {*repo.fail_to_pass, *repo.pass_to_pass}
        assert grade.own_visible
        assert grade.patch == tools.git_patch(repo.files, {**repo.files, **repo.gold})


@pytest.mark.parametrize("plan", [Plan(), LONG])
def test_every_hidden_test_is_one_call(plan: Plan) -> None:
    rng = random.Random(3)
    for _ in range(20):
        repo = repositories(rng, "train", plan)
        assert set(repo.calls) == {*repo.fail_to_pass, *repo.pass_to_pass}
        assert not set(repo.fail_to_pass) & set(repo.pass_to_pass)


@pytest.mark.parametrize("plan", [Plan(), LONG])
def test_the_history_ends_at_the_base_and_never_shows_the_fix(plan: Plan) -> None:
    rng = random.Random(4)
    for _ in range(30):
        repo = repositories(rng, "train", plan)
        tools.check_reachable(repo, {}, repo.history)
        (fix,) = repo.future
        assert fix.message == f"fix {repo.tags['function']}"
        assert fix.before == {p: repo.files[p] for p in repo.gold} and fix.after == repo.gold
        right = set(next(iter(repo.gold.values())).splitlines()) - set(repo.files[repo.tags["module"]].splitlines())
        for c in repo.history[1:]:
            added = tools.bare_diff({p: t or "" for p, t in c.before.items()}, {p: t or "" for p, t in c.after.items()})
            assert repo.tags["function"] not in c.message
            assert not right & {ln[1:] for ln in added.splitlines() if ln[:1] in "+-"}


def test_an_indirect_issue_speaks_of_a_caller_in_another_module() -> None:
    rng = random.Random(5)
    repos = [repositories(rng, "train", LONG) for _ in range(60)]
    callers = [r for r in repos if r.tags["reported"] == "caller"]
    assert 15 <= len(callers) <= 45
    for r in callers:
        name = r.issue.removeprefix("issue: ").partition("(")[0]
        assert name != r.tags["function"]
        assert f"def {name}(x):" not in r.files[r.tags["module"]]


def test_what_a_line_says_is_what_the_operation_means() -> None:
    for name, op in OPS.items():
        low, high = op.constants or (0, 0)
        for k in {low, high, (low + high) // 2}:
            step = OpLine(name, k)
            source = f"def f(x):\n    {step.line}\n    return x\n"
            space: dict[str, object] = {}
            exec(source, space)  # our own text
            f = space["f"]
            assert callable(f)
            assert [f(x) for x in range(-12, 25)] == [evaluate([step], x) for x in range(-12, 25)], name


def test_the_same_seed_gives_the_same_tasks_and_another_one_others() -> None:
    a, b, c = (SweEnv(SweConfig(seed=s, search=20)).tasks("search") for s in (0, 0, 1))
    assert a == b
    files = [{str(sorted(t.data["repo"].files.items())) for t in x} for x in (a, c)]
    assert len(files[0] & files[1]) <= 1, "another seed makes other repositories"
