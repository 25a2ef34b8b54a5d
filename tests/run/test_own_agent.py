"""An agent of the user's own in the task file, `run.agent = "python:FILE:NAME"`: found, checked, and it proposes."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.run.agent import agent_of
from evotrainer.testing import check_agent
from evotrainer.testing.agents import NoTools
from tests.compare.test_arms import opened
from tests.letters_on_paper import QUICK
from tests.paper import Paper

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_agent.py"
NAMED = f"run.agent=python:{EXAMPLE}:HalveLearningRate"


def test_the_shipped_example_is_an_agent(task_file: Path) -> None:
    agent = agent_of(load_task(task_file, [NAMED, "run.agent_options.factor=0.25"]))
    check_agent(agent, opened())
    proposed = agent.propose(opened(), NoTools()).interventions[0]
    assert proposed.new == pytest.approx(0.25 * proposed.old)


def test_it_sits_in_a_run_and_its_change_is_trained_and_judged(
    letters_paper: Paper, task_file: Path, tmp_path: Path
) -> None:
    run = letters_paper.start(task_file, tmp_path / "own", [*QUICK, NAMED])
    proposed = [e.body.proposal for e in run.events() if e.kind == "proposed"]
    assert proposed[0].agent == "halve_learning_rate"
    assert run.state.branches["b1"].recipe.lr == pytest.approx(0.5 * run.task.recipe.lr)
    assert {v.branch for v in run.verdicts} >= {"b1"}


def test_a_path_in_the_task_file_is_relative_to_the_task_file(task_file: Path, tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    text = task_file.read_text(encoding="utf-8").replace('agent = "statistical"', "")
    text = text.replace("[run]\n", '[run]\nagent = "python:./my_agent.py:HalveLearningRate"\n')
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    (tmp_path / "environment.py").write_text((task_file.parent / "environment.py").read_text(encoding="utf-8"))
    task = load_task(tmp_path / "task.toml")
    assert task.run.agent == f"python:{tmp_path / 'my_agent.py'}:HalveLearningRate"
    assert agent_of(task).name == "halve_learning_rate"


@pytest.mark.parametrize(
    ("spec", "text", "cause"),
    [
        ("python:./gone.py:Agent", "", r"no file .*gone\.py"),
        ("python:./a.py", "x = 1", "give python:FILE:NAME"),
        ("python:./a.py:Agent", "class Agnet: ...", "a.py has no Agent; it has: Agnet"),
        ("python:./a.py:Agent", "raise ValueError('no licence')", "fails on import: ValueError: no licence"),
        (
            "python:./a.py:Agent",
            "def Agent(seed, options): return options['key']",
            r"raises KeyError: 'key' \(a.py, line 1\)",
        ),
        ("python:./a.py:Agent", "def Agent(seed, options): return 3", r"is no agent: it needs `name`, a str"),
    ],
)
def test_what_is_no_agent_is_refused_before_anything_is_spent(
    spec: str, text: str, cause: str, task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(ConfigError, match=cause):
        api.start(task_file, tmp_path / "run", [*QUICK, f"run.agent={spec}"])
    assert not (tmp_path / "run").exists()
