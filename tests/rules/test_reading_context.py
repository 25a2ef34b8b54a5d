"""`rules.reading_context`: what a branch's rollouts are read beside."""

from __future__ import annotations

from pathlib import Path

from evotrainer.rules.reading_context import harness_context
from tests.leaky_task import HONEST
from tests.leaky_task import TASK as TASK
from tests.paper import Paper


def test_a_branch_is_read_beside_the_base_its_parent_and_what_its_parent_solved(
    task: Path, tmp_path: Path, acted: Paper
) -> None:
    run = acted.start(task, tmp_path / "run", [HONEST])
    state = run.state
    context = harness_context(run.task, state, "b1")
    assert context.recipe == state.branches["b1"].recipe and context.recipe.group_size == 12
    assert [h.subject.split("@")[0] for h in context.previous] == ["base", "b0"]
    assert context.base == context.previous[0]
    search = [s.per_task for t in state.branches["b0"].complete for s in t.scores if s.split == "search"]
    task_id = next(iter(search[0]))
    assert context.before is not None and len(search) == 2
    assert context.before[task_id] == sum(s[task_id] for s in search) / 2


def test_the_base_policy_is_read_beside_nothing(task: Path, tmp_path: Path, acted: Paper) -> None:
    run = acted.start(task, tmp_path / "run", ["run.rounds=0"])
    context = harness_context(run.task, run.state, "base")
    assert context.recipe == run.task.recipe
    assert context.previous == () and context.before is None and context.curve == ()
