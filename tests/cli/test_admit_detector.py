"""`evotrainer admit-detector`: a detector of one's own is tried on a recorded run."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from evotrainer.cli.admit_detector import admit_detector
from evotrainer.errors import ConfigError
from tests.leaky_task import TASK as TASK
from tests.paper import Paper

FUNCTION = """
def flag(rollouts):
    return [any(t["text"].startswith("sort fast") for t in r["turns"]) for r in rollouts]
"""


def test_a_detector_of_ones_own_is_tried_on_a_recorded_run(
    task: Path, tmp_path: Path, acted: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = acted.start(task, tmp_path / "run", ["run.evolve_harness=false"])
    assert "b1" in run.state.invalid
    own = tmp_path / "looks.toml"
    own.write_text('name = "looks"\nform = "pattern"\nwhere = "actions"\npattern = "^look key"\nwarn = 0.5\n')
    admit_detector(own, [run.folder])
    told = capsys.readouterr().out
    assert "looks: admitted" in told and "every seed counts as held out here" in told
    assert "bad run/b1-s1 search, run/b1-s2 search; clean run/b0-s1 search, run/b0-s2 search, run/base search" in told
    (tmp_path / "sorts.py").write_text(FUNCTION)
    own.write_text('name = "sorts"\nform = "python"\nsource_file = "sorts.py"\nwarn = 0.5\n')
    with pytest.raises(typer.Exit, match="^1$"):
        admit_detector(own, [run.folder], bad=["b1"], clean=["b0"])
    assert "sorts: refused" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no finished branch b9"):
        admit_detector(own, [run.folder], bad=["b9"])
    own.write_text('form = "pattern"\n')
    with pytest.raises(ConfigError, match="name: is missing"):
        admit_detector(own, [run.folder])
