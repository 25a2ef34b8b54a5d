"""docs/json.md names every command with `--json`, and the keys that it names are printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli import FAMILIES, GROUPS, app
from tests.test_docs import commands

pytestmark = pytest.mark.xdist_group("loop")
PAGE = (Path(__file__).resolve().parents[1] / "docs" / "json.md").read_text(encoding="utf-8")
ROWS = {m[1]: m[2] for m in re.finditer(r"^\| `evotrainer ([a-z -]+)` \| (.*) \|$", PAGE, re.M)}
OF_MACHINES = {"seat"}
"""Takes `--json`, too, and has it on a page of its own: it depends on a seat that is there."""


def test_the_page_and_the_commands_agree_on_who_takes_json() -> None:
    takes = {name for name, options in commands().items() if "--json" in options}
    assert len(ROWS) > 15
    assert set(ROWS) == takes - OF_MACHINES
    every = {n for names in GROUPS.values() for n in names} | {f"{a} {b}" for a, bs in FAMILIES.items() for b in bs}
    assert takes <= every


def test_a_command_prints_the_keys_that_the_page_names(
    finished: api.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, trial = str(finished.folder), str(finished.folder / "rollouts" / "b1-s1")

    def printed(*args: str) -> Any:
        capsys.readouterr()
        app([*args, "--json"], standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    told = {
        "status": printed("status", run),
        "health": printed("health", run),
        "why": printed("why", run),
        "harness": printed("harness", run),
        "verify": printed("verify", run),
        "audit": printed("audit", trial, "--no-cache"),
        "cache": printed("cache", str(tmp_path / "cache")),
        "skills import": printed("skills", "import", run, "--library", str(tmp_path / "library")),
        "skills validate": printed("skills", "validate", run),
        "import": printed("import", trial, "--out", str(tmp_path / "store")),
    }
    for name, value in told.items():
        keys = ROWS[name].removeprefix("object: ").split(";")[0]
        keys = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", keys)  # what stands in brackets is inside of a key
        named = re.findall(r"`([a-z_]+)`", keys)
        assert named and not [k for k in named if k not in value], (name, sorted(value))
    cases = printed("cases", run)
    assert all({"branch", "factor", "kind", "came_true"} <= c.keys() for c in cases) and cases
    assert told["import"]["rollouts"] == sum(told["import"]["formats"].values()) > 0
    imported = told["skills import"]
    assert imported["skills"] == len(imported["merged"]) == len(list((tmp_path / "library").iterdir())) > 0
