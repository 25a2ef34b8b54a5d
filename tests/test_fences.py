"""Fences: what a run loads is small, and what a task file chooses by name can be left out (docs/architecture.md)."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_graph import PLACE, SRC, closure, module_graph, modules, places, rooms_by_name, tree

# one worker reads the sources; names alone here, for every worker collects them
pytestmark = pytest.mark.xdist_group("architecture")
RUN, TASKS = "cli.run", SRC.parents[1] / "tasks"
MOST = {"the core": 57_500, "the core and what tasks/code.toml names": 66_500}
"""Lines of source that `evotrainer run` may reach, deferred imports counted."""
DEFAULT = ("envs.code.spec", "trainers.embedded.spec", "trainers.embedded.trainer")
"""What tasks/code.toml names, where its defaults are not imported plainly."""
FENCED = (
    *("envs.code", "envs.maths", "envs.swe", "envs.trl_env", "envs.reasoning_gym"),
    *("envs.verifiers", "executors.ray"),
    *("trainers.command", "trainers.embedded", "trainers.trl"),
    *("agents.seat", "agents.random_", "extras", "studies", "importers"),
    *("testing", "program_probes", "verify", "ui"),
)
"""Rooms that the core imports nothing of."""


def lines(found: set[str]) -> int:
    return sum(len(modules()[m].read_text(encoding="utf-8").splitlines()) for m in found)


def test_a_run_reaches_no_more_than_its_share_of_the_source() -> None:
    core = closure([RUN])
    assert lines(core) <= MOST["the core"]
    assert lines(closure([RUN, *DEFAULT])) <= MOST["the core and what tasks/code.toml names"]
    assert {"harness.detectors.validity", "judge.decide", "agents.pooled", "executors.local", "sandbox.pool"} <= core, (
        "what every run uses is imported, and hides behind no name"
    )


def test_the_core_imports_nothing_of_a_fenced_room() -> None:
    doors = ("cli", "api")  # a command, or a method of a run, that needs more says so when it is called
    for m in closure([RUN]):
        if m.split(".")[0] not in (*doors, *(f for f in FENCED if "." not in f)):
            used = {u for u in module_graph()[m] if any(f"{u}.".startswith(f"{f}.") for f in FENCED)}
            assert not used, f"{m} imports {sorted(used)}"


def test_every_place_of_a_registry_is_there_and_in_a_fenced_room() -> None:
    found = {p for m in modules() for p in places(m)}
    assert len(found) > 10
    for place in found:
        module, name = PLACE.fullmatch(place).groups()  # type: ignore[union-attr]
        defined = {
            t.id if isinstance(t, ast.Name) else getattr(t, "name", "")
            for n in tree(modules()[module]).body
            for t in (n.targets if isinstance(n, ast.Assign) else [n])
        }
        assert name in defined, f"{module} defines no {name}"
        assert any(f"{module}.".startswith(f"{f}.") for f in FENCED), f"{module} is core: import it plainly"
    assert rooms_by_name("trainers") == {"trainers.command.spec", "trainers.embedded.spec", "trainers.trl.spec"}


LEFT_OUT = ("envs/swe", "envs/maths", "envs/trl_env.py", "trainers/trl", "trainers/command", "executors/ray", "extras",
            "agents/seat", "studies", "importers")  # fmt: skip
SMALL = ("run.search_only=true", "run.probes=1", "run.rounds=0", "recipe.steps=1", "recipe.prompts_per_step=4",
         "recipe.group_size=4", "evaluation.search_tasks=4", "evaluation.search_attempts=2", "run.cache=off",
         "run.keys=off", "run.looks=off", "run.seeds=[1,2]", "judge.min_seeds=2")  # fmt: skip


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without fenced rooms."""
    root = tmp_path_factory.mktemp("lean")
    shutil.copytree(SRC, root / "evotrainer", ignore=shutil.ignore_patterns("__pycache__"))
    for room in LEFT_OUT:
        at = root / "evotrainer" / room
        shutil.rmtree(at) if at.is_dir() else at.unlink()
    return root


def evotrainer(lean: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evotrainer", *words]
    env = {**os.environ, "PYTHONPATH": str(lean)}
    return subprocess.run(command, env=env, cwd=lean, capture_output=True, text=True, timeout=800, check=False)


@pytest.mark.timeout(900)
def test_a_run_goes_through_without_the_rooms_that_its_task_does_not_name(lean: Path) -> None:
    done = evotrainer(lean, "run", str(TASKS / "code.toml"), "--out", "run", "--plain", *SMALL)
    assert done.returncode == 0, done.stderr
    assert (lean / "run" / "report.html").is_file() and "b0-s2: complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("run", "swe.toml", "--dry-run"), "evotrainer.envs.swe, where this environment lies; .*there: code"),
        (("run", "code.toml", "--dry-run", "trainer.name=trl"), "evotrainer.trainers.trl"),
        (("run", "code.toml", "--dry-run", "executor.name=ray"), "evotrainer.executors.ray.spec, .*: local"),
        (("run", "code.toml", "--dry-run", 'tracking.to=["wandb"]'), "evotrainer.extras.tracking, .*: none"),
        (("audit", "code.toml"), "evotrainer.studies, which the command needs"),
    ],
)
def test_a_room_that_is_not_there_is_named_with_the_remedy(lean: Path, words: tuple[str, ...], module: str) -> None:
    done = evotrainer(lean, *(str(TASKS / w) if w.endswith(".toml") else w for w in words))
    assert done.returncode in (2, 6), (done.returncode, done.stdout, done.stderr)
    (line,) = [n for n in done.stderr.splitlines() if "install EvoTrainer whole" in n]
    assert re.search(f"no {module}", line)
