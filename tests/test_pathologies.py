"""Every shipped failure has a task file that holds, a page that names its finding, and a place in the index."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.factors.change_rules import check_names
from evotrainer.factors.lint import lint
from evotrainer.harness import Harness
from evotrainer.harness.bottlenecks import KINDS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "pathologies"
PAGE = (ROOT / "docs" / "pathologies.md").read_text(encoding="utf-8")
FILES = sorted(FOLDER.glob("*.toml"))
KIND = {"length-collapse": "efficiency_collapse"}
"""Kinds of findings that are not called like their file."""
FINDING = re.compile(r"\[(?:critical|warn)\] (\w+): .{20,}")


def test_each_failure_of_the_method_is_shipped() -> None:
    shipped = {p.stem for p in FILES}
    assert shipped >= {"echo-trap", "laziness", "action-timidity", "tool-misuse", "dead-groups", "truncation"}


@pytest.mark.parametrize("path", [*FILES, ROOT / "examples" / "leak.toml"], ids=lambda p: p.stem)
def test_it_runs_as_shipped(path: Path) -> None:
    task = load_task(path)
    if task.environment["name"] == "math" and importlib.util.find_spec("reasoning_gym") is None:
        pytest.skip("reasoning-gym is not installed")
    assert task.policy.base.startswith("builtin:"), "a first run would have to train a base policy"
    assert resolve_base(task.policy.base) is not None
    env = open_environment(task.environment)
    try:
        check_names(task.recipe, env.name, env.components, env.knobs)
    finally:
        env.close()
    assert f"evotrainer run {path.relative_to(ROOT)}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_it_costs_minutes_and_nothing_is_evolved(path: Path) -> None:
    task = load_task(path)
    assert task.run.rounds == 0
    assert len(task.run.seeds) >= 2, "one seed shows nothing"
    assert task.budget.cpu_s is not None and task.budget.cpu_s <= 900
    assert task.recipe.steps * task.recipe.prompts_per_step * task.recipe.group_size <= 40 * 32 * 8


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_its_section_gives_command_finding_and_remedies(path: Path) -> None:
    (text,) = [part for part in PAGE.split("\n## ") if f"evotrainer run examples/pathologies/{path.name}`" in part]
    kind = KIND.get(path.stem, path.stem.replace("-", "_"))
    assert kind in KINDS and kind in text
    found = set(FINDING.findall(text))
    assert found and found <= set(Harness.default().detectors), "a finding is quoted that a detector makes"
    assert "**Remedies:**" in text


def test_the_seeded_failure_says_that_it_is_seeded() -> None:
    path = ROOT / "examples" / "hardcode.toml"
    text = path.read_text(encoding="utf-8")
    task = load_task(path)
    env = open_environment(task.environment)
    try:
        check_names(task.recipe, env.name, env.components, env.knobs)
        shown = [program for _, program in env.demonstrations(400, task.policy.warm_start.seed)]
        open_ones = {c.name for c in env.capabilities if task.recipe.knobs.get(c.knob) == c.open}
    finally:
        env.close()
    share = sum(" if xs == [" in program for program in shown) / len(shown)
    assert share == pytest.approx(task.environment["hard_coded"], abs=0.06) and share > 0.1
    assert f"SEEDED: {100 * task.environment['hard_coded']:.0f}%" in text and "seeded" in PAGE
    assert set(task.recipe.rewards) == {"visible"} and open_ones == {"visible_tests"}
    assert task.policy.base == "warm-start" and task.budget.cpu_s is not None and task.budget.cpu_s <= 900
    command = "evotrainer run examples/hardcode.toml --harness minimal"
    assert command in text and command in PAGE


def test_the_config_lint_warns_of_half_of_them_at_most() -> None:
    """A penalty that outweighs the answer and rates far too high are seen before a run;
    the others come out of training."""
    warned = {p.stem for p in FILES if lint(load_task(p).recipe)}
    assert warned == {"length-collapse", "policy-collapse", "tool-misuse"}
