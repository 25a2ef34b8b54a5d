"""`resume run.rounds=...`: a finished run goes on, pays nothing twice, spends the same alpha, is certified again."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.status import status
from evotrainer.errors import ConfigError
from evotrainer.records.ledger import Ledger
from evotrainer.verify import Record, checks
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper, bodies, ids, stopped_before

CHANGES = 'run.agent_options.interventions=[{factor="clip",new={low=0.1}},{factor="group_size",new=12}]'
OPTIONS = [CHANGES, "judge.audit=never"]


def story(run: api.Run) -> list[str]:
    return [i for i in ids(run) if not i.startswith("resumed")]


def test_a_finished_run_goes_on_with_more_rounds(task: Path, tmp_path: Path, quick: Paper) -> None:
    folder = tmp_path / "run"
    first = quick.start(task, folder, OPTIONS)
    before, ran = ids(first), len(quick.ran)
    assert first.champion == "b1" and first.closed is not None
    run = quick.resume(folder, ["run.rounds=2"])
    assert ids(run)[: len(before)] == before, "nothing that was recorded changes"
    assert {s.branch for s in quick.ran[ran:]} == {"b2"}, "base, noise floor and the first rounds are not paid again"
    assert run.champion == "b2" and run.closed is not None and [e.id for e in run.events()][-1] == "closed/2"
    assert sum(v.alpha or 0 for v in run.verdicts) <= run.task.judge.alpha, "one alpha for both parts"
    assert [c.look for c in bodies(run, "certified")] == [1, 2] and run.certification.champion == "b2"  # type: ignore[union-attr]
    assert any("certificate number 2 of this run" in c.text for c in run.caveats["b2"])


def test_it_equals_a_run_that_was_to_play_as_many_rounds(task: Path, tmp_path: Path, quick: Paper) -> None:
    whole = quick.start(task, tmp_path / "whole", [*OPTIONS, "run.rounds=2"])
    quick.start(task, tmp_path / "run", OPTIONS)
    run = quick.resume(tmp_path / "run", ["run.rounds=2"])
    assert [v.model_dump() for v in run.verdicts] == [v.model_dump() for v in whole.verdicts]
    again, once = run.certification, whole.certification
    assert again is not None and once is not None
    assert {r.name: r.score for r in again.rows} == {r.name: r.score for r in once.rows}


def test_it_verifies_and_says_what_it_is(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    quick.start(task, tmp_path / "run", OPTIONS)
    run = quick.resume(tmp_path / "run", ["run.rounds=2"])
    record, table = Record(run.folder, run.events()), checks()
    ours = ("round", "branch", "judged", "promoted", "certified", "reestimated", "closed", "resumed", "planned")
    found = [p.message for e in record.events if e.kind in ours for p in table[e.kind](record, e)]
    assert not [p for p in found if "policy" not in p], found
    status(run.folder)
    assert "Ended after 2 rounds" in " ".join(capsys.readouterr().out.split())
    assert "Ended after 2 rounds" in run.report().read_text()


def test_a_champion_that_stays_is_not_certified_again(task: Path, tmp_path: Path, quick: Paper) -> None:
    same = 'run.agent_options.interventions=[{factor="clip",new={low=0.1}},{factor="lr",new=2e-5}]'
    quick.start(task, tmp_path / "run", [same, "judge.audit=never"])
    ran = len(quick.ran)
    run = quick.resume(tmp_path / "run", ["run.rounds=2"])
    assert run.champion == "b1" and len(bodies(run, "certified")) == 1 and len(bodies(run, "closed")) == 2
    assert not [s for s in quick.ran[ran:] if any(p.split == "cert" for p in s.evals)]


def test_stopped_on_its_way_it_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    quick.start(task, tmp_path / "whole", OPTIONS)
    whole = quick.resume(tmp_path / "whole", ["run.rounds=2"])
    every = ("r2/opened", "b2/opened", "b2/judged", "certified/2", "closed/2")
    for events in (every, every[1:2]):  # one run that is stopped before each, and one that is stopped once
        folder = tmp_path / f"run-{len(events)}"
        quick.start(task, folder, OPTIONS)
        for k, event in enumerate(events):
            with stopped_before(event):
                quick.resume(folder, [] if k else ["run.rounds=2"])
            assert api.open_run(folder).closed is None
        run = quick.resume(folder)
        assert story(run) == story(whole)
        assert ids(quick.resume(folder)) == ids(run), "and is left alone then"


def test_it_goes_on_as_often_as_it_is_asked(task: Path, tmp_path: Path, quick: Paper) -> None:
    quick.start(task, tmp_path / "run", [*OPTIONS, "run.rounds=0"])
    quick.resume(tmp_path / "run", ["run.rounds=1"])
    run = quick.resume(tmp_path / "run", ["run.rounds=2"])
    assert [e.id for e in run.events() if e.kind == "closed"] == ["closed", "closed/2", "closed/3"]
    assert [c.champion for c in bodies(run, "certified")] == ["b0", "b1", "b2"]


def test_a_killed_run_may_be_given_more_rounds(task: Path, tmp_path: Path, quick: Paper) -> None:
    with stopped_before("b1/judged"):
        quick.start(task, tmp_path / "run", OPTIONS)
    run = quick.resume(tmp_path / "run", ["run.rounds=2"])
    assert run.champion == "b2" and [c.look for c in bodies(run, "certified")] == [1]


@pytest.mark.parametrize(
    ("override", "said"),
    [("run.rounds=1", "has played 1 of its rounds; ask for more"), ("judge.alpha=0.5", "cannot change 'judge.alpha'")],
)
def test_what_cannot_be_gone_on_with_is_refused(
    override: str, said: str, task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", OPTIONS)
    before = ids(run)
    with pytest.raises(ConfigError, match=said):
        quick.resume(run.folder, [override])
    assert ids(api.open_run(run.folder)) == before
    with Ledger.open(run.folder / "ledger.db") as ledger:
        assert not ledger.events("resumed")
