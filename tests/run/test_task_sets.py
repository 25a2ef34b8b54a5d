"""`run.task_sets`: gate and cert of a run's own, or a set whose looks runs count together."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.status import status
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError, EncryptedError, IntegrityError, StoreError
from evotrainer.judge.settings import weaker
from evotrainer.records.events import RunOpened, TaskDraw
from evotrainer.records.looks import LookRegister, share_of
from evotrainer.records.sealed import SealedSplits
from evotrainer.rules.judge_input import judge_config
from evotrainer.run.observer import SilentObserver
from evotrainer.verify import Record, checks
from tests import letters_on_paper
from tests.keys_of_run import held
from tests.leaky_task import HONEST, TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper, bodies, stopped_before
from tests.tasks_on_paper import TASK as SUMS
from tests.tasks_on_paper import OnItsTasks

OPTIONS = [HONEST, "judge.audit=never"]


def drawn(run: api.Run) -> TaskDraw:
    opened: RunOpened = run.events()[0].body
    return opened.draw


def tasks_of(run: api.Run, split: str) -> set[str]:
    """Ids of all tasks that any trial of the run was scored on."""
    return {t for f in bodies(run, "finished") for s in f.scores if s.split == split for t in s.per_task}


def complaints(run: api.Run) -> list[str]:
    record, every = Record(run.folder, run.events()), checks()
    found = [p for e in record.events if e.kind in every for p in every[e.kind](record, e)]
    return [p.message for p in found if p.area in ("draw", "run", "closed", "judged", "certified")]


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    p = tmp_path / "sums.toml"
    p.write_text(SUMS)
    return p


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LookRegister:
    """A register of this test's own."""
    path = tmp_path / "state" / "looks.db"
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(path))
    return LookRegister(path)


# -- drawn tasks -------------------------------------------------------------------------------------------------------


def test_two_runs_of_a_generated_task_share_search_and_neither_gate_nor_cert(sums: Path, tmp_path: Path) -> None:
    one, other = (OnItsTasks().start(sums, tmp_path / name) for name in ("one", "other"))
    assert drawn(one).mode == "fresh" and one.certification is not None and one.champion == "b1"
    assert tasks_of(one, "search") == tasks_of(other, "search")
    for split in ("gate", "cert"):
        assert len(tasks_of(one, split)) == 40 and not tasks_of(one, split) & tasks_of(other, split)
    assert complaints(one) == [] == complaints(other)
    end = one.closed
    assert end is not None and end.seed == SealedSplits(one.folder).seed().seed, "the end reveals what was drawn from"
    again = OnItsTasks().start(sums, tmp_path / "again", [f"evaluation.draw={end.seed}"])
    assert tasks_of(again, "cert") == tasks_of(one, "cert"), "who knows the seed can make its tasks again"
    assert drawn(again).mode == "given" and drawn(again).commitment != drawn(one).commitment


def test_no_event_and_no_specification_tells_the_seed_before_the_end(sums: Path, tmp_path: Path) -> None:
    paper = OnItsTasks()
    with stopped_before("closed"):
        paper.start(sums, tmp_path / "run")
    run = api.open_run(tmp_path / "run")
    with pytest.raises(EncryptedError, match="encrypted until the run closes"):
        SealedSplits(run.folder).seed()
    with held(run.folder):
        kept = SealedSplits(run.folder).seed(commitment=drawn(run).commitment)
    told = [json.dumps(e.body.model_dump(mode="json")) for e in run.events()]
    told += [s.model_dump_json() for s in paper.ran]
    assert not [t for t in told if kept.seed in t or kept.salt in t]
    assert (run.folder / SealedSplits.DRAW / "seed.enc").stat().st_mode & 0o777 == 0o600


