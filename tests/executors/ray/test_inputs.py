"""`executors.inputs`: what a specification needs on another machine, and how it reads there."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer.errors import ConfigError
from evotrainer.executors import inputs
from evotrainer.executors.inputs import Inputs, Tree, TreeFile
from evotrainer.trainers.bases import base_of, is_adapter, note_base, use_places
from tests.executors.conftest import Make


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
    monkeypatch.setattr(inputs, "MAX_FILES", 3)
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


def adapters(folder: Path, base: Path, run: Path | None) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_text(folder.parent.name)
    note_base(folder, folder, base, run)
    return folder


def lay(trees: list[Tree], files: dict[TreeFile, Path], node: Path) -> dict[str, str]:
    """As a supervisor lays inputs on a node; where they are."""
    there = {}
    for tree in trees:
        to = node / "run" / tree.place if tree.place else node / "inputs" / tree.key
        for item in tree.items:
            (to / item.path).parent.mkdir(parents=True, exist_ok=True)
            (to / item.path).write_bytes(files[item].read_bytes())
        if not tree.place:
            there[tree.root] = str(to)
    return there


@pytest.mark.parametrize("where", ["in the run", "outside", "adapters of another run"])
def test_the_base_of_adapters_travels_with_them(tmp_path: Path, make_spec: Make, where: str) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    base = {"in the run": run / "trials/base/policy", "outside": tmp_path / "base"}.get(
        where, other / "trials/base/policy"
    )
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    (base / "model.safetensors").write_text("w")
    upon = adapters(other / "trials/b3-s1/policy", base, other) if where.startswith("adapters") else base
    adapters(run / "trials/b0-s1/policy", upon, run)
    trees, files = Inputs(run, ()).of(make_spec(policy_dir="trials/b0-s1/policy", environment={"name": "code"}))
    assert [t.place for t in trees if t.place] == ["trials/b0-s1/policy"] + (
        ["trials/base/policy"] if where == "in the run" else []
    )
    places = lay(trees, files, tmp_path / "node")
    for gone in (run, other, tmp_path / "base"):
        if gone.exists():
            gone.rename(tmp_path / f"{gone.name}-gone")
    use_places(places)
    try:
        found = tmp_path / "node/run/trials/b0-s1/policy"
        while is_adapter(found):
            found = base_of(found)
        assert found.is_relative_to(tmp_path / "node") and (found / "model.safetensors").read_text() == "w"
    finally:
        use_places({})
