"""`run.checks.room`: what does not fit is refused before anything is spent."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.run.checks import room

WEIGHTS = 1000


@pytest.fixture
def before(tmp_path: Path) -> Any:
    """Three seeds of a model of 1,000 bytes, two side by side."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").write_bytes(bytes(WEIGHTS))
    task = SimpleNamespace(
        executor=SimpleNamespace(name="local"), trainer=SimpleNamespace(name="embedded", options={}),
        run=SimpleNamespace(seeds=(1, 2, 3), workers=2), policy=SimpleNamespace(base="a-model"))  # fmt: skip
    return SimpleNamespace(task=task, fetched=False, base=tmp_path / "base", folder=tmp_path / "runs" / "new")


def found(at: Any, monkeypatch: pytest.MonkeyPatch, disk: int = 10**9, memory: int | None = 10**9) -> list[Any]:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: usage(disk))
    monkeypatch.setattr(room, "memory_free", lambda: memory)
    return list(room.room(at))


def test_a_disk_without_room_is_refused_and_adapters_fit(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(before, monkeypatch, disk=6 * WEIGHTS) == []
    with pytest.raises(ConfigError, match=r"3 trainings .*write .* GB .*trainer.options.lora"):
        found(before, monkeypatch, disk=6 * WEIGHTS - 1)
    before.task.trainer.options = {"lora": {"r": 4}}
    assert found(before, monkeypatch, disk=0) == []


def test_too_little_memory_is_refused_and_too_many_workers_are_noted(
    before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(before, monkeypatch, memory=8 * WEIGHTS) == found(before, monkeypatch, memory=None) == []
    (note,) = found(before, monkeypatch, memory=7 * WEIGHTS)
    assert "set run.workers=1" in note
    with pytest.raises(ConfigError, match="a training of a-model needs .* GB of memory"):
        found(before, monkeypatch, memory=4 * WEIGHTS - 1)


def test_the_group_of_a_container_limits_memory(tmp_path: Path) -> None:
    assert room.memory_free(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9 kB\nMemAvailable:    8 kB\n")
    assert room.memory_free(tmp_path) == 8192
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert room.memory_free(tmp_path) == 8192
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("4096\n")
    assert room.memory_free(tmp_path) == 4096
