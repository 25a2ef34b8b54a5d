"""`run.checks.room`: what does not fit is refused before anything is spent."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from evotrainer.errors import ConfigError
from evotrainer.run.checks import room

WEIGHTS = 1000
"""Bytes in fp32, of 250 numbers."""


@pytest.fixture
def before(tmp_path: Path) -> Any:
    """Three seeds of a model of 250 numbers in bf16, two side by side."""
    (tmp_path / "base").mkdir()
    save_file({"w": torch.zeros(25, 10, dtype=torch.bfloat16)}, tmp_path / "base" / "model.safetensors")
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
    for side in (2, 1):
        before.task.run.workers = side
        need = (3 + 2 * room.CHECKPOINT * side) * WEIGHTS
        assert found(before, monkeypatch, disk=need) == []
        with pytest.raises(ConfigError, match=r"3 trainings .*write .* GB .*trainer.options.lora"):
            found(before, monkeypatch, disk=need - 1)
    before.task.trainer.options = {"lora": {"r": 4}}
    assert found(before, monkeypatch, disk=0) == []


def test_too_little_memory_is_refused_and_too_many_workers_are_noted(
    before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = room.IN_MEMORY * WEIGHTS
    assert found(before, monkeypatch, memory=2 * each) == found(before, monkeypatch, memory=None) == []
    (note,) = found(before, monkeypatch, memory=2 * each - 1)
    assert "set run.workers=1" in note
    with pytest.raises(ConfigError, match="a training of a-model needs .* GB of memory"):
        found(before, monkeypatch, memory=each - 1)


def test_an_adapter_counts_with_its_base(before: Any, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    save_file({"a": torch.zeros(5)}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(before.base)}))
    (before.base / "config.json").write_text("{}")
    assert room.fp32_bytes(adapter) == WEIGHTS + 20


def test_the_group_of_a_container_limits_memory(tmp_path: Path) -> None:
    assert room.memory_free(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9 kB\nMemAvailable:    8 kB\n")
    assert room.memory_free(tmp_path) == 8192
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert room.memory_free(tmp_path) == 8192
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("4096\n")
    (tmp_path / "sys/fs/cgroup/memory.stat").write_text("anon 96\nfile 4000\n")
    assert room.memory_free(tmp_path) == 4000
