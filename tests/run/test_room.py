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
        run=SimpleNamespace(seeds=(1, 2, 3), workers=2, rounds=0, probes=0, search_only=False),
        policy=SimpleNamespace(base="a-model"))  # fmt: skip
    return SimpleNamespace(task=task, fetched=False, base=tmp_path / "base", folder=tmp_path / "runs" / "new")


def found(at: Any, monkeypatch: pytest.MonkeyPatch, disk: int = 10**9, memory: int | None = 10**9) -> list[Any]:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: usage(disk))
    monkeypatch.setattr(room, "memory_free", lambda: memory)
    return list(room.room(at))


def test_a_disk_without_room_is_refused(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for side in (2, 1):
        before.task.run.workers = side
        need = (3 + 2 * room.CHECKPOINT * side) * WEIGHTS
        assert found(before, monkeypatch, disk=need) == []
        with pytest.raises(ConfigError, match=r"3 trainings .*write .* GB .*trainer.options.lora"):
            found(before, monkeypatch, disk=need - 1)
    before.task.run.rounds, before.task.run.probes, before.task.run.certify_seeds = 2, 5, (4, 5)
    with pytest.raises(ConfigError, match="21 trainings write"):
        found(before, monkeypatch, disk=need)


def test_adapters_are_counted_by_their_numbers(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"model.layers.0.mlp.up_proj.weight": torch.zeros(25, 10)}, before.base / "model.safetensors")
    before.task.trainer.options = {"lora": {"r": 4}}
    need = (3 + 2 * room.CHECKPOINT * 2) * 4 * 4 * (25 + 10)
    assert found(before, monkeypatch, disk=need) == []
    with pytest.raises(ConfigError, match="make room, or choose another --out$"):
        found(before, monkeypatch, disk=need - 1)


@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0\0\0\0\0{", b"\x02\0\0\0\0\0\0\0[]"])
def test_weights_that_were_cut_off_are_named(before: Any, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (before.base / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match="model.safetensors is no whole safetensors file; restore"):
        found(before, monkeypatch)


def test_too_little_memory_is_refused_and_too_many_workers_are_noted(
    before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = round(room.IN_MEMORY * WEIGHTS)
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
    assert room.shapes(adapter) == {"a": [5], "w": [25, 10]}
