"""`run.fresh_seeds`: the winner is measured again on seeds that chose nothing, and cert is read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.status import status_json
from evotrainer.cli.why import why
from evotrainer.errors import IntegrityError
from evotrainer.run import trial_specs
from evotrainer.views.fold import load_view
from tests.paper import Paper, bodies, stopped_before
from tests.small_gains_task import ONE
from tests.small_gains_task import TASK as TASK
from tests.small_gains_task import finish as finish


def test_promotions_are_measured_again_with_fresh_controls(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ["judge.audit=never", "judge.reestimate=promotions"])
    fresh = {r.branch: r for r in bodies(run, "reestimated")}
    assert list(fresh) == [p.branch for p in bodies(run, "promoted")][1:]
    for r in fresh.values():
        assert r.control_fresh and set(r.seeds) == {5, 102, 103}
        assert r.trials == tuple(f"{r.branch}-s{s}" for s in (5, 102, 103))
    last = run.champion
    assert fresh[last].control == "b1" and fresh[last].start is not None
    read = [s.trial for s in quick.ran if any(p.split == "cert" for p in s.evals)]
    assert {f"{last}-s5-cert", f"{last}-s102-cert"} <= set(read), "policies that are there are only evaluated"
    assert not any(x.startswith("b1") for x in read), "cert is read for the champion alone"
    for b in fresh:
        why(run.folder, b)
    assert "on fresh seeds" in capsys.readouterr().out


def test_the_champion_is_measured_again_without_further_training(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    (r,) = bodies(run, "reestimated")
    assert r.branch == run.champion == "b1" and not r.control_fresh and r.start is None
    assert r.selected == run.state.branches["b1"].verdict.effect and r.effect != r.selected
    assert sum(s.train for s in quick.ran if s.seed > 100 or s.seed == 5) == 3, "the trainings of certification"
    assert run.reestimated == {"b1": r}
    gain = run.certification.gain if run.certification else None
    assert gain and gain["low"] < gain["mean"] < gain["high"] and gain["mean"] > 0
    view = load_view(run.folder, rollouts=False)
    b = view.branches["b1"]
    assert b.effect == r.effect and b.at_selection == r.selected
    told = status_json(run)["effects"]["b1"]
    assert told["fresh"] and told["looks"] == 2 and told["effect"]["mean"] == r.effect.mean


def test_cert_is_read_once_also_after_an_audit_took_the_champion_back(task: Path, tmp_path: Path, quick: Paper) -> None:
    folder = tmp_path / "run"
    with stopped_before("closed"):
        quick.start(task, folder, ["judge.audit=never"])
    before = api.open_run(folder)
    assert [p.branch for p in bodies(before, "promoted")] == ["b0", "b1", "b4"] and before.certification is not None
    audits, tree = quick.audit_branch(folder, "b4")
    assert audits[0].confirmed and tree.champion == "b1"
    ran = len(quick.ran)
    run = quick.resume(folder)
    assert run.closed is not None and run.closed.champion == "b1" and run.champion == "b1"
    assert run.certification == before.certification and run.certification.champion == "b4"
    assert len(quick.ran) == ran, "nothing is evaluated on cert for the one that is champion now"


def test_a_trial_that_would_read_cert_a_second_time_is_refused(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    with quick.context(run) as ctx:
        (cert,) = trial_specs.plans(ctx, "cert")
        spec = trial_specs.evaluation(
            ctx, "b2-s1-cert", ctx.branches["b2"], 1, "trials/b2-s1/policy", (cert,), "certify"
        )
        with pytest.raises(IntegrityError, match="would read the cert split"):
            ctx.run_trials([spec])
