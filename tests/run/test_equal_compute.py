"""`run.equal_compute`: a branch that trains dearer than its control is judged against a control that trains for as
long."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer.agents.belief import observations
from evotrainer.cli.show import show
from evotrainer.cli.status import status
from evotrainer.cli.why import why
from evotrainer.executors.spec import TrialSpec
from evotrainer.judge import compute, cost_ratio
from evotrainer.projections.history import cases
from evotrainer.projections.skill_evidence import distilled_skills
from evotrainer.records.events import TrialFinished
from evotrainer.records.events.trials import training_compute
from evotrainer.rules.equal_compute import mean_share_of_a_step
from evotrainer.verify import Record, checks
from evotrainer.views.advice import advice
from evotrainer.views.fold import load_view
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, ids, set_in, stopped_before, stopped_before_each
from tests.small_records import finished
from tests.thinned import thinned

TASK = f"""
[task]
name = "dear"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
agent = "fixed"
rounds = 1
branches = 1
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
"""
GROUPS, LONGER, FASTER = ("group_size", 16), ("steps", 24), ("lr", 2e-5)


def finish(lasting: float) -> Callable[[TrialSpec], TrialFinished]:
    """Twice the steps, or twice the group, cost twice as much and gain 12 points; `lasting`: what a group of 16 gains
    at equal compute."""

    def done(spec: TrialSpec) -> TrialFinished:
        r = spec.recipe
        noise = random.Random(f"{set_in(r)}-{spec.seed}")
        twice = r.group_size > 8
        p = 0.45 + 0.12 * (r.steps >= 23 or twice) + lasting * twice + 0.12 * (r.lr > 1e-5) + noise.gauss(0, 0.004)
        seconds = 10 * r.steps / 12 * r.group_size / 8 * (1 + noise.gauss(0, 0.03))
        result = draw_result(spec, p, lambda plan: f"{set_in(r)}-{spec.seed}-{plan.split}", spec.protocol.knobs)
        return result.model_copy(update={"curve": ({"step": float(r.steps), "cpu_s": seconds},) if spec.train else ()})

    return done


def settings(change: tuple[str, Any], *more: str) -> list[str]:
    factor, new = change
    return [f'run.agent_options={{interventions = [{{factor = "{factor}", new = {new}}}]}}', *more]


def test_what_more_compute_gains_is_not_promoted(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run", settings(GROUPS))
    control = run.state.branches["b1c"]
    assert control.matches == "b1" and control.parent == "b0" and 25 <= control.recipe.steps <= 28
    assert [t.seed for t in control.complete] == [1, 2, 3]
    (verdict,) = run.verdicts
    assert verdict.control == "b1c" and verdict.kind == "reject" and run.champion == "b0"


def test_what_gains_at_equal_compute_is_promoted_and_the_certificate_names_the_compute(
    task: Path, tmp_path: Path
) -> None:
    run = Paper(finish(0.12)).start(task, tmp_path / "run", settings(GROUPS))
    (verdict,) = run.verdicts
    assert (verdict.control, verdict.kind, run.champion) == ("b1c", "promote", "b1")
    assert verdict.effect.mean == pytest.approx(0.12, abs=0.05), "over the control that trained for as long"
    assert next(g for g in verdict.gates if g.gate == "compute").passed
    texts = [c.text for c in run.caveats["b1"]]
    assert any("x the compute of the starting recipe" in t and t.split()[2].startswith("2") for t in texts), texts


def test_a_promotion_is_measured_again_against_the_control_it_was_judged_by(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.12)).start(task, tmp_path / "run", settings(GROUPS, "judge.reestimate=promotions"))
    (again,) = bodies(run, "reestimated")
    assert again.control == "b1c" and again.control_fresh, "both sides on fresh seeds"
    fresh = {t.trial for t in bodies(run, "finished") if t.seed > 100 and t.trial.startswith(("b0-", "b1c-"))}
    assert fresh == {f"b1c-s{s}" for s in (101, 102, 103)}


def test_a_ratio_within_the_noise_of_timing_says_why_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for low, passed, said in (
        (0.97, True, "(at least 0.97 x: by the noise of timing"),
        (1.02, False, "above judge.max"),
    ):
        monkeypatch.setattr(compute, "cost_ratio", lambda b, c, low=low: compute.CostRatio(1.09, low))
        found = compute.gate([], [], 1.05)
        assert found.passed is passed and said in found.message
    monkeypatch.setattr(compute, "cost_ratio", lambda b, c: compute.CostRatio(1.03, 0.99))
    assert compute.gate([], [], 1.05).message == "trained at 1.03 x the control's compute"


def test_more_steps_alone_are_not_promoted_unless_the_task_file_allows_them(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run", settings(LONGER))
    (verdict,) = run.verdicts
    assert "b1c" not in run.state.branches, "the control at equal compute would be the branch itself"
    assert verdict.kind == "inconclusive" and "above judge.max_cost=1.05" in verdict.reason
    line = advice(load_view(run.folder))
    assert "judge.max_cost above that ratio" in line and "larger budget" not in line, "no budget makes a control of it"
    run = Paper(finish(0.0)).start(task, tmp_path / "allowed", settings(LONGER, "judge.max_cost=2.5"))
    (verdict,) = run.verdicts
    assert verdict.kind == "promote" and "x the control's training compute" in verdict.reason
    assert any("x the compute of the starting recipe" in c.text for c in run.caveats["b1"])


def test_a_dear_branch_that_gains_nothing_is_rejected_without_a_further_control(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(-0.12)).start(task, tmp_path / "run", settings(GROUPS))
    (verdict,) = run.verdicts
    assert (verdict.control, verdict.kind) == ("b0", "reject") and "b1c" not in run.state.branches


def test_a_branch_that_costs_as_much_has_its_parent_for_control(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run", settings(FASTER))
    (verdict,) = run.verdicts
    assert (verdict.control, verdict.kind) == ("b0", "promote") and "compute" not in verdict.reason
    assert not any(c.kind == "compute" for x in run.caveats.values() for c in x)


def test_a_budget_that_does_not_hold_the_control_leaves_the_branch_undecided(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.12)).start(task, tmp_path / "run", settings(GROUPS, "budget.trials=9"))
    (verdict,) = run.verdicts
    assert (verdict.control, verdict.kind, run.champion) == ("b0", "inconclusive", "b0")
    assert "to be compared with a control that is trained for as long" in verdict.reason


@pytest.mark.parametrize("event", ["b1c/opened", "b1c-s2/finished", "b1/judged"])
def test_a_run_that_was_stopped_ends_the_same(event: str, task: Path, tmp_path: Path) -> None:
    paper = Paper(finish(0.12))
    whole = paper.start(task, tmp_path / "whole", settings(GROUPS))
    with stopped_before(event):
        paper.start(task, tmp_path / "run", settings(GROUPS))
    again = paper.resume(tmp_path / "run")
    assert [i for i in ids(again) if not i.startswith("resumed")] == ids(whole)


def test_readers_see_the_control_as_what_it_is(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run", settings(GROUPS))
    assert load_view(run.folder).verdict_counts() == {"reject": 1}, "a control is no branch without a verdict"
    assert "control at equal compute" in run.report().read_text(encoding="utf-8")
    status(run.folder)
    assert "no verdict" not in capsys.readouterr().out
    for command, branch, told in (
        (show, "b1", "b1c: b0 trained for as long as b1 (steps: "),
        (show, "b1", "; beside it b1 trained at "),
        (why, "b1", "control b1c: b0 trained for as long as b1 (steps: "),
        (why, "b1c", "control of b1, which takes as much compute; a control gets no verdict"),
    ):
        command(run.folder, branch)
        assert told in " ".join(capsys.readouterr().out.split())


def test_a_gain_by_more_compute_teaches_nothing(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run", settings(LONGER))
    assert run.verdicts[0].effect.mean > 0.05 and run.verdicts[0].evidence is None  # type: ignore[union-attr]
    (taught,) = distilled_skills(run.events()).values()
    assert taught.claim != "helps" and taught.trials[0].mean is None
    assert not [p for p in run.verify().problems if p.area == "skill"]
    assert not observations([b.record() for b in run.state.branches.values()]), "nor an agent"


@pytest.mark.parametrize(("before", "growth"), [(0.0, 0.0), (6.0, 0.0), (0.0, 0.05)])
def test_a_further_step_costs_what_late_steps_cost(before: float, growth: float) -> None:
    """What comes before the first step is paid once, and steps may become dearer: `growth` seconds each."""
    seconds = [before + sum(1 + growth * i for i in range(n)) for n in range(1, 21)]
    curve = tuple({"step": float(n), "cpu_s": s} for n, s in enumerate(seconds, 1))
    paper = TrialFinished(
        trial="b0-s1", branch="b0", seed=1, status="complete", cpu_s=9.0, wall_s=9.0, steps=20, curve=curve
    )
    share = mean_share_of_a_step([paper])
    assert share * seconds[-1] == pytest.approx(1 + growth * 14.5, rel=0.02)


def test_it_verifies_and_another_number_of_steps_is_found(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.12)).start(task, tmp_path / "run", settings(GROUPS))
    table, events = checks(), run.events()
    record = Record(run.folder, events)
    ours = [e for e in events if e.kind in ("branch", "judged", "promoted", "reestimated", "certified")]
    found = [p for e in ours for p in table[e.kind](record, e) if "policy" not in p.message]
    assert not found, found
    opened = next(e for e in events if e.id == "b1c/opened")
    recipe = opened.body.recipe.with_factor("steps", 13)
    wrong = replace(opened, body=opened.body.model_copy(update={"recipe": recipe, "recipe_hash": recipe.hash}))
    record = Record(run.folder, [wrong if e is opened else e for e in events])
    assert any("it has 13 steps" in p.message for p in table["branch"](record, wrong))


def counted(plain: Callable[[TrialSpec], TrialFinished], busy: float) -> Callable[[TrialSpec], TrialFinished]:
    """The same trainings, whose trainer counts tokens: 1000 a prompt. A group of 16 was trained in a busy hour."""

    def done(spec: TrialSpec) -> TrialFinished:
        r, result = spec.recipe, plain(spec)
        tokens = {"tokens_forward": 1000.0 * r.steps * r.prompts_per_step * r.group_size, "tokens_trained": 0.0}
        slow = busy if r.group_size > 8 else 1.0
        curve = tuple({**x, **tokens, "cpu_s": slow * x["cpu_s"]} for x in result.curve)
        return result.model_copy(update={"curve": curve})

    return done


def test_a_busy_hour_makes_no_branch_dearer_and_its_seconds_are_told(task: Path, tmp_path: Path) -> None:
    """Twice the group on half the prompts, at three times the seconds."""
    half = ("batch_shape", "{group_size = 16, prompts_per_step = 8, steps = 12}")
    run = Paper(counted(finish(0.12), 3.0)).start(task, tmp_path / "run", settings(half))
    table, record = checks(), Record(run.folder, run.events())
    assert not [p for e in run.events() if e.kind in ("branch", "judged") for p in table[e.kind](record, e)]
    (verdict,) = run.verdicts
    gate = next(g for g in verdict.gates if g.gate == "compute")
    assert verdict.control == "b0" and gate.passed and gate.numbers["ratio"] == 1.0
    assert gate.numbers["seconds"] > 2 and gate.message.startswith(
        "trained at 1.00 x the control's compute in tokens sampled and trained on ("
    )
    assert not [c for c in run.caveats["b1"] if c.kind == "compute"]


def test_no_busy_machine_hides_a_dearer_branch() -> None:
    """At 1.29 times the control's tokens it passed a limit of 1.05 while seconds, which scatter, decided."""
    seconds = [[10.0, 31.0, 12.0], [9.0, 24.0, 11.0]]
    sides = [[trained([s] * 4, n) for s in side] for n, side in zip((1290.0, 1000.0), seconds, strict=True)]
    blind = [[trained([s] * 4) for s in side] for side in seconds]
    assert compute.gate(*blind, 1.05).passed is True
    found = compute.gate(*sides, 1.05)
    assert found.passed is False and found.numbers["ratio"] == pytest.approx(1.29) == found.numbers["low"]
    assert compute.describe(found) == "at 1.3 x the control's training compute"


