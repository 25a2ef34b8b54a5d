"""What of gate and cert can be read before a run closes: nothing of single tasks, wherever one looks."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evotrainer import api
from evotrainer.cli import app
from evotrainer.cli._seat_tools import SeatTools
from evotrainer.envs import open_environment
from evotrainer.errors import ConfigError, EncryptedError, EvoTrainerError, IntegrityError
from evotrainer.records.events import TrialFinished
from evotrainer.records.reading import load
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import Key
from evotrainer.records.seat import read_answer
from evotrainer.records.store import RolloutStore
from evotrainer.run.observer import Running, SilentObserver
from evotrainer.verify import Record, checks
from tests.keys_of_run import held, key_of_run
from tests.paper import stopped_before
from tests.records.test_sealed import rollouts
from tests.run.test_seat import request, say, trial
from tests.small_run import TINY
from tests.tasks_on_paper import TASK as SUMS
from tests.tasks_on_paper import OnItsTasks

FRESH = [o for o in TINY if not o.startswith("evaluation.draw")]


class Snapshots(SilentObserver):
    """Copies the run folder, and what its processes show of themselves, while the run goes on."""

    def __init__(self, run: Path, to: Path) -> None:
        self.run, self.to = run, to
        self.taken: list[Path] = []
        self.processes: set[bytes] = set()
        self.tails = 0

    def copy(self) -> None:
        at = self.to / str(len(self.taken))
        shutil.copytree(self.run, at, ignore=shutil.ignore_patterns("*.tmp", "policy", "checkpoint"))
        self.taken.append(at)

    def finished(self, trial: TrialFinished) -> None:
        self.copy()

    def trials(self, running: Running) -> None:
        for spec, beat in running:
            for name in ("cmdline", "environ"):
                try:
                    self.processes.add(Path(f"/proc/{beat.pid if beat else 0}/{name}").read_bytes())
                except OSError:
                    continue
            tail = self.run / "sealed" / spec.trial / "tail.log"
            if self.tails < 2 and tail.is_file() and tail.stat().st_size > 5000:
                self.tails += 1
                self.copy()


def secrets_of(run: api.Run) -> list[str]:
    """Ids and prompts of the run's gate and cert tasks, and its scores of single tasks, as files would hold them."""
    assert run.closed is not None
    environment = open_environment(run.task.environment, accept_tier_e=True)
    environment.redraw(run.closed.seed)  # type: ignore[attr-defined]
    tasks = [t for split in ("gate", "cert") for t in environment.tasks(split)]
    return [t.id for t in tasks] + [str(t.prompt) for t in tasks]


