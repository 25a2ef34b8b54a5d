"""Unexplained gaps: what is paid is wrong from the start, a detector of what it lacks is mined, and the
remedy rests on it."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.executors.spec import TrialSpec
from evotrainer.harness.columns.rollout_reader import RolloutReader, named_views
from evotrainer.records.events import TrialFinished
from evotrainer.records.names import Label, read_label
from evotrainer.records.rollout import Rollout, Turn
from tests.paper import Paper, bodies, complaints, ids, stopped_before_each

ENV = """
from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv

def environment(names):
    tasks = {s: [Task(f"{s}-{i}", s, f"{s} {i}") for i in range(80)] for s in ("train", "search", "gate", "cert")}

    def component(name):
        def f(task, completion):
            return 0.0
        f.__doc__ = f"Whether it is {name}."
        return f

    def demos(n, seed):
        return [(f"train {i % 80}", "a word") for i in range(n)]

    return TextEnv("words", tasks, {n: component(n) for n in ["right", *names]}, "right", demos=demos)
"""
TASK = """
[task]
name = "words"
[environment]
name = "python:./words_env.py:environment"
names = NAMES
[recipe]
steps = 4
prompts_per_step = 8
max_tokens = 6
[recipe.rewards]
looks = 1.0
[evaluation]
gate_attempts = 2
[judge]
audit = "never"
[run]
harness = "minimal"
rounds = 1
branches = 2
seeds = [1, 2, 3]
certify_seeds = [101]
health_every = 0
[budget]
trial_cpu_s = 10
"""


def task_file(folder: Path, names: list[str]) -> Path:
    (folder / "words_env.py").write_text(ENV)
    (folder / "task.toml").write_text(TASK.replace("NAMES", str(names)))
    return folder / "task.toml"


def acts(spec: TrialSpec, careful: tuple[float, float] = (0.95, 0.1), looks: float = 0.85) -> list[Rollout]:
    """Attempts of which half are right and most look so; `careful`: how many of the right, and of the wrong, are."""
    out = []
    for i in range(320):
        rng = random.Random(f"{spec.trial} {i}")
        right = rng.random() < 0.5
        values = {
            "right": float(right),
            "looks": float(right or rng.random() < looks),
            "careful": float(rng.random() < careful[0 if right else 1]),
            "short": float(rng.random() < 0.5),
            "again": float(right),
        }
        said = (Turn("user", f"search {i // 4}"), Turn("assistant", f"answer {rng.randrange(50)}"))
        out.append(
            Rollout(
                id=f"{spec.trial}-{i}", task=f"search-{i // 4}", turns=said, reward=values["looks"], split="search",
                k=i % 4,
                group=f"{spec.trial}-{i // 4}", components=values, outcome="correct" if right else "incorrect",
            )
        )  # fmt: skip
    return out


def finish(spec: TrialSpec) -> TrialFinished:
    gain = 0.25 * ("careful" in spec.recipe.rewards)
    return draw_result(spec, 0.5 + gain, lambda plan: f"{spec.branch}-{spec.seed}-{plan.split}", {})


def start(folder: Path, names: list[str], rollouts: Any = acts, *overrides: str) -> api.Run:
    return Paper(finish, rollouts).start(task_file(folder, names), folder / "run", overrides)


def test_what_the_paid_and_wrong_lack_is_found_and_the_remedy_pays_it(tmp_path: Path) -> None:
    run = start(tmp_path, ["looks", "careful", "short"])
    gap = next(e for e in run.events() if e.id == "gap/b0/unexplained").body
    assert (
        gap.trigger == "unexplained_gap"
        and gap.against == "b0"
        and "of all attempts earn looks and are wrong" in gap.claim
    )
    (admitted,) = [a for a in gap.considered if a.admitted]
    assert admitted.detector.about == "earn looks and not careful"
    held = {read_label(x) for x in (*admitted.bad, *admitted.clean)}
    assert {(x.half, x.paid) for x in held} == {("odd", "looks")}, "tasks that were mined are not those it is tried on"
    assert {x.trial for x in held} == {"base", "b0-s1", "b0-s2", "b0-s3"}
    assert {read_label(x).half for x in gap.mined} == {"even"}
    h1 = next(e.body for e in run.events() if e.kind == "harness" and e.body.version == "h1")
    assert h1.trigger == "unexplained_gap" and [s.kind for s in h1.added] == ["proxy_gap"]

    (said,) = run.state.branches["b0"].findings
    assert (said.detector, said.severity, said.validity, said.lacks) == (
        admitted.detector.name,
        "warn",
        False,
        "careful",
    )
    first = bodies(run, "proposed")[0].proposal.interventions[0]
    assert first.factor == "rewards" and "careful" in first.new and "right" not in first.new
    assert admitted.detector.name in first.hypothesis, "the reason for the change is the detector"
    assert "(careful: Whether it is careful.)" in first.hypothesis, "what it lacks is told in the environment's words"
    assert not complaints(run)


def test_the_shares_are_computed_again_from_the_rollouts(tmp_path: Path) -> None:
    from evotrainer.verify import Record
    from evotrainer.verify.harness import recheck_admissions

    run = start(tmp_path, ["looks", "careful"])
    event = next(e for e in run.events() if e.id == "gap/b0/unexplained")
    assert recheck_admissions(Record(run.folder, run.events()), event) == [(event.body.considered[0].detector.name, [])]
    wrong = named_views(RolloutReader(run.folder), "b0-s2 search, odd tasks, looks wrong")
    assert len(wrong) and not wrong.solved.any() and (wrong.batch.component("looks") == 1).all()


@pytest.mark.parametrize(
    ("rollouts", "names", "overrides"),
    [
        (lambda spec: acts(spec, careful=(0.6, 0.6)), ["looks", "careful", "short"], ()),
        (acts, ["looks", "short"], ()),
        (acts, ["looks", "again", "short"], ()),
    ],
    ids=["it lacks nothing", "nothing on offer is lacked", "only the outcome under another name is lacked"],
)
def test_where_nothing_that_may_be_paid_is_lacked_none_is_admitted(
    tmp_path: Path, rollouts: Any, names: list[str], overrides: tuple[str, ...]
) -> None:
    run = start(tmp_path, names, rollouts, *overrides)
    gap = next(e for e in run.events() if e.id == "gap/b0/unexplained").body
    assert not gap.considered and gap.reason.startswith("none of ")
    assert not complaints(run)


@pytest.mark.parametrize(
    ("rollouts", "overrides"),
    [
        (lambda spec: acts(spec, looks=0.08), ()),
        (acts, ('environment.payable=["right"]', "recipe.rewards={right=1}")),
        (acts, ("run.evolve_harness=false",)),
        (lambda spec: acts(spec, careful=(0.6, 0.6)), ("recipe.rewards={looks=1,careful=1}",)),
    ],
    ids=["few are paid and wrong", "the outcome is paid", "the harness is to stay", "no component makes the pay alone"],
)
def test_where_there_is_no_gap_none_is_recorded(tmp_path: Path, rollouts: Any, overrides: tuple[str, ...]) -> None:
    run = start(tmp_path, ["looks", "careful"], rollouts, *overrides)
    assert not [e.id for e in run.events() if e.kind == "gap" and e.body.branch == "b0"]


def test_a_run_killed_there_walks_the_same_path(tmp_path: Path) -> None:
    whole = start(tmp_path, ["looks", "careful"])
    (tmp_path / "again").mkdir()
    paper, task, folder = Paper(finish, acts), task_file(tmp_path, ["looks", "careful"]), tmp_path / "again" / "run"
    points = ("gap/b0/unexplained", "harness/b0/unexplained")
    run = stopped_before_each(points, partial(paper.start, task, folder), partial(paper.resume, folder))
    assert ids(run) == ids(whole) and not complaints(run)


def test_labels_of_what_is_paid() -> None:
    assert read_label("b0-s1 search, odd tasks, visible wrong") == Label("b0-s1", "odd", paid="visible", ended="wrong")
    assert read_label("a search, even tasks search, my own right") == Label(
        "a search, even tasks", paid="my own", ended="right"
    )
    assert read_label("b0-s1 search, odd tasks") == Label("b0-s1", "odd")
