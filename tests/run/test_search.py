"""`run.search`: search trainings promote nobody; what they find is judged, one change a branch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.agents import Tools
from evotrainer.agents.fixed import plain
from evotrainer.agents.pool import candidate_pool, situation
from evotrainer.cli.why import why
from evotrainer.config.task import TrainerConfig
from evotrainer.errors import AgentError, ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.factors.table import OURS
from evotrainer.projections.pooled import noise_of
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import Recipe, format_diff
from evotrainer.records.search import ProbePlan, SearchPlan
from evotrainer.run import propose, search
from evotrainer.run.observer import Changes, SilentObserver
from evotrainer.trainers import TRAINERS, check_recipes
from evotrainer.trainers.base import TrainerSpec
from evotrainer.verify import Record, checks
from tests.agents.briefings import health
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, ids, stopped_before_each

TASK = f"""
[task]
name = "searches"
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
workers = 2
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
"""
GAINS = {"lr": 0.14, "group_size": -0.01, "prompts_per_step": 0.12}
"""Factor -> what the change really gains."""
WHOLE = {"lr": 2e-5, "prompts_per_step": 20}
IDLE = {**WHOLE, "group_size": 12}


def finish(spec: TrialSpec) -> TrialFinished:
    r = spec.recipe
    p = 0.45 + GAINS["lr"] * (r.lr > 1e-5) + GAINS["prompts_per_step"] * (r.prompts_per_step > 16)
    p += GAINS["group_size"] * (r.group_size > 8)
    p += random.Random(f"{r.hash}-{spec.seed}").gauss(0, 0.004) if spec.branch != "base" else -0.2
    return draw_result(spec, p, lambda plan: f"{r.hash}-{spec.seed}-{plan.split}", spec.protocol.knobs)


class Scripted:
    """Trains each of `changes` by itself in its search, then proposes them, a branch each; once."""

    name = "scripted"

    def __init__(self, changes: dict[str, Any], batch: int = 2) -> None:
        self.changes, self.batch = changes, batch

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        mine = [p for p in briefing.probes if p.round == briefing.round]
        left = [f for f in sorted(self.changes) if not any(f in p.changes for p in mine)]
        if briefing.round > 1 or not left:
            return SearchPlan(stop="each change was tried")
        return SearchPlan(probes=tuple(ProbePlan(changes={f: self.changes[f]}) for f in left[: self.batch]))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        if briefing.round > 1:
            return Proposal(agent=self.name, interventions=(), stop="done")
        recipe = briefing.champion.recipe
        offers = tuple(plain(recipe.value(f), f, new, "it helped", "b0", "scripted") for f, new in self.changes.items())
        return Proposal(agent=self.name, interventions=offers)


def test_search_trainings_have_one_seed_read_search_only_and_promote_nobody(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    told: dict[str, str] = {}

    class Told(SilentObserver):
        def opened(self, name: str, changes: Changes) -> None:
            told[name] = format_diff(changes)

    run = quick.start(task, tmp_path / "run", agent=Scripted(WHOLE), view=Told())
    assert told["p1"] == "lr: 1e-05 -> 2e-05" and told["b1"].startswith("lr: ") and "b0" not in told
    (batch,) = bodies(run, "probes")
    assert [p.changes for p in batch.probes] == [{"lr": 2e-5}, {"prompts_per_step": 20}]
    specs = [s for s in quick.ran if s.purpose == "probe"]
    assert [s.trial for s in specs] == ["p1-s1001", "p2-s1002"]
    assert all([e.split for e in s.evals] == ["search"] for s in specs)
    assert {v.branch for v in run.verdicts} == {"b1", "b2"}
    promoted = [v.branch for v in bodies(run, "promoted")]
    assert promoted[0] == "b0" and set(promoted[1:]) & {"b1", "b2"}
    state = run.state
    assert not state.problems and list(state.probes) == ["p1", "p2"]
    with pytest.raises(ConfigError, match="p1 is a search training: .*`evotrainer show .* p1`"):
        why(run.folder, "p1")
    assert all(p.record().score is not None and p.health is not None for p in state.probes.values())
    assert [s.probes for s in state.searched] == [("p1", "p2"), ()]


def test_a_search_training_is_read_at_the_temperature_of_its_own_recipe(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    changes = {**WHOLE, "deploy_temperature": 0.1}
    run = quick.start(task, tmp_path / "run", ["run.rounds=1", "run.search_only=true"], agent=Scripted(changes))
    read = {s.temperature for t in bodies(run, "finished") for s in t.scores if t.branch.startswith("p")}
    assert read == {None, 0.1}
    assert not [p.message for p in run.verify().problems if "deployment temperature" in p.message]


def test_it_verifies_and_every_number_is_computed_again(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=4"], agent=Scripted(IDLE))
    record = Record(run.folder, run.events())
    table = checks()
    ours = ("probes", "searched", "branch", "judged", "promoted", "backtested", "certified", "reestimated")
    found = [p for e in record.events if e.kind in ours for p in table[e.kind](record, e)]
    assert not [p for p in found if "policy" not in p.message], found


@pytest.mark.parametrize(
    ("event", "change", "said"),
    [
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


def test_stopped_before_any_event_the_search_ends_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    def agent() -> Scripted:
        return Scripted(IDLE)

    more = ["run.probes=4"]
    whole = quick.start(task, tmp_path / "whole" / "run", more, agent=agent())
    story, told = ids(whole), {e.id: e.body for e in whole.events()}
    first = story.index("r1/diagnosed")
    last = story.index("r2/opened")
    points = [x for i, x in enumerate(story[first:last]) if not x.endswith(("/intended", "/finished")) or i % 6 == 0]
    assert {"r1/probes/0", "r1/probes/1", "r1/searched", "p1/read"} <= set(points)
    for cuts in (points, *([x] for x in points[4::16])):
        folder = tmp_path / f"cut-{cuts[0].replace('/', '-')}-{len(cuts)}" / "run"
        run = stopped_before_each(
            cuts,
            partial(quick.start, task, folder, more, agent=agent()),
            lambda folder=folder: quick.resume(folder, agent=agent()),
        )
        assert sorted(ids(run)) == sorted(story), cuts
        again = {e.id: e.body for e in run.events()}
        assert {x for x in story if again[x] != told[x] and "/skill" not in x} <= {"run", "closed"}, cuts
        assert not run.state.problems


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": 1}, "unknown recipe factor 'learning_rate'"),
        ({"lr": 1e-5}, "changes no factor"),
        ({"rewards": {"nothing": 1.0}}, "nothing"),
        ({"lr": 2e-5, "group_size": 12}, "it changes 2 factors, at most 1 are possible here"),
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
    assert run.champion in ("b1", "b2"), "nothing was lost"


IDLE_TRAINER = TrainerSpec(
    make=lambda sampler, options: object(),  # type: ignore[arg-type,return-value]
    carries=dict.fromkeys(("rewards", "lr", "steps", "schedule", "prompts_per_step", "max_tokens", "knobs"), OURS),
    warm_start=lambda request, on_step: None,
)
"""Carries out what the task's recipe sets, and nothing else."""


