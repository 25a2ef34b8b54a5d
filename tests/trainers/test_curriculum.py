"""`trainers.curriculum`: which tasks a step draws."""

from __future__ import annotations

from collections import Counter

import pytest

from evotrainer.algorithm.curriculum import easiest_up_to
from evotrainer.envs.base import Task
from evotrainer.errors import ConfigError
from evotrainer.records.recipe import Curriculum, Recipe
from evotrainer.trainers.curriculum import TaskStream, difficulty, task_stream
from evotrainer.trainers.groups import Group, _learn_rates
from tests.small_records import rollout
from tests.trainers.reverse_env import ReverseEnv


def _stream(rule: Curriculum, n: int = 40, seed: int = 0) -> TaskStream:
    return TaskStream(ReverseEnv(n).tasks("train"), rule, seed)


def test_every_task_comes_once_per_epoch_in_seeded_order() -> None:
    one, same, other = _stream(Curriculum()), _stream(Curriculum()), _stream(Curriculum(), seed=1)
    epoch = [i for _ in range(4) for i in one.draw(10, set())[0]]
    assert sorted(epoch) == list(range(40))
    assert epoch == [i for _ in range(4) for i in same.draw(10, set())[0]]
    assert epoch != [i for _ in range(4) for i in other.draw(10, set())[0]]


def test_a_stream_goes_on_within_its_epoch() -> None:
    one, other = _stream(Curriculum()), _stream(Curriculum())
    first = one.draw(25, set())[0]
    other.load(one.state())
    rest = other.draw(15, set())[0]
    assert rest == one.draw(15, set())[0] and sorted(first + rest) == list(range(40))


def test_the_band_draws_unseen_and_undecided_tasks() -> None:
    s = _stream(Curriculum(kind="pass_rate_band", low=0.2, high=0.8))
    for i in range(10):
        s.update(f"train-{i}", 1.0)
    for i in range(10, 20):
        s.update(f"train-{i}", 0.5)
    chosen, outside = s.draw(30, set())
    assert sorted(chosen) == list(range(10, 40))
    assert outside == 0
    chosen, outside = s.draw(35, set())
    assert outside == 5
    assert len(set(chosen)) == 35


def test_the_running_pass_rate_forgets() -> None:
    s = _stream(Curriculum())
    for rate in (0.0, 1.0, 1.0):
        s.update("train-0", rate)
    assert s.rates["train-0"] == pytest.approx(0.75)


def test_a_step_larger_than_the_split_repeats_tasks() -> None:
    assert len(_stream(Curriculum(), n=3).draw(8, set())[0]) == 8


def _kinds(*rates: float, each: int = 100) -> tuple[list[Task], dict[str, float]]:
    """Tasks of several kinds, with the pass rate of each task."""
    tasks = [
        Task(f"{k}-{i}", "train", "", tags={"kind": f"k{k}", "level": f"Level {k}"})
        for i in range(each)
        for k in range(len(rates))
    ]
    return tasks, {t.id: rates[int(t.tags["kind"][1:])] for t in tasks}


FRONTIER = Curriculum(kind="tag_frontier", tag="kind")


def test_a_frontier_of_tags_finds_what_is_mixed_within_one_epoch() -> None:
    """Hopeless, mixed and perfect kinds, 600 tasks of which 480 are drawn: a band by task would draw a third
    of each."""
    tasks, rate = _kinds(0.0, 0.5, 1.0, each=200)
    s = task_stream(tasks, FRONTIER, 3, 480)
    seen: list[str] = []
    for _ in range(15):
        step, _ = s.draw(16, set())
        assert len(set(step)) == 16
        for i in step:
            s.update(tasks[i].id, rate[tasks[i].id])
        seen += [tasks[i].id for i in step]
    assert len(set(seen)) == len(seen), "no task twice while its kind has others"
    late = Counter(x[0] for x in seen[120:])
    assert late["1"] > 0.65 * len(seen[120:]), late
    assert late["0"] > 0 < late["2"], "the floor still tries what looks hopeless or perfect"


def test_tag_streams_go_on_from_their_state_and_repeat_tasks_rather_than_shrink() -> None:
    tasks, rate = _kinds(0.1, 0.6, each=10)
    for rule in (FRONTIER, Curriculum(kind="difficulty", tag="level")):
        one, other = task_stream(tasks, rule, 5, 60), task_stream(tasks, rule, 5, 60)
        for _ in range(2):
            for i in one.draw(6, set())[0]:
                one.update(tasks[i].id, rate[tasks[i].id])
        other.load(one.state())
        assert [one.draw(6, {0, 1}) for _ in range(3)] == [other.draw(6, {0, 1}) for _ in range(3)]
        assert len(one.draw(25, set())[0]) == 25 and set(one.draw(20, set())[0]) == set(range(20))


def test_by_difficulty_the_easiest_fifth_comes_first_and_all_from_half_of_the_training_on() -> None:
    tasks, _ = _kinds(*[0.5] * 5, each=20)
    s = task_stream(tasks, Curriculum(kind="difficulty", tag="level"), 1, 200)
    steps = [[int(tasks[i].tags["level"][-1]) for i in s.draw(10, set())[0]] for _ in range(20)]
    hardest = [max(step) for step in steps]
    assert hardest[:2] == [0, 1] and max(hardest[:5]) < 4
    late = Counter(level for step in steps[10:] for level in step)
    assert late.keys() == set(range(5)) and max(late.values()) < 2.5 * min(late.values()), late


def test_a_tag_that_no_task_has_or_that_holds_no_number_is_named() -> None:
    tasks, _ = _kinds(0.5, 0.5, each=2)
    with pytest.raises(ConfigError, match="carry no tag 'topic'; they carry: kind, level"):
        task_stream(tasks, Curriculum(kind="tag_frontier", tag="topic"), 0, 10)
    with pytest.raises(ConfigError, match="all training tasks have kind = k0; choose another"):
        task_stream(_kinds(0.5)[0], FRONTIER, 0, 10)
    wordy = [Task("a", "train", "", tags={"kind": "hard"}), Task("b", "train", "", tags={"kind": "easy"})]
    with pytest.raises(ConfigError, match="tag 'kind' of task a is 'hard', which holds no number; choose another"):
        task_stream(wordy, Curriculum(kind="difficulty", tag="kind"), 0, 10)


def test_a_hyphen_in_a_tag_is_no_sign() -> None:
    tags = {"level-1": 1.0, "depth_5": 5.0, "L2-hard": 2.0, "-3": -3.0, "from -0.5 on": -0.5, "3-5 steps": 3.0}
    for value, level in tags.items():
        assert difficulty(Task("t", "train", "", tags={"level": value}), "level") == level, value


def test_of_a_few_tasks_the_easiest_fifth_is_at_least_one() -> None:
    assert [easiest_up_to([1.0, 2.0, 3.0, 4.0], p) for p in (0.0, 0.5, 2.0)] == [1.0, 3.0, 4.0]
    assert easiest_up_to([float(i) for i in range(6)], 0.0) == 1.0, "rounded up"


def test_attempts_lost_to_infrastructure_are_in_no_pass_rate() -> None:
    s = _stream(Curriculum(), 3)
    lost = [rollout(0, k, reward=None if k > 1 else float(k)) for k in range(4)]
    _learn_rates([Group((), lost)], s, Recipe(rewards={"correct": 1.0}))
    assert s.rates == {"t0": 0.5}
