"""`run.search` and `run.knockouts`: search trainings promote nobody, a bundle is proved factor by factor."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.agents import Tools
from evotrainer.agents.fixed import plain
from evotrainer.cli.why import why
from evotrainer.errors import AgentError, ConfigError
from evotrainer.executors.paper import draw_result
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.branch_facts import held_back
from evotrainer.projections.history import cases
from evotrainer.projections.pooled import noise_of
from evotrainer.records.briefing import Briefing, PromotionThreshold, Proposal
from evotrainer.records.console import Console
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import BUNDLE, format_diff
from evotrainer.records.search import ProbePlan, SearchPlan
from evotrainer.rules.bundles import knockouts_each
from evotrainer.run import search
from evotrainer.run.observer import Changes, SilentObserver
from evotrainer.verify import Record, checks
from evotrainer.views.advice import advice
from evotrainer.views.fold import load_view, view_of
from evotrainer.views.folder import render_branch
from evotrainer.views.history import render_cases
from evotrainer.views.status import print_summary, render_status
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, ids, set_in, stopped_before_each

TASK = f"""
[task]
name = "bundles"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
rounds = 2
branches = 2
probes = 3
changes = 3
bundle = 6
workers = 2
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
"""
GAINS = {"lr": 0.06, "group_size": -0.01, "prompts_per_step": 0.06}
"""Factor -> what the change really gains."""
WHOLE = {"lr": 2e-5, "prompts_per_step": 20}
IDLE = {**WHOLE, "group_size": 12}


def finish(spec: TrialSpec) -> TrialFinished:
    r = spec.recipe
    p = 0.45 + GAINS["lr"] * (r.lr > 1e-5) + GAINS["prompts_per_step"] * (r.prompts_per_step > 16)
    p += GAINS["group_size"] * (r.group_size > 8)
    p += random.Random(f"{set_in(r)}-{spec.seed}").gauss(0, 0.004) if spec.branch != "base" else -0.2
    return draw_result(spec, p, lambda plan: f"{set_in(r)}-{spec.seed}-{plan.split}", spec.protocol.knobs)


class Scripted:
    """Trains each change of `bundle` by itself in its search, then proposes all of it together; once."""

    name = "scripted"

    def __init__(self, bundle: dict[str, Any], batch: int = 2) -> None:
        self.bundle, self.batch = bundle, batch
        self.largest = 0

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        self.largest = briefing.bundle
        mine = [p for p in briefing.probes if p.round == briefing.round]
        left = [f for f in sorted(self.bundle) if not any(f in p.changes for p in mine)]
        if briefing.round > 1 or not left:
            return SearchPlan(stop="each change was tried")
        return SearchPlan(probes=tuple(ProbePlan(changes={f: self.bundle[f]}) for f in left[: self.batch]))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        if briefing.round > 1:
            return Proposal(agent=self.name, interventions=(), stop="done")
        old = briefing.champion.recipe.factors()
        iv = plain({f: old[f] for f in self.bundle}, BUNDLE, self.bundle, "each helped", "b0", "scripted")
        return Proposal(agent=self.name, interventions=(iv,))


def test_search_trainings_have_one_seed_read_search_only_and_promote_nobody(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    told: dict[str, str] = {}

    class Told(SilentObserver):
        def opened(self, name: str, changes: Changes) -> None:
            told[name] = format_diff(changes)

    run = quick.start(task, tmp_path / "run", agent=Scripted(WHOLE), view=Told())
    assert told["p1"] == "lr: 1e-05 -> 2e-05" and told["b1"].startswith("bundle: ") and "b0" not in told
    (batch,) = bodies(run, "probes")
    assert [p.changes for p in batch.probes] == [{"lr": 2e-5}, {"prompts_per_step": 20}]
    specs = [s for s in quick.ran if s.purpose == "probe"]
    assert [s.trial for s in specs] == ["p1-s1001", "p2-s1002"]
    assert all([e.split for e in s.evals] == ["search"] for s in specs)
    assert {v.branch for v in run.verdicts} == {"b1"} and [v.branch for v in bodies(run, "promoted")] == ["b0", "b1"]
    state = run.state
    assert not state.problems and list(state.probes) == ["p1", "p2"]
    with pytest.raises(ConfigError, match="p1 is a search training: .*`evotrainer show .* p1`"):
        why(run.folder, "p1")
    assert all(p.record().score is not None and p.health is not None for p in state.probes.values())
    assert [s.probes for s in state.searched] == [("p1", "p2"), ()]


def test_a_bundle_is_promoted_with_a_knock_out_of_every_factor_on_fresh_seeds(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", agent=Scripted(WHOLE))
    story = ids(run)
    out = bodies(run, "knockout")
    assert {k.factor: k.kept for k in out} == {"lr": True, "prompts_per_step": True}
    assert story.index("b1/judged") < story.index("b1/knockout/lr") < story.index("v1")
    assert all(t.rpartition("-s")[2] in ("101", "102", "103") for k in out for t in (*k.trials, *k.control_trials))
    assert all((len(k.trials), len(k.control_trials)) == (3, 3) for k in out)
    assert all(k.effect.mean > 0.02 for k in out) and run.champion == "b1"
    assert run.state.branches["b1k1"].intervention.factor == "prompts_per_step"  # type: ignore[union-attr]


def test_what_loses_nothing_is_taken_out_and_the_rest_is_judged(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=4"], agent=Scripted(IDLE))
    kept = {k.factor: k.kept for k in bodies(run, "knockout")}
    assert kept == {"group_size": False, "lr": True, "prompts_per_step": True}
    view = load_view(run.folder)
    assert view.branches["b1"].status == "parted", "its own verdict said promote, and only a part of it was judged on"
    assert {b.status for b in view.branches.values() if b.reduces and not b.verdict} == {"knockout"}
    told = held_back(run.state, "b1")
    assert "was not promoted: without group_size, which added nothing, the rest was promoted (b1k" in told
    assert held_back(run.state, run.champion or "") == ""
    champion = run.state.branches[run.champion or ""]
    assert champion.reduces == "b1" and champion.recipe.group_size == 8 and champion.recipe.lr == 2e-5
    assert champion.verdict is not None and champion.verdict.kind == "promote"
    for k in bodies(run, "knockout"):
        assert abs(k.elsewhere.mean) > 0 and k.together.sd < min(k.elsewhere.sd, k.effect.se)
        low, high = sorted((k.elsewhere.mean, k.effect.mean))
        assert low < k.together.mean < high and k.kept == (k.together.mean > 0)
    assert "b1" not in {v.branch for v in bodies(run, "promoted")}


class Passenger(Scripted):
    """One of the changes of its bundle was in no training before."""

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        if briefing.round > 1 or briefing.probes:
            return SearchPlan(stop="each change was tried")
        return SearchPlan(probes=tuple(ProbePlan(changes={f: WHOLE[f]}) for f in sorted(WHOLE)))


def test_a_change_that_only_its_bundle_had_is_judged_by_its_knock_out_alone(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    """A model of all trainings gives it a share of what the bundle gained."""
    same = Paper(lambda spec: finish(spec.model_copy(update={"recipe": spec.recipe.with_factor("weight_decay", 0.0)})))
    run = same.start(task, tmp_path / "run", agent=Passenger({**WHOLE, "weight_decay": 1e-12}))
    out = {k.factor: k for k in bodies(run, "knockout")}
    idle = out["weight_decay"]
    assert idle.effect.mean == 0.0 and out["lr"].kept and out["lr"].elsewhere is not None
    assert idle.elsewhere is None and not idle.kept
    assert not [p for p in run.verify().problems if p.area == "knockout"]


def test_a_search_training_is_read_at_the_temperature_of_its_own_recipe(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    bundle = {**WHOLE, "deploy_temperature": 0.1}
    run = quick.start(task, tmp_path / "run", ["run.rounds=1", "run.search_only=true"], agent=Scripted(bundle))
    read = {s.temperature for t in bodies(run, "finished") for s in t.scores if t.branch.startswith("p")}
    assert read == {None, 0.1}
    assert not [p.message for p in run.verify().problems if "deployment temperature" in p.message]


def test_a_bundle_whose_changes_are_being_measured_is_called_so(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", agent=Scripted(WHOLE))
    events = run.events()
    at = {e.id: i for i, e in enumerate(events)}
    for until, status in (("b1/judged", "proving"), ("b1/knockout/lr", "proving"), ("closed", "promote")):
        assert view_of(events[: at[until] + 1]).branches["b1"].status == status, until
    out = io.StringIO()
    console = Console(file=out, width=400)
    console.print(render_cases(cases(events), run.state))
    console.print(render_branch(run.folder, "b1k1"))
    told = out.getvalue()
    (part,) = (k for k in bodies(run, "knockout") if k.without == "b1k1")
    assert told.count(part.loss) >= 2 and part.loss.startswith("without lr: -"), "in cases and in show"
    assert "not measured" not in told and "prediction" not in told, "what it predicts is what the bundle does"


def test_every_view_says_that_a_bundle_was_not_promoted_and_why(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=4"], agent=Scripted(IDLE))
    told = held_back(run.state, "b1")
    capsys.readouterr()
    why(run.folder, "b1")
    assert f"\n  but        {told}\n" in capsys.readouterr().out
    out = io.StringIO()
    console = Console(file=out, width=2000)
    for shown in (render_branch(run.folder, "b1"), render_status(run.folder)):
        console.print(shown)
    print_summary(run.folder, console)
    text = out.getvalue()
    assert told in text and "1 better, but not promoted as it is" in text
    assert not re.search(r"verdict +promoted", text)
    told_so = []
    for e in run.events():
        body = e.body
        if e.kind == "judged" and body.verdict.branch == run.champion:
            body = body.model_copy(update={"verdict": body.verdict.model_copy(update={"kind": "reject"})})
        if e.kind == "closed":
            body = body.model_copy(update={"champion": "b0"})
        if e.kind != "promoted" or body.branch != run.champion:
            told_so.append(replace(e, body=body))
    view = view_of(told_so)
    told = held_back(view.state, "b1")
    assert f"the gain could not be shown ({run.champion}: +" in told
    assert f"; {told}" in advice(view), "after what its certificate asks for"


def test_a_large_bundle_has_one_knock_out_for_each_factor_a_small_one_more() -> None:
    assert [knockouts_each(k) for k in (1, 2, 4, 6, 7, 12, 30)] == [12, 6, 3, 2, 1, 1, 1]


def test_a_bundle_that_gains_nothing_is_not_proved(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", agent=Scripted({"group_size": 12, "clip": {"low": 0.1, "high": 0.2}}))
    assert not bodies(run, "knockout") and run.champion == "b0"


@pytest.mark.parametrize("bundle", [WHOLE, IDLE])
def test_it_verifies_and_every_number_is_computed_again(
    bundle: dict[str, Any], task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=4"], agent=Scripted(bundle))
    record = Record(run.folder, run.events())
    table = checks()
    ours = ("probes", "searched", "knockout", "branch", "judged", "promoted", "backtested", "certified", "reestimated")
    found = [p for e in record.events if e.kind in ours for p in table[e.kind](record, e)]
    assert not [p for p in found if "policy" not in p.message], found


@pytest.mark.parametrize(
    ("event", "change", "said"),
    [
        ("b1/knockout/lr", lambda k: {"effect": k.effect.model_copy(update={"mean": 0.2})}, "effect.mean"),
        ("b1/knockout/lr", lambda k: {"control_trials": k.control_trials[:-1]}, "control_trials: "),
        ("b1/knockout/lr", lambda k: {"factor": "prompts_per_step"}, "measures b1 without prompts_per_step"),
        ("r1/probes/0", lambda b: {"incumbent": "b9"}, "the champion was b0"),
        ("r1/probes/0", lambda b: {"probes": (b.probes[0].model_copy(update={"seed": 1}),)}, "belongs to another"),
        (
            "r1/probes/0",
            lambda b: {"probes": (b.probes[0].model_copy(update={"changes": {"lr": 3e-5}}),)},
            "does not make its recipe",
        ),
        ("r1/searched", lambda b: {"probes": ()}, "not those of the record"),
    ],
)
def test_a_changed_claim_is_found(
    event: str, change: Callable[[Any], dict[str, Any]], said: str, task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", agent=Scripted(WHOLE))
    events = [replace(e, body=e.body.model_copy(update=change(e.body))) if e.id == event else e for e in run.events()]
    record, table = Record(run.folder, events), checks()
    found = [p.message for e in events if e.id == event for p in table[e.kind](record, e)]
    assert any(said in p for p in found), found


def test_a_bundle_without_its_knock_outs_is_found(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", agent=Scripted(WHOLE))
    events = [replace(e, seq=i) for i, e in enumerate((e for e in run.events() if e.id != "b1/knockout/lr"), 1)]
    record = Record(run.folder, events)
    promoted = next(e for e in events if e.id == "v1")
    assert any("nothing measured lr by itself" in p.message for p in checks()["promoted"](record, promoted))


def test_stopped_before_any_event_the_search_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    def agent() -> Scripted:
        return Scripted(IDLE)

    more = ["run.probes=4"]
    whole = quick.start(task, tmp_path / "whole" / "run", more, agent=agent())
    story, told = ids(whole), {e.id: e.body for e in whole.events()}
    first = story.index("r1/diagnosed")
    last = story.index("r2/opened")
    points = [x for i, x in enumerate(story[first:last]) if not x.endswith(("/intended", "/finished")) or i % 6 == 0]
    assert {"r1/probes/0", "r1/probes/1", "r1/searched", "p1/read", "b1/knockout/lr"} <= set(points)
    for cuts in (points, *([x] for x in points[4::16])):
        folder = tmp_path / f"cut-{cuts[0].replace('/', '-')}-{len(cuts)}" / "run"
        run = stopped_before_each(
            cuts,
            partial(quick.start, task, folder, more, agent=agent()),
            lambda folder=folder: quick.resume(folder, agent=agent()),
        )
        assert sorted(ids(run)) == sorted(story), cuts
        again = {e.id: e.body for e in run.events()}
        assert {x for x in story if again[x] != told[x] and not x.endswith("/skill")} <= {"run", "closed"}, cuts
        assert not run.state.problems


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": 1}, "unknown recipe factor 'learning_rate'"),
        ({"lr": 1e-5}, "changes no factor"),
        ({"rewards": {"nothing": 1.0}}, "nothing"),
        (
            {"lr": 2e-5, "clip": {"low": 0.1}, "group_size": 12, "kl_beta": 0.1},
            r"it changes 4 factors of b0 at once \(clip, group_size, kl_beta, lr\), run.changes=3",
        ),
        ({"resample": 1}, "not valid: resample"),
    ],
)
def test_a_search_training_that_is_not_valid_is_refused_with_the_reason(
    changes: dict[str, Any], said: str, task: Path, tmp_path: Path, quick: Paper
) -> None:
    agent = Scripted(WHOLE)
    agent.search = lambda briefing, tools: SearchPlan(probes=(ProbePlan(changes=changes),))  # type: ignore[method-assign]
    with pytest.raises(AgentError, match=said):
        quick.start(task, tmp_path / "run", agent=agent)
    run = quick.resume(tmp_path / "run", agent=Scripted(WHOLE))
    assert run.champion == "b1", "nothing was lost"


def test_more_than_the_round_has_left_is_refused(task: Path, tmp_path: Path, quick: Paper) -> None:
    agent = Scripted(IDLE, batch=3)
    with pytest.raises(AgentError, match="asks for 3 search trainings, 2 are left; raise run.probes"):
        quick.start(task, tmp_path / "run", ["run.probes=2"], agent=agent)


class Climber(Scripted):
    """Each search training departs from the one before; nothing is proposed."""

    def __init__(self, *steps: ProbePlan) -> None:
        super().__init__({})
        self.steps = steps

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        done = len(briefing.probes)
        return SearchPlan(probes=self.steps[done : done + 1], stop="" if done < len(self.steps) else "done")

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        return Proposal(agent=self.name, interventions=(), stop="done")


FOUR = ({"lr": 2e-5, "kl_beta": 0.1, "clip": {"low": 0.1, "high": 0.2}}, {"lr": 2e-5, "group_size": 12})


def test_a_search_training_may_depart_from_an_earlier_one(task: Path, tmp_path: Path, quick: Paper) -> None:
    far = FOUR[0] | {"group_size": 12, "prompts_per_step": 20, "entropy_bonus": 0.01}
    steps = (ProbePlan(changes=FOUR[0]), ProbePlan(changes=far, departs="p1"), ProbePlan(changes=FOUR[1], departs="p1"))
    run = quick.start(task, tmp_path / "run", ["run.rounds=1"], agent=Climber(*steps))
    probes = [p.record() for p in run.state.probes.values()]
    assert [(p.departs, len(p.changes)) for p in probes] == [("", 3), ("p1", 6), ("p1", 2)]
    assert probes[1].recipe.lr == 2e-5 and probes[1].recipe.group_size == 12
    assert not [p for p in verified(run) if "policy" not in p]
    events = [e for e in run.events() if e.kind == "probes"]
    forged = replace(events[1], body=events[1].body.model_copy(update={"probes": (alone(events[1].body.probes[0]),)}))
    told = [p.message for p in checks()["probes"](Record(run.folder, run.events()), forged)]
    assert any("changes 6 factors of b0 at once" in x for x in told), told


def alone(spec: Any) -> Any:
    """The search training without what it departs from."""
    return spec.model_copy(update={"departs": ""})


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (ProbePlan(changes=FOUR[1], departs="p9"), "it departs from p9, which is no search training from b0"),
        (ProbePlan(changes={"weight_decay": 0.1}, departs="p1"), "it changes 4 factors of p1 at once"),
        (
            ProbePlan(
                changes=FOUR[0] | {"group_size": 12, "weight_decay": 0.1, "resample": 1, "top_p": 0.9}, departs="p1"
            ),
            "a bundle changes 1 to 6 factors, this one 7",
        ),
    ],
)
def test_a_step_that_is_none_is_refused(plan: ProbePlan, said: str, task: Path, tmp_path: Path, quick: Paper) -> None:
    with pytest.raises(AgentError, match=said):
        quick.start(task, tmp_path / "run", agent=Climber(ProbePlan(changes=FOUR[0]), plan))
    run = quick.resume(tmp_path / "run", agent=Climber(ProbePlan(changes=FOUR[0])))
    assert run.closed is not None, "nothing was lost"


def verified(run: api.Run) -> list[str]:
    """What verify finds in the search's events."""
    record, table = Record(run.folder, run.events()), checks()
    ours = ("probes", "searched", "knockout", "branch", "judged", "promoted", "certified")
    return [p.message for e in record.events if e.kind in ours for p in table[e.kind](record, e)]


