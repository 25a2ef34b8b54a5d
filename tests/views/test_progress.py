"""`views.progress`: what is left of a run, told while it runs, against what then came."""

from __future__ import annotations

from pathlib import Path

from evotrainer.views.progress import RunProgress, TrialState, TrialWatch, planned, side_by_side

TASK = {"run": {"rounds": 1, "branches": 1, "seeds": [1, 2], "certify_seeds": [9], "workers": 2}}


def test_audits_do_not_use_up_what_was_planned() -> None:
    trained = TrialState("noise", done=True, wall_s=40, cpu_s=40, steps=20)
    base = TrialState("base", done=True, wall_s=8, cpu_s=8)
    audit = TrialState("audit", done=True, wall_s=8, cpu_s=8)
    running = TrialState("branch", running=True, cpu_s=20, step=20, steps=20)
    before = RunProgress(TASK, [base, trained, trained, running])
    # base, four trainings, a fresh one, base and two starting trainings on cert
    assert before.at_most == sum(planned(TASK).values()) == 9
    assert before.line().startswith("trial 4 of at most 9, about ")
    after = RunProgress(TASK, [base, trained, trained, *[audit] * 7, running])
    assert after.at_most == 9 and after.left_s == before.left_s
    assert after.line().startswith("trial 4 of at most 9, 7 audits on top, about "), "what comes on top is no drift"
    more = RunProgress(TASK, [base, *[trained] * 9, running])
    assert more.line().startswith("trial 9 of at most 9, 2 further trainings on top")


def test_what_is_known_to_be_left_at_the_end_is_all_that_is_counted() -> None:
    base = TrialState("base", done=True, wall_s=30, cpu_s=30)
    done = [TrialState("noise", done=True, wall_s=40, cpu_s=40, steps=15)] * 4
    certify = [TrialState("certify", running=True), TrialState("certify"), TrialState("certify")]
    assert RunProgress(TASK, [base]).left_s is None, "no training has ended"
    end = RunProgress(TASK, [base, *done, *certify])
    assert end.line().startswith("trial 6 of 8 (1 not needed), about "), "nothing was promoted: no fresh seeds"
    assert end.left_s is not None and end.left_s < 20, "three evaluations of some 10 s, side by side"


def test_an_empty_place_beside_the_last_trial_does_not_double_the_time() -> None:
    done = [TrialState("noise", done=True, wall_s=40, cpu_s=40, steps=20)] * 2
    both = [TrialState("branch", running=True, cpu_s=20, step=9, steps=20)] * 2
    one = RunProgress(TASK, [*done, both[0]]).left_s
    two = RunProgress(TASK, [*done, *both]).left_s
    assert one and two and 1 < one / two < 1.5
    assert side_by_side({"run": {"workers": 0}, "executor": {"name": "ray"}}, 16) == 16


def test_no_more_is_planned_than_the_budget_pays_for() -> None:
    """A run of twelve rounds and 63 trainings said `trial 46 of about 551`."""
    run = {"rounds": 12, "probes": 36, "branches": 3, "seeds": [1, 2, 3], "certify_seeds": [9, 10, 11]}
    done = [TrialState("base", done=True, cpu_s=3.0)]
    done += [TrialState("branch", done=True, cpu_s=30.0, wall_s=20.0, steps=45)] * 44
    now = TrialState("probe", running=True)
    assert RunProgress({"run": run}, [*done, now]).at_most > 500
    told = RunProgress({"run": run, "budget": {"trials": 63}}, [*done, now])
    assert told.at_most == 1 + 63 + 4, "base, trainings, four evaluations on cert"
    paid = RunProgress({"run": run, "budget": {"cpu_s": 1353.0}}, [*done, now])
    assert "(the budget pays for about 5 more)" in paid.line(), "a training and four evaluations"


def test_a_ledger_that_is_just_being_made_is_read_at_the_next_look(tmp_path: Path) -> None:
    """A live view once ended in a traceback: its thread had opened the file before its tables were there."""
    import sqlite3

    sqlite3.connect(tmp_path / "ledger.db").execute("create table other (x)").connection.close()
    watch = TrialWatch(tmp_path)
    assert watch.progress() is not None
    (tmp_path / "ledger.db").unlink()
    assert not watch._ready
