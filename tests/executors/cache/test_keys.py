"""What a key depends on: all that can change a result, and nothing else."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.executors.cache import keys
from evotrainer.executors.cache.keys import CODE, LIBRARIES, Keys, code_id
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.recipe import Replay
from tests.executors.cache.drawn import Place, policy_file
from tests.import_graph import module_graph, rooms_by_name


def making(place: Place, spec: TrialSpec, described: dict[str, object] | None = None, code: str = "c") -> str:
    return Keys(place.run_dir("r1"), place.task, described or {"hash": "1"}, code).making(spec)


@pytest.fixture
def own(place: Place, task_file: Path) -> tuple[Place, TrialSpec, Path]:
    """A training in an environment of a module of one's own, in a folder that may be changed."""
    folder = place.folder / "letters"
    shutil.copytree(task_file.parent, folder)
    name = str(place.task.environment["name"]).replace(str(task_file.parent), str(folder))
    assert str(folder) in name
    return place, place.spec("r1", environment={**place.task.environment, "name": name}), folder


def test_all_that_trains_is_in_the_code() -> None:
    """The harness, which reads, is not: it reads a cached training anew."""
    seen, todo = set[str](), ["executors.worker"]
    while todo:
        m = todo.pop()
        if m not in seen and not m.startswith("harness"):
            seen.add(m)
            # what a command leaves is read by importers; its trials are not cached (`TrainerSpec.repeatable`)
            todo += module_graph()[m] | (set() if m.startswith("trainers.command.") else rooms_by_name(m))
    outside = {m for m in seen if m.split(".")[0] not in {c.removesuffix(".py") for c in CODE}}
    assert "trainers.embedded.update" in seen and not outside, outside


