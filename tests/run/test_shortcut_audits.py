"""`run.shortcut_audits`: what is audited when, what falls, who is champion then, and that the ledger tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.status import status
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.projections.run_facts import facts_of
from evotrainer.records.interventions import Backtest
from evotrainer.verify import Record, checks
from evotrainer.verify.harness import gap_problems
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.leaky_task import some_read_history
from tests.paper import Paper, rejudged, stopped_before
from tests.thinned import thinned


def backtests(run: api.Run) -> dict[str, Backtest]:
    return {e.id: e.body.backtest for e in run.events() if e.kind == "backtested"}


def closed(ran: Sequence[TrialSpec]) -> set[str]:
    return {s.trial for s in ran if s.env_knobs.get("key") == "other"}


@pytest.mark.slow
def test_a_real_policy_that_learnt_a_shortcut_is_not_certified(task: Path, tmp_path: Path) -> None:
    run = api.start(task, tmp_path / "run", ["run.rounds=0", "recipe.lr=2e-3", "run.harness=minimal"])
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited"]
    (gap,) = [e for e in run.events() if e.kind == "gap"]
    found = {a.detector.name for a in gap.body.considered if a.admitted}
    assert audit.branch == "b0" and audit.trigger in found and audit.confirmed, "the harness discovered it by itself"
    order = [e.kind for e in run.events() if e.kind in ("gap", "harness", "audited", "invalidated", "certified")]
    assert order == ["harness", "gap", "harness", "audited", "invalidated", "harness", "certified"]
    assert not gap_problems(RolloutReader(run.folder), gap), "flagged shares follow from the stored rollouts"
    numbers = {**gap.body.considered[0].numbers, "share_bad": 0.0}
    forged = gap.body.considered[0].model_copy(update={"numbers": numbers})
    event = replace(gap, body=gap.body.model_copy(update={"considered": (forged,)}))
    assert "share_bad is 0.0000 in the ledger" in gap_problems(RolloutReader(run.folder), event)[0]
    assert audit.score_open > 0.6 and audit.score_closed < audit.reference_open
    assert run.champion == "base" and set(run.state.invalid) == {"b0"}
    assert run.verify().ok
    cert = [e.body for e in run.events() if e.kind == "finished" and "cert" in e.body.trial]
    assert len(cert) == 3 and all(t.env_knobs == {"key": "other"} for t in cert), "certified in the closed world"
    before = len(run.events())
    audits, tree = api.audit_branch(run.folder, "b0")
    assert audits == [audit] and tree.champion == "base" and len(run.events()) == before, "it is not paid for twice"


def test_after_promotion_an_audit_takes_the_version_and_its_descendants_back(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ["judge.audit=never", "run.rounds=2"])
    assert [v.kind for v in run.verdicts] == ["promote", "reject"] and run.champion == "b1"
    assert run.state.branches["b2"].parent == "b1"
    assert not closed(quick.ran)
    audits, tree = quick.audit_branch(run.folder, "b1")
    assert [a.confirmed for a in audits] == [True]
    assert set(tree.invalid) == {"b1", "b2"} and tree.champion == "b0"
    assert run.certification is not None and run.certification.champion == "b1"
    why(run.folder, "b1")
    told = capsys.readouterr().out
    assert "shortcut confirmed" in told and "INVALID" in told
    assert "recomputed from the ledger: the same verdict" in told
    why(run.folder, "b2")
    assert "descends from b1" in capsys.readouterr().out
    status(run.folder)
    assert "invalidated afterwards" in " ".join(capsys.readouterr().out.split())
    page = run.report().read_text()
    assert "Counterfactual audits" in page and "invalid: void" in page


def test_an_honest_gain_is_promoted_in_the_closed_world(task: Path, tmp_path: Path, quick: Paper) -> None:
    only = 'run.agent_options.interventions=[{factor="group_size",new=12}]'
    run = quick.start(task, tmp_path / "run", [only])
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited" and e.body.audit.branch == "b1"]
    assert not audit.confirmed and run.verdicts[0].kind == "promote" and run.champion == "b1"
    (judged,) = run.state and [e.body for e in run.events() if e.kind == "judged"]
    assert set(judged.evaluations) == {f"{b}-s{s}-closed-key" for b in ("b0", "b1") for s in (1, 2)}
    standing = next(g for g in judged.verdict.gates if g.gate == "validity")
    assert standing.passed and "key closed" in standing.message
    assert not rejudged(run, "b1")


def test_what_was_exploited_stays_closed_for_later_branches(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.rounds=2"])
    assert [v.kind for v in run.verdicts] == ["invalid", "promote"]
    opened = [e.body.closed for e in run.events() if e.kind == "round"]
    assert opened == [{}, {"key": "other"}]
    b2 = [s for s in quick.ran if s.branch == "b2" and s.train]
    assert {s.protocol.knobs["key"] for s in b2} == {"other"} and {s.recipe.knobs["key"] for s in b2} == {"answer"}
    assert all(s.protocol.knobs["key"] == "other" for s in quick.ran if "cert" in s.trial)
    assert not rejudged(run, "b2") and not rejudged(run, "b1")


def test_a_starting_recipe_that_exploits_is_started_anew_with_the_shortcut_closed(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    folder = tmp_path / "run"
    changes = 'run.agent_options.interventions=[{factor="group_size",new=12},{factor="group_size",new=16}]'
    with quick.stopped(lambda spec: spec.branch == "b1"):
        quick.start(task, folder, ["recipe.lr=2e-3", changes, "run.rounds=2", "judge.audit=suspects"])
    assert api.open_run(folder).champion == "b0"
    audits, tree = quick.audit_branch(folder, "b0")
    assert audits[0].confirmed and tree.champion == "base" and set(tree.invalid) == {"b0", "b1"}
    run = quick.resume(folder)
    branches = run.state.branches
    assert [b.parent for b in branches.values()] == [None, "b0", None, "b2"], "b2 is the new start, b3 grew from it"
    assert branches["b2"].recipe.knobs["key"] == "other" and branches["b2"].round == 2
    assert branches["b1"].version is None and branches["b2"].version == "v1", (
        "what came of an invalid start is not promoted"
    )
    assert run.champion == "b3" and not run.state.problems
    assert {r.name: r.branch for r in run.certification.rows} == {"base": "base", "start": "b0", "champion": "b3"}  # type: ignore[union-attr]
    both = [f.text for f in facts_of(run.events()).of_kinds("comparison") if "every score of the certificate" in f.text]
    assert len(both) == 1 and "instead of" in both[0], "the certificate says what the closed shortcut was worth"
    before = [e.id for e in run.events()]
    assert [e.id for e in quick.resume(folder).events()] == before
    assert not any(rejudged(run, b) for b in ("b1", "b3"))


STEPS = ["r1/opened", "r1/diagnosed", "r1/proposed", "r1/backtested/0", "r1/backtested/1", "b1/opened", "b2/opened",
         "r1/planned", "b1/judged", "r2/opened", "r2/diagnosed", "r2/proposed"]  # fmt: skip


@pytest.mark.parametrize("stop", thinned(STEPS, 3))
def test_an_audit_while_a_run_stands_still_does_not_keep_it_from_going_on(
    stop: str, task: Path, tmp_path: Path, quick: Paper
) -> None:
    """The round goes on from the champion that it began with; the next one from a start with the shortcut closed."""
    changes = 'run.agent_options.interventions=[{factor="group_size",new=12},{factor="group_size",new=16}]'
    options = ["recipe.lr=2e-3", changes, "run.rounds=2", "run.branches=2", "judge.audit=suspects"]
    folder = tmp_path / "run"
    with stopped_before(stop):
        quick.start(task, folder, options)
    audits, _ = quick.audit_branch(folder, "b0")
    assert audits[0].confirmed
    run = quick.resume(folder)
    record, table = Record(run.folder, run.events()), checks()
    ours = ("round", "branch", "refused", "planned", "judged", "promoted", "backtested", "closed")
    found = [p.message for e in record.events if e.kind in ours for p in table[e.kind](record, e)]
    assert not [p for p in found if "policy" not in p] and not run.state.problems
    assert "b0" in run.state.invalid and run.champion not in run.state.invalid


@pytest.mark.parametrize("stop", thinned(["r2/diagnosed", "r2/proposed", "r2/backtested/0", "b2/opened"], 2))
def test_a_round_replays_on_the_champion_it_began_with(stop: str, task: Path, tmp_path: Path, acted: Paper) -> None:
    changes = ("lr", "2e-3"), ("group_filter", '{kind="zero_variance"}'), ("clip", "{low=0.1}")
    factors = ", ".join(f'{{factor="{name}", new={new}}}' for name, new in changes)
    options = [f"run.agent_options.interventions=[{factors}]", "judge.audit=never", "run.rounds=2"]
    options += ["run.evolve_harness=false"]
    undisturbed = backtests(acted.start(task, tmp_path / "whole", options))
    folder = tmp_path / "run"
    with stopped_before(stop):
        acted.start(task, folder, options)
    assert api.open_run(folder).champion == "b1"
    acted.audit_branch(folder, "b1")
    run = acted.resume(folder)
    assert run.state.branches["b2"].parent == "b1" and "b2" in run.state.invalid
    assert backtests(run) == undisturbed


def test_the_champion_is_audited_before_it_is_certified(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["recipe.lr=2e-3", "run.rounds=0"])
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited"]
    assert audit.branch == "b0" and audit.trigger == "start" and audit.confirmed
    assert run.champion == "base" and run.certification.champion == "base"  # type: ignore[union-attr]


@pytest.mark.parametrize("audit", ["suspects", "never"])
def test_a_finding_asks_for_the_audit_that_answers_it(task: Path, tmp_path: Path, audit: str) -> None:
    quick = Paper(finish, some_read_history)
    only = 'run.agent_options.interventions=[{factor="group_size",new=12}]'
    run = quick.start(task, tmp_path / "run", [only, f"judge.audit={audit}"])
    audits = [e.body.audit for e in run.events() if e.kind == "audited"]
    if audit == "never":
        assert not audits and run.verdicts[0].kind == "inconclusive" and "suspected" in run.verdicts[0].reason
        return
    assert [a.trigger for a in audits] == ["answer_leak"] and not audits[0].confirmed
    assert run.verdicts[0].kind == "promote", "the suspicion is answered: the gain stands with the key closed"
    assert not rejudged(run, "b1")


def test_wrong_names_are_answered_with_the_right_ones(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["judge.audit=never", "run.rounds=0"])
    with pytest.raises(ConfigError, match="no branch 'b7'.*b0"):
        quick.audit_branch(run.folder, "b7")
    with pytest.raises(ConfigError, match="no capability 'git'.*key"):
        quick.audit_branch(run.folder, "b0", ["git"])


def test_stopped_anywhere_the_story_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    whole = quick.start(task, tmp_path / "whole", ["run.rounds=2"])
    story, champion = [e.id for e in whole.events()], whole.champion
    audits = [i for i, s in enumerate(quick.ran) if s.purpose in ("audit", "certify")]
    assert audits
    for k in audits[::3]:
        folder = tmp_path / f"cut-{k}" / "whole"
        quick.ran.clear()
        with quick.stopped(lambda spec, k=k: len(quick.ran) > k):
            quick.start(task, folder, ["run.rounds=2"])
        run = quick.resume(folder)
        assert sorted(e.id for e in run.events() if e.kind != "resumed") == sorted(story)
        assert run.champion == champion and not run.state.problems


@pytest.mark.parametrize("mode", ["never", "suspects"])
def test_a_version_taken_back_in_mid_run_keeps_its_number_and_later_ones_are_promoted(
    task: Path, tmp_path: Path, quick: Paper, mode: str
) -> None:
    folder = tmp_path / "run"
    with quick.stopped(lambda spec: spec.branch == "b2"):
        quick.start(task, folder, [f"judge.audit={mode}", "run.rounds=3"])
    assert api.open_run(folder).champion == "b1"
    audits, tree = quick.audit_branch(folder, "b1")
    assert audits[0].confirmed and tree.champion == "b0"
    run = quick.resume(folder)
    promoted = {e.body.version: e.body.branch for e in run.events() if e.kind == "promoted"}
    assert promoted["v1"] == "b1", "history is not rewritten"
    winners = {v.branch for v in run.verdicts if v.kind == "promote"} - {"b1"} - set(run.state.invalid)
    assert winners and winners <= set(promoted.values()), "a verdict that promotes promotes"
    assert run.champion in winners and run.certification.champion == run.champion  # type: ignore[union-attr]
    assert not run.state.problems
