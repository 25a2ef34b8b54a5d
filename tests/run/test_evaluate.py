"""`run.evaluate_only`: users' own stdin/stdout tasks, MBPP and HumanEval through `evotrainer run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.health import health
from evotrainer.cli.status import status
from evotrainer.errors import EvoTrainerError
from evotrainer.executors.spec import read_spec, trial_dir

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.xdist_group("evaluate")

TASK = """
[task]
name = "mine"
[environment]
name = "code"
source = "./tasks"
parts = { search = "search", gate = "gate", cert = "cert" }
payable = ["hidden"]
visible = 2
show = true
[policy]
base = "builtin:code-v1"
[recipe]
max_tokens = 48
[recipe.rewards]
hidden = 1.0
[run]
evaluate_only = true
"""


def write_tasks(folder: Path, broken: bool = False) -> None:
    """Two tasks of each split, and the task file; `broken`: the third row has no tests."""
    (folder / "tasks").mkdir()
    for split in ("search", "gate", "cert"):
        rows: list[dict[str, object]] = []
        for k in range(2):
            tests = [["1 2 3", str(6 + k)], ["4 5", str(9 + k)], ["7", str(7 + k)], ["2 2", str(4 + k)]]
            rows.append({"prompt": f"Read integers; print the sum plus {k} ({split}).", "tests": tests})
        if broken:
            rows.append({"prompt": "no tests here"})
        (folder / "tasks" / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "task.toml").write_text(TASK)


def test_a_users_own_tasks_are_evaluated_and_the_run_can_be_read(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    run = api.start(tmp_path / "task.toml", tmp_path / "r")
    (base,) = [e.body for e in run.events() if e.kind == "finished"]
    assert {s.split for s in base.scores} == {"search", "gate", "cert"}
    assert all(s.errors == 0 and len(s.per_task) == 2 for s in base.scores)
    assert run.closed is not None
    assert run.verify().ok
    status(run.folder)
    status(run.folder)
    health(run.folder)
    assert run.report().stat().st_size > 10_000


def test_the_sampler_s_numbers_go_from_the_task_file_to_the_trial_and_the_ledger(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    for wanted in ("bf16", "fp32"):
        run = api.start(tmp_path / "task.toml", tmp_path / wanted, [f"run.sampler_dtype={wanted}"])
        assert run.events()[0].body.machine["sampler_dtype"] == wanted
        assert read_spec(trial_dir(run.folder, "base")).sampler_dtype == wanted


def test_a_malformed_row_is_named_before_anything_is_spent(tmp_path: Path) -> None:
    write_tasks(tmp_path, broken=True)
    with pytest.raises(EvoTrainerError, match=r"(row|line) 3"):
        api.start(tmp_path / "task.toml", tmp_path / "r")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file"), [("humaneval", "humaneval/HumanEval.jsonl.gz"), ("mbpp", "mbpp")])
def test_public_data_sets_are_evaluated(name: str, file: str, tmp_path: Path) -> None:
    path = SHARED / file
    if path.is_dir():
        path = next(path.glob("*.jsonl"))
    if not path.exists():
        pytest.skip(f"{path.name} is not here; it lies in ../shared/data on the project's machines")
    overrides = [f"environment.source={path}", "evaluation.cert_tasks=6", "recipe.max_tokens=16"]
    run = api.start(ROOT / "tasks" / f"{name}.toml", tmp_path / "r", overrides)
    (base,) = [e.body for e in run.events() if e.kind == "finished"]
    (cert,) = base.scores
    assert cert.split == "cert"
    assert len(cert.per_task) + cert.errors == 6


def test_a_data_set_without_a_source_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(EvoTrainerError, match="source is empty"):
        api.start(ROOT / "tasks" / "mbpp.toml", tmp_path / "r")
