"""`verifiers:ID`: single-turn tasks of verifiers (v1), scored by the task's own rewards in this process."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs import open_environment
from evotrainer.envs.base import SPLITS
from evotrainer.errors import MissingDependencyError, TaskSetError
from evotrainer.testing import check_environment

PACKAGES = Path(__file__).parents[1] / "data" / "verifiers_packages"
with_verifiers = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None,
    reason="verifiers (600 MB) is an extra of its own: python -m bench.verifiers runs these tests with it",
)


def opened(name: str = "spell-backwards", **more: Any) -> Any:
    return open_environment({"name": f"verifiers:{name}", "path": str(PACKAGES), **more})


def scores(env: Any, *answers: str) -> list[Any]:
    episodes = [env.reset(t, {}) for t in env.tasks("train")[: len(answers)]]
    words = [e.task.data["task"].data.word for e in episodes]
    texts = [a.format(right=w[::-1], word=w) for a, w in zip(answers, words, strict=True)]
    env.step(episodes, texts, ["stop"] * len(texts))
    return list(env.score(episodes))


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is not None, reason="it is installed here")
def test_without_the_library_the_remedy_is_told() -> None:
    with pytest.raises(MissingDependencyError, match=r"needs verifiers 0\.4 \(v1\); pip install"):
        opened()


@with_verifiers
def test_an_answer_is_scored_by_the_tasks_own_rewards() -> None:
    env = opened()
    check_environment(env)
    right, wrong, fault = scores(env, " {right} ", "{word}x", "crash")
    assert right.components == {"exact": 1.0, "length": 1.0, "reward": 1.25} and right.outcome == "correct"
    assert wrong.components == {"exact": 0.0, "length": 0.0, "reward": 0.0} and wrong.outcome == "incorrect"
    assert wrong.detail["letters"] == len(env.tasks("train")[1].data["task"].data.word) + 1
    assert set(fault.components.values()) == {None} and fault.outcome == "unknown"
    assert (fault.error_kind, "the grader fell over" in fault.error) == ("TaskError", True)
    assert env.truth == "exact" and env.outcome_components == ("exact", "reward")
    assert opened(truth="length").truth == "length"


@with_verifiers
def test_scores_are_those_that_verifiers_records() -> None:
    """Against `Task.score` on a trace that verifiers' own `commit` of a turn would leave: rewards, weights, metrics."""
    import asyncio

    env = opened()
    own = env.tasks("train")[0].data["task"]
    for answer in (own.data.word[::-1], own.data.word, "", "zz"):
        trace = env._trace(own, answer)
        assert trace.last_reply == answer and len(trace.branches) == 1
        asyncio.run(own.score(trace))
        (score,) = scores(env, answer)
        assert {n: r.score for n, r in trace.rewards.items()} == {n: score.components[n] for n in trace.rewards}
        assert sum(r.value for r in trace.rewards.values()) == score.components["reward"]


@with_verifiers
def test_splits_are_disjoint_and_follow_from_the_tasks() -> None:
    env, again = opened(), opened()
    ids = {s: [t.id.split("-")[1] for t in env.tasks(s)] for s in SPLITS}
    flat = [i for found in ids.values() for i in found]
    assert len(set(flat)) == len(flat) and min(map(len, ids.values())) >= 10
    assert all([t.id for t in again.tasks(s)] == [t.id for t in env.tasks(s)] for s in SPLITS)
    system = opened(taskset={"system": "Only the word."})
    assert [t.role for t in system.reset(system.tasks("gate")[0], {}).turns] == ["system", "user"]


@with_verifiers
def test_a_reward_without_an_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    env = opened(timeout_s=0.2)
    begun = time.monotonic()
    (slow,) = scores(env, "sleep")
    assert slow.error_kind == "timeout" and time.monotonic() - begun < 5


@with_verifiers
@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("no-such-set", {}, "install its package, or name its folder in environment.path"),
        ("spell-backwards", {"path": "/no/such/folder"}, "is no folder"),
        ("spell-backwards", {"taskset": {"wordz": 3}}, "environment.taskset"),
        ("spell-backwards", {"truth": "letters"}, "truth 'letters' is none of exact, length"),
        ("spell-backwards", {"splits": {"train": 0.5}}, "add up to 1"),
        ("spell-backwards", {"taskset": {"needs": "runtime"}}, r"a reward that needs a runtime \(in_box\)"),
        ("spell-backwards", {"taskset": {"needs": "setup"}}, "prepares its runtime"),
        ("spell-backwards", {"taskset": {"needs": "image"}}, "runs its tasks in a container"),
        ("spell-backwards", {"taskset": {"needs": "fault"}}, "its tasks cannot be loaded: no connection"),
    ],
)
def test_what_cannot_be_scored_here_is_refused_with_what_it_needs(name: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(TaskSetError, match=says):
        opened(name, **more)