class AsProbed:
    """Trains one change on one seed, then proposes that very recipe, and searches again."""

    name = "as-probed"

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        if len(briefing.probes) >= briefing.round:
            return SearchPlan(stop="tried", noise_sd=noise_now(briefing), trainings=1)
        return SearchPlan(probes=(ProbePlan(changes={"lr": 2e-5} if briefing.round == 1 else {"group_size": 12}),))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        if briefing.round > 1:
            return Proposal(agent=self.name, interventions=(), stop="done")
        return Proposal(agent=self.name, interventions=(plain(1e-5, "lr", 2e-5, "it helped", "b0", "scripted"),))


def noise_now(briefing: Briefing) -> float:
    """As the statistical agent's model has it: pooled within recipes, whoever trained them."""
    scores: dict[str, list[float]] = {}
    for b in briefing.branches:
        scores.setdefault(b.recipe.hash, []).extend(b.scores)
    for p in briefing.probes:
        if p.score is not None:
            scores.setdefault(p.recipe.hash, []).append(p.score)
    return round(noise_of(scores.values()), 6)


def test_a_search_training_with_a_branchs_recipe_verifies(task: Path, tmp_path: Path, quick: Paper) -> None:
    """`verify` pooled the noise by branch, the search by recipe: honest runs failed."""
    run = quick.start(task, tmp_path / "run", ["run.branches=1"], agent=AsProbed())
    probed = {p.recipe_hash for b in bodies(run, "probes") for p in b.probes}
    assert probed & {b.recipe.hash for b in run.state.branches.values()} and len(bodies(run, "searched")) == 2
    assert not verified(run)