def test_what_the_trainer_does_not_carry_out_is_neither_searched_nor_offered(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRAINERS, "idle", IDLE_TRAINER)
    idle = ["trainer.name=idle", "run.rounds=1", "run.search_only=true"]
    with pytest.raises(AgentError, match="agent scripted asks for .* not valid: trainer idle: group_size: the idle"):
        quick.start(task, tmp_path / "asked", idle, agent=Scripted(IDLE))
    assert not [s for s in quick.ran if s.purpose == "probe"]
    run = quick.start(task, tmp_path / "run", [*idle, "run.probes=12"])
    trained = [p for b in bodies(run, "probes") for p in b.probes]
    check_recipes("idle", {}, [p.recipe for p in trained])
    assert {"lr", "rewards"} <= {f for p in trained for f in p.changes}


def test_what_trl_refuses_is_left_out_of_the_pool(task: Path, tmp_path: Path, quick: Paper) -> None:
    more = ["run.rounds=1", "run.search_only=true", "recipe.max_turns=8"]
    run = quick.start(task, tmp_path / "run", more, agent=Scripted(WHOLE))
    with quick.context(run) as ctx:
        ctx.state.environment["offers"] = ["references", "turn_rewards"]
        told = propose.briefing(ctx, 1, health(dead_fail=0.9, frac_reward_zero_std=0.9))
        tools = propose.agent_tools(ctx)

        def offered(trainer: str) -> dict[str, Recipe]:
            ctx.task = ctx.task.model_copy(update={"trainer": TrainerConfig(name=trainer)})
            return {c.name: c.child for c in candidate_pool(told, tools, situation(told, tools, 0), inf)}

        every, kept = offered("embedded"), offered("trl")
    refused = set()
    for name, recipe in every.items():
        try:
            check_recipes("trl", {}, [recipe])
        except ConfigError:
            refused.add(name)
    assert {name.split()[0] for name in refused} == {"references_first", "credit_turns"}
    assert every.keys() - refused == kept.keys()


