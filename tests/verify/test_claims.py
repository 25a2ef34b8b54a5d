"""`verify.verdicts` and `verify.effects`: what the ledger says of its own story, looks and levels,
who was judged by what, forecasts, champions.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.judge import judge
from evotrainer.records.detectors import Admission, DetectorSpec
from evotrainer.records.events import Backtested
from evotrainer.rules.judge_input import judge_input
from evotrainer.verify import Record, checks
from evotrainer.verify.effects import certified
from evotrainer.verify.harness import recheck_admissions
from evotrainer.verify.verdicts import judged_trials, recomputed_look, verdict_on
from tests import leaky_task
from tests.paper import Paper
from tests.small_gains_task import TASK, finish

OPTIONS = ["judge.audit=never", "judge.reestimate=promotions"]
FILES = ("policy", "trials", "rollouts", "skill")
"""What trials on paper leave none of."""


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """Two rounds with top-ups, re-estimations, and an audit that takes the second version back; read it only."""
    folder = tmp_path_factory.mktemp("claims")
    (folder / "task.toml").write_text(TASK)
    quick = Paper(finish)
    run = quick.start(folder / "task.toml", folder / "run", OPTIONS)
    quick.audit_branch(run.folder, "b4")
    return run


def problems(record: Record, kinds: set[str] | None = None) -> list[str]:
    """What the checks say of all events, of some kinds where they are given."""
    every = checks()
    found = [p for e in record.events if e.kind in (kinds or every) for p in every[e.kind](record, e)]
    return [f"{p.area}: {p.message}" for p in found if p.area not in FILES]


def forged(run: api.Run, event: str, **changes: Any) -> Record:
    """The run's record with the body of one event changed, as one would have it who computes the whole chain again."""
    events = run.events()
    (at,) = [i for i, e in enumerate(events) if e.id == event]
    events[at] = replace(events[at], body=changed(events[at].body, changes))
    return Record(run.folder, events)


def changed(body: Any, changes: dict[str, Any]) -> Any:
    """A body with other fields; `a__b`: field b of field a. A function is given the old value."""
    new: dict[str, Any] = {}
    for key, value in changes.items():
        name, _, rest = key.partition("__")
        old = getattr(body, name)
        if rest:
            new[name] = changed(old, {rest: value})
        else:
            new[name] = value(old) if callable(value) else value
    return body.model_copy(update=new)


def test_an_honest_run_with_further_looks_and_an_audit_holds(paper: api.Run) -> None:
    record = Record(paper.folder, paper.events())
    assert problems(record) == []
    again = [e.id for e in record.of("judged") if e.id.count("/") == 2]
    assert again and record.of("reestimated") and record.of("invalidated")
    for e in record.of("judged"):
        if e.body.verdict.look:
            look = recomputed_look(record, e)
            assert (look.number, look.alpha) == (e.body.verdict.look, e.body.verdict.alpha)


def first(trials: tuple[Any, ...]) -> tuple[Any, ...]:
    return trials[1:]


def rosier(iv: Any) -> Any:
    return iv.model_copy(update={"prediction": iv.prediction.model_copy(update={"size": 0.123})})


@pytest.mark.parametrize(
    ("event", "changes", "complaint"),
    [
        ("b1/judged", {"verdict__alpha": 0.45}, r"judged: b1/judged .*alpha: 0.45 in the ledger"),
        ("b1/judged/2", {"verdict__look": 1}, r"judged: b1/judged/2 .*look: 1 in the ledger, 3 recomputed"),
        ("b1/judged/2", {"trials": first},
         "judged: b1/judged/2: its trials are not those of the record: b1-s1 is missing"),
        ("b1/topup/2", {"seeds": first},
         r"judged: b1/judged/2: b1-s\d was trained as well, and no event added its seed"),
        ("b1/reestimated", {"trials": first}, "reestimated: b1/reestimated: trials: "),
        ("b4/reestimated", {"start_trials": first}, "reestimated: .*start_trials: "),
        ("b1/reestimated", {"control_fresh": False},
         "reestimated: .*control_fresh: False in the ledger, True recomputed"),
        ("b4/audited/key", {"audit__trials_open": first},
         "audited: .*its trials_open are not those of the record: b4-s1"),
        ("certified", {"rows": first},
         r"certified: certified: rows: "),
        ("certified", {"champion": "b1"}, "certified: certified: champion: 'b1' in the ledger, 'b4' recomputed"),
        ("b1/opened", {"intervention": rosier}, "branch: branch b1: .*forecast are those of no proposal of its round"),
        ("b1/opened", {"intervention": rosier}, "branch: branch b1: its change was not replayed before"),
        ("b0/opened", {"recipe__lr": 1e-4}, "branch: branch b0: its recipe is not the task file's starting recipe"),
        ("r1/backtested/0", {"intervention": rosier}, "backtested: .*is not intervention 0 of r1/proposed"),
        ("r2/opened", {"closed": {"key": "other"}}, "round: round 2 is evaluated with .*other.* closed; audits had"),
        ("closed", {"champion": "base"}, "closed: the run closed with champion base; it was b4"),
    ],
)  # fmt: skip
def test_a_story_that_does_not_follow_is_found(
    paper: api.Run, event: str, changes: dict[str, Any], complaint: str
) -> None:
    found = problems(forged(paper, event, **changes))
    assert any(re.match(complaint, p) for p in found), found


def test_a_seed_left_out_of_the_certificate_is_found(paper: api.Run) -> None:
    rows = paper.certification.rows if paper.certification else ()
    fewer = rows[1].model_copy(update={"seeds": rows[1].seeds[1:]})
    found = problems(forged(paper, "certified", rows=(rows[0], fewer, rows[2])), {"certified"})
    assert any(p.startswith("certified: certified: rows[1].seeds: ") for p in found), found


