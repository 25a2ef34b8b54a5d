"""`evotrainer status --watch`: shown again while a run is under way, and once where it has ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from tests.cli.call import in_this_process as evotrainer


def test_watching_a_run_that_has_ended_shows_it_once(finished_run: Path) -> None:
    shown = evotrainer("status", str(finished_run), "--watch")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("noise floor of the run") == 1
    assert shown.stdout == evotrainer("status", str(finished_run)).stdout, "with the end of its last line"
    both = evotrainer("status", str(finished_run), "--watch", "--json")
    assert both.returncode == ConfigError.exit_code and "give one of them" in both.stderr


def test_a_run_is_read_again_until_nobody_drives_it(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evotrainer.views import terminal

    drivers, read = iter(["a process", "a process", None]), list[Path]()
    monkeypatch.setattr("evotrainer.cli.status.WATCH_S", 0.0)
    monkeypatch.setattr("evotrainer.views.fold.load_view", lambda *a, **k: SimpleNamespace(driver=next(drivers)))
    render = terminal.render_status

    def again(folder: Path) -> Any:
        read.append(folder)
        return render(folder)

    monkeypatch.setattr(terminal, "render_status", again)
    assert evotrainer("status", str(finished_run), "--watch").returncode == 0
    assert len(read) == 4, "at first, twice while it runs, and as it ended"
