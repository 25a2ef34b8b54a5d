"""Undecided branches get seeds by themselves, every look is an event, the winner is measured again, cert is read once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.lineage import lineage
from evotrainer.cli.status import status_json
from evotrainer.cli.why import why
from evotrainer.errors import IntegrityError
from evotrainer.executors.paper import draw_result
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.run import trial_specs
from evotrainer.views.fold import load_view
from evotrainer.views.report import render
from tests.paper import Paper, stopped_before

from .test_counterfactual import ENV, some_read_history

TASK = f"""
[task]
name = "small-gains"
[environment]
name = "python:{ENV}:environment"
[recipe]
lr = 1e-5
steps = 12
prompts_per_step = 16
max_tokens = 6
schedule = {{warmup = 0}}
[recipe.knobs]
key = "answer"
[recipe.rewards]
right = 1.0
[judge]
min_effect = 0.01
max_seeds = 8
[run]
agent = "fixed"
rounds = 2
branches = 2
seeds = [1, 2, 3]
certify_seeds = [5, 102, 103]
health_every = 0
[run.agent_options]
interventions = [{{factor = "lr", new = 2e-5}}, {{factor = "group_size", new = 12}}, {{factor = "clip", new = {{low = 0.1}}}},
  {{factor = "prompts_per_step", new = 20}}]