def test_a_certificate_of_fewer_seeds_than_were_asked_for_is_found(
    paper: api.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(paper.folder, paper.events())
    run = record.task.run
    more = record.task.model_copy(update={"run": run.model_copy(update={"certify_seeds": (*run.certify_seeds, 99)})})
    monkeypatch.setattr(Record, "task", property(lambda self: more))
    with pytest.raises(IntegrityError, match="champion: cert was not read of all of its trainings"):
        list(certified(record, record.of("certified")[-1]))


def test_a_verdict_on_a_branch_the_round_did_not_plan_has_no_look(paper: api.Run) -> None:
    found = problems(forged(paper, "r1/planned", branches=("b1",)), {"judged"})
    assert any("b2/judged: it cannot be computed again: b2/judged: analysis 1 of round 1 was of [" in p for p in found)


def test_a_veto_follows_the_task_file(paper: api.Run, tmp_path: Path) -> None:
    body: Backtested = next(e.body for e in paper.events() if e.kind == "backtested")
    against = body.backtest.model_copy(update={"verdict": "contradicts"})
    let_go = forged(paper, "r1/backtested/0", backtest=against, vetoed=False)
    assert any("vetoed is False, its backtest contradicts" in p for p in problems(let_go, {"backtested"}))
    text = (paper.folder / "task.toml").read_text()
    assert "\nveto = true\n" in text
    (tmp_path / "task.toml").write_text(text.replace("\nveto = true\n", "\nveto = false\n"))
    free = problems(replace(let_go, folder=tmp_path), {"backtested"})
    assert not any("vetoed" in p for p in free), free
    forced = forged(paper, "r1/backtested/0", vetoed=True)
    assert any("vetoed is True" in p for p in problems(forced, {"backtested"}))


def test_why_of_a_starting_recipe_tells_its_version_audits_and_fall(
    paper: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why(paper.folder, "b0")
    said = capsys.readouterr().out
    assert said.startswith("b0: a starting recipe\n") and "\n  noise floor of the run " in said
    assert said.endswith("recomputed from the ledger: its recipe, its noise, its version\n")
    why(paper.folder, "h0")
    assert "recomputed from the ledger: the hash of h0" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="nothing is recorded of 'b9'"):
        why(paper.folder, "b9")


def tried(admitted: bool) -> Admission:
    spec = DetectorSpec(name="short", form="threshold", feature="length", value=3)
    return Admission(detector=spec, admitted=admitted, reason="", bad=("b1-s1 search",), numbers={"share_bad": 0.5})


def test_detectors_that_a_run_opens_with_were_tried_elsewhere(paper: api.Run) -> None:
    record = forged(paper, "harness/opened", admissions=(tried(True),))
    (event,) = [e for e in record.events if e.id == "harness/opened"]
    assert recheck_admissions(record, event) == []


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """A round in which a leak is discovered: detectors were mined and tried on stored rollouts; read it only."""
    folder = tmp_path_factory.mktemp("leaky")
    (folder / "task.toml").write_text(leaky_task.TASK)
    acted = Paper(leaky_task.finish, leaky_task.as_trained)
    return acted.start(folder / "task.toml", folder / "run", [leaky_task.MINIMAL])


def mined(run: api.Run, **changes: Any) -> list[tuple[str, list[str]]]:
    """The admission tests of branch b1's gap, run again; with the first admitted detector's record changed."""
    (gap,) = [e.body for e in run.events() if e.id == "gap/b1"]
    first = next(a for a in gap.considered if a.admitted)
    considered = tuple(changed(a, changes) if a is first else a for a in gap.considered)
    record = forged(run, "gap/b1", considered=considered)
    (event,) = [e for e in record.events if e.id == "gap/b1"]
    return recheck_admissions(record, event)


def test_admission_tests_run_again_on_the_stored_rollouts_are_not_judged_by_the_clock(
    leaky: api.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the one fake is a clock, since no test can make a machine slow: every look at it, 1,000 CPU-seconds are gone
    clock = count(step=1000)
    monkeypatch.setattr("time.process_time", lambda: float(next(clock)))
    tried = mined(leaky)
    assert tried and all(wrong == [] for _, wrong in tried)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"admitted": False}, "admitted is False in the ledger, True recomputed"),
        ({"numbers": lambda n: n | {"share_bad": 0.5}}, "share_bad: 0.5 in the ledger, "),
        ({"bad": ("b7-s1 search",)}, "its test cannot be run again: .*b7-s1"),
    ],
)
def test_an_admission_that_the_stored_rollouts_do_not_bear_out_is_found(
    leaky: api.Run, changes: dict[str, Any], complaint: str
) -> None:
    found = [d for _, wrong in mined(leaky, **changes) for d in wrong]
    assert any(re.match(complaint, d) for d in found), found


def against(run: api.Run, branch: str, control: str) -> Record:
    """A branch's verdict as the judge would have given it against another control, recorded as if that were its own."""
    record = Record(run.folder, run.events())
    event = verdict_on(record, branch, 1)
    trials = tuple(t for b in (branch, control) for t in judged_trials(record, b, event))
    wrong = event.body.model_copy(update={"trials": trials})
    wrong = changed(wrong, {"verdict__control": control})
    then = judge_input(record.task, record.state_before(event), branch, control)
    verdict = judge(then, recomputed_look(record, event))
    return forged(run, event.id, verdict=verdict, trials=trials)


def test_a_verdict_against_another_control_than_its_parent_is_found(paper: api.Run) -> None:
    assert problems(against(paper, "b4", "b1"), {"judged"}) == [], "b1 is its parent: nothing was changed"
    record = against(paper, "b4", "b0")
    assert problems(record, {"judged"}), "b4 came from b1"
