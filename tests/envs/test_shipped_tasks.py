"""docs/tasks.md: every shipped task file, with the extra and the data that it needs; what is missing is named."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from evotrainer.envs.data.hub import HubSet, pinned, read_hub
from evotrainer.envs.maths import latex
from evotrainer.errors import MissingDependencyError
from tests.cli.call import ROOT

PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
ROWS = {m[1]: m[0] for m in re.finditer(r"^\| `(tasks/[\w-]+\.toml)` \|.*$", PAGE, re.M)}


def test_the_page_has_every_task_file_with_the_data_and_the_extra_it_needs() -> None:
    files = {str(p.relative_to(ROOT)): p for p in (ROOT / "tasks").glob("*.toml")}
    assert ROWS.keys() == files.keys()
    for name, path in files.items():
        environment = tomllib.loads(path.read_text(encoding="utf-8"))["environment"]
        for option in ("path", "source", "repos"):
            assert (f"`environment.{option}`" in ROWS[name]) == (environment.get(option) == ""), (name, option)
        assert ("| `math` |" in ROWS[name]) == (environment["name"] == "math"), name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"'\.\[(\w+)\]'", PAGE)) <= extras.keys()
    assert "docs/tasks.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_missing_library_is_code_6_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("datasets", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(latex, "find_spec", lambda name: None)
    calls = {
        "hf": [lambda: read_hub(HubSet("openai/gsm8k")), lambda: pinned("hf:a/b")],
        "math": [latex.LatexJudge],
    }
    for extra, each in calls.items():
        for call in each:
            with pytest.raises(MissingDependencyError, match=rf"pip install .*\[{extra}\]") as told:
                call()
            assert told.value.exit_code == 6