def texts_of(folder: Path) -> Iterable[tuple[Path, str]]:
    """Every file of a folder: its bytes, and what is in it once it is unpacked with all that can be read."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield path, path.read_bytes().decode("latin-1")
    for store in (folder / "rollouts").iterdir():
        yield store, "\n".join(f"{r.task} {[t.text for t in r.turns]} {r.detail}" for r in load([store]))
    with sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True) as db:
        yield folder / "ledger.db", "\n".join(str(row) for row in db.execute("select * from event"))


def told(folder: Path, secrets: list[str]) -> list[tuple[str, str]]:
    return [(str(path), s) for path, text in texts_of(folder) for s in secrets if s in text]


def test_no_file_of_a_real_run_in_progress_tells_of_gate_or_cert(
    task_file: Path, trained_base: Path, tmp_path: Path
) -> None:
    watch = Snapshots(tmp_path / "run", tmp_path / "seen")
    run = api.start(task_file, tmp_path / "run", [*FRESH, f"policy.base={trained_base}", "run.workers=1"], view=watch)
    secrets, key = secrets_of(run), key_of_run(run.folder).key.hex()
    assert run.closed is not None and run.closed.key == key and run.verify().ok
    seed = run.closed.seed
    assert len(watch.taken) >= 6 and len(secrets) == 2 * 300
    for at in watch.taken:
        assert not told(at, [*secrets, key, seed]), at
    assert watch.processes and not [p for p in watch.processes if key.encode() in p or bytes.fromhex(key) in p]
    sealed = [load([p]) for p in (run.folder / "sealed").iterdir() if p.name != "draw"]
    assert {r.split for store in sealed for r in store} >= {"gate", "cert"}, "afterwards everybody reads them"
    scores = [s for e in run.events() if e.kind == "finished" for s in e.body.scores if s.split == "gate"]
    assert scores and all(len(s.per_task) == 12 for s in scores)


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(SUMS)
    return tmp_path / "task.toml"


def commands(folder: Path) -> list[list[str]]:
    """Every command that reads a run."""
    state, at = api.open_run(folder).state, str(folder)
    things = [*state.branches, *state.trials]
    shown = [["show", at, x] for x in things] + [["why", at, b] for b in state.branches if b != "base"]
    plain = ["status", "lineage", "health", "verify", "audit", "report", "forecasts", "harness", "seat"]
    return [*shown, *([c, at] for c in plain), ["status", at, "--json"], ["audit", at, "--json"]]


def answer_of(*args: str) -> str:
    """What a command says, called in this process: it has no key, and starting thirty would take minutes."""
    done = CliRunner().invoke(app, args)
    assert done.exception is None or isinstance(done.exception, EvoTrainerError | SystemExit), (args, done.exception)
    return f"{done.output}{done.exception or ''}"


def test_no_answer_of_a_run_that_was_killed_tells_of_gate_or_cert(sums: Path, tmp_path: Path) -> None:
    """Each command and each tool, called by a process that has not the key; afterwards the run goes on."""
    folder = tmp_path / "run"
    with stopped_before("certified"):
        OnItsTasks().start(sums, folder)
    open_ = api.open_run(folder)
    scores = [s for e in open_.events() if e.kind == "finished" for s in e.body.scores if s.split in ("gate", "cert")]
    assert {s.split for s in scores} == {"gate", "cert"}
    assert all(s.encrypted and not s.per_task and not s.proxy_per_task for s in scores)
    with held(folder):
        secrets = [t for e in open_.events() if e.kind == "finished" for s in e.body.scores for t in s.per_task
                   if s.split != "search"]  # fmt: skip
    secrets = sorted(set(secrets))
    assert len(secrets) == 80 and not told(folder, secrets)
    answers = []
    for args in commands(folder):
        answers.append(answer_of(*args))
    answers.append((folder / "report.html").read_text())
    assert not [(s, a[:200]) for s in secrets for a in answers if s in a]
    verified = next(a for a in answers if "gate and cert are encrypted until the run closes: of" in a)
    assert "resting on them not computed again" in verified and "everything holds" not in verified
    assert any("not recomputed: gate and cert are encrypted" in a for a in answers)
    run = OnItsTasks().resume(folder)
    assert run.closed is not None and run.certification is not None
    assert "recomputed from the ledger: the same verdict" in answer_of("why", str(folder), "b1")
    assert not Record(folder, run.events()).locked and "encrypted" not in answer_of("verify", str(folder))
    scored = {t for e in run.events() if e.kind == "finished" for s in e.body.scores for t in s.per_task}
    assert scored >= set(secrets), "the end reveals them"


def test_another_seed_gives_whoever_sits_tasks_that_are_not_the_runs(sums: Path, tmp_path: Path) -> None:
    run = OnItsTasks().start(sums, tmp_path / "run")
    own = {t for e in run.events() if e.kind == "finished" for s in e.body.scores for t in s.per_task}
    listed = open_environment(run.task.environment, accept_tier_e=True)
    for split in ("gate", "cert"):
        assert not own & {t.id for t in listed.tasks(split)}, "an environment as it is opened knows no run's seed"


def test_a_lost_key_is_named_and_a_run_without_keys_says_so(
    sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    with stopped_before("b1/judged"):
        OnItsTasks().start(sums, tmp_path / "run", [f"run.keys={keys}"])
    (path,) = keys.glob("*.key")
    path.rename(tmp_path / "aside")
    with pytest.raises(IntegrityError, match=rf"the key of this run is not in {path}.*copy {path.name}"):
        OnItsTasks().resume(tmp_path / "run")
    (tmp_path / "aside").rename(path)
    assert OnItsTasks().resume(tmp_path / "run").closed
    monkeypatch.setenv("EVOTRAINER_KEYS", "off")
    with stopped_before("b1/judged"):
        OnItsTasks().start(sums, tmp_path / "plain")
    run = OnItsTasks().resume(tmp_path / "plain")
    assert run.closed is not None and not run.closed.key
    assert all(s.per_task for e in run.events() if e.kind == "finished" for s in e.body.scores)


def test_after_its_end_a_run_that_goes_on_encrypts_with_another_key(sums: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    changes = '[{factor = "lr", new = 2e-3}, {factor = "group_size", new = 12}]'
    run = OnItsTasks().start(sums, folder, [f"run.agent_options.interventions={changes}"])
    first = run.closed
    with stopped_before("closed/2"):
        OnItsTasks().resume(folder, ["run.rounds=2"])
    seen = [s for e in api.open_run(folder).events() if e.kind == "finished" for s in e.body.scores]
    gate = [s for s in seen if s.split == "gate"]
    assert any(s.per_task for s in gate) and any(s.encrypted and not s.per_task for s in gate)
    again = OnItsTasks().resume(folder).closed
    assert first is not None and again is not None and again.key != first.key and first.key and again.key
    assert again.next_key_sha256 != first.next_key_sha256
    events = api.open_run(folder).events()
    assert all(s.per_task for e in events if e.kind == "finished" for s in e.body.scores if s.split == "gate")
    record, check = Record(folder, events), checks()
    found = [p for e in events if e.kind in ("closed", "judged") for p in check[e.kind](record, e)]
    assert not found and record.checked["keys"] == 2 and not record.locked


def test_a_forged_key_is_found(sums: Path, tmp_path: Path) -> None:
    run = OnItsTasks().start(sums, tmp_path / "run")
    record = Record(run.folder, run.events())
    end = record.of("closed")[0]
    for key in ("00" * 32, "", "no key"):
        forged = replace(end, body=end.body.model_copy(update={"key": key}))
        assert "not the one that the run committed to" in str(list(checks()["closed"](record, forged)))


def test_judge_evaluation_and_budget_of_a_run_are_no_factors_and_no_overrides(sums: Path, tmp_path: Path) -> None:
    for name in ("judge.alpha", "alpha", "evaluation.gate_tasks", "gate_attempts", "budget.trials", "run.keys", "draw"):
        assert f"unknown factor '{name}'" in read_answer(say(trial(**{name: 1})), request())[1]
    assert "unknown name" in read_answer(json.dumps({"trials": [trial(lr=1) | {"budget": 9}]}), request())[1]
    run = OnItsTasks().start(sums, tmp_path / "run")
    for o in ("judge.alpha=0.49", "evaluation.draw=7", "evaluation.gate_tasks=2", "run.keys=off", "environment.name=x"):
        with pytest.raises(ConfigError, match="a resume cannot change"):
            api.resume(run.folder, [o])
    assert not {"resume", "start", "edit", "override"} & {n for n in dir(SeatTools) if not n.startswith("_")}


def test_an_edited_task_file_changes_no_run_and_is_found(sums: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with stopped_before("b1/judged"):
        OnItsTasks().start(sums, folder)
    path = folder / "task.toml"
    text = path.read_text()
    assert "alpha = " in text
    path.write_text(text.replace("alpha = 0.05", "alpha = 0.49").replace("alpha = 0.025", "alpha = 0.49"))
    assert path.read_text() != text
    with pytest.raises(ConfigError, match=r"task\.toml was changed after the run began"):
        OnItsTasks().resume(folder)
    assert "task.toml is not the file the run began with" in answer_of("verify", str(folder))
    path.write_text(text)
    assert OnItsTasks().resume(folder).closed


def test_gate_and_cert_rollouts_are_read_by_no_reader_before_the_end(tmp_path: Path) -> None:

    run = tmp_path / "run"
    key = Key(os.urandom(32)).hold()
    with RolloutStore(run / "sealed" / "b0-s1", key=key) as store:
        store.append(rollouts(3))
        store.seal()
    key.release()
    copied = tmp_path / "copied"
    shutil.copytree(run / "sealed" / "b0-s1", copied)
    for at in (run / "sealed" / "b0-s1", copied):
        with pytest.raises(EncryptedError):
            list[Rollout](load([at]))
    said = answer_of("audit", str(copied))
    assert "gate-1" not in said and "tell nobody" not in said
