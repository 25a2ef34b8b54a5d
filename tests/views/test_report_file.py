"""The report as a file: rebuildable, bounded, silent about sealed splits."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from evotrainer.errors import StoreError
from evotrainer.records.events import RunOpened
from evotrainer.records.rollout import Rollout
from evotrainer.views import report
from evotrainer.views.report import write_report
from tests.whole_run import build_run, with_text

VENDOR = Path(report.__file__).parent / "assets" / "vendor"


def test_a_deleted_report_comes_back_byte_for_byte(finished_run: Path) -> None:
    first = write_report(finished_run).read_bytes()
    (finished_run / "report.html").unlink()
    assert write_report(finished_run).read_bytes() == first


def test_a_copied_run_gives_the_same_report(finished_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(finished_run, tmp_path / "elsewhere")
    assert write_report(copy).read_bytes() == write_report(finished_run).read_bytes()


def test_a_typical_report_stays_small_and_a_talkative_policy_cannot_change_that(
    tmp_path: Path, finished_run: Path
) -> None:
    def talk(r: Rollout) -> Rollout:
        return with_text(r, prompt=f"{r.id}<é\n" * 4000, program=f"# {r.id}\n" * 4000)

    assert write_report(finished_run).stat().st_size < 3_000_000
    loud = write_report(build_run(tmp_path, rollout=talk))
    assert loud.stat().st_size < 3_000_000
    assert "not in this file" in loud.read_text(), "what was left out must be named"


def test_nothing_of_single_gate_or_cert_tasks_is_in_it(finished_run: Path) -> None:
    text = write_report(finished_run).read_text()
    assert "secret-cert-task" not in text
    assert "per_task" not in text
    assert "79.7%" in text, "the certified mean is"


def test_the_base_policy_is_named_without_the_folders_of_a_machine(tmp_path: Path) -> None:
    lay = {"path": "/home/somebody/policies/my-base", "sha256": "ab" * 32}
    run = build_run(tmp_path, body=lambda b: b.model_copy(update={"base_policy": lay}) if type(b) is RunOpened else b)
    page = write_report(run).read_text()
    assert "my-base" in page
    assert "/home/somebody" not in page


def test_commands_name_the_run_and_words_between_backticks_are_code(finished_run: Path) -> None:
    text = write_report(finished_run).read_text()
    assert "(<code>evotrainer why quickstart b5</code>" in text, "what to do next"
    assert not re.search(r"evotrainer [a-z-]+ RUN\b", text)
    assert "`" not in re.sub(r"<(script|style|pre|code)\b.*?</\1>", "", text, flags=re.S)


def test_a_table_in_two_columns_keeps_its_tools_in_its_own() -> None:
    """The script puts them before the table: right in the grid they would push it into the other column."""
    for template in (Path(report.__file__).parent / "templates").iterdir():
        assert not re.search(r'class="two">\s*<div class="scroll"', template.read_text()), template.name


def test_it_can_be_written_elsewhere_and_a_bad_place_is_an_error(finished_run: Path, tmp_path: Path) -> None:
    assert write_report(finished_run, tmp_path / "x.html") == tmp_path / "x.html"
    with pytest.raises(StoreError, match="--out"):
        write_report(finished_run, tmp_path / "no" / "such" / "folder.html")
    with pytest.raises(StoreError, match="no run in"):
        write_report(tmp_path)


def test_scripts_are_only_ours_and_the_network_is_forbidden(hostile_run: Path) -> None:
    text = write_report(hostile_run).read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy.group(1)
    assert "unsafe" not in policy.group(1)
    assert len(re.findall(r"<script", text)) == 4, "data and three scripts"
    assert not re.search(r"<img|<svg onload", text.split("<script", 1)[0])


def test_a_report_at_any_moment_of_a_run(tmp_path: Path) -> None:
    for moment in (
        "run",
        "b0-s1/intended",
        "noise/1",
        "r1/opened",
        "r1/diagnosed",
        "r1/proposed",
        "b2/judged",
        "certified",
    ):
        folder = tmp_path / moment.replace("/", "-")
        text = write_report(build_run(folder, until=moment)).read_text()
        assert "Unfinished run" in text, moment
        assert "None" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S), moment


def test_a_damaged_rollout_part_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = build_run(tmp_path, until="r1/proposed")
    part = next((folder / "rollouts" / "b0-s1").glob("part-*.parquet"))
    part.write_bytes(b"PAR1" + b"\0" * 64)
    text = write_report(folder).read_text()
    assert re.search(r"rollouts of [^<]*b0-s1", text)
    assert 'class="ro"' in text


def test_vendored_files_are_the_released_ones() -> None:
    rows = re.findall(r"^\| `([^`]+)`.*`([0-9a-f]{64})` \|$", (VENDOR / "VENDORED.md").read_text(), flags=re.M)
    assert {n for n, _ in rows} == {p.name for p in VENDOR.iterdir()} - {"VENDORED.md"}
    for name, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
