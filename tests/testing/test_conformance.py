"""The conformance kits: what ships passes them, what is broken does not."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents import make_agent
from evotrainer.cli.scaffold.environment import environment
from evotrainer.envs import open_environment
from evotrainer.envs.base import Score, Task
from evotrainer.envs.simple import TextEnv
from evotrainer.errors import TaskSetError
from evotrainer.records.briefing import BranchRecord, Briefing, Proposal
from evotrainer.records.findings import HealthReport
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import ProbePlan, SearchPlan
from evotrainer.testing import check_agent, check_environment, check_trainer
from evotrainer.trainers import get_trainer

pytestmark = pytest.mark.xdist_group("kits")

RECIPE = Recipe(rewards={"right_letters": 1.0})


def briefing(**fields: Any) -> Briefing:
    env = environment()
    told: dict[str, Any] = {
        "run": "kit",
        "round": 1,
        "task": "letters",
        "champion": BranchRecord(branch="b0", parent=None, round=0, recipe=RECIPE, version="v0", search={"score": 0.4}),
        "health": HealthReport(harness="h0", subject="b0", rollouts=0, groups=0, metrics=(), findings=()),
        "branches": (),
        "components": dict(env.components),
        "budget_left": {"cpu_s": 1000.0},
        "trial_cost": 10.0,
    }
    return Briefing(**{**told, **fields})


def test_the_shipped_environments_conform() -> None:
    check_environment(environment())
    env = open_environment({"name": "code"})
    try:
        check_environment(env)
    finally:
        env.close()


def small(kind: type[TextEnv] = TextEnv, **changes: Any) -> TextEnv:
    def right(task: Task, text: str) -> float:
        """1 where the answer is right."""
        return float(text == task.data["answer"])

    tasks = {s: [Task(f"{s}-{i}", s, f"{s} {i}", {"answer": str(i)}) for i in range(5)] for s in ("train", "search")}
    tasks |= {s: [Task(f"{s}-{i}", s, f"{s} {i}", {"answer": str(i)}) for i in range(5)] for s in ("gate", "cert")}
    return kind(**({"name": "small", "tasks": tasks, "rewards": {"right": right}, "truth": "right"} | changes))


def test_an_environment_that_leaks_a_task_between_splits_is_caught() -> None:
    check_environment(small())
    leaky = small()
    leaky._tasks["cert"] = [Task("cert-x", "cert", "train 1", {"answer": "1"})]
    with pytest.raises(AssertionError, match="the splits must be disjoint"):
        check_environment(leaky)


def test_an_environment_whose_demonstrations_show_held_out_tasks_is_caught() -> None:
    with pytest.raises(AssertionError, match="a demonstration shows a held-out task"):
        check_environment(small(demos=lambda n, seed: [("cert 3", "3")] * n))


class Offering(TextEnv):
    """References and wordings of any task that is asked for."""

    offers: Sequence[str] = ("references", "wordings")

    def references(self, tasks: Sequence[Task], knobs: Mapping[str, Any]) -> list[tuple[str, ...] | None]:
        return [(t.prompt, t.data["answer"]) for t in tasks]

    def reworded(self, task: Task, rng: random.Random) -> Task:
        return replace(task, prompt=f"{task.prompt}, please")


def test_an_environment_that_gives_away_references_of_held_out_tasks_is_caught() -> None:
    with pytest.raises(AssertionError, match="references of a held-out task must be refused"):
        check_environment(small(kind=Offering))


def test_an_environment_that_offers_what_it_has_not_is_caught() -> None:
    class Empty(TextEnv):
        offers: Sequence[str] = ("references",)

    class Unknown(TextEnv):
        offers: Sequence[str] = ("hints",)

    with pytest.raises(AssertionError, match="has no method references"):
        check_environment(small(kind=Empty))
    with pytest.raises(TaskSetError, match="offers 'hints', which training knows nothing of; .*: references, wordings"):
        check_environment(small(kind=Unknown))


def test_an_environment_that_calls_its_own_faults_wrong_answers_is_caught() -> None:
    class Careless(TextEnv):
        def score(self, episodes: Sequence[Any]) -> list[Score]:
            return [Score({}, "incorrect", "broken pipe", "sandbox") for _ in episodes]

    base = small()
    careless = Careless("small", base._tasks, base._rewards, "right")
    with pytest.raises(AssertionError, match="never a wrong answer"):
        check_environment(careless)


def test_a_reward_function_that_raises_is_named_and_no_zero() -> None:
    def broken(task: Task, text: str) -> float:
        """Always raises."""
        raise KeyError("answer")

    env = small(rewards={"right": broken})
    e = env.reset(env.tasks("train")[0], {})
    env.step([e], ["1"], ["stop"])
    with pytest.raises(TaskSetError, match="'right' of environment small failed on task .*KeyError: 'answer'; correct"):
        env.score([e])


def test_an_environment_without_its_truth_is_refused() -> None:
    with pytest.raises(TaskSetError, match="truth 'wrong'.*must be among the reward functions right"):
        small(truth="wrong")


@pytest.mark.parametrize("name", ["statistical", "random"])
def test_the_shipped_agents_conform(name: str) -> None:
    for seed in range(5):
        check_agent(make_agent(name, seed), briefing())


def test_an_agent_that_changes_nothing_is_caught() -> None:
    class Idle:
        name = "idle"

        def propose(self, b: Briefing, tools: object) -> Proposal:
            p = Prediction(metric="accuracy", direction="up", size=0.1)
            iv = Intervention(
                factor="lr",
                old=RECIPE.lr,
                new=RECIPE.lr,
                hypothesis="h",
                prediction=p,
                success_criterion="s",
                rollback="r",
            )
            return Proposal(agent="idle", interventions=(iv,))

    with pytest.raises(Exception, match="changes no factor"):
        check_agent(Idle(), briefing())


def test_the_embedded_trainer_conforms(tmp_path: Path) -> None:
    from evotrainer.config.task import PolicyShape, WarmStart
    from evotrainer.executors.warm_start import make_base

    shape = PolicyShape(width=32, layers=1, heads=2, mlp=64, context=32)
    make_base(environment(), WarmStart(demonstrations=200, steps=40, shape=shape), tmp_path / "base", lambda row: None)
    check_trainer(get_trainer("embedded"), environment(), tmp_path / "base", tmp_path / "work", {"brevity": 1.0})


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ('{"trials": [{"changes": {"lr": 0.0007}, "why": "a step too small"}]}', ""),
        ('{"trials": [{"changes": {"lrr": 0.0007}, "why": "x"}]}', "an answer was not taken: trials.0: unknown factor"),
        ("no idea", "an answer was not taken: the answer holds no JSON object"),
        ('{"trials": [{"changes": {"lr": 0.0007, "kl_beta": 0.1}, "why": "x"}]}', "at most 1 are possible here"),
    ],
)
def test_a_carrier_is_asked_for_real_and_its_answer_must_be_taken(answer: str, wrong: str) -> None:
    agent = make_agent("seat", 0, {"carrier": "command", "command": ["echo", answer], "share": 1.0, "retries": 0})
    if not wrong:
        check_agent(agent, briefing())
        return
    with pytest.raises(AssertionError, match=wrong):
        check_agent(agent, briefing())


CODE = {"rewards": {"x": 1.0}, "written": {"x": "import os\ndef reward(rollout): return 1"}}


@pytest.mark.parametrize("step", ["search", "proposal"])
@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"written_reward": CODE}, "forbidden_import: line 1 imports os"),
        ({"steps": 10**9}, "it samples [0-9,]+ times what the champion samples"),
        ({"kl_beta": True}, "kl_beta: true is given for a number"),
        ({"rewards": {"no_such": 1.0}}, "unknown reward component no_such"),
        ({"rewards": {"kept_back": 1.0}}, "not for sale"),
        ({"prompt_noise": 0.5}, "has no other wordings"),
        ({"rewards": {"right_letters": 0.0}}, "no reward component has a weight"),
    ],
)
def test_a_carrier_is_held_to_what_a_run_refuses_in_either_step(
    step: str, changes: dict[str, Any], wrong: str, tmp_path: Path
) -> None:
    for name, told in (("bad", changes), ("good", {"lr": 0.0007})):
        (tmp_path / name).write_text(json.dumps({"trials": [{"changes": told, "why": "x"}]}))
    tmp_path.chmod(0o755)  # under root the program is a user of its own
    script = f'grep -q \'"step": *"{step}"\' request.json && cat {tmp_path}/bad || cat {tmp_path}/good'
    told = {"carrier": "command", "command": ["sh", "-c", script], "mount": [str(tmp_path)]}
    agent = make_agent("seat", 0, {**told, "share": 1.0, "retries": 0})
    with pytest.raises(AssertionError, match=f"an answer was not taken: trials.0: .*{wrong}"):
        check_agent(agent, briefing(unpayable=("kept_back",)))


@pytest.mark.parametrize(
    ("plan", "wrong"),
    [
        (SearchPlan(), "neither a search training nor a reason to stop"),
        (SearchPlan(probes=(ProbePlan(changes={"lr": 1e-4}),) * 2), "2 search trainings, 1 are left"),
        (SearchPlan(probes=(ProbePlan(changes={"lr": 1e-4, "kl_beta": 0.1}),)), "search training of lr, kl_beta: "),
        (SearchPlan(probes=(ProbePlan(changes={}),)), ""),
    ],
)
def test_the_search_of_an_agent_of_ones_own_is_asked_for(plan: SearchPlan, wrong: str) -> None:
    agent = make_agent("statistical", 0)
    agent.search = lambda briefing, tools: plan  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match=wrong) if wrong else contextlib.nullcontext():
        check_agent(agent, briefing())


def test_a_carrier_that_is_never_asked_proves_nothing() -> None:
    agent = make_agent("seat", 0, {"carrier": "command", "command": ["echo", "{}"], "share": 0.0})
    with pytest.raises(AssertionError, match="nobody was asked"):
        check_agent(agent, briefing())