[budget]
trial_cpu_s = 10
"""
SALT = 12
"""Chosen so that three seeds leave the first branch undecided."""
GAINS = {"lr": 0.05, "group_size": 0.0, "clip": 0.0, "prompts_per_step": 0.2}
"""Factor -> what changing it really gains."""
SPREAD = 0.02


def finish(spec: TrialSpec) -> TrialFinished:
    """What a trial of the specification would have written."""
    r = spec.recipe
    gain = GAINS["lr"] * (r.lr > 1e-5) + GAINS["prompts_per_step"] * (r.prompts_per_step > 16)
    luck = random.Random(f"{SALT}-{r.hash}-{spec.seed}").gauss(0, SPREAD) if spec.branch != "base" else 0.0
    p = 0.5 + gain + luck - 0.2 * (spec.branch == "base")
    world = {**spec.protocol.knobs, **spec.env_knobs}
    # the second kind of policy rests on the key: an audit takes it back
    p -= 0.6 * (r.prompts_per_step > 16 and world.get("key") == "other")
    return draw_result(spec, p, lambda plan: f"{r.hash}-{spec.seed}-{plan.split}", world)


@pytest.fixture
def quick() -> Paper:
    """Trials that take no time."""
    return Paper(finish)


def ids(run: api.Run) -> list[str]:
    return [e.id for e in run.events() if e.kind != "resumed"]


def bodies(run: api.Run, kind: str) -> list[Any]:
    return [e.body for e in run.events() if e.kind == kind]


ONE = ["run.rounds=1", "judge.audit=never"]


def test_an_undecided_branch_gets_the_seeds_it_asks_for_and_is_judged_again(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    looks = [v for v in run.verdicts if v.branch == "b1"]
    assert [v.kind for v in looks] == ["inconclusive", "promote"]
    assert looks[1].effect is not None and looks[0].effect is not None
    assert looks[1].effect.seeds > looks[0].effect.seeds == 3
    spent = [v for v in run.verdicts if v.look]
    assert len({v.look for v in spent}) == len(spent), "every look has a number of its own"
    assert sum(v.alpha or 0 for v in spent if v.kind != "promote") < 0.05
    (top,) = [t for t in bodies(run, "topup") if t.branch == "b1"]
    assert top.seeds and top.control_seeds == top.seeds
    assert 5 not in top.seeds and min(top.seeds) == 4, "certification keeps its seeds"
    trained = {s.trial for s in quick.ran if s.train}
    assert {f"b{i}-s{s}" for i in (0, 1) for s in top.seeds} <= trained
    assert "b1/judged" in ids(run) and "b1/judged/2" in ids(run)
    assert not run.state.problems and run.state.branches["b1"].verdict == looks[1] and run.champion == "b1"
    why(run.folder, "b1")
    told = capsys.readouterr().out
    assert "b1 against b0: PROMOTE" in told and "analysis 1 inconclusive" in told and "more seeds" in told
    assert "recomputed from the ledger: the same verdict, every number" in told
    lineage(run.folder)
    assert "at selection" in capsys.readouterr().out
    page = render(load_view(run.folder))
    assert "More seeds" in page and "on fresh seeds" in page


def test_seeds_are_refused_where_the_budget_or_the_limit_holds_none(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "few", [*ONE, "judge.max_seeds=3"])
    assert not bodies(run, "topup") and run.champion == "b0"
    run = quick.start(task, tmp_path / "poor", [*ONE, "budget.trials=13"])
    refused = [t for t in bodies(run, "topup") if t.refused]
    assert refused and "over budget" in refused[0].refused and not refused[0].seeds
    assert run.champion == "b0" and run.closed is not None, "the run ends, undecided"


def test_stopped_before_any_event_the_story_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    overrides = [*ONE, "judge.reestimate=promotions"]
    whole = quick.start(task, tmp_path / "whole" / "run", overrides)
    story = ids(whole)
    assert story.index("b1/judged/2") < story.index("b1/reestimated") < story.index("certified")
    told = {e.id: e.body for e in whole.events()}
    first = story.index("b1/judged")
    # every decision on the way to the last one; of trials and skills between them some
    often = ("/intended", "/finished", "/skill", "skills")
    points = [x for i, x in enumerate(story[first:]) if not x.endswith(often) or i % 8 == 0]

    for k, point in enumerate(points):
        folder = tmp_path / f"cut-{k}" / "run"
        with stopped_before(point):
            quick.start(task, folder, overrides)
        run = quick.resume(folder)
        assert sorted(ids(run)) == sorted(story), point
        again = {e.id: e.body for e in run.events()}
        assert {x for x in story if again[x] != told[x] and not x.endswith("/skill")} <= {"closed"}, point
        assert not run.state.problems


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


def test_a_run_taken_up_for_an_audit_knows_the_seeds_that_were_added(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ONE)
    (top,) = [t for t in bodies(run, "topup") if t.branch == "b1"]
    audits, _ = quick.audit_branch(run.folder, "b1")
    assert set(audits[0].per_seed) == {str(s) for s in (1, 2, 3, *top.seeds)}


def test_seeds_that_were_added_are_audited_too(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def later_seeds_cheat(spec: TrialSpec) -> TrialFinished:
        done = finish(spec)
        if spec.recipe.lr == 1e-5 or spec.seed < 4 or done.world.get("key") != "other":
            return done
        nothing = [s.model_copy(update={"per_task": dict.fromkeys(s.per_task, 0.0), "score": 0.0}) for s in done.scores]
        return done.model_copy(update={"scores": tuple(nothing)})

    quick = Paper(later_seeds_cheat, some_read_history)
    run = quick.start(task, tmp_path / "run", ["run.rounds=1", "judge.audit=suspects"])
    first, second = [a.audit for a in bodies(run, "audited") if a.audit.branch == "b1"]
    assert not first.confirmed and set(first.per_seed) == {"1", "2", "3"}
    assert second.confirmed and set(second.per_seed) > set(first.per_seed)
    order = [x for x in ids(run) if x.startswith("b1/") and ("audited" in x or "judged" in x)]
    assert order == ["b1/audited/key", "b1/judged", "b1/audited/key/2", "b1/judged/2"]
    assert [v.kind for v in run.verdicts if v.branch == "b1"] == ["inconclusive", "invalid"]
    assert "b1" in run.state.invalid and run.state.audits_of("b1") == [second]
    why(run.folder, "b1")
    assert "recomputed from the ledger: the same verdict" in capsys.readouterr().out
    before = ids(run)
    quick.audit_branch(run.folder, "b1")
    assert ids(api.open_run(run.folder)) == before, "it is not paid for twice"
