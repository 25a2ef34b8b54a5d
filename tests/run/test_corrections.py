"""Mend and resume: what failed for a fault in the user's own file goes on with the corrected one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.errors import IntegrityError, TrainerError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from tests.letters_on_paper import QUICK, finish, rollouts
from tests.paper import Paper, bodies

BODY = 'return float(completion.strip() == task.data["answer"])'


class Broken(Paper):
    """Trials on paper that fail from one on, until the task's own file is corrected."""

    def __init__(self, fails: str) -> None:
        self.fails = fails
        super().__init__(self.end, rollouts)

    def end(self, spec: TrialSpec) -> TrialFinished:
        done = finish(spec)
        if spec.trial == self.fails:
            return done.model_copy(update={"status": "failed", "error": "reward function 'sorted_word' failed"})
        return done


@pytest.fixture
def own(task_file: Path, tmp_path: Path) -> Path:
    shutil.copytree(task_file.parent, tmp_path / "task")
    return tmp_path / "task"


def mend(own: Path, old: str = BODY, new: str = "return 1.0 * (completion.strip() == task.data['answer'])") -> None:
    text = (own / "environment.py").read_text(encoding="utf-8")
    assert old in text
    (own / "environment.py").write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("fails", ["base", "b0-s1"])
def test_a_corrected_file_is_taken_up_recorded_and_later_trials_rest_on_it(
    own: Path, tmp_path: Path, fails: str
) -> None:
    made = Broken(fails)
    with pytest.raises(TrainerError, match="a corrected environment file included"):
        made.start(own / "task.toml", tmp_path / "r", [*QUICK, "run.rounds=0"])
    begun = tmp_path / "r" / "trials" / fails / "checkpoint"
    begun.mkdir(parents=True)
    mend(own)
    made.fails = ""
    run = made.resume(tmp_path / "r")
    assert run.closed
    (resumed,) = bodies(run, "resumed")
    assert list(resumed.files) == [str(own / "environment.py")]
    assert not begun.exists(), "what the old code had begun is not gone on from"
    assert any("environment.py was corrected after the run began" in n for n in run.verify().notes)
    assert made.resume(tmp_path / "r").closed, "and later resumes know of it"


def test_trainings_rest_on_the_file_as_it_was(own: Path, tmp_path: Path) -> None:
    made = Broken("b0-s2")
    with pytest.raises(TrainerError, match="unless it lies in the task file or in the environment"):
        made.start(own / "task.toml", tmp_path / "r", [*QUICK, "run.rounds=0"])
    mend(own)
    with pytest.raises(IntegrityError, match=r"environment\.py was changed .* trainings rest on it; restore it \(`cp"):
        made.resume(tmp_path / "r")


@pytest.mark.parametrize("change", ["edited", "broken", "deleted"])
def test_the_run_keeps_the_file_it_began_with_and_says_how_to_put_it_back(
    own: Path, tmp_path: Path, change: str
) -> None:
    made = Broken("b0-s2")
    with pytest.raises(TrainerError):
        made.start(own / "task.toml", tmp_path / "r", [*QUICK, "run.rounds=0"])
    file = own / "environment.py"
    before = file.read_bytes()
    if change == "deleted":
        file.unlink()
    else:
        file.write_bytes(before + (b"# edited\n" if change == "edited" else b"def\n"))
    with pytest.raises(IntegrityError) as refused:
        made.resume(tmp_path / "r")
    assert f"`evotrainer run {tmp_path / 'r' / 'task.toml'}`" in str(refused.value)
    (back,) = re.findall(r"`(cp [^`]*)`", str(refused.value))
    subprocess.run(back, shell=True, check=True)
    assert file.read_bytes() == before
    made.fails = ""
    assert made.resume(tmp_path / "r").closed


def test_an_edit_before_any_training_may_be_kept_or_taken_back(own: Path, tmp_path: Path) -> None:
    def edit(spec: TrialSpec) -> TrialFinished:
        if spec.trial == "base":
            mend(own)
        return finish(spec)

    made = Paper(edit, rollouts)
    with pytest.raises(IntegrityError, match=r"restore it \(`cp .*goes on with either, as no training rests on it yet"):
        made.start(own / "task.toml", tmp_path / "r", [*QUICK, "run.rounds=0"])
    assert made.resume(tmp_path / "r").closed
    kept = {p.read_bytes() for p in (tmp_path / "r" / "environment").glob("*/environment.py")}
    assert len(kept) == 2 and (own / "environment.py").read_bytes() in kept, "the corrected one is kept, too"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"train": 400', '"train": 300', "splits"),
        ('"brevity": brevity}', '"brevity": brevity, "more": brevity}', "components"),
        ('proxy="right_letters"', "proxy=None", "proxy"),
        ("demos=demonstrations", "demos=lambda n, seed: []", "demonstrations"),
    ],
)
def test_other_tasks_or_rewards_are_no_correction(own: Path, tmp_path: Path, old: str, new: str, what: str) -> None:
    made = Broken("base")
    with pytest.raises(TrainerError):
        made.start(own / "task.toml", tmp_path / "r", [*QUICK, "run.rounds=0"])
    mend(own, old, new)
    with pytest.raises(IntegrityError, match=f"was changed after the run began, and its {what} with it"):
        made.resume(tmp_path / "r")


def test_an_old_ledger_without_corrections_reads_as_before(own: Path, tmp_path: Path) -> None:
    made: Any = Paper(finish, rollouts)
    with made.stopped(lambda spec: spec.trial == "b0-s1"):
        made.start(own / "task.toml", tmp_path / "r", [*QUICK, "run.rounds=0"])
    run = made.resume(tmp_path / "r")
    assert [r.files for r in bodies(run, "resumed")] == [{}] and isinstance(run, api.Run)
