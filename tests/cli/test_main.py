"""The command line: light start, every command documented, every mistake answered with cause and remedy."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from evotrainer import cli
from evotrainer.cli import FAMILIES, GROUPS, function_of, module_of

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "tasks" / "code.toml"


def evotrainer(
    *args: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evotrainer.cli", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "140", **(env or {})},
    )


SINGLE = [name for names in GROUPS.values() for name in names if name not in FAMILIES]
TOP = [*SINGLE, *FAMILIES]
EVERY = [*SINGLE, *(f"{first} {second}" for first, seconds in FAMILIES.items() for second in seconds)]


@pytest.mark.parametrize("name", TOP)
def test_every_command_has_help_with_an_example_and_a_page(name: str) -> None:
    shown = evotrainer(name, "--help")
    assert shown.returncode == 0
    assert f"Example: evotrainer {name}" in re.sub(r"\s+", " ", shown.stdout)
    page = (ROOT / "docs" / "commands" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# evotrainer {name}\n")
    assert f"evotrainer {name}" in page.split("```")[1]


def test_help_and_readme_name_every_command() -> None:
    shown = evotrainer("--help").stdout
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in TOP:
        assert re.search(rf"^\W*{name}\b", shown, re.M), f"{name} is missing in --help"
        assert f"evotrainer {name}" in readme, f"{name} is missing in the README"


def test_help_lists_every_command_under_exactly_one_heading() -> None:
    lines = evotrainer("--help").stdout.splitlines()
    shown: dict[str, list[str]] = {}
    heading = ""
    for text in lines[lines.index("Options:") :]:
        if found := re.fullmatch(r"(\w[\w ]*):", text):
            shown[heading := found[1]] = []
        elif found := re.match(r"  (\S+) ", text):
            shown[heading].append(found[1])
    assert shown.pop("Options") == ["--help"]
    assert shown == {name: list(commands) for name, commands in GROUPS.items()}
    every = [name for commands in shown.values() for name in commands]
    assert len(every) == len(set(every)) and set(FAMILIES) <= set(every)


def test_every_module_is_a_command_and_every_command_a_module() -> None:
    folder = {p.stem for p in Path(cli.__file__).parent.glob("*.py") if not p.stem.startswith("_")}
    assert folder == {module_of(name) for name in EVERY}
    for name in EVERY:
        does = function_of(name)
        assert does.__module__ == f"evotrainer.cli.{module_of(name)}", f"{name} is written elsewhere"
        assert f"Example: evotrainer {name}" in (does.__doc__ or "")


def test_help_starts_without_heavy_imports() -> None:
    code = "import sys, evotrainer.cli; print(*sorted(m for m in sys.modules if '.' not in m))"
    names = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert "typer" in names
    assert not names & {"torch", "numpy", "scipy", "polars", "pyarrow", "pydantic", "transformers", "jinja2", "rich"}


def test_help_takes_less_than_three_tenths_of_a_cpu_second(tmp_path: Path) -> None:
    """The least of five: other processes only add to it. The first one writes the bytecode that the others read."""
    env = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert evotrainer("--help", env=env).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert min(cpu_s() for _ in range(5)) < 0.3


FIXED = ["run.agent=fixed"]

BAD: dict[str, tuple[list[str], int, str]] = {
    "missing task file": (["run", "nowhere.toml"], 2, "no task file nowhere.toml.*evotrainer init"),
    "folder as task file": (["run", "."], 2, "is a folder; give the task file"),
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
        r"interventions\[0\], lr: recipe: lr: Input should be greater than 0",
    ),
    "fixed agent, silent": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="resample",new=2}]}'],
        2,
        r"interventions\[0\]: resample: 0 -> 2: resample: .*group_filter is none",
    ),
    "fixed agent, unknown component": (
        ["run", str(CODE), *FIXED, 'run.agent_options={interventions=[{factor="rewards",new={kindness=1}}]}'],
        2,
        "unknown reward component kindness",
    ),
    "bad value": (["run", str(CODE), "recipe.lr=-1"], 2, "recipe.lr: Input should be greater than 0"),
    "bad loss": (["run", str(CODE), "recipe.loss=ppo"], 2, "recipe.loss: Input should be 'grpo'"),
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


@pytest.mark.parametrize("case", BAD, ids=lambda c: c.replace(" ", "-"))
def test_a_mistake_is_one_line_with_cause_and_remedy(case: str, tmp_path: Path) -> None:
    args, code, message = BAD[case]
    done = evotrainer(*args, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert re.search(message, lines[0]), lines[0]
    assert not list(tmp_path.iterdir()), "a refused run must leave nothing behind"


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
    assert not list(tmp_path.iterdir())


def test_init_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    done = evotrainer("init", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "not empty" in done.stderr
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
