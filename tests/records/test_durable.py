"""Why a library could not write, in words that name the disk where the disk is the cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from evotrainer.errors import TaskSetError
from evotrainer.records.durable import disk_trouble, write_trouble

FULL = "the disk is full; free some space"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_named_by_whatever_hit_it(error: Exception, tmp_path: Path) -> None:
    assert FULL in str(write_trouble("policy p", error, tmp_path))


def test_a_library_that_says_nothing_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    assert "file write failed" in str(write_trouble("checkpoint c", error, tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    assert FULL in str(write_trouble("checkpoint c", error, tmp_path))


def test_another_cause_keeps_its_own_words(tmp_path: Path) -> None:
    assert "permission denied" in str(write_trouble("policy p", OSError(errno.EACCES, "no"), tmp_path))
    assert "bad tensor" in str(write_trouble("policy p", ValueError("bad tensor"), tmp_path / "gone"))


def test_a_full_disk_is_known_however_deep_it_lies() -> None:
    outer = TaskSetError("reward function failed; correct it")
    outer.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert disk_trouble(outer) is outer.__cause__
    assert disk_trouble(OSError(errno.ENOENT, "no such file")) is None
    assert disk_trouble(ValueError("x")) is None
