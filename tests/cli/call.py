"""The command line, called as a user calls it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def evotrainer(
    *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evotrainer.cli", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        input=stdin,
        env={**os.environ, "COLUMNS": "140", **(env or {})},
    )


def in_this_process(
    *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own, which imports for two seconds: for what a command says, not how it
    starts, is ended or writes to a terminal."""
    from evotrainer.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as m, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        m.setattr("evotrainer.cli.obey_signals", lambda: None)
        m.setattr(sys, "argv", ["evotrainer", *args])
        m.setattr(sys, "stdin", io.StringIO(stdin))
        for name, value in {"COLUMNS": "140", **(env or {})}.items():
            m.setenv(name, value)
        if cwd:
            m.chdir(cwd)
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())