def test_more_than_the_round_has_left_is_refused(task: Path, tmp_path: Path, quick: Paper) -> None:
    agent = Scripted(IDLE, batch=3)
    with pytest.raises(AgentError, match="asks for 3 search trainings, 2 are left; raise run.probes"):
        quick.start(task, tmp_path / "run", ["run.probes=2"], agent=agent)


def verified(run: api.Run) -> list[str]:
    """What verify finds in the search's events."""
    record, table = Record(run.folder, run.events()), checks()
    ours = ("probes", "searched", "branch", "judged", "promoted", "certified")
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
    run = quick.start(task, tmp_path / "run", ["budget.trials=10"], agent=Scripted(WHOLE))
    (end, *_) = bodies(run, "searched")
    assert not end.probes and "budget" in end.stop
    assert run.closed is not None


class Expecting:
    """Trains its recipe for as long as the budget lets it, expecting some gain."""

    name = "expecting"

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        return SearchPlan(probes=(ProbePlan(changes={"lr": 2e-5}),), expects=self.gain)

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        return Proposal(agent=self.name, interventions=(), stop="only asked")


def test_a_small_gain_keeps_more_seeds_back(task: Path, tmp_path: Path) -> None:
    def noisy(spec: TrialSpec) -> TrialFinished:
        p = 0.5 + 0.1 * {1: -1, 2: 0, 3: 1}.get(spec.seed, 0)
        return draw_result(spec, p, lambda plan: f"{spec.recipe.hash}-{spec.seed}-{plan.split}", spec.protocol.knobs)

    made = {}
    for gain in (0.16, 0.6):
        more = ["run.rounds=1", "run.probes=90", "budget.trials=90", "judge.max_seeds=12"]
        run = Paper(noisy).start(task, tmp_path / str(gain), more, agent=Expecting(gain))
        made[gain] = len(bodies(run, "searched")[0].probes)
    # 16 points at 12 of noise want all twelve seeds a side
    assert 0 < made[0.16] < made[0.6]


def test_a_start_whose_seeds_lie_far_apart_leaves_the_search_its_half(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 30 points apart ask for as many more as there may be: nothing would be looked for."""

    def noisy(spec: TrialSpec) -> TrialFinished:
        p = 0.5 + 0.3 * {1: -1, 2: 0, 3: 1}.get(spec.seed, 0)
        return draw_result(spec, p, lambda plan: f"{spec.recipe.hash}-{spec.seed}-{plan.split}", spec.protocol.knobs)

    def searched(name: str) -> int:
        more = ["run.rounds=1", "run.probes=90", "budget.trials=40", "judge.max_seeds=12"]
        run = Paper(noisy).start(task, tmp_path / name, more, agent=Expecting(0.02))
        return len(bodies(run, "searched")[0].probes)

    made = searched("half")
    monkeypatch.setattr(search, "half_of_round", lambda ctx, n: float("inf"))
    assert searched("all") < 10 < made <= 20


def test_the_statistical_agent_finds_what_helps_by_pooling(task: Path, tmp_path: Path, quick: Paper) -> None:
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
