"""The README: short, its code runs, its output is real, its commands and pages are there (`tests/test_docs.py`)."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli import app
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment

pytestmark = pytest.mark.xdist_group("loop")
ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S))
NUMBER = r"(?<![\w./#-])[+-]?\d[\d,.]*%?"


def test_it_is_short_and_shows_two_reports() -> None:
    assert len(README.splitlines()) <= 110 and len(re.findall(NUMBER, README)) <= 60
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert len(pictures) == 2, "of the toy, and of a hole that a real model used"
    for picture in pictures:
        raw = (ROOT / picture).read_bytes()
        width, height = struct.unpack(">II", raw[16:24])
        assert raw.startswith(b"\x89PNG") and len(raw) < 200_000 and width >= 1000 and height >= 500


def test_its_reward_and_its_task_file_make_an_environment(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(BLOCKS["python"])
    (tmp_path / "task.toml").write_text(BLOCKS["toml"])
    rows = [{"question": f"{i} and 1?", "answer": f"so\n#### {i + 1}"} for i in range(100)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    task = load_task(tmp_path / "task.toml", [f"environment.source={tmp_path / 'rows.jsonl'}"])
    environment = open_environment(task.environment)
    (reward,) = task.recipe.rewards
    assert set(environment.components) == {reward}
    score = environment.reward_functions[reward]
    assert score(prompts=["", ""], completions=["it is 8", "no idea"], answer=["so\n#### 8"] * 2) == [1.0, 0.0]


def test_what_why_prints_is_the_output_that_its_page_explains() -> None:
    page = re.sub(r" +\[\d+\]$", "", (ROOT / "docs" / "read-a-verdict.md").read_text(encoding="utf-8"), flags=re.M)
    lines = BLOCKS["text"].splitlines()
    assert len(lines) == 10 and all(line in page for line in lines)


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    named = {to.split("#")[0] for to in re.findall(r"\]\(([^)]+)\)", index)}
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or page.name in named, f"{page.name} is not in docs/README.md"
    for folder in (ROOT / "docs").iterdir():
        if folder.is_dir() and folder.name != "domains":
            assert {folder.name, f"{folder.name}/README.md"} & named, f"{folder.name} is not in docs/README.md"
    assert {f"domains/{p.name}" for p in (ROOT / "docs" / "domains").glob("*.md")} <= named


def test_the_commands_of_its_table_work_on_a_run(
    finished: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished.folder, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOTRAINER_CACHE", str(tmp_path / "cache"))
    (row,) = re.findall(r"^\| to look at a run \| (.*?);", README, re.M)
    names = [name.removeprefix("evotrainer ") for name in re.findall(r"`([^`]+)`", row)]
    assert {"status", "report"} <= set(names)
    for name in (*names, "why", "verify", "audit"):
        assert not app([name, "runs/mine"], standalone_mode=False), name
        assert capsys.readouterr().out.strip(), f"evotrainer {name} said nothing"
    assert not app(["export", "runs/mine", "runs/model"], standalone_mode=False)
    assert (tmp_path / "runs" / "model" / "README.md").is_file()
    assert (tmp_path / "runs" / "mine" / "report.html").is_file()
    assert {p.name for p in tmp_path.iterdir()} <= {"runs", "cache"}, "nothing else is left in a clone"
