"""Runs on paper: the real loop, judge, agents and ledger over trials that take no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evotrainer import api, commands
from evotrainer.executors.spec import EvalPlan, TrialSpec
from evotrainer.harness import Harness
from evotrainer.records.events import TrialFinished
from evotrainer.records.evidence import Bottleneck, Finding, HealthReport
from evotrainer.executors.paper import draw_result
from tests.paper import Paper

QUICK = ["run.rounds=1", "run.branches=1", "judge.max_seeds=3", "run.evolve_harness=false"]
GAIN = {"temperature": 0.12, "group_size": -0.08}
"""What a factor above its start is worth, score units."""


def solved(spec: TrialSpec) -> float:
    r = spec.recipe
    if spec.branch == "base":
        return 0.3
    return 0.5 + GAIN["group_size"] * (r.group_size > 8) + GAIN["temperature"] * (r.temperature > 1)


def finish(spec: TrialSpec) -> TrialFinished:
    """What a trial of the specification would have written."""

    def key(plan: EvalPlan) -> str:
        return f"{spec.recipe.hash}-{spec.seed}-{plan.split}"

    return draw_result(spec, solved(spec), key, spec.protocol.knobs, steps=15, tasks=150)


def reading(subject: str) -> HealthReport:
    """A diagnosis of dead groups, with the numbers behind it."""
    found = Finding(
        detector="dead_groups",
        kind="dead_groups",
        severity="warn",
        claim="half of the groups are dead",
        numbers={"dead": 0.5},
        thresholds={"dead": 0.3},
    )
    worst = Bottleneck(name="dead_groups", score=0.7, explanation="no signal", findings=("dead_groups",))
    return HealthReport(
        harness="h0", subject=subject, rollouts=0, groups=0, metrics=(), findings=(found,), bottlenecks=(worst,)
    )


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> list[TrialSpec]:
    """Trials on paper; returns the specifications that ran, in order."""
    monkeypatch.setattr(Harness, "read", lambda self, rollouts, subject, context=None: reading(subject))
    return on_paper(monkeypatch, finish)


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scaffolded task, as `evotrainer init` writes it."""
    folder = tmp_path_factory.mktemp("scaffold") / "letters"
    commands.init(folder, "")
    return folder / "task.toml"


Go = Callable[..., api.Run]


@pytest.fixture
def go(paper: list[TrialSpec], letters: Path, tmp_path: Path) -> Go:
    """Start a run on paper; `changes`: the fixed agent's list, none: the statistical agent."""

    def start(name: str, *overrides: str, changes: str = "") -> api.Run:
        agent = ["run.agent=fixed", f"run.agent_options.interventions=[{changes}]"] if changes else []
        return api.start(letters, tmp_path / name, [*QUICK, *agent, *overrides])

    return start


WARM, MORE, COLD = (
    '{factor="temperature",new=1.3}',
    '{factor="group_size",new=12}',
    '{factor="temperature",new=0.8}',
)
"""Helps, harms, does nothing."""
