"""`projections.shortcuts`: which environment knobs agents are offered."""

from __future__ import annotations

from pathlib import Path

from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper


def test_agents_are_offered_neither_shortcuts_to_open_nor_honest_tools_to_close(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    from evotrainer.projections.shortcuts import Shortcuts
    from evotrainer.records.verdicts import Capability

    env = quick.start(task, tmp_path / "run", ["run.rounds=0"]).state.environment
    tests = Capability(name="tests", knob="tests", open="shown", closed="hidden", honest=True)
    declared = [*env["capabilities"], tests.model_dump(mode="json")]
    shortcuts = Shortcuts.of(env | {"capabilities": declared, "knobs": {**env["knobs"], "tests": "shown, hidden"}})
    shut, wide = {"key": "other"}, {"key": "answer"}
    assert shortcuts.offered(shut) == {"key": "other"}
    assert shortcuts.offered(wide) == {"key": "other, answer"}
    opened = shortcuts.opened_by(shut, wide)
    assert opened is not None and opened.name == "key" and shortcuts.opened_by(wide, shut) is None
