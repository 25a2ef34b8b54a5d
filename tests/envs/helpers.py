"""What the tests of environments share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs.base import Score, Task
from evotrainer.envs.code.env import CodeEnv


def grade(env: CodeEnv, tasks: Sequence[Task], texts: Sequence[str], **knobs: Any) -> list[Score]:
    """Scores of one completion per task."""
    episodes = [env.reset(t, knobs) for t in tasks]
    env.step(episodes, texts, ["stop"] * len(episodes))
    return env.score(episodes)


def shared_data(*parts: str) -> Path:
    """A file of the shared data beside the repository; skips where there is none."""
    for folder in Path(__file__).resolve().parents:
        found = folder.parent.joinpath("shared", "data", *parts)
        if found.is_file():
            return found
    pytest.skip(f"{'/'.join(parts)} not found in ../shared/data beside the repository")


def jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path