def test_the_budget_keeps_the_proof_back(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["budget.trials=18"], agent=Scripted(WHOLE))
    (end, *_) = bodies(run, "searched")
    assert not end.probes and "budget" in end.stop
    assert run.closed is not None


class Expecting:
    """Trains its recipe for as long as the budget lets it, expecting some gain."""

    name = "expecting"

    def __init__(self, gain: float) -> None:
        self.gain, self.provable = gain, tuple[PromotionThreshold, ...]()

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        if len(briefing.provable) > 1:  # as late as two can be proved
            self.provable = briefing.provable
        return SearchPlan(probes=(ProbePlan(changes={"lr": 2e-5}),), proposes=1, expects=self.gain)

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        return Proposal(agent=self.name, interventions=(), stop="only asked")


def test_a_small_gain_keeps_more_seeds_back_and_more_factors_prove_less(task: Path, tmp_path: Path) -> None:
    def noisy(spec: TrialSpec) -> TrialFinished:
        p = 0.5 + 0.1 * {1: -1, 2: 0, 3: 1}.get(spec.seed, 0)
        return draw_result(spec, p, lambda plan: f"{set_in(spec.recipe)}-{spec.seed}-{plan.split}", spec.protocol.knobs)

    made = {}
    for gain in (0.16, 0.6):
        agent = Expecting(gain)
        more = ["run.rounds=1", "run.probes=90", "budget.trials=90", "judge.max_seeds=12"]
        run = Paper(noisy).start(task, tmp_path / str(gain), more, agent=agent)
        made[gain] = len(bodies(run, "searched")[0].probes)
        asked = [x.gain for x in agent.provable]
        assert asked == sorted(asked) and asked[0] < asked[-1], "knock-outs take the seeds of the proof"
    # 16 points at 12 of noise want all twelve seeds a side; the knock-outs of two factors are kept anyway
    assert 0 < made[0.16] < made[0.6]


