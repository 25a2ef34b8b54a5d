"""The command line's mistakes: each is answered with cause and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.call import ROOT, evotrainer, in_this_process
from tests.thinned import thinned

CODE = ROOT / "tasks" / "code.toml"
FIXED = ["run.agent=fixed"]

BAD: dict[str, tuple[list[str], int, str]] = {
    "missing task file": (["run", "nowhere.toml"], 2, "no task file nowhere.toml.*evotrainer init"),
    "folder as task file": (["run", "."], 2, "is a folder without a task file .*evotrainer init"),
    "unknown factor": (["run", str(CODE), "recipe.learning_rate=1"], 2, "recipe.learning_rate: unknown name"),
    "fixed agent, two moves": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="rewards",new={hidden=1,format=1}}]}'],
        2,
        r"interventions\[0\], rewards: branch makes 2 moves .*rewards: .*visible.* -> .*hidden",
    ),
    "fixed agent, unknown factor": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="lr",new=1e-4},{factor="rate",new=1}]}'],
        2,
        r"interventions\[1\], rate: unknown recipe factor 'rate'",
    ),
    "fixed agent, bad value": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="lr",new=-1}]}'],
        2,
        r"interventions\[0\], lr: recipe: lr: must be greater than 0",
    ),
    "fixed agent, silent": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="resample",new=2}]}'],
        2,
        r"interventions\[0\], resample: .*group_filter is none",
    ),
    "fixed agent, unknown component": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="rewards",new={kindness=1}}]}'],
        2,
        "unknown reward component kindness",
    ),
    "bad value": (["run", str(CODE), "recipe.lr=-1"], 2, "recipe.lr: must be greater than 0"),
    "bad loss": (["run", str(CODE), "recipe.loss=ppo"], 2, "recipe.loss: must be grpo, dapo"),
    "malformed override": (["run", str(CODE), "recipe.lr"], 2, "is not of the form section.name=value"),
    "no reward weight": (["run", str(CODE), "recipe.rewards.visible=0"], 2, "no reward component has a weight"),
    "silent zero gradient": (["run", str(CODE), "recipe.resample=2"], 2, "group_filter is none; choose a filter"),
    "budget below one trial": (["run", str(CODE), "budget.cpu_s=5"], 2, "too small for one trial"),
    "too few seeds": (["run", str(CODE), "run.seeds=[1]"], 2, "no branch could ever be promoted; add seeds"),
    "seeds not fresh": (["run", str(CODE), "run.certify_seeds=[1,2,3]"], 2, "certify_seeds must be fresh"),
    "unknown base": (["run", str(CODE), "policy.base=builtin:none"], 2, "no base policy 'builtin:none'"),
    "unknown agent": (["run", str(CODE), "run.agent=nobody"], 2, "nobody"),
    "unknown component": (["run", str(CODE), "recipe.rewards.foo=1"], 2, "unknown reward component foo; code offers: "),
    "unknown knob": (
        ["run", str(CODE), "recipe.knobs.nosuch=1"],
        2,
        "unknown environment knob nosuch; code has: visible",
    ),
    "unknown knob of evaluations": (
        ["run", str(CODE), "evaluation.protocol.knobs={nosuch=1}"],
        2,
        "unknown environment knob nosuch; code has: visible",
    ),
    "bad knob": (
        ["run", str(CODE), "recipe.knobs.visible_tests=x"],
        2,
        "not allowed by code; one of: shown_and_graded",
    ),
    "unknown component, dry": (["run", str(CODE), "--dry-run", "recipe.rewards.foo=1"], 2, "unknown reward component"),
    "training needs splits": (
        ["run", str(ROOT / "tests" / "data" / "cert_only.toml")],
        2,
        "no tasks in split train.*evaluate_only=true",
    ),
    "not a run": (["status", "."], 4, "is not a run folder"),
    "nothing to resume": (["resume", "."], 4, "is not a run folder"),
}


@pytest.mark.parametrize("case", thinned(BAD, 6), ids=lambda c: c.replace(" ", "-"))
def test_a_mistake_is_one_line_with_cause_and_remedy(case: str, tmp_path: Path) -> None:
    args, code, message = BAD[case]
    done = evotrainer(*args, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert re.search(message, lines[0]), lines[0]
    shown = [x for x in done.stdout.splitlines() if "loading the libraries" not in x and "] run " not in x]
    assert not shown, "a refusal stands alone, but for where a slow machine is after half a minute"
    assert not list(tmp_path.iterdir()), "a refused run must leave nothing behind"


def test_a_folder_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    for more in ([], ["--plain"], ["--dry-run"]):
        done = in_this_process("run", str(CODE), "recipe.lr=0.01", "--out", str(tmp_path), *more)
        assert done.returncode == 2 and not done.stdout, done.stdout
        assert re.fullmatch(r"evotrainer: \S+ holds a run already; .* another --out\n", done.stderr), done.stderr


def test_broken_toml_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[task]\nname = \n")
    done = evotrainer("run", "t.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "not valid TOML" in done.stderr
    assert "line 2" in done.stderr


def test_dry_run_prints_the_resolved_task_and_runs_nothing(tmp_path: Path) -> None:
    done = evotrainer("run", str(CODE), "recipe.lr=1e-4", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lr = 0.0001" in done.stdout
    assert "nothing was run" in done.stdout
    doubtful = in_this_process("run", str(CODE), "recipe.lr=0.01", "--dry-run", cwd=tmp_path)
    assert "note: recipe.lr: lr above 1e-3" in doubtful.stderr
    assert not list(tmp_path.iterdir())


def test_init_refuses_a_name_that_no_task_can_have(tmp_path: Path) -> None:
    done = evotrainer("init", str(tmp_path / "mine"), "--name", "a/b")
    assert done.returncode == 2 and "--name 'a/b'" in done.stderr and not (tmp_path / "mine").exists()
    spaced = evotrainer("init", str(tmp_path / "my task"))
    assert f"evotrainer run '{tmp_path / 'my task' / 'task.toml'}'" in spaced.stdout.replace("\n", "")


def test_init_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    done = evotrainer("init", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine exists and is not an empty folder; choose a new one" in done.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_without_torch_the_remedy_is_named(tmp_path: Path) -> None:
    """An import hook that finds no torch stands for a machine without it."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError('No module named torch', name='torch')\n"
        "sys.meta_path.insert(0, Without())\n"
    )
    env = {"PYTHONPATH": str(tmp_path / "hook")}
    done = evotrainer("run", str(CODE), "--out", "r", cwd=tmp_path, env=env)
    assert done.returncode == 6, done.stderr
    assert "needs torch, which is not installed; run: pip install" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()
    assert evotrainer("doctor", env=env).returncode == 6
    assert evotrainer("--help", env=env).returncode == 0
