"""A path with several seeds is several trainings; what leaves it open is one, and the output says so."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.studies.versus import Selection, Versus, compare, read_side
from evotrainer.studies.versus.seeds import SideLogs
from evotrainer.studies.versus.text import versus_lines
from evotrainer.studies.versus.trainings import marks, unmarked
from tests.envs.helpers import jsonl as write
from tests.importers.test_inspect import log as inspect_log
from tests.importers.test_inspect import sample

TASKS = range(12)


def rows(name: Any, attempts: int = 2, tasks: Sequence[int] = TASKS, **fields: Any) -> list[dict[str, Any]]:
    rng = random.Random(str((name, fields)))
    return [
        {"task": f"t{t}", "text": f"{rng.random()}", "correct": rng.random() < 0.5} | fields
        for t in tasks
        for _ in range(attempts)
    ]


def side(*paths: Path, seeds: str | None = None) -> SideLogs:
    return read_side(paths, Selection(seeds=seeds), "A", lambda *_: None)


def names(x: SideLogs, folder: Path) -> list[str]:
    return [s.name.replace(f"{folder}/", "") for s in x.seeds]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("seed_1.jsonl", "seed 1"),
        ("grpo-Seed=42/x", "seed 42"),
        ("runs/3/a", "run 3"),
        ("trial01_s7.json", "trial 1, s 7"),
        ("org/model-s2", "s 2"),
        ("gsm8k.jsonl", ""),
        ("steps/step_10", ""),
        ("reports1", ""),
        ("model-s1.5", ""),
        ("seeds", ""),
    ],
)
def test_a_name_says_its_seed(name: str, told: str) -> None:
    assert marks(name) == told
    assert (unmarked(name) == name) is (not told)


@pytest.mark.parametrize("name", ["seed_{}.jsonl", "s{}/rollouts.jsonl", "grpo-seed{}/part-0.jsonl"])
def test_a_folder_of_seeds_is_as_many_trainings_as_when_each_is_named(tmp_path: Path, name: str) -> None:
    files = []
    for s in (1, 2, 10):
        path = tmp_path / "new" / name.format(s)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.append(write(path, rows(s)))
    other = [write(tmp_path / f"old{s}.jsonl", rows(-s)) for s in (1, 2, 3)]
    found, named = side(tmp_path / "new"), side(*files)
    assert names(found, tmp_path) == [f"new/{name.format(s)}" for s in (1, 2, 10)] == names(named, tmp_path)
    assert "new is 3 trainings, told apart by names of files" in found.notes[0] and "--seeds one" in found.notes[0]
    assert (
        compare(found, side(*other)).comparison.effect.model_dump()
        == compare(named, side(*other)).comparison.effect.model_dump()
    )
    assert len(side(tmp_path / "new", seeds="one").seeds) == 1


def test_shards_of_a_seed_are_one_training_and_shards_alone_are_no_seeds(tmp_path: Path) -> None:
    for s in (1, 2):
        for part, tasks in enumerate((range(6), range(6, 12))):
            (tmp_path / "a" / f"seed{s}").mkdir(parents=True, exist_ok=True)
            write(tmp_path / "a" / f"seed{s}" / f"part{part}.jsonl", rows(s, tasks=tasks))
    assert names(side(tmp_path / "a"), tmp_path) == ["a/seed1", "a/seed2"]
    one = side(tmp_path / "a" / "seed1")
    assert len(one.seeds) == 1 and not one.notes, "two halves of the tasks leave nothing open"
    (tmp_path / "b").mkdir()
    for s, tasks in ((1, range(6)), (2, range(6, 12))):
        write(tmp_path / "b" / f"run{s}.jsonl", rows(s, tasks=tasks[:3]))
        write(tmp_path / "b" / f"run{s + 2}.jsonl", rows(s, tasks=tasks[3:]))
    assert len(side(tmp_path / "b").seeds) == 1, "runs of other tasks are shards"


@pytest.mark.parametrize("column", ["seed", "run", "trial", "train_seed"])
def test_a_column_tells_trainings_apart(tmp_path: Path, column: str) -> None:
    values = (0, 1, 2) if column != "run" else ("x", "y", "z")
    path = write(tmp_path / "all.jsonl", [r for v in values for r in rows(v, **{column: v})])
    found = side(path)
    assert names(found, tmp_path) == [f"all.jsonl ({column} {v})" for v in values]
    assert [s.batch.n for s in found.seeds] == [24] * 3
    text = "\n".join(versus_lines(compare(found, side(write(tmp_path / "b.jsonl", rows("b"))))))
    assert f"told apart by {column}" in text and "3 trainings" in text and f"({column} {values[1]})" in text


def test_seeds_of_sampling_and_nameless_files_are_one_training_until_said(tmp_path: Path) -> None:
    once = write(tmp_path / "once.jsonl", [r for s in (1, 2, 3) for r in rows(s, 1, seed=s)])
    found = side(once)
    assert len(found.seeds) == 1 and "whether each seed (1, 2, 3) is one" in found.notes[0]
    assert len(side(once, seeds="seed").seeds) == 3
    folder = tmp_path / "new"
    folder.mkdir()
    for x in ("alpha", "beta"):
        write(folder / f"{x}.jsonl", rows(x))
    found = side(folder)
    assert len(found.seeds) == 1 and "cannot be known; if so: --seeds file" in found.notes[0]
    assert names(side(folder, seeds="file"), tmp_path) == ["new/alpha.jsonl", "new/beta.jsonl"]
    many = write(tmp_path / "many.jsonl", [r | {"seed": i} for i, r in enumerate(rows(0, 8))])
    assert len(side(many).seeds) == 1 and not side(many).notes, "a seed a rollout is no training"


def test_runs_of_an_evaluation_are_one_training_until_said_and_runs_with_steps_are_several(tmp_path: Path) -> None:
    for s in (1, 2, 3):
        for folder, more in (("evaluated", {}), ("trained", {"step": 5})):
            (tmp_path / folder).mkdir(exist_ok=True)
            write(tmp_path / folder / f"eval_run{s}.jsonl", rows(s, **more))
    found = side(tmp_path / "evaluated")
    assert len(found.seeds) == 1 and "cannot be known; if so: --seeds file" in found.notes[0]
    assert len(side(tmp_path / "evaluated", seeds="file").seeds) == 3 == len(side(tmp_path / "trained").seeds)


def test_a_resumed_run_is_one_training_and_two_runs_over_the_same_steps_are_two(tmp_path: Path) -> None:
    def run(name: str, steps: Sequence[int]) -> list[dict[str, Any]]:
        return [r for step in steps for r in rows((name, step), run=name, step=step)]

    resumed = write(tmp_path / "r.jsonl", [*run("x", (1, 2)), *run("y", (3, 4))])
    twice = write(tmp_path / "t.jsonl", [*run("x", (1, 2)), *run("y", (1, 2))])
    assert (len(side(resumed).seeds), len(side(twice).seeds)) == (1, 2)


def test_folders_that_a_trainer_wrote_are_a_training_each(tmp_path: Path) -> None:
    """verl's dumps, a file a step, below folders whose names say nothing; and files of seeds in one folder."""
    for x in ("9f3c", "77ab"):
        for step in (10, 20):
            dump = [
                {"input": f"q{t}", "output": f"{x}{step}{t}{k}", "gts": "1", "score": 1.0, "step": step}
                for t in TASKS
                for k in (0, 1)
            ]
            for path in (tmp_path / "new" / x / f"{step}.jsonl", tmp_path / "flat" / f"{x}-seed{step}.jsonl"):
                path.parent.mkdir(parents=True, exist_ok=True)
                write(path, [r | {"step": 20} for r in dump] if "flat" in path.parts else dump)
    assert names(side(tmp_path / "new"), tmp_path) == ["new/9f3c", "new/77ab"]
    assert names(side(tmp_path / "flat"), tmp_path) == ["flat (seed 10)", "flat (seed 20)"]
    given = sorted((tmp_path / "flat").iterdir())
    assert len(side(*given).seeds) == 2 and any("--seeds file" in n for n in side(*given).notes)