def test_a_start_whose_seeds_lie_far_apart_leaves_the_search_its_half(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 30 points apart ask for as many more as there may be: nothing would be looked for."""

    def noisy(spec: TrialSpec) -> TrialFinished:
        p = 0.5 + 0.3 * {1: -1, 2: 0, 3: 1}.get(spec.seed, 0)
        return draw_result(spec, p, lambda plan: f"{set_in(spec.recipe)}-{spec.seed}-{plan.split}", spec.protocol.knobs)

    def searched(name: str) -> int:
        more = ["run.rounds=1", "run.probes=90", "budget.trials=40", "judge.max_seeds=12"]
        run = Paper(noisy).start(task, tmp_path / name, more, agent=Expecting(0.02))
        return len(bodies(run, "searched")[0].probes)

    made = searched("half")
    monkeypatch.setattr(search, "half_of_round", lambda ctx, n: float("inf"))
    assert searched("all") < 10 < made <= 20


SIX = {**IDLE, "clip": {"low": 0.1, "high": 0.2}, "temperature": 0.9, "steps": 7}
"""A bundle of six factors: its proof takes more trainings than one of seven."""


class Stopping:
    """Trains its recipe for as long as the budget lets it, then proposes `SIX`, or as many of its factors as it is told
    that the run can prove."""

    name = "stopping"
    told = 0

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        return SearchPlan(probes=(ProbePlan(changes={"lr": 2e-5}),), proposes=len(SIX))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        self.told, old = briefing.bundle, briefing.champion.recipe.factors()
        new = dict(list(SIX.items())[: self.told])
        iv = plain({f: old[f] for f in new}, BUNDLE, new, "they add up", "b0", "scripted")
        return Proposal(agent=self.name, interventions=(iv,))


@pytest.mark.parametrize(("trials", "probes", "factors"), [(23, 0, 5), (25, 0, 6), (30, 12, 6)])
def test_a_bundle_no_larger_than_told_can_be_proved(
    trials: int, probes: int, factors: int, task: Path, tmp_path: Path, quick: Paper
) -> None:
    """Seven factors have fewer knock-outs than six, of which there are two each: who stops at six must not be refused.
    A search leaves as much."""
    agent = Stopping()
    more = ["run.rounds=1", "run.bundle=7", "run.certify_seeds=[101, 102]"]
    more += [f"budget.trials={trials}", f"run.probes={probes}"]
    run = quick.start(task, tmp_path / "run", more, agent=agent)
    assert not [b.reason for b in bodies(run, "refused")]
    (iv,) = [b.intervention for b in bodies(run, "branch") if b.branch == "b1"]
    assert len(iv.new) == factors and agent.told in (factors, 7)


def test_the_statistical_agent_finds_both_changes_by_pooling(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=12", "run.rounds=2", "run.seed=1"])
    assert bodies(run, "probes") and run.champion not in (None, "b0")
    end = bodies(run, "searched")[0]
    assert end.trainings >= 3 + len(end.probes) and end.effects
    won = run.state.branches[run.champion or ""]
    assert not run.state.problems
    assert won.verdict is not None and won.verdict.kind == "promote"


def test_without_search_trainings_the_agent_answers_as_the_one_factor_agent(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    runs = [
        quick.start(task, tmp_path / name / "run", ["run.probes=0", f"run.agent={name}", "run.rounds=1"])
        for name in ("statistical", "one_factor")
    ]
    proposed: list[list[Any]] = []
    for run in runs:
        assert isinstance(run, api.Run)
        proposed.append([(i.factor, i.new) for p in bodies(run, "proposed") for i in p.proposal.interventions])
    assert proposed[0] == proposed[1] and proposed[0]


def test_why_tells_the_way_to_the_champion_factor_by_factor(
    task: Path, tmp_path: Path, quick: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=4"], agent=Scripted(IDLE))
    why(run.folder, run.champion or "")
    told = capsys.readouterr().out
    assert f"b0 -> {run.champion}" in told and "on fresh seeds" in told
    assert re.search(
        r"without group_size: .* points \[.*\] on fresh seeds, \S+ with the search trainings, lost nothing, taken out",
        told,
    )
    assert re.search(r"without lr: -\d.* on fresh seeds, .*, kept", told)
    assert "recomputed from the ledger: the same verdict" in told
