"""Help: light, complete, under headings; every command is a module, and every module a command."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from evotrainer import cli
from evotrainer.cli import FAMILIES, GROUPS, function_of, module_of
from tests.cli.call import ROOT, evotrainer, in_this_process

SINGLE = [name for names in GROUPS.values() for name in names if name not in FAMILIES]
TOP = [*SINGLE, *FAMILIES]
EVERY = [*SINGLE, *(f"{first} {second}" for first, seconds in FAMILIES.items() for second in seconds)]


@pytest.mark.parametrize("name", TOP)
def test_every_command_has_help_with_an_example_and_a_page_or_a_row(name: str) -> None:
    shown = in_this_process(name, "--help")
    assert shown.returncode == 0
    assert f"Example: evotrainer {name}" in re.sub(r"\s+", " ", shown.stdout)
    page = ROOT / "docs" / "commands" / f"{name}.md"
    if not page.is_file():
        assert f"\n| `evotrainer {name}" in (page.parent / "README.md").read_text(encoding="utf-8")
        return
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# evotrainer {name}\n") and f"evotrainer {name}" in text.split("```")[1]


def test_help_names_every_command() -> None:
    shown = evotrainer("--help").stdout
    for name in TOP:
        assert re.search(rf"^\W*{name}\b", shown, re.M), f"{name} is missing in --help"


def test_help_lists_every_command_under_exactly_one_heading() -> None:
    lines = evotrainer("--help").stdout.splitlines()
    shown: dict[str, list[str]] = {}
    heading = ""
    for text in lines[lines.index("Options:") :]:
        if found := re.fullmatch(r"(\w[\w ]*):", text):
            shown[heading := found[1]] = []
        elif found := re.match(r"  (\S+) ", text):
            shown[heading].append(found[1])
    assert shown.pop("Options") == ["--version", "-h,"]
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


def test_version_short_help_and_the_word_help() -> None:
    from evotrainer import __version__

    assert evotrainer("--version").stdout == f"evotrainer {__version__}\n"
    whole = evotrainer("--help").stdout
    assert evotrainer("-h").stdout == evotrainer("help").stdout == whole
    assert evotrainer("help", "why").stdout == evotrainer("why", "-h").stdout == evotrainer("why", "--help").stdout
    assert evotrainer("help", "skills", "list").stdout == evotrainer("skills", "list", "--help").stdout
    assert evotrainer("help", "nothing").returncode == 2


def test_the_list_of_commands_cuts_no_sentence() -> None:
    listed = evotrainer("--help").stdout.partition("\nRun:\n")[2]
    assert "doctor" in listed and "..." not in listed
    for family in FAMILIES:
        listed = evotrainer(family, "-h").stdout.partition("\nCommands:\n")[2]
        assert FAMILIES[family][0] in listed and "..." not in listed, family
