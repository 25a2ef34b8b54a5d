"""`recipe.start` in a run on paper: costs count from the base policy on, the control trains for as long,
every reader says what was gone on from."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer.agents import Tools
from evotrainer.agents.fixed import plain
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.events import TrialFinished
from evotrainer.records.search import ProbePlan, SearchPlan
from evotrainer.verify import Record, checks
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, ids, stopped_before

TASK = f"""
[task]
name = "going-on"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
rounds = 1
branches = 1
probes = 4
workers = 1
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
"""
ON = {"start": "champion", "steps": 6, "phases": []}
TABLE = ("branch", "probes", "searched", "judged", "promoted", "backtested", "certified", "reestimated")


def finish(going_on: float, rate: float = 0.0) -> Callable[[TrialSpec], TrialFinished]:
    """17 steps and more gain 12 points, whatever they go on from; `going_on`: what a start gains at equal compute;
    `rate`: a learning rate of 2e-5."""

    def done(spec: TrialSpec) -> TrialFinished:
        r = spec.recipe
        noise = random.Random(f"{r.hash}-{spec.seed}")
        p = 0.4 + 0.12 * (r.whole_steps >= 17) + going_on * (r.start is not None) + rate * (r.lr > 1e-5)
        p += noise.gauss(0, 0.004) + (0.12 if spec.branch != "base" else 0.0)
        result = draw_result(
            spec, p, lambda plan: f"{r.hash}-{spec.seed}-{plan.split}", spec.protocol.knobs, steps=r.whole_steps
        )
        seconds = r.whole_steps * (1 + noise.gauss(0, 0.02))
        curve = tuple({"step": float(n), "cpu_s": seconds * n / r.whole_steps} for n in range(1, r.whole_steps + 1))
        more = {"curve": curve, "start_sha256": "sha-start" if r.start else ""} if spec.train else {}
        return result.model_copy(update=more)

    return done


class GoesOn:
    """Goes on in four search trainings, then proposes that; once."""

    name = "goes-on"

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        n = len(briefing.probes)
        if n == 4:
            return SearchPlan(stop="enough")
        return SearchPlan(probes=(ProbePlan(changes={"continuation": ON | {"steps": 6 + n}}),))

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        r = briefing.champion.recipe
        iv = plain(r.value("continuation"), "continuation", ON, "it helped", "b0", "goes-on")
        return Proposal(agent=self.name, interventions=(iv,))


def fixed(*more: str, **change: Any) -> list[str]:
    told = change or {"factor": "continuation", "new": ON}
    new = told["new"]
    text = (
        f'"{new}"'
        if isinstance(new, str)
        else "{" + f'start = "{new["start"]}", steps = {new["steps"]}, phases = []' + "}"
    )
    return [
        f'run.agent_options={{interventions = [{{factor = "{told["factor"]}", new = {text}}}]}}',
        "run.agent=fixed",
        *more,
    ]


def problems(run: Any, *kinds: str) -> list[str]:
    record, table = Record(run.folder, run.events()), checks()
    found = [p for e in record.events if e.kind in (kinds or TABLE) for p in table[e.kind](record, e)]
    return [p.message for p in found if "policy" not in p.message or "went on" in p.message]


def test_what_further_steps_gain_anyhow_is_not_promoted(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.0)).start(task, tmp_path / "run", fixed())
    b, control = run.state.branches["b1"], run.state.branches["b1c"]
    assert b.recipe.start is not None and b.recipe.start.hash == run.state.branches["b0"].recipe.hash
    assert [t.steps for t in b.complete] == [18] * 3 and (b.complete[0].training_s or 0) > 15
    assert control.recipe.start is None and 17 <= control.recipe.steps <= 20, "the parent's recipe, trained for as long"
    (verdict,) = run.verdicts
    assert (verdict.control, verdict.kind, run.champion) == ("b1c", "reject", "b0")
    assert not problems(run)


def test_what_gains_at_equal_compute_is_promoted_and_told(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = Paper(finish(0.15))
    run = paper.start(task, tmp_path / "run", fixed())
    (verdict,) = run.verdicts
    assert (verdict.control, verdict.kind, run.champion) == ("b1c", "promote", "b1")
    fresh = [s for s in paper.ran if s.seed > 100 and s.branch == "b1"]
    assert fresh and all(s.recipe.start is not None for s in fresh), "fresh seeds train the whole chain"
    why(run.folder, "b1")
    said = "continued from b0 (12 steps), 6 steps more; its cost counts from the base policy on"
    out = capsys.readouterr().out
    assert said in out and "champion" in out.partition("changed    continuation:")[2].partition("\n")[0]
    assert said in run.report().read_text(encoding="utf-8")
    assert not problems(run)


def test_search_trainings_that_go_on_alike_share_seeds_of_their_own(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.08, 0.08)).start(task, tmp_path / "run", ["judge.max_cost=9"], agent=GoesOn())
    seeds = [p.seed for p in run.state.probes.values()]
    assert seeds == [1001, 1001, 1001, 1004], "three at most, so that one start's luck does not speak for all"
    events = run.events()
    last = next(e for e in reversed(events) if e.kind == "probes")
    spec = last.body.probes[0].model_copy(update={"seed": 1001})
    wrong = replace(last, body=last.body.model_copy(update={"probes": (spec,)}))
    record = Record(run.folder, [wrong if e is last else e for e in events])
    assert any("belongs to another training" in p.message for p in checks()["probes"](record, wrong))


@pytest.mark.parametrize("event", ["b1/opened", "b1-s2/finished", "b1c-s1/finished", "b1/judged"])
def test_a_run_that_was_stopped_ends_the_same(event: str, task: Path, tmp_path: Path) -> None:
    paper = Paper(finish(0.15))
    whole = paper.start(task, tmp_path / "whole", fixed())
    with stopped_before(event):
        paper.start(task, tmp_path / "run", fixed())
    assert ids(paper.resume(tmp_path / "run")) == ids(whole)


def test_a_champion_that_went_on_is_gone_on_from(task: Path, tmp_path: Path) -> None:
    two = f'run.agent_options={{interventions = [{{factor = "continuation", new = {toml(6)}}}, '
    two += f'{{factor = "continuation", new = {toml(7)}}}]}}'
    run = Paper(finish(0.15)).start(task, tmp_path / "run", ["run.agent=fixed", two, "run.rounds=2"])
    chain = run.state.branches["b3"].recipe.chain
    assert [r.steps for r in chain] == [12, 6, 7] and run.state.branches["b3"].parent == "b1"
    assert not problems(run)


def toml(steps: int) -> str:
    return f'{{start = "champion", steps = {steps}, phases = []}}'


def test_another_start_policy_than_the_recipes_is_found(task: Path, tmp_path: Path) -> None:
    run = Paper(finish(0.15)).start(task, tmp_path / "run", fixed())
    found = problems(run, "finished")
    assert any("b1-s1: it went on from another policy than that of b0-s1" in p for p in found), "paper has no policies"
    events = run.events()
    e = next(x for x in events if x.id == "b0-s1/finished")
    wrong = replace(e, body=e.body.model_copy(update={"start_sha256": "x"}))
    record = Record(run.folder, [wrong if x is e else x for x in events])
    assert any("its recipe does not say the same" in p.message for p in checks()["finished"](record, wrong))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (fixed(factor="start", new="v7"), r"interventions\[0\], start: .*names no recipe; give the values"),
        (["recipe.start=champion"], "recipe.start: it names no recipe.*champion stands for"),
        (["recipe.start={rewards = {right = 1.0}, lr = -1}"], "recipe.start.lr: must be greater than 0"),
        ([*fixed(), "recipe.start={rewards = {wrong = 1.0}}"], "unknown reward component wrong"),
        (
            [*fixed(), "recipe.start={rewards = {right = 1.0}}", "environment.payable=[]"],
            "in recipe.start, recipe.rewards pays",
        ),
        (["recipe.start={lr = 1e-4}"], "start: rewards of the earlier recipe: no reward component has a weight"),
        (fixed("executor.name=ray", "executor.options={workers_per_trial = 2}", "trainer.name=trl"), "recipe.start"),
    ],
)
def test_a_start_that_cannot_be_is_refused_in_one_line(
    overrides: list[str], said: str, task: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        Paper(finish(0.0)).start(task, tmp_path / "run", overrides)
    assert "\n" not in str(refused.value) and not (tmp_path / "run" / "ledger.db").exists()