def test_a_control_at_equal_compute_gets_less_on_top_where_tokens_are_counted(task: Path, tmp_path: Path) -> None:
    def steps(name: str, f: Callable[[TrialSpec], TrialFinished]) -> int:
        run = Paper(f).start(task, tmp_path / name, settings(GROUPS))
        found = cost_ratio(*(run.state.branches[b].complete for b in ("b1", "b0")))
        assert found is not None
        made = run.state.branches["b1c"].recipe.steps
        assert made == 12 + round(((1.03 if found.counted else 1.1) * found.ratio - 1) * 12)
        return made

    assert steps("by-tokens", counted(finish(0.0), 3.0)) < steps("by-seconds", finish(0.0))


def trained(seconds: Sequence[float], tokens: float | None = None) -> TrialFinished:
    """A training whose steps took so many seconds; `tokens`: sampled in each, and as many trained on."""
    curve = [{"step": float(i), "cpu_s": s} for i, s in enumerate(accumulate(seconds), 1)]
    if tokens is not None:
        curve = [x | {"tokens_forward": tokens * x["step"], "tokens_trained": tokens * x["step"]} for x in curve]
    return finished("b1-s1").model_copy(update={"curve": tuple(curve), "steps": len(curve)})


def test_where_one_training_counted_no_tokens_all_go_by_seconds() -> None:
    known, unknown = trained([2.0] * 4, 10.0), trained([2.0] * 4)
    assert training_compute([known], [known]) == ([[160.0], [160.0]], True), "a trained token is three forward passes"
    assert training_compute([known, unknown], [known]) == ([[8.0, 8.0], [8.0]], False)
    assert training_compute([known], [finished("b1-s2")]) == ([[160.0], []], True)
    dear = trained([1.0] * 4, 10.0).model_copy(update={"curve": ({**known.curve[-1], "tokens_forward": 120.0},)})
    assert mean_share_of_a_step([known], counted=True) == pytest.approx(1 / 4) and dear.training_tokens == 240