def test_a_run_stopped_anywhere_goes_on_with_its_tasks(sums: Path, tmp_path: Path) -> None:
    for k, point in enumerate(("run", "base/finished", "b1/judged", "certified", "closed")):
        folder = tmp_path / f"cut-{k}"
        with stopped_before(point):
            OnItsTasks().start(sums, folder)
        with held(folder):
            kept = SealedSplits(folder).seed()
        run = OnItsTasks().resume(folder)
        assert run.closed is not None and run.closed.seed == kept.seed, point
        assert len(tasks_of(run, "gate")) == len(tasks_of(run, "cert")) == 40
        assert complaints(run) == [], point


@pytest.mark.parametrize(
    ("text", "said"), [(None, "is lost"), ("{", "is damaged"), ('{"seed": "1", "salt": ""}', "does not hold the seed")]
)
def test_a_lost_or_another_seed_is_an_error(sums: Path, tmp_path: Path, text: str | None, said: str) -> None:
    with stopped_before("b1/judged"):
        OnItsTasks().start(sums, tmp_path / "run")
    path = tmp_path / "run" / SealedSplits.DRAW / "seed.enc"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(IntegrityError, match=f"{said}.*; restore it from a copy, or start a new run"):
        OnItsTasks().resume(tmp_path / "run")


def test_a_number_for_tasks_that_nobody_draws_is_refused(tmp_path: Path, quick: Paper) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    with pytest.raises(ConfigError, match=r"evaluation.draw=7: .* its gate and cert are given"):
        quick.start(path, tmp_path / "run", ["evaluation.draw=7"])


def test_a_set_that_a_run_drew_for_itself_has_no_alpha_left(sums: Path, tmp_path: Path, register: LookRegister) -> None:
    first = OnItsTasks().start(sums, tmp_path / "one")
    assert first.closed is not None and all(v.alpha and v.alpha > 0.018 for v in first.verdicts), "its own: all of it"
    again = OnItsTasks().start(sums, tmp_path / "two", [f"evaluation.draw={first.closed.seed}"])
    gate = drawn(again).of("gate")
    assert gate and gate.run == 0 and not gate.counted
    assert all(any("not counted" in g.message for g in v.gates if g.gate == "settings") for v in again.verdicts)
    assert any("drawn for another run" in w for w in api.preflight(again.task, new=True))
    assert complaints(again) == []


# -- fixed sets --------------------------------------------------------------------------------------------------------


