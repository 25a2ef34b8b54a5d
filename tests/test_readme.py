"""The README: at most 150 lines, and its commands on a finished run do what they are said to."""

from __future__ import annotations

import re
import shlex
import shutil
import struct
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli import app

pytestmark = pytest.mark.xdist_group("loop")
ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", README, re.M | re.S)
ON_A_RUN = [ln.split(" #")[0].split() for b in BLOCKS for ln in b.splitlines() if " runs/quickstart" in ln]


def test_it_is_short_and_shows_one_picture_of_a_report() -> None:
    assert len(README.splitlines()) <= 150
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    raw = (ROOT / picture).read_bytes()
    width, height = struct.unpack(">II", raw[16:24])
    assert raw.startswith(b"\x89PNG") and len(raw) < 200_000 and width >= 1000 and height >= 500


def test_the_measured_figures_stand_as_they_were_measured() -> None:
    figures = (
        "6 min 41 s",
        "8.9 CPU-minutes",
        "**77.5%** | 74.0 to 81.0 | 94.0%",
        "+26.7 points",
        "+24.2 to +30.2 points",
    )
    for text in figures:
        assert text in README, text
    assert "rules alone find 63% of 122 hacks and flag 0 of 262 honest rollouts" in README
    assert "What it is not." in README and "other last digits" in README


def test_what_is_said_of_detectors_and_bundles_is_so(
    finished: api.Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All detectors read a run under `evotrainer audit`; a bundle is proved whole, a change in it may be unproved."""
    from evotrainer.harness import detectors  # noqa: F401
    from evotrainer.harness.registry import DETECTORS

    built_in = [d for d in DETECTORS.values() if d.function.__module__.startswith("evotrainer.harness.detectors")]
    assert len(built_in) == 34 and "| 34 detectors, with quotes | `evotrainer audit` |" in README
    monkeypatch.setenv("EVOTRAINER_CACHE", str(tmp_path / "cache"))
    app(["health", str(finished.folder)], standalone_mode=False)
    last = capsys.readouterr().out.strip().splitlines()[-1]
    held = next(e.body for e in finished.events() if e.kind == "harness")
    assert held.harness.get("detectors") or f"`evotrainer audit {finished.folder}` reads the rollouts with all" in last
    decides = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")
    for text in (README, decides):
        told = " ".join(text.split())
        assert "proved as a whole" in told and "a caveat" in told.lower().replace("a [caveat]", "a caveat")
        assert "must prove itself" not in told


def test_make_test_is_said_alike() -> None:
    index = " ".join((ROOT / "docs" / "README.md").read_text(encoding="utf-8").split())
    assert "make test           # installs, runs every test but the slow ones\n" in README
    assert "`make test` installs what it needs and runs every test but the slow ones" in index
    assert "-m 'not slow'" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    named = {to.split("#")[0] for to in re.findall(r"\]\(([^)]+)\)", index)}
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or page.name in named, f"{page.name} is not in docs/README.md"
    for folder in (ROOT / "docs").iterdir():
        if folder.is_dir() and folder.name != "domains":
            assert {folder.name, f"{folder.name}/README.md"} & named, f"{folder.name} is not in docs/README.md"
    assert {f"domains/{p.name}" for p in (ROOT / "docs" / "domains").glob("*.md")} <= named


@pytest.mark.timeout(600)
def test_every_command_on_the_quickstarts_run_works_as_it_stands(
    finished: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished.folder, tmp_path / "runs" / "quickstart")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOTRAINER_CACHE", str(tmp_path / "cache"))
    assert len(ON_A_RUN) >= 12
    for command in ON_A_RUN:
        assert command[0] == "evotrainer"
        code = app(command[1:], standalone_mode=False)
        assert not code, (shlex.join(command), code)
        assert capsys.readouterr().out.strip(), f"{shlex.join(command)} said nothing"
    assert (tmp_path / "runs" / "my-model" / "README.md").is_file()
    assert (tmp_path / "runs" / "quickstart" / "report.html").is_file()
    assert {p.name for p in tmp_path.iterdir()} <= {"runs", "cache"}, (
        "git ignores runs/, nothing else is left in a clone"
    )
