"""`cli._running`: a pseudo-terminal answers human gates as a person would."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli._running import parse_answer
from tests.small_run import TINY

pytestmark = pytest.mark.xdist_group("kills")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a", ("APPROVE", "")),
        ("approve", ("APPROVE", "")),
        ("r: try the data first", ("REVISE", "try the data first")),
        ("Revise: lower lr", ("REVISE", "lower lr")),
        ("x", ("ABORT", "")),
        ("r", None),
        ("maybe", None),
        ("", None),
    ],
)
def test_answers_are_read_as_people_type_them(typed: str, meant: tuple[str, str] | None) -> None:
    assert parse_answer(typed) == meant


@pytest.mark.slow
def test_a_person_can_steer_a_run_from_the_terminal(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    args = ["run", str(task_file), f"policy.base={trained_base}", *TINY, "run.autonomy=human_gated"]
    controller, terminal = pty.openpty()
    p = subprocess.Popen(
        [sys.executable, "-m", "evotrainer.cli", *args, "--out", str(folder)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        start_new_session=True,
    )
    os.close(terminal)
    answers = ["what?", "a", "r: leave the rewards alone", "a", "a"]
    seen = b""
    deadline = time.monotonic() + 280
    try:
        while time.monotonic() < deadline:
            if not select.select([controller], [], [], 1.0)[0]:
                continue
            try:
                seen += os.read(controller, 65536)
            except OSError:  # the terminal was closed: the run is over
                break
            if seen.endswith(b"> ") and b"APPROVE (a)" in seen[-200:]:
                os.write(controller, (answers.pop(0) if answers else "a").encode() + b"\n")
                seen += b"[answered]"
    finally:
        p.kill() if p.poll() is None and time.monotonic() >= deadline else None
        p.wait()
        os.close(controller)
    assert p.returncode == 0, seen[-3000:].decode(errors="replace")
    assert b"please answer a, x, or r:" in seen, "an unclear answer is asked again"
    gates = [(e.body.where, e.body.answer) for e in api.Run(folder).events() if e.kind == "gate"]
    assert gates[:4] == [
        ("diagnosis", "APPROVE"),
        ("intervention", "REVISE"),
        ("intervention", "APPROVE"),
        ("backtest", "APPROVE"),
    ]
    assert b"report: " in seen