def test_runs_on_a_fixed_set_share_one_alpha_and_the_third_is_told(
    tmp_path: Path, quick: Paper, register: LookRegister, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    runs = [quick.start(path, tmp_path / name, OPTIONS) for name in ("one", "two", "three")]
    gates = [drawn(r).of("gate") for r in runs]
    assert [g.run for g in gates if g] == [1, 2, 3]
    assert [g.alpha for g in gates if g] == pytest.approx([0.05 * share_of(k) for k in (1, 2, 3)])
    for run in runs:
        spent = sum(v.alpha or 0.0 for v in run.verdicts if v.kind != "promote")
        gate = drawn(run).of("gate")
        assert gate and gate.alpha and spent <= gate.alpha and run.verdicts[0].alpha < gate.alpha  # type: ignore[operator]
        assert judge_config(run.task, run.state).alpha == gate.alpha
        assert complaints(run) == []
    third = runs[2]
    assert third.certification is not None
    assert (third.certification.of_set, third.certification.by_runs) == (3, 3)
    assert "certificate number 3 on these cert tasks, by 3 runs on this machine" in str(third.caveats)
    assert not any(c.kind == "look" for c in runs[0].caveats.get("b1", ()))
    warned = api.preflight(runs[0].task, new=True)
    assert any("run number 4 on these gate tasks" in w and "alpha is 0.0019" in w for w in warned), warned
    status(third.folder)
    why(third.folder, "b1")
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("run number 3 on these gate tasks on this machine: its alpha is 0.0034") == 2


def test_a_later_certificate_says_so_where_nothing_was_promoted_either(
    tmp_path: Path, quick: Paper, register: LookRegister
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    one, two = [quick.start(path, tmp_path / name, [*OPTIONS, "run.rounds=0"]) for name in ("one", "two")]
    assert one.champion == two.champion == "b0"
    seen = [[c.text for c in r.caveats.get("b0", ()) if c.kind == "look"] for r in (one, two)]
    assert seen == [[], ["certificate number 2 on these cert tasks, by 2 runs on this machine"]]


def test_what_breaks_off_before_a_training_costs_no_alpha(tmp_path: Path, quick: Paper, register: LookRegister) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    for name in ("one", "two", "three"):
        with quick.stopped(lambda spec: spec.branch == "base", by=ConfigError):
            quick.start(path, tmp_path / name, OPTIONS)
    first = quick.resume(tmp_path / "two")
    gate = drawn(first).of("gate")
    assert gate and gate.run == 1 and complaints(first) == []
    before = {p: p.read_bytes() for p in (tmp_path / "one").rglob("*") if p.is_file()}
    with pytest.raises(StoreError, match="another run has this run's number 1 .* start a new run"):
        quick.resume(tmp_path / "one")
    assert before == {p: p.read_bytes() for p in (tmp_path / "one").rglob("*") if p.is_file()}
    with quick.stopped(lambda spec: spec.branch == "b1"):
        quick.start(path, tmp_path / "four", OPTIONS)
    (warned,) = [w for w in api.preflight(first.task, new=True) if "run number" in w]
    assert warned.endswith("a `draw` of the environment gives each run tasks, and an alpha, of its own")
    assert "run number 3 on these gate tasks" in warned, "one in which something was trained keeps its number"
    assert f"not judged so far: {tmp_path / 'four'}; the number" in warned


def test_an_interrupted_run_keeps_its_number_also_where_its_folder_moves(
    tmp_path: Path, quick: Paper, register: LookRegister
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    with quick.stopped(lambda spec: spec.branch == "base"):
        quick.start(path, tmp_path / "one", OPTIONS)
    (tmp_path / "one").rename(tmp_path / "moved")
    with quick.stopped(lambda spec: spec.branch == "b1"):
        quick.resume(tmp_path / "moved")
    other = quick.start(path, tmp_path / "two", OPTIONS)
    gates = [drawn(api.open_run(tmp_path / name)).of("gate") for name in ("moved", "two")]
    assert [g.run for g in gates if g] == [1, 2] and complaints(other) == []
    (warned,) = [w for w in api.preflight(other.task, new=True) if "run number" in w]
    assert f"not judged so far: {tmp_path / 'moved'};" in warned


def test_a_refused_resume_takes_no_number(task_file: Path, tmp_path: Path, register: LookRegister) -> None:
    own = tmp_path / "own"
    shutil.copytree(task_file.parent, own)
    made = Paper(letters_on_paper.finish, letters_on_paper.rollouts)
    asked = [*letters_on_paper.QUICK, "run.rounds=0", "evaluation.draw=fixed"]
    with made.stopped(lambda spec: spec.branch == "base", by=ConfigError):
        made.start(own / "task.toml", tmp_path / "one", asked)
    gate = drawn(api.open_run(tmp_path / "one")).of("gate")
    text = (own / "environment.py").read_text(encoding="utf-8")
    (own / "environment.py").write_text(text.replace('"train": 400', '"train": 300'), encoding="utf-8")
    with pytest.raises(IntegrityError, match="its splits with it"):
        made.resume(tmp_path / "one")
    assert gate and register.next_number(gate.tasks) == 1
    # what fails behind the check and before a training gives it back, too
    (own / "environment.py").write_text(text, encoding="utf-8")
    with made.stopped(lambda spec: spec.branch == "base", by=ConfigError):
        made.resume(tmp_path / "one")
    assert register.next_number(gate.tasks) == 1


def test_a_resumed_run_is_counted_once(tmp_path: Path, quick: Paper, register: LookRegister) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    for point in ("run", "b1/judged", "certified"):
        with stopped_before(point):
            quick.start(path, tmp_path / point.replace("/", "-"), OPTIONS)
        run = quick.resume(tmp_path / point.replace("/", "-"))
        cert = run.certification
        assert cert is not None and cert.of_set == cert.by_runs
    gate = drawn(run).of("gate")
    assert gate and gate.run == 3 and register.next_number(gate.tasks) == 4 and cert.of_set == 3


@pytest.mark.usefixtures("arms")
def test_a_search_alone_takes_no_alpha(tmp_path: Path, quick: Paper, register: LookRegister) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    greedy = ["run.agent=greedy", "run.agent_options={}", "run.changes=100"]
    alone = quick.start(path, tmp_path / "alone", [*OPTIONS, *greedy, "run.probes=1", "run.search_only=true"])
    assert complaints(alone) == [] and not (drawn(alone).of("gate") or pytest.fail("no gate")).run
    assert not any("run number" in w for w in api.preflight(alone.task, new=True))
    gate = drawn(quick.start(path, tmp_path / "proved", OPTIONS)).of("gate")
    assert gate and (gate.run, gate.alpha) == (1, pytest.approx(0.05 * share_of(1)))


def test_a_log_tells_the_runs_alpha_and_a_promotion_once(tmp_path: Path, quick: Paper, register: LookRegister) -> None:
    class Log(SilentObserver):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def note(self, text: str) -> None:
            self.lines.append(text)

    path, log = tmp_path / "task.toml", Log()
    path.write_text(TASK)
    run = quick.start(path, tmp_path / "run", OPTIONS, view=log)
    assert sum("run number 1 on these gate tasks" in line for line in log.lines) == 1
    promoted = [v.branch for v in run.state.versions if v.previous is not None]
    assert [line for line in log.lines if ": promoted over " in line] == [
        f"{b}: promoted over {over}, version v{i}" for i, (over, b) in enumerate(pairwise(["b0", *promoted]), 1)
    ]


def test_a_lost_register_does_not_give_a_run_another_alpha(
    tmp_path: Path, quick: Paper, register: LookRegister
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    quick.start(path, tmp_path / "one", OPTIONS)
    with stopped_before("b1/judged"):
        quick.start(path, tmp_path / "two", OPTIONS)
    register.path.unlink()
    run = quick.resume(tmp_path / "two")
    gate = drawn(run).of("gate")
    assert gate and gate.run == 2 and complaints(run) == []
    assert register.next_number(gate.tasks) == 1, "the second entered itself again; the first is forgotten"


def test_a_register_that_is_off_is_named_beside_every_verdict(tmp_path: Path, quick: Paper) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    run = quick.start(path, tmp_path / "run", [*OPTIONS, "run.looks=off"])
    config = judge_config(run.task, run.state)
    assert config.alpha == 0.05 and not config.counted
    for v in run.verdicts:
        assert v.effect is None or any("not counted (counted)" in text for text in weaker(config, v.effect))
        assert any(g.gate == "settings" and "not counted" in g.message for g in v.gates)
    assert any("not counted" in c.text for c in run.caveats["b1"])
    assert any("not counted" in w for w in api.preflight(run.task, new=True))
    assert complaints(run) == []


def test_a_register_that_cannot_be_used_is_an_error_before_anything_is_spent(
    tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    (tmp_path / "looks.db").write_text("no database at all, but a text of some length" * 20)
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "looks.db"))
    with pytest.raises(StoreError, match="set run.looks to another file, or to off"):
        quick.start(path, tmp_path / "run", OPTIONS)
    assert not (tmp_path / "run").exists()


def joined(path: Path, folder: Path, k: int) -> None:
    (folder / f"number-{k}").write_text(str(LookRegister(path).join("set", f"run-{k}", folder)))


def test_processes_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "task.toml").touch()
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=joined, args=(tmp_path / "looks.db", tmp_path, k)) for k in range(8)]
    for p in started:
        p.start()
    for p in started:
        p.join()
    assert sorted(int(p.read_text()) for p in tmp_path.glob("number-*")) == list(range(1, 9))
