"""docs/task-file.md and docs/recipe.md: they hold every key, say what the code says, and their task file can be run."""

import re
from pathlib import Path

import pytest
from scripts.settings_reference import BEGIN, END, PAGES, embed, keys, meaning

from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.records.recipe import KEYED, Recipe
from evotrainer.records.structured_factors import COMPOSITES
from evotrainer.rules.recipes import PROTOCOL
from tests.cli.call import in_this_process

DOCS = Path(__file__).resolve().parents[2] / "docs"


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_current(name: str) -> None:
    assert embed(name, text(name)) == text(name), "run: python scripts/settings_reference.py docs"


def test_every_key_has_a_row_and_a_meaning() -> None:
    for key, field, model, name in keys(TaskFile):
        section, _, rest = key.partition(".")
        if not rest:  # a section: a heading, and its docstring below
            assert f"### [{section}]\n" in text("task-file.md")
            continue
        shown = {k: f"{k}.<{'slot' if k == 'scaffold' else 'name'}>" for k in KEYED}.get(rest, rest)
        page = text("recipe.md") if section == "recipe" else text("task-file.md")
        assert f"\n| `{shown if section == 'recipe' else key}` |" in page, key
        assert meaning(field, model, name), f"{key} has no docstring"
    assert all(f"\n| `{name}` |" in text("recipe.md") for name in COMPOSITES)


def test_who_takes_a_factor_is_what_the_trainers_say() -> None:
    last = dict(re.findall(r"^\| `([\w.<>]+)` \|.*\| ([^|]+) \|$", text("recipe.md").split(BEGIN)[1], re.M))
    assert last["phases"] == last["credit"] == "embedded" and last["lr"] == "all"
    assert last["mask_truncated"] == "embedded, trl, verl (in part)" and last["curriculum"] == "embedded, trl"


def test_the_heads_name_what_the_code_holds() -> None:
    head = text("recipe.md").split(BEGIN)[0]
    assert all(f"`{factor}`" in head for factor in PROTOCOL)
    for name in ("task-file.md", "recipe.md"):
        said = re.findall(r"`((?:task|run|judge|evaluation|recipe|budget|policy)\.[\w.]+)`", text(name).split(BEGIN)[0])
        known = {key for key, *_ in keys(TaskFile)}
        assert {s for s in said if not s.startswith(("recipe.rewards.", "task.toml"))} <= known


def test_the_shortest_task_file_passes_a_dry_run(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", text("task-file.md"), re.M | re.S)
    (tmp_path / "task.toml").write_text(shown, encoding="utf-8")
    done = in_this_process("run", "task.toml", "recipe.lr=1e-4", "run.seeds=[1,2,3,4]", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "nothing was run" in done.stdout and "seeds = [1, 2, 3, 4]" in done.stdout
    assert load_task(tmp_path / "task.toml").recipe == Recipe(rewards={"visible": 1.0})
    assert END in text("task-file.md")