def test_logs_of_models_that_differ_in_a_seed_are_trainings_and_others_are_refused(tmp_path: Path) -> None:
    def said(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": text}]

    def logs(folder: Path, *models: str) -> Path:
        folder.mkdir()
        for i, m in enumerate(models):
            samples = [sample(id=t, epoch=e, messages=said(f"{m}{t}{e}")) for t in TASKS for e in (1, 2)]
            inspect_log(
                folder / f"2026-{i}.eval",
                samples,
                eval={"task": "t", "run_id": m, "model": m, "scorers": [{"name": "match"}]},
            )
        return folder

    found = side(logs(tmp_path / "a", "hf/grpo-s1", "hf/grpo-s2"))
    assert len(found.seeds) == 2 and "names of policies (s 1, s 2)" in found.notes[0]
    with pytest.raises(ConfigError, match="several policies: hf/base, hf/grpo-s1; choose one with --policy"):
        side(logs(tmp_path / "b", "hf/base", "hf/grpo-s1"))
    again = logs(tmp_path / "c", "hf/x")
    twice = [sample(id=t, epoch=e) for t in TASKS for e in (1, 2)]
    inspect_log(again / "2.eval", twice, eval={"model": "hf/x", "run_id": "R9"})
    assert len(side(again).seeds) == 1, "a second evaluation of one model is no training"


def test_a_column_that_nobody_has_is_refused_and_one_of_a_side_is_told(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", [r for s in (1, 2) for r in rows(s, lab=s)])
    b = write(tmp_path / "b.jsonl", rows("b"))

    def compared(column: str) -> Versus:
        return compare(side(a, seeds=column), side(b, seeds=column))

    with pytest.raises(ConfigError, match=r"--seeds labb: no rollout of .*a\.jsonl has it; give one, file, .*lab"):
        compared("labb")
    found = compared("lab")
    assert len(found.a.seeds) == 2 and any("b.jsonl has it" in n and "one training" in n for n in found.notes)
    assert json.dumps(found.notes)
