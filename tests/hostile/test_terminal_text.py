"""Nothing that comes from rollouts, logs, run folders or ledgers steers the terminal it is shown on."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from evotrainer.cli import main
from evotrainer.harness import render_text
from evotrainer.records import output
from evotrainer.records.console import Console
from evotrainer.records.output import line, visible
from evotrainer.studies.audit import audit
from evotrainer.studies.audit.text import audit_json
from tests.audit_files import generate, plain

ATTACKS = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8K\x1b\\",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "hide": "\x1b[8mhidden\x1b[0m",
    "C1": "\x9b31mred\x9d0;owned\x9c",
    "back": "good\b\b\b\bevil",
    "return": "evil\rgood",
    "direction": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "tag": "\U000e0041\U000e0042",
    "zero width": "a\u200bb\ufeff",
    "null": "a\x00b",
    "delete": "a\x7fb",
    "separators": "a\u2028b\x0b\x0c",
}
EVERY = "".join(ATTACKS.values())
BAD = {c for c in map(chr, range(0x110000)) if c not in "\t\n" and visible(c) != c}


def steering(text: str) -> set[str]:
    """Characters of a text that a terminal obeys or hides."""
    return {c for c in text if c in BAD}


def run(*args: str) -> int:
    old, sys.argv = sys.argv, ["evotrainer", *args]
    try:
        main()
    except SystemExit as e:
        return int(e.code or 0)
    finally:
        sys.argv = old
    return 0


def test_what_a_terminal_obeys_is_known() -> None:
    assert {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0xD800, 0xDFFF, 0xE0001)} <= BAD
    assert not BAD & set("aé鍵🙂\t\n→−±⏎…")


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_every_attack_is_visible_once_and_means_the_same_in_json(attack: str) -> None:
    shown = visible(attack)
    assert steering(attack) and not steering(shown) and visible(shown) == shown
    for ascii_only in (True, False):
        text = json.dumps({"name": attack}, ensure_ascii=ascii_only)
        assert json.loads(visible(text)) == {"name": attack}


def test_a_name_adds_no_lines_of_its_own() -> None:
    assert line("b1\neverything holds: hash chain") == "b1 ⏎ everything holds: hash chain"


def test_what_is_printed_is_clean_on_every_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    print(EVERY)
    assert steering(capsys.readouterr().out), "the builtin hands it on"
    output.print(EVERY, "\ud800", sep="\x1b", end="\x07\n", file=sys.stderr)
    assert not steering(capsys.readouterr().err)
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    output.print("\x1b[31m ± \ud800", file=narrow)
    narrow.flush()
    assert narrow.buffer.getvalue() == b"\\u241b[31m +/- \\ud800\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_tables_and_titles_of_the_console_are_clean_and_its_styles_stay(attack: str) -> None:
    import rich.console

    def drawn(kind: type[rich.console.Console]) -> str:
        console = kind(file=io.StringIO(), force_terminal=True, width=100, color_system="truecolor")
        table = Table(title=attack)
        table.add_column(attack)
        table.add_row(Text(attack, style="bold red"))
        console.print(table, Text(attack), soft_wrap=True)
        console.print(attack, markup=False)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    ours, sgr = drawn(Console), re.compile("\x1b" + r"\[[\d;]*m")
    assert sgr.search(ours) and not steering(sgr.sub("", ours))
    if steering(attack) - set("\x07\x08\x0b\x0c\r"):  # rich removes these by itself
        assert steering(drawn(rich.console.Console)) - {"\x1b"} or "\x1b" in attack, "rich hands the rest on"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose every name is an attack."""
    path = tmp_path_factory.mktemp("log") / "r.jsonl"
    with path.open("w") as f:
        for i, r in enumerate(generate(400)):
            row = plain(r)
            row |= {"run": f"run{EVERY}", "branch": f"b{EVERY}\n[FAIL]", "split": f"s{EVERY}\ud800"}
            row["components"] = {f"{k}{EVERY}\nx\ud801": v for k, v in row["components"].items()}
            row["task"] = f"{row['task']}{EVERY}"
            row["detail"] = {**row["detail"], EVERY: EVERY}
            if i % 40 == 0:
                row |= {"error_kind": f"k{EVERY}", "error": EVERY}
            f.write(json.dumps(row) + "\n")
        f.write('{"\\u001b]0;owned\\u0007": 1}\n\x1b[2J\n')
    return path


def test_names_of_a_log_reach_the_report_as_they_are(hostile: Path) -> None:
    health = audit([hostile]).sources[0].readings[0].health
    assert {"\x1b", "\x9b"} <= steering(" ".join([health.subject, *(m.name for m in health.metrics)]))


@pytest.mark.parametrize(
    "options",
    [[], ["--full"], ["--json"], ["--sql", "SELECT task, run, branch, split FROM rollouts LIMIT 5"],
     ["--sql", "SELECT * FROM metrics", "--json"], ["--sql", "SELECT nothing FROM rollouts"], ["--proxy", "a,b"]],
    ids=["plain", "full", "json", "sql", "sql json", "sql error", "error"],
)  # fmt: skip
def test_an_audit_of_hostile_names_is_clean(
    hostile: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("audit", str(hostile), "--no-cache", *options)
    said = capsys.readouterr()
    assert code == (2 if "nothing" in str(options) or "--proxy" in options else 0)
    assert not steering(said.out + said.err)
    assert "\n[FAIL]" not in said.out
    if "--json" in options:
        assert json.loads(said.out)


def test_json_means_what_was_there(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("audit", str(hostile), "--no-cache", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(audit_json(audit([hostile]))))


def test_a_page_of_hostile_names_is_clean_and_says_them_as_text(hostile: Path, tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(1)<x>\x1b]0;x\x07"
    folder.mkdir()
    shutil.copy(hostile, folder)
    page = tmp_path / "a.html"
    assert run("audit", str(folder), "--no-cache", "--html", str(page)) == 0
    text = page.read_text()
    assert not steering(text) & {chr(n) for n in range(32)} | steering(text) & {"\x9b", "\u202e"}
    assert "<script>alert(1)" not in text


def test_render_text_of_any_report_is_one_line_a_name(hostile: Path) -> None:
    text = render_text(audit([hostile]).sources[0].readings[0].health)
    assert not steering(text) and "\n[FAIL]" not in text and "\nx" not in text


def test_unexpected_faults_and_errors_are_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from evotrainer import cli
    from evotrainer.errors import StoreError

    for fault, code in (
        (ValueError(EVERY), 1),
        (StoreError(EVERY), 4),
        (OSError(2, EVERY), 1),
        (KeyError("\ud800"), 1),
    ):

        def fail(fault: Exception = fault) -> None:
            raise fault

        monkeypatch.setattr(cli, "app", fail)
        assert run() == code
        said = capsys.readouterr().err
        assert said and not steering(said)
