"""What a specification needs on another machine, and how it reads there."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer.errors import ConfigError
from evotrainer.executors import places
from evotrainer.executors.places import Inputs, asked_path, relocated

from .conftest import Make


def test_a_module_travels_with_its_folder_and_not_with_runs(tmp_path: Path, make_spec: Make) -> None:
    own = tmp_path / "task"
    for name in (
        "environment.py",
        "data/words.txt",
        "runs/r1/ledger.db",
        "runs/r1/big.bin",
        ".git/config",
        "__pycache__/x.pyc",
    ):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(name)
    spec = make_spec(environment={"name": f"python:{own}/environment.py:make", "size": 3})
    trees, files = Inputs(tmp_path).of(spec)
    task = next(t for t in trees if t.root == str(own))
    assert [i.path for i in task.items] == ["data/words.txt", "environment.py"]
    assert {str(p.relative_to(own)) for p in files.values() if p.is_relative_to(own)} == {
        "data/words.txt",
        "environment.py",
    }


def test_listed_files_travel_in_place_of_the_folder(tmp_path: Path, make_spec: Make) -> None:
    (tmp_path / "environment.py").write_text("x")
    (tmp_path / "words.txt").write_text("y")
    (tmp_path / "other.txt").write_text("z")
    spec = make_spec(environment={"name": f"python:{tmp_path}/environment.py:make"})
    trees, _ = Inputs(tmp_path, (str(tmp_path / "words.txt"),)).of(spec)
    assert {i.path for t in trees for i in t.items} >= {"environment.py", "words.txt"}
    assert "other.txt" not in {i.path for t in trees for i in t.items}
    with pytest.raises(ConfigError, match=r"executor\.options\.files: no .*gone\.txt"):
        Inputs(tmp_path, (str(tmp_path / "gone.txt"),)).of(spec)


def test_a_large_folder_is_refused_with_the_way_out(
    tmp_path: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MAX_FILES", 3)
    for i in range(5):
        (tmp_path / f"f{i}").write_text("x")
    (tmp_path / "environment.py").write_text("x")
    with pytest.raises(ConfigError, match=r"too large .*executor\.options\.files"):
        Inputs(tmp_path).of(make_spec(environment={"name": f"python:{tmp_path}/environment.py:make"}))


def test_a_policy_of_the_run_keeps_its_place(tmp_path: Path, make_spec: Make) -> None:
    policy = tmp_path / "trials/b1-s1/policy"
    policy.mkdir(parents=True)
    (policy / "config.json").write_text("{}")
    trees, _ = Inputs(tmp_path).of(make_spec(policy_dir="trials/b1-s1/policy"))
    assert [(t.place, [i.path for i in t.items]) for t in trees if t.place] == [
        ("trials/b1-s1/policy", ["config.json"])
    ]


def test_paths_move_and_come_back() -> None:
    here = {"/home/me/task": "/scratch/inputs/ab", "/data/words.jsonl": "/scratch/inputs/cd/words.jsonl"}
    section = {
        "name": "python:/home/me/task/environment.py:make",
        "n": 3,
        "paths": ["/data/words.jsonl", "/data/words.jsonl2"],
    }
    assert relocated(section, here) == {
        "name": "python:/scratch/inputs/ab/environment.py:make",
        "n": 3,
        "paths": ["/scratch/inputs/cd/words.jsonl", "/data/words.jsonl2"],
    }
    assert asked_path("/scratch/inputs/ab/policy", here) == "/home/me/task/policy"