def test_the_code_is_another_one_where_a_byte_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(keys.__file__).parents[2]
    copied = tmp_path / "evotrainer"
    shutil.copytree(root, copied, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    monkeypatch.setattr(keys, "__file__", str(copied / "executors" / "cache" / "keys.py"))
    was = code_id()
    assert was == code_id()
    (copied / "views" / "text.py").write_text("# shown otherwise")
    assert code_id() == was
    with (copied / "trainers" / "embedded" / "update.py").open("a") as f:
        f.write("\n")
    assert code_id() != was


def test_a_users_module_counts_with_its_folder_and_not_by_its_place(own: tuple[Place, TrialSpec, Path]) -> None:
    place, spec, folder = own
    was = making(place, spec)
    with (folder / "task.toml").open("a") as f:
        f.write("\n# another budget\n")
    (folder / "README.md").write_text("words")
    (folder / "runs" / "r").mkdir(parents=True)
    (folder / "runs" / "r" / "ledger.db").write_text("a run")
    assert making(place, spec) == was, "task files, words and runs beside it change nothing"
    moved = place.folder / "elsewhere"
    shutil.copytree(folder, moved)
    there = spec.model_copy(
        update={
            "environment": {**spec.environment, "name": str(spec.environment["name"]).replace(str(folder), str(moved))}
        }
    )
    assert making(place, there) == was
    (folder / "helper.py").write_text("x = 1")
    with_helper = making(place, spec)
    assert with_helper != was, "what the module may import or read"
    (folder / "helper.py").write_text("x = 2")
    assert making(place, spec) not in (was, with_helper)


@pytest.mark.parametrize(
    "name", ["rubric.md", "notes.py", "log.json", "license.py", "readme.py", "data.rst", "notes.txt"]
)
def test_what_a_reward_may_read_counts_also_where_it_looks_like_a_text(
    own: tuple[Place, TrialSpec, Path], name: str
) -> None:
    place, spec, folder = own
    (folder / name).write_text("1.0")
    was = making(place, spec)
    (folder / name).write_text("0.0")
    assert making(place, spec) != was


def test_data_counts_by_content(place: Place) -> None:
    data = place.folder / "data.jsonl"
    data.write_text("{}")
    spec = place.spec("r1", environment={"name": "code", "source": str(data)})
    was = making(place, spec)
    data.write_text("{} ")
    assert making(place, spec) != was
    data.write_text("{}")
    assert making(place, spec) == was


def test_a_policy_counts_by_content(place: Place) -> None:
    was = making(place, place.spec("r1"))
    same = policy_file(place.folder / "same", "weights")
    assert making(place, place.spec("r1", policy_dir=str(same))) == was
    (same / "tokenizer.json").write_text("{}")
    assert making(place, place.spec("r1", policy_dir=str(same))) != was


def test_names_and_what_only_reads_change_nothing(place: Place) -> None:
    was = making(place, place.spec("r1"))
    for changes in (
        {"branch": "b9"},
        {"purpose": "confirm"},
        {"checkpoint_every": 1},
        {"harness": {"version": "h9"}},
        {"cpu_limit_s": 1.0},
    ):
        assert making(place, place.spec("r1", **changes)) == was, changes


def test_libraries_processor_and_environment_count(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = place.spec("r1")
    was = making(place, spec)
    assert making(place, spec, {"hash": "2"}) != was and making(place, spec, code="d") != was
    assert making(place, spec, {"hash": "1", "files": {"/here": "0"}}) == was, "files are in the specification"
    with monkeypatch.context() as m:
        m.setattr(keys, "_processor", lambda: ["another one"])
        assert making(place, spec) != was
    with monkeypatch.context() as m:
        m.setattr(metadata, "version", lambda name: "0" if name == "torch" else metadata.distribution(name).version)
        assert making(place, spec) != was
    assert keys._processor()[0] and "torch" in LIBRARIES


def test_a_cluster_is_another_machine(place: Place) -> None:
    was = making(place, place.spec("r1"))
    ray = place.task.executor.model_copy(update={"name": "ray"})
    place.task = place.task.model_copy(update={"executor": ray})
    on_ray = making(place, place.spec("r1"))
    more = ray.model_copy(update={"options": {"workers_per_trial": 2}})
    place.task = place.task.model_copy(update={"executor": more})
    assert len({was, on_ray, making(place, place.spec("r1"))}) == 3


def test_a_module_in_a_folder_too_large_to_compare_is_computed_with_a_line(
    own: tuple[Place, TrialSpec, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, spec, _ = own
    monkeypatch.setattr("evotrainer.executors.inputs.MAX_FILES", 1)
    with pytest.raises(ConfigError):
        making(place, spec)
    for run in ("r1", "r2"):
        _, ran = place.go(run, spec.model_copy(update={"run": run}))
        assert ran
    assert any("letters" in n and "too large" in n for n in place.notes) and not place.entries()


def test_what_may_be_paid_changes_no_key(place: Place) -> None:
    free = place.spec("r1")
    paid = place.spec("r1", environment={**place.task.environment, "payable": ["right"]})
    assert making(place, paid, {"hash": "1", "payable": ["right"]}) == making(place, free, {"hash": "1", "payable": []})


def test_a_deployment_temperature_is_of_evaluations_alone(place: Place) -> None:
    spec = place.spec("r1")
    cold = spec.model_copy(update={"recipe": spec.recipe.model_copy(update={"deploy_temperature": 0.7})})
    k = Keys(place.run_dir("r1"), place.task, {"hash": "1"}, "c")
    assert k.making(cold) == k.making(spec)
    assert k.evaluation(cold, "p", "search") != k.evaluation(spec, "p", "search")


def test_an_evaluation_of_the_same_policy_does_not_depend_on_how_others_are_trained(place: Place) -> None:
    spec, k = place.spec("r1", train=False), Keys(place.run_dir("r1"), place.task, {"hash": "1"}, "c")

    def key(**changes: Any) -> str:
        protocol = spec.protocol.model_copy(update=changes)
        return k.evaluation(spec.model_copy(update={"protocol": protocol}), "p", "search")

    for changes in ({"lr": 0.5}, {"steps": 99}, {"loss": "bnpo"}, {"group_size": 2}, {"replay": Replay(weight=1.0)}):
        assert key(**changes) == key(), changes
    for changes in (
        {"temperature": 0.5},
        {"max_tokens": 7},
        {"rewards": {"right": 0.3}},
        {"scaffold": {"system": "x"}},
    ):
        assert key(**changes) != key(), changes
    coded = spec.recipe.model_copy(update={"start": spec.recipe.model_copy(update={"written": {"own@1": "return 1"}})})
    assert k.evaluation(spec.model_copy(update={"recipe": coded}), "p", "search") != key(), "its component is computed"
