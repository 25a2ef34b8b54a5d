"""`evotrainer.api`: runs are started, resumed, read and checked from Python, and every refusal says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.config.overrides import as_texts
from evotrainer.errors import ConfigError, EncryptedError, StoreError
from evotrainer.records.ledger import Ledger
from tests.leaky_task import HONEST
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper, ids, stopped_before

ON_PAPER = {"policy", "trials", "rollouts", "skill"}
"""Areas of a check that need files of trials, which trials on paper leave none of."""


def test_a_run_is_started_read_checked_and_reported(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = quick.start(load_task(task, [HONEST]), None)
    assert run.folder.parent == Path("runs") and run.folder.name.startswith("leaky-"), "named by task and time"
    again = api.open_run(run.folder)
    assert again == run and again.closed is not None
    assert again.champion == again.closed.champion == "b1" == again.certification.champion  # type: ignore[union-attr]
    assert [v.kind for v in again.verdicts] == ["promote"]
    found = run.verify()
    assert {p.area for p in found.problems} <= ON_PAPER and found.problems, "what the ledger claims holds"
    page = run.report()
    assert page.is_relative_to(run.folder) and "b1" in page.read_text()


def test_a_folder_s_name_will_do(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run")
    named = api.Run(str(run.folder))  # type: ignore[arg-type]
    assert named == run and named.events() == run.events()


def test_a_run_killed_before_its_first_event_starts_when_it_is_resumed(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    with stopped_before("run"):
        quick.start(task, tmp_path / "run", [HONEST])
    assert not api.open_run(tmp_path / "run").events()
    run = quick.resume(tmp_path / "run")
    assert ids(run) == ids(quick.start(task, tmp_path / "whole", [HONEST]))


def test_a_larger_budget_of_one_resume_holds_for_the_next(task: Path, tmp_path: Path, quick: Paper) -> None:
    folder = tmp_path / "run"
    with quick.stopped(lambda spec: spec.branch == "b0"):
        quick.start(task, folder, [HONEST, "budget.trials=40"])
    with quick.stopped(lambda spec: spec.branch == "b1"):
        quick.resume(folder, ["budget.trials=50"])
    run = quick.resume(folder, ["budget.cpu_s=9000"])
    assert (run.limits["trials"], run.limits["cpu_s"]) == (50, 9000)
    assert run.task.budget.trials == 40, "the task file is what it was"


def test_no_run_is_made_over_what_is_there(task: Path, tmp_path: Path, quick: Paper) -> None:
    with pytest.raises(StoreError, match=r"is not a run folder \(no ledger.db\); `evotrainer run TASK --out"):
        quick.resume(tmp_path / "none")
    (tmp_path / "file").write_text("")
    for path, told in (
        (task, r"is a task file and no run folder; `evotrainer run .*task.toml` makes one"),
        (tmp_path / "file", "is a file and no run folder; give the folder"),
    ):
        with pytest.raises(StoreError, match=told):
            api.open_run(path)
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "ledger.db").touch()
    with pytest.raises(StoreError, match=f"no ledger.db.; did you mean {tmp_path}/runs/b"):
        api.open_run(tmp_path / "runs" / "bb")
    with pytest.raises(StoreError, match=f"it holds runs; give one of them: {tmp_path}/runs/a, {tmp_path}/runs/b"):
        api.open_run(tmp_path / "runs")
    with pytest.raises(StoreError, match=f"is a file of a run; give its folder, {tmp_path}/runs/a"):
        api.open_run(tmp_path / "runs" / "a" / "ledger.db")
    with pytest.raises(ConfigError, match=f"is a folder; give a task file in it: {task}"):
        load_task(task.parent)
    with pytest.raises(ConfigError, match=f"is a run folder; `evotrainer resume {tmp_path}/runs/a` goes on with it"):
        load_task(tmp_path / "runs" / "a")
    with pytest.raises(StoreError, match="cannot make run folder .*file/run: Not a directory; choose another --out"):
        quick.start(task, tmp_path / "file" / "run")
    with stopped_before("run"):
        quick.start(task, tmp_path / "run")
    with Ledger.open(tmp_path / "run" / "ledger.db") as ledger:
        assert not ledger.events()
    with pytest.raises(ConfigError, match="holds a run already; `evotrainer resume .*run` goes on with it"):
        quick.start(task, tmp_path / "run")
    own = tmp_path / "project" / "task.toml"
    own.parent.mkdir()
    own.write_text("# mine\n" + task.read_text())
    with pytest.raises(ConfigError, match="task.toml is there already and a run would overwrite it; choose another"):
        quick.start(own, own.parent)
    assert own.read_text().startswith("# mine")
    assert not quick.ran, "nothing was spent on any of them"


def test_a_task_file_that_was_changed_after_the_run_began_is_refused(task: Path, tmp_path: Path, quick: Paper) -> None:
    folder = tmp_path / "run"
    with quick.stopped(lambda spec: spec.branch == "b0"):
        quick.start(task, folder, [HONEST])
    file = folder / "task.toml"
    file.write_text(file.read_text().replace("\nmin_effect = 0.02\n", "\nmin_effect = 0.0\n"))
    ran = len(quick.ran)
    with pytest.raises(ConfigError, match=r"task\.toml was changed after the run began .*restore it, or start a new"):
        quick.resume(folder)
    assert len(quick.ran) == ran


def test_rollouts_of_sealed_splits_are_read_after_the_close(task: Path, tmp_path: Path, quick: Paper) -> None:
    folder = tmp_path / "run"
    with quick.stopped(lambda spec: spec.branch == "b1"):
        quick.start(task, folder, [HONEST])
    run = api.open_run(folder)
    for split in ("gate", "cert", "gate-greedy"):
        with pytest.raises(EncryptedError, match="is sealed until the run closes.*evotrainer resume"):
            run.rollouts(split)
    assert not list(run.rollouts("search", branch="b0")), "trials on paper leave none"
    for asked, told in (
        ({"branch": "b7"}, "no branch 'b7' was tried; there are: base, b0"),
        ({"trial": "b0-s9"}, "no trial 'b0-s9' was tried; there are: base, b0-s1"),
        ({"split": "test"}, "no split 'test'; there are train, search, gate, cert"),
    ):
        with pytest.raises(ConfigError, match=told):
            run.rollouts(**asked)  # type: ignore[arg-type]
    closed = quick.resume(folder)
    assert not list(closed.rollouts("gate"))


def test_overrides_are_a_list_of_texts_or_a_mapping(task: Path, tmp_path: Path, quick: Paper) -> None:
    given = {
        "run.rounds": 1,
        "run": {"workers": 2},
        "recipe.lr": 1e-4,
        "task.about": 'it\'s "so"',
        "run.seeds": (1, 2, 3),
    }
    loaded = load_task(task, given)
    assert (loaded.run.rounds, loaded.run.workers, loaded.recipe.lr, loaded.run.seeds) == (1, 2, 1e-4, (1, 2, 3))
    assert loaded.task.about == 'it\'s "so"' and loaded.run.workers == 2
    inner = {"recipe.clip": {"low": 0.1, "high": 0.3}, "sandbox.accept_tier_e": False}
    assert load_task(task, inner).recipe.clip.high == 0.3
    assert as_texts(inner) == ['recipe.clip={"low" = 0.1, "high" = 0.3}', "sandbox.accept_tier_e=false"]
    with pytest.raises(ConfigError, match="override recipe.lr is of type NoneType"):
        load_task(task, {"recipe.lr": None})
    with pytest.raises(ConfigError, match=r"overrides is the text 'run.rounds=1'; give a list"):
        load_task(task, "run.rounds=1")
    for wrong in ([1], 1):
        with pytest.raises(ConfigError, match="overrides holds 1, which is no text; give texts"):
            api.start(task, overrides=wrong)  # type: ignore[arg-type]
    with quick.stopped(lambda spec: spec.branch == "b0"):
        quick.start(task, tmp_path / "run", [HONEST])
    with pytest.raises(ConfigError, match="a resume cannot change 'recipe.lr'"):
        api.resume(tmp_path / "run", {"recipe.lr": 1e-4})


def test_what_is_no_path_is_named(task: Path) -> None:
    for call in (api.open_run, api.Run, api.resume, api.start, lambda x: api.start(task, 3)):
        with pytest.raises(ConfigError, match=r"is (None|3), which is no path; give a text or a Path"):
            call(None)  # type: ignore[arg-type]


def test_only_the_names_that_are_promised_are_shown() -> None:
    assert dir(api) == sorted(api.__all__)