def test_cases_and_report_agree_on_what_was_predicted(task: Path, tmp_path: Path) -> None:
    """The verdict's control trained for as long; the prediction was about the parent."""
    run = Paper(finish(0.12)).start(task, tmp_path / "run", settings(GROUPS))
    events = run.events()
    (case,) = (c for c in cases(events) if c.branch == "b1")
    outcome = load_view(run.folder, rollouts=False).branches["b1"].outcome
    assert outcome is not None and outcome.came_true is True is case.came_true


@pytest.mark.parametrize("lasting", thinned([0.02, -0.03], 2))
def test_a_control_that_has_its_seeds_before_the_first_look_is_resumed_from_anywhere(
    task: Path, tmp_path: Path, lasting: float
) -> None:
    """The budget that is left no longer holds what the control took already: it is not asked for again."""
    more = ["judge.worthwhile=0.02", "judge.max_seeds=6", "budget.trials=13"]
    quick, overrides = Paper(finish(lasting)), settings(GROUPS, *more)
    whole = quick.start(task, tmp_path / "whole" / "run", overrides)
    story = ids(whole)
    assert "b1c/opened" in story and story.index("b1c/opened") < story.index("b1/judged")
    points = [x for x in story[story.index("b1c/opened") :] if "/skill" in x or not x.endswith("/intended")]
    points = [x for x in story if x in (*points, "b1c-s3/intended")]
    for some in (points, ["b1c-s3/intended"], points[-3:-2]):
        folder = tmp_path / f"{len(some)}-{some[0].replace('/', '-')}" / "run"
        run = stopped_before_each(some, partial(quick.start, task, folder, overrides), partial(quick.resume, folder))
        assert sorted(ids(run)) == sorted(story), some
    record = Record(whole.folder, whole.events())
    found = [p.message for e in [*record.of("topup"), *record.of("judged")] for p in checks()[e.kind](record, e)]
    assert not found


def test_seeds_given_beside_the_parent_stay_so_where_a_larger_budget_would_pay_for_a_control(
    task: Path, tmp_path: Path
) -> None:
    quick, folder = Paper(finish(0.02)), tmp_path / "run"
    with stopped_before("b1/read"):
        poor = settings(GROUPS, "judge.worthwhile=0.02", "judge.max_seeds=6", "budget.trials=11")
        quick.start(task, folder, poor)
    run = quick.resume(folder, ["budget.trials=60"])
    story = ids(run)
    assert story.index("b1/topup/1") < story.index("b1/read") < story.index("b1c/opened"), "the judge asks for it then"
    assert next((t.control, t.seeds) for t in bodies(run, "topup") if t.branch == "b1") == ("b0", (4,))
    record = Record(run.folder, run.events())
    found = [p.message for e in [*record.of("topup"), *record.of("judged")] for p in checks()[e.kind](record, e)]
    assert not found
