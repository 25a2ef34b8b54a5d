"""The examples in the documentation run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from tests.small_run import TINY

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.xdist_group("loop")


def test_the_python_api_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(ROOT / "examples" / "python_api.py"))["main"]
    run = main(tmp_path, [*TINY, "policy.warm_start.steps=60"])
    said = capsys.readouterr().out
    assert isinstance(run, api.Run)
    assert "champion: b" in said
    assert "everything holds: True" in said
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("path", sorted((ROOT / "tasks").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_task_file_is_valid(path: Path) -> None:
    task = load_task(path)
    assert load_task(path, ["run.seed=5"]).hash != task.hash


SHIPPED = [p for folder in ("tasks", "examples") for p in sorted((ROOT / folder).rglob("*.toml"))]


def test_what_grades_maths_says_which_extra_it_needs() -> None:
    """In the task file's first lines, and on every page with a command that runs `examples/trl-gsm8k.toml`."""
    maths = [p for p in SHIPPED if re.search(r'^name = "math"$', p.read_text(), re.M)]
    assert {"trl-gsm8k", "gsm8k", "math", "math-data"} <= {p.stem for p in maths}
    for path in maths:
        head = path.read_text(encoding="utf-8").split("\n[")[0]
        extra = "[trl,math]" if path.stem.startswith("trl") else "[math]"
        assert f"pip install -e '.{extra}'" in head, path
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert "examples/trl-gsm8k.toml" not in text or "[trl,math]" in text, page
